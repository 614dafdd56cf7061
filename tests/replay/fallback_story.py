"""A shutdown by the fallback: two starts failed at the same record."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.events.base import Event
from ebbtide.events.decisions import KillContainer, SendSignal
from ebbtide.events.facts import ContainerExited, OrderEnded, Tick
from tests.journals import started
from tests.replay.shutdown import Book, ended, first_life

#: Some ignore their signal and are killed.
DEAF = ("uid-stuck-0", "uid-db-0")


def third_start(book: Book) -> Iterator[tuple[int, Event]]:
    yield 800, started("boot-1", preparing=True, failed_starts=2)
    for _ in range(40):
        for opened in list(book.system.open_orders.values()):
            order = opened.order
            yield 1, ended(order.key)
            if isinstance(order, KillContainer) or (isinstance(order, SendSignal) and order.uid not in DEAF):
                yield 5, ContainerExited(uid=order.uid, container=order.container, exit_code=0)
        due_ns = book.system.next_deadline_ns()
        if due_ns is None:
            return
        yield max(0, due_ns - book.now_ns + 999_999) // 1_000_000, Tick()


def write() -> Book:
    book = Book()
    book.process("boot-1", _without_answers(first_life()))
    book.process("boot-1", third_start(book))
    return book


def _without_answers(facts: Iterator[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
    """Up to the plan: no order has an outcome yet."""
    for after_ms, fact in facts:
        if isinstance(fact, OrderEnded) and fact.key.startswith("HookActor/"):
            return
        yield after_ms, fact
