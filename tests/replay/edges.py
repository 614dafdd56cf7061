"""Shutdowns with facts exactly on the borders of the logic's comparisons: the second golden story.

    python -m tests.replay.edges tests/golden/edges-v1     # when the logic or the format has changed

A grant that just suffices, a wave of no seconds, a hook as long as its grace, a pod that ends at its wave's
deadline, ticks in their due nanosecond; a boot that ends in its first wave, a cancel, and a fallback with
pods that survive SIGKILL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from ebbtide.actors.logind import OPERATION_IN_PROGRESS
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Order
from ebbtide.events.decisions import KillContainer, RunHook, SendSignal, TakeAutopsy, TakeInventory
from ebbtide.events.values import Container, Hook, Period, Pod, ProcessReport, Settings
from tests.journals import pod, started, write_files
from tests.replay.shutdown import Book, ended

#: Exactly the grant with the 5 s reserve; one wave has no time.
WAVES = (Period(priority=0, seconds=4), Period(priority=1000, seconds=0), Period(priority=2000, seconds=6))
GRANT_NS = 15 * NS_PER_SECOND
SETTINGS = Settings(by_pod_priority=WAVES)

#: These ignore their signal, or SIGKILL too; these hooks never end.
DEAF, UNDYING, HANGING = ("deaf", "late-deaf"), ("undying",), ("hanging",)
#: The runtime fails for these.
REFUSED = ("refused",)

Facts = Iterator[tuple[int, Event]]


def hooked(kind: str, seconds: int = 0) -> Container:
    return Container(name="main", hook=Hook(kind=kind, detail="drain", sleep_seconds=seconds))  # type: ignore[arg-type]


PODS = (
    pod("edge"),
    pod("deaf", 0, Container(name="proxy", sidecar=True), Container(name="main")),
    pod("no-nap", 0, hooked("sleep", 0)),
    pod("long-nap", 0, hooked("sleep", 4)),
    pod("longer-nap", 0, hooked("sleep", 5)),
    pod("hanging", 0, hooked("exec")),
    pod("socket", 0, hooked("tcpSocket")),
    pod("short", 0, grace=2),
    pod("none", 0, hooked("exec"), grace=0),
    pod("zero", 1000, hooked("exec")),
    pod("undying", 2000, grace=6),
    pod("last", 2000, Container(name="main", stop_signal="SIGQUIT")),
)


class Life:
    """A process that answers orders, and ticks exactly when due."""

    def __init__(self, book: Book, pods: tuple[Pod, ...] = PODS) -> None:
        self.book, self.pods = book, pods
        #: Results of listings, before they are done.
        self.listings: list[str] = []
        #: Only a refreshed inventory has them.
        self.new: tuple[Pod, ...] = ()
        self._left: dict[str, None] = {}

    def start(self, boot: str, *, preparing: bool = False, failed_starts: int = 0) -> Facts:
        yield 1, started(boot, preparing=preparing, failed_starts=failed_starts)
        yield 1, f.SettingsLoaded(settings=SETTINGS)
        yield 1, f.LogindRead(owner=":1.4", grant_ns=GRANT_NS, preparing=preparing)
        yield 1, f.DropInsRead(others_ns=GRANT_NS)
        yield from self.answers()

    def signal(self) -> Facts:
        yield 60_000, f.PrepareForShutdown(active=True, kind="poweroff", grant_ns=GRANT_NS, lock_held=True)
        yield from self.answers()

    def until(self, seconds: int) -> Facts:
        """Answer and tick for so many seconds."""
        end_ns = self.book.now_ns + seconds * NS_PER_SECOND
        while (due_ns := self.book.system.next_deadline_ns()) is not None and due_ns <= end_ns:
            yield self._ms_to(due_ns), f.Tick()
            yield from self.answers()
        yield from self.idle(end_ns)

    def idle(self, end_ns: int) -> Facts:
        if end_ns > self.book.now_ns:
            yield self._ms_to(end_ns), f.HurryRequested(pod="nobody", asked_by=0)

    def _ms_to(self, at_ns: int) -> int:
        return max(0, -(-(at_ns - self.book.now_ns) // 1_000_000))

    def answers(self) -> Facts:
        """Answers to the open orders, in order, until none is due."""
        while orders := [
            opened.order
            for opened in self.book.system.open_orders.values()
            if opened.order.key not in self._left
        ]:
            yield from self._answer(orders[0])

    def _answer(self, order: Order) -> Facts:
        name = getattr(order, "uid", "").removeprefix("uid-")
        if isinstance(order, RunHook) and name in HANGING:
            self._left[order.key] = None
            return
        if isinstance(order, TakeInventory) and self.listings:
            yield 1, ended(order.key, self.listings.pop(0), "gone")
            return
        if isinstance(order, TakeInventory):
            yield from self._inventory(order)
        if isinstance(order, TakeAutopsy):
            yield 0, self._autopsy(order)
        failed = isinstance(order, SendSignal | KillContainer) and name in REFUSED
        yield 0, ended(order.key, "failed" if failed else "done", "no such container" if failed else "")
        if failed:
            return
        if isinstance(order, SendSignal) and name not in (*DEAF, *UNDYING, "edge"):
            yield 100, f.ContainerExited(uid=order.uid, container=order.container, exit_code=0)
        if isinstance(order, KillContainer) and name not in UNDYING:
            yield 0, f.ContainerExited(uid=order.uid, container=order.container, signal="SIGKILL")

    def _inventory(self, order: TakeInventory) -> Facts:
        pods = self.pods + (self.new if order.refresh else ())
        half = len(pods) // 2
        for part, found in enumerate((pods[:half], pods[half:]), 1):
            yield (
                1,
                f.InventoryTaken(key=order.key, as_of_ns=1, source="process", part=part, parts=2, pods=found),
            )

    def _autopsy(self, order: TakeAutopsy) -> f.AutopsyTaken:
        report = ProcessReport(
            pid=70, parent_pid=7, command="x", state="sleeping", signals_ignored=("SIGTERM",)
        )
        return f.AutopsyTaken(uid=order.uid, container=order.container, processes=(report,))


def whole(life: Life) -> Facts:
    """Every wave completes; a pod ends in the deadline's nanosecond; late pods come in and before it."""
    yield from life.start("boot-1")
    yield from life.signal()
    yield 900, f.PodAppeared(pod=pod("late-deaf"))
    yield from life.answers()
    yield 0, f.PodAppeared(pod=pod("late-last", 2000))
    yield from life.answers()
    yield from life.until(2)
    ms_left = life._ms_to(_wave_deadline_ns(life.book))
    yield ms_left, f.Tick()
    yield 0, f.ContainerExited(uid="uid-edge", container="main", exit_code=0)
    yield from life.answers()
    yield 0, f.PodAppeared(pod=pod("late-zero", 1000))
    yield 0, f.HurryRequested(pod="shop/last", asked_by=1000)
    yield from life.answers()
    yield from life.until(20)


def _wave_deadline_ns(book: Book) -> int:
    slot = book.system.slots[("WaveActor", "0")]
    deadline_ns: int = slot.state.deadline_ns  # type: ignore[attr-defined]  # it is a WaveState
    return deadline_ns


def cut_in_the_first_wave(life: Life) -> Facts:
    yield from life.start("boot-2")
    yield from life.signal()
    yield 500, f.HurryRequested(pod="deaf", asked_by=0)
    yield from life.answers()


def cut_before_any(life: Life) -> Facts:
    yield from life.start("boot-3")
    yield 1, f.PrepareForShutdown(active=True, kind="reboot", grant_ns=GRANT_NS, lock_held=True)


def cancelled(life: Life) -> Facts:
    yield from life.start("boot-4")
    yield from life.signal()
    yield 1000, f.PreparingRead(preparing=False)
    yield from life.answers()
    yield from life.until(10)


def released_by_hand(life: Life) -> Facts:
    yield from life.signal()
    yield 10, f.ReleaseRequested(asked_by=0)
    yield from life.answers()
    yield from life.until(3)


def resumed_in_fallback(life: Life) -> Facts:
    yield from life.start("boot-5", preparing=True, failed_starts=2)
    yield from life.until(20)


def begun(life: Life) -> Facts:
    yield from life.start("boot-5")
    yield from life.signal()


def elastic(life: Life) -> Facts:
    """An elastic budget; a second signal moves the deadline, another comes in the first one's moment."""
    yield from life.start("boot-6")
    yield 1, f.SettingsLoaded(settings=replace(SETTINGS, budget="elastic"))
    yield 1, f.LogindRead(owner=":1.4", grant_ns=0, preparing=False)
    yield from life.answers()
    yield 1, f.LogindRead(owner=":1.4", grant_ns=GRANT_NS, preparing=False)
    yield from life.answers()
    yield from life.signal()
    yield 0, f.PrepareForShutdown(active=True, kind="poweroff", grant_ns=GRANT_NS, lock_held=True)
    yield 700, f.PrepareForShutdown(active=True, kind="poweroff", grant_ns=GRANT_NS // 2, lock_held=True)
    yield from life.answers()
    yield from life.until(20)


#: Early pods, which leave time to the next wave.
QUICK = (pod("web"), pod("long-nap", 0, hooked("sleep", 2)), pod("db", 2000), pod("cache", 2000, grace=8))


def unused(life: Life) -> Facts:
    """An elastic budget with unused time, and a configuration for other files."""
    yield from life.start("boot-6")
    yield 1, f.SettingsLoaded(settings=replace(SETTINGS, budget="elastic"))
    yield from life.answers()
    yield from life.signal()
    yield from life.until(20)


def listed_late(life: Life) -> Facts:
    """A refreshed inventory adds pods to past, running and future waves."""
    yield from life.start("boot-6")
    yield from life.signal()
    yield from life.until(20)


def drop_ins(life: Life) -> Facts:
    """A too small limit: the drop-in is written, fails, is retried, and is removed when unneeded."""
    yield 1, started("boot-9", preparing=False)
    yield 1, f.SettingsLoaded(settings=SETTINGS)
    yield 1, f.LogindRead(owner=":1.4", grant_ns=5 * NS_PER_SECOND, preparing=False)
    yield 1, f.DropInsRead(others_ns=5 * NS_PER_SECOND)
    for result in ("failed", "done"):
        for key in [key for key in life.book.system.open_orders if "/drop-in/" in key]:
            yield 1, f.DropInsRead(others_ns=6 * NS_PER_SECOND)
            yield 1, ended(key, result)
        yield from life.until(70)
    yield 1, f.DropInsRead(others_ns=6 * NS_PER_SECOND, ours_ns=GRANT_NS)
    yield 1, f.LogindRead(owner=":1.4", grant_ns=GRANT_NS, preparing=False)
    yield 1, f.SettingsLoaded(settings=Settings())
    yield from life.answers()
    yield 1, f.DropInsRead(others_ns=6 * NS_PER_SECOND)


def unarmed(life: Life) -> Facts:
    """Arming fails, is unknown, or is late; disabled and enabled again."""
    yield 1, started("boot-7", preparing=False)
    yield 1, f.SettingsLoaded(settings=SETTINGS)
    yield 1, ended(next(iter(life.book.system.open_orders)), "failed", "no bus")
    yield from life.until(3)
    yield 1, f.SettingsLoaded(settings=Settings())
    yield from life.answers()
    yield 1, f.SettingsLoaded(settings=SETTINGS)
    arm = [key for key in life.book.system.open_orders if "/arm/" in key]
    yield 1, f.SettingsLoaded(settings=Settings())
    for key in arm:
        yield 1, ended(key, "unknown")
    yield 1, f.SettingsLoaded(settings=SETTINGS)
    for key in [key for key in life.book.system.open_orders if "/arm/" in key]:
        yield 1, ended(key, "failed", OPERATION_IN_PROGRESS)
    yield from life.answers()
    yield from life.until(3)


def led(life: Life, *, after: Facts, listings: tuple[str, ...] = ()) -> Facts:
    """The fallback takes over before the plan and lists the pods itself."""
    life.listings = list(listings)
    yield from life.start("boot-8", preparing=True, failed_starts=2)
    yield from after
    yield from life.until(20)


def unplanned(life: Life) -> Facts:
    """Up to the signal, without runtime answers."""
    yield from life.start("boot-8")
    yield 60_000, f.PrepareForShutdown(active=True, kind="poweroff", grant_ns=GRANT_NS, lock_held=True)


def hurried(life: Life) -> Facts:
    yield 100, f.HurryRequested(pod="shop/deaf", asked_by=0)
    yield 0, f.HurryRequested(pod="nobody", asked_by=0)
    yield from life.answers()
    yield 100, f.PrepareForShutdown(active=True, kind="poweroff", grant_ns=GRANT_NS // 2, lock_held=True)
    yield from life.answers()


def called_off(life: Life) -> Facts:
    yield 100, f.PreparingRead(preparing=False)
    yield from life.answers()
    yield 100, f.PodAppeared(pod=pod("late-deaf"))
    yield from life.answers()


def let_go(life: Life) -> Facts:
    yield 100, f.ReleaseRequested(asked_by=0)
    yield from life.answers()
    yield 0, f.ContainerExited(uid="uid-edge", container="main", exit_code=0)


def started_again(life: Life) -> Facts:
    """A new start of the same shutdown finds it cancelled."""
    yield from life.start("boot-8", preparing=False)


def nothing(life: Life) -> Facts:
    yield from ()


#: Events of a leading fallback, and its listings' outcomes.
LED: tuple[tuple[Callable[[Life], Facts], tuple[str, ...]], ...] = (
    (hurried, ("unknown", "failed")),
    (called_off, ("failed",)),
    (let_go, ("unknown", "unknown")),
    (started_again, ()),
    (nothing, ("failed", "failed")),
    (nothing, ("unknown", "failed", "failed")),
)


def write() -> Book:
    """Eight boots; in two the last process takes over."""
    book = Book()
    book.process("boot-1", whole(Life(book)))
    book.process("boot-2", cut_in_the_first_wave(Life(book)))
    book.process("boot-3", cut_before_any(Life(book)))
    book.process("boot-4", _both(Life(book)))
    book.process("boot-5", begun(Life(book)))
    book.process("boot-5", resumed_in_fallback(Life(book)))
    book.process("boot-6", elastic(Life(book)))
    book.process("boot-6", unused(Life(book, QUICK)))
    late = Life(book, (*QUICK, pod("refused")))
    late.new = (pod("new-web"), pod("new-zero", 1000), pod("new-db", 2000))
    book.process("boot-6", listed_late(late))
    only = Life(book, QUICK[:2])
    only.new = (pod("new-db", 2000),)
    book.process("boot-6", listed_late(only))
    book.process("boot-7", unarmed(Life(book)))
    book.process("boot-9", drop_ins(Life(book)))
    for after, listings in LED:
        book.process("boot-8", unplanned(Life(book)))
        life = Life(book)
        book.process("boot-8", led(life, after=after(life), listings=listings))
    return book


def _both(life: Life) -> Facts:
    yield from cancelled(life)
    yield from released_by_hand(life)


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), write().files)
