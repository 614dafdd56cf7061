"""The golden journal of a whole shutdown, with fixed IDs and times.

    python -m tests.replay.shutdown tests/golden/shutdown-v1     # when the logic or the format has changed

Three waves, two boots, a restart in the middle; a failing hook, a sleep cut short, a straggler.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from ebbtide.actors.system import System, take_checkpoint
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Record, Stamp
from ebbtide.events.segment import SHUTDOWN_LOGIC
from ebbtide.events.values import Container, Hook, Period, Pod, ProcessReport, Settings
from tests.journals import IDENTITY, Journal, checkpoint, pod, started, write_files

WALL_NS = 1_700_000_000 * NS_PER_SECOND
WAVES = (Period(priority=0, seconds=10), Period(priority=1000, seconds=5), Period(priority=2000, seconds=5))
GRANT_NS = 25 * NS_PER_SECOND


def pods() -> tuple[Pod, ...]:
    return (
        pod("web-0", 0, Container(name="main", hook=Hook(kind="exec", detail="drain"))),
        pod("web-1", 0, Container(name="main", hook=Hook(kind="sleep", sleep_seconds=4))),
        pod("stuck-0", 0),
        pod("api-0", 1000, Container(name="proxy", sidecar=True), Container(name="main"), grace=3),
        pod("db-0", 2000, Container(name="main", stop_signal="SIGQUIT")),
    )


class Book:
    """Write a system's decisions without a disk, one file per process.

    ``stored``: the next step's frames mark each step durable.
    """

    def __init__(self, logic: str = SHUTDOWN_LOGIC, *, stored: bool = False) -> None:
        self.system = System(logic=logic)
        self.records: list[Record] = []
        self.now_ns = 5 * NS_PER_SECOND
        self._journal, self._stored = Journal(), stored

    @property
    def files(self) -> dict[str, bytes]:
        return {name: bytes(data) for name, data in self._journal.files.items()}

    def process(self, boot: str, facts: Iterator[tuple[int, Event]]) -> None:
        """One process: facts with the milliseconds before each."""
        identity = IDENTITY._replace(boot_id=boot, logic=self.system.logic)
        self._journal.restart(identity).begin(self._stamp())
        self._add([checkpoint(self.system.next_seq, self._stamp(), take_checkpoint(self.system))])
        self.system.next_seq += 1
        for after_ms, fact in facts:
            self.at(self.now_ns + after_ms * 1_000_000, fact)

    def at(self, now_ns: int, fact: Event) -> None:
        self.now_ns = now_ns
        self._add(self.system.step(fact, self._stamp()))

    def _add(self, records: list[Record]) -> None:
        self.records += records
        self._journal.add(*records)
        if self._stored:
            self._journal.durable_seq = records[-1].seq

    def _stamp(self) -> Stamp:
        return Stamp(self.now_ns, WALL_NS + self.now_ns)


def armed(grant_ns: int, arm: int = 0) -> Iterator[tuple[int, Event]]:
    yield 1, f.LogindRead(owner=":1.4", grant_ns=grant_ns, preparing=False)
    yield 1, f.DropInsRead(others_ns=5 * NS_PER_SECOND, ours_ns=grant_ns)
    yield 1, f.OrderEnded(key=f"LogindActor/arm//{arm}", result="done", elapsed_ns=900_000)


def ended(key: str, result: str = "done", reason: str = "") -> f.OrderEnded:
    return f.OrderEnded(key=key, result=result, reason=reason, elapsed_ns=40_000)  # type: ignore[arg-type]


def first_life() -> Iterator[tuple[int, Event]]:
    yield 1, started("boot-1", preparing=False)
    yield 1, f.SettingsLoaded(settings=Settings(by_pod_priority=WAVES), sources={"reserve": "default"})
    yield from armed(GRANT_NS)
    yield 60_000, f.PrepareForShutdown(active=True, kind="reboot", grant_ns=GRANT_NS, lock_held=True)
    yield 1, f.InventoryTaken(key="EpisodeActor/inventory//0", as_of_ns=1, source="process", pods=pods())
    yield 0, ended("EpisodeActor/inventory//0")
    yield 0, ended("NodeStatusActor/announce//0")
    yield 0, ended("HookActor/stop:main/uid-stuck-0/0")
    yield 700, ended("HookActor/hook:main/uid-web-0/0", "failed", "exit code 3")
    yield 0, ended("HookActor/stop:main/uid-web-0/0")
    yield 100, f.ContainerExited(uid="uid-web-0", container="main", exit_code=0)
    yield 500, f.ContainerExited(uid="uid-web-1", container="main", exit_code=0)


def second_life() -> Iterator[tuple[int, Event]]:
    yield 800, started("boot-1", preparing=True)
    yield 0, ended("EpisodeActor/inventory//1", "unknown")
    yield 0, f.SettingsLoaded(settings=Settings(by_pod_priority=WAVES))
    yield 7651, f.Tick()
    yield (
        1,
        f.AutopsyTaken(
            uid="uid-stuck-0",
            container="main",
            processes=(
                ProcessReport(
                    pid=70, parent_pid=7, command="stuck", state="sleeping", signals_ignored=("SIGTERM",)
                ),
            ),
        ),
    )
    yield 0, ended("HookActor/autopsy:main/uid-stuck-0/0")
    yield 249, f.Tick()
    yield 3, f.ContainerExited(uid="uid-stuck-0", container="main", signal="SIGKILL")
    yield 0, ended("HookActor/kill:main/uid-stuck-0/0")
    yield 400, f.ContainerExited(uid="uid-api-0", container="main", exit_code=0)
    yield 300, f.ContainerExited(uid="uid-api-0", container="proxy", exit_code=143)
    yield 900, f.ContainerExited(uid="uid-db-0", container="main", exit_code=0)


def third_life() -> Iterator[tuple[int, Event]]:
    yield 30_000, started("boot-2", preparing=False)
    yield 1, f.SettingsLoaded(settings=Settings(by_pod_priority=WAVES))


def write() -> Book:
    """Two processes of one boot, then the next boot."""
    book = Book()
    book.process("boot-1", first_life())
    book.process("boot-1", _with_statuses(book, second_life()))
    book.process("boot-2", third_life())
    return book


def _with_statuses(book: Book, facts: Iterator[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
    """The facts, with each delivery answered at once."""
    for fact in facts:
        yield fact
        for key in [key for key in book.system.open_orders if "/deliver/" in key or "/release/" in key]:
            yield 2, ended(key)
    for key in [key for key in book.system.open_orders if "/release/" in key]:
        yield 2, ended(key)


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), write().files)
