"""Two shutdowns of one node, with a roll-out and a new configuration between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ebbtide.events.base import NS_PER_SECOND, Event, Order
from ebbtide.events.decisions import FlushTraces, RunHook, SendSignal, TakeInventory
from ebbtide.events.facts import ContainerExited, InventoryTaken, PrepareForShutdown, SettingsLoaded, Tick
from ebbtide.events.values import Period, Pod, Settings
from tests.journals import pod, started, write_files
from tests.replay.shutdown import Book, armed, ended

SECOND_NS = NS_PER_SECOND


BEFORE = (pod("web-6c9f7d8b5-q7zwt", 0, hook="drain"), pod("cache-0", 0), pod("old-0", 0), pod("db-0", 1000))
AFTER = (
    pod("web-5d4f8c7b9-x2k4z", 0, hook="drain"),
    pod("cache-0", 0),
    pod("db-0", 1000),
    pod("new-0", 1000),
)

#: Delay after the order: a hook's end or an exit, by pod name.
BEFORE_MS = {
    "hook web-6c9f7d8b5-q7zwt": 400,
    "web-6c9f7d8b5-q7zwt": 100,
    "cache-0": 200,
    "old-0": 50,
    "db-0": 900,
}
AFTER_MS = {"hook web-5d4f8c7b9-x2k4z": 2_400, "web-5d4f8c7b9-x2k4z": 100, "cache-0": 200, "new-0": 10}


class Answers:
    """One shutdown's facts: each order is answered at its time."""

    def __init__(self, book: Book, pods: Sequence[Pod], after_ms: dict[str, int]) -> None:
        self.book = book
        self.pods = {each.uid: each for each in pods}
        self.after_ms = after_ms
        self.due: list[tuple[int, int, Event]] = []
        self.seen: dict[str, None] = {}

    def facts(self) -> Iterator[tuple[int, Event]]:
        while True:
            for opened in list(self.book.system.open_orders.values()):
                self._look(opened.order)
            deadline_ns = self.book.system.next_deadline_ns()
            self.due.sort(key=lambda each: each[:2])
            if self.due and (deadline_ns is None or self.due[0][0] <= deadline_ns):
                at_ns, _, fact = self.due.pop(0)
            elif deadline_ns is not None:
                at_ns, fact = deadline_ns, Tick()
            else:
                return
            at_ns = max(at_ns, self.book.now_ns)
            yield (at_ns - self.book.now_ns) // 1_000_000, fact

    def _look(self, order: Order) -> None:
        if order.key in self.seen:
            return
        self.seen[order.key] = None
        if isinstance(order, TakeInventory):
            listed = InventoryTaken(
                key=order.key, as_of_ns=0, source="process", pods=tuple(self.pods.values())
            )
            self._put(1, listed)
        name = self.pods[order.uid].name if isinstance(order, RunHook | SendSignal) else ""
        if isinstance(order, FlushTraces):
            name = "traces"
        slow = f"hook {name}" if isinstance(order, RunHook) else name if name == "traces" else ""
        self._put(self.after_ms.get(slow, 1), ended(order.key))
        if isinstance(order, SendSignal) and name in self.after_ms:
            gone = ContainerExited(uid=order.uid, container=order.container, exit_code=0)
            self._put(self.after_ms[name], gone)

    def _put(self, after_ms: int, fact: Event) -> None:
        self.due.append((self.book.now_ns + after_ms * 1_000_000, len(self.seen), fact))


def shutdown(
    book: Book, boot: str, settings: Settings, grant_s: int, pods: Sequence[Pod], after_ms: dict[str, int]
) -> None:
    """One boot: armed, then a reboot."""

    def life() -> Iterator[tuple[int, Event]]:
        yield 1, started(boot, preparing=False)
        yield 1, SettingsLoaded(settings=settings)
        keys = [key for key in book.system.open_orders if "/arm/" in key]
        yield from armed(grant_s * SECOND_NS, int(keys[-1].rpartition("/")[2]))
        yield (
            60_000,
            PrepareForShutdown(active=True, kind="reboot", grant_ns=grant_s * SECOND_NS, lock_held=True),
        )
        yield from Answers(book, pods, after_ms).facts()

    book.process(boot, life())


def write_two(folder: Path) -> Path:
    """The journal's directory. In the second shutdown the hook is slower and the database survives its
    stop.
    """
    book = Book()
    short = (Period(priority=0, seconds=10), Period(priority=1000, seconds=3))
    long = (Period(priority=0, seconds=10), Period(priority=1000, seconds=5))
    shutdown(book, "boot-1", Settings(by_pod_priority=short), 18, BEFORE, BEFORE_MS)
    shutdown(book, "boot-2", Settings(by_pod_priority=long), 12, AFTER, AFTER_MS)
    return write_files(folder, book.files)
