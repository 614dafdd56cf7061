"""Make small journals: consistent records, and segments with a valid chain.

`pod`, `started` and `began` make common events; `step`, `steps` and `checkpoint` make records, `changed` and
`without` edit them; `Journal` lays out segments without a disk, `segment` a journal of one. For tests of the
writer use `tests.events.making`; for a deciding system `tests.replay.shutdown.Book`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Event, Record, Stamp
from ebbtide.events.catalog import DirectorySource, Segment, StoredFile
from ebbtide.events.decisions import ShutdownBegan
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.reader import Batch, History
from ebbtide.events.recovery import Verdict
from ebbtide.events.segment import (
    LOGICS,
    SHUTDOWN_LOGIC,
    Chain,
    Identity,
    Link,
    SegmentItem,
    WriterStart,
    segment_file_name,
)
from ebbtide.events.values import Container, Hook, Pod

#: The journals that are kept. Most tests read the whole shutdown.
GOLDEN = Path(__file__).parent / "golden"
SHUTDOWN = GOLDEN / "shutdown-v1"
DEMO = GOLDEN / "demo-v1"
#: ``ebbtide simulate --synthetic 6 --seed 41``: logind restarts in the middle, and the shutdown is cancelled.
CANCELLED = GOLDEN / "cancelled-v1"

JOURNAL_ID = bytes(range(16))
VERSION = "0.1.0"
IDENTITY = Identity("node-1", "machine-1", "boot-1", VERSION, SHUTDOWN_LOGIC)
NEW = WriterStart(JOURNAL_ID, Link(), 1)

Files = Mapping[str, bytes | bytearray]


# --- what most of them tell of


def pod(
    name: str,
    priority: int | None = 0,
    *containers: Container,
    grace: int | None = 30,
    hook: Hook | str | None = None,
    uid: str = "",
    namespace: str = "shop",
) -> Pod:
    """By default of one container. ``hook``: its preStop hook, or the program that one runs."""
    made = Hook(kind="exec", detail=hook) if isinstance(hook, str) else hook
    return Pod(
        uid=uid or f"uid-{name}",
        namespace=namespace,
        name=name,
        priority=priority,
        grace_seconds=grace,
        containers=containers or (Container(name="main", hook=made),),
    )


def started(boot_id: str = "boot-1", *, preparing: bool = False, **others: Any) -> DaemonStarted:
    """In a boot that goes down, with the lock that the last process left."""
    usual = {"version": "0.1.0", "pid": 7, "mode": "process", "node": "node-1", "userspace_id": boot_id}
    usual |= {"boot_id": boot_id, "preparing": preparing, "lock_inherited": preparing}
    return DaemonStarted(**usual | others)


def began(**others: Any) -> ShutdownBegan:
    """Without a grant: tests of time set one."""
    times = ("grant_ns", "requested_ns", "budget_ns", "deadline_ns", "release_by_ns")
    return ShutdownBegan(**{"kind": "poweroff", "lock_held": True} | dict.fromkeys(times, 0) | others)


# --- records


def step(
    *events: Event,
    first_seq: int,
    at: Stamp,
    episode: int | Sequence[int] = 0,
    decider: str = "EpisodeActor",
    whole: bool = True,
) -> list[Record]:
    """A fact and its decisions. ``episode``: of all, or of each."""
    return [
        Record(
            seq=first_seq + place,
            mono_ns=at.mono_ns,
            wall_ns=at.wall_ns,
            episode=episode if isinstance(episode, int) else episode[place],
            cause=first_seq if place else 0,
            actor=decider if place else "edge",
            last=whole and place == len(events) - 1,
            event=event,
        )
        for place, event in enumerate(events)
    ]


def steps(
    *events: Event,
    first_seq: int = 1,
    since_ns: int = 0,
    every_ns: int = NS_PER_SECOND,
    episode: int | Sequence[int] = 1,
) -> list[Record]:
    """Each event in a step of its own; ``every_ns`` passes before each, from ``since_ns`` on."""
    numbers = [episode] * len(events) if isinstance(episode, int) else episode
    return [
        record
        for seq, (event, number) in enumerate(zip(events, numbers, strict=True), first_seq)
        for record in step(event, first_seq=seq, at=Stamp(*[since_ns + seq * every_ns] * 2), episode=number)
    ]


def checkpoint(seq: int, at: Stamp, state: Checkpoint | None = None) -> Record:
    """A segment's checkpoint. Without ``state`` it has no actors."""
    state = state or Checkpoint(episode=0)
    (record,) = step(state, first_seq=seq, at=at, episode=state.episode)
    return msgspec.structs.replace(record, actor="journal")


def changed(records: Sequence[Record], seq: int, **changes: Any) -> list[Record]:
    """The records with the event of one of them changed."""
    return [
        msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, **changes))
        if record.seq == seq
        else record
        for record in records
    ]


def without(records: Sequence[Record], seq: int) -> list[Record]:
    """The records with one of them taken out, and the others numbered anew; its step still ends."""
    left = [record for record in records if record.seq != seq]
    taken = next(record for record in records if record.seq == seq)
    moved = {record.seq: at for at, record in enumerate(left, 1)}
    return [
        msgspec.structs.replace(
            record,
            seq=moved[record.seq],
            cause=moved.get(record.cause, 0),
            episode=moved.get(record.episode, 0),
            last=record.last or (taken.last and record.seq == seq - 1),
        )
        for record in left
    ]


# --- segments


class Memory:
    """`events.catalog.Source` over bytes."""

    location = "memory"

    def __init__(self, data: Files) -> None:
        self.data = dict(data)

    def files(self) -> list[StoredFile]:
        return [StoredFile(name, len(data), 0) for name, data in sorted(self.data.items())]

    def read(self, name: str, offset: int, size: int) -> bytes:
        if name not in self.data:
            raise FileNotFoundError(name)
        return bytes(self.data[name][offset : offset + size])


class Journal:
    """Segments laid out by hand. ``durable_seq``: the durable number in the next frames."""

    def __init__(
        self,
        identity: Identity = IDENTITY,
        start: WriterStart = NEW,
        files: dict[str, bytearray] | None = None,
    ) -> None:
        self.chain = Chain(identity, start)
        self.files: dict[str, bytearray] = {} if files is None else files
        self.durable_seq = 0

    def begin(self, at: Stamp) -> Self:
        self._lay(*self.chain.begin_segment(at))
        return self

    def add(self, *records: Record) -> Self:
        for record in records:
            self._lay(self.chain.append(record, self.durable_seq))
        return self

    def seal(self) -> Self:
        self._lay(self.chain.seal())
        return self

    def restart(self, identity: Identity) -> Self:
        """Later records are another process's."""
        end = self.chain.end
        self.chain = Chain(identity, WriterStart(self.chain.journal_id, end, end.segment + 1))
        return self

    def data(self, number: int = 1) -> bytearray:
        return self.files[segment_file_name(number, self.chain.journal_id)]

    def history(self, **options: Any) -> History:
        return History([Memory(self.files)], **options)

    def _lay(self, *items: SegmentItem) -> None:
        for item in items:
            name = segment_file_name(item.end.segment, self.chain.journal_id)
            self.files.setdefault(name, bytearray()).extend(item.data)


def segment(
    records: Iterable[Record],
    *,
    identity: Identity = IDENTITY,
    anchor: Stamp | None = None,
    durable: bool = True,
    sealed: bool = False,
    journal_id: bytes = JOURNAL_ID,
) -> dict[str, bytes]:
    """The file's name and its bytes. ``anchor``: of the header, by default the first record's. ``durable``:
    each frame knows all before it to be durable, else none.
    """
    written = list(records)
    made = Journal(identity, WriterStart(journal_id, Link(), 1))
    made.begin(anchor or Stamp(written[0].mono_ns, written[0].wall_ns))
    for record in written:
        made.durable_seq = max(0, record.seq - 1) if durable else 0
        made.add(record)
    if sealed:
        made.seal()
    return {name: bytes(data) for name, data in made.files.items()}


def history(records: Iterable[Record], *, logic: str = SHUTDOWN_LOGIC, version: str = VERSION) -> History:
    """A reader of one segment with these records."""
    identity = IDENTITY._replace(code_version=version, logic=logic)
    files = segment(records, identity=identity, anchor=Stamp(0, 0))
    return History([Memory(files)], logics=LOGICS)


def write_files(folder: Path, files: Files) -> Path:
    """The journal in a folder, which is made; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def records_of(folder: Path) -> list[Record]:
    return list(History([DirectorySource(folder)]).records())


class Remembered(History):
    """A history of earlier batches, which other code may have used."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    @property
    def segments(self) -> tuple[Segment, ...]:
        return ()

    @property
    def journal_id(self) -> bytes:
        return self._batches[0].header.journal_id if self._batches else b""

    @property
    def verdict(self) -> Verdict:
        return Verdict("intact", (), self.journal_id, None, 0, Link(), 0, 0)

    def batches(self) -> Iterator[Batch]:
        return iter(self._batches)
