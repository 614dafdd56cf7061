"""A small journal, byte by byte: each kind of frame, two segments, a move, a process's death.

``python -m tests.events.test_golden`` writes ``tests/golden/journal-v1/``, once per format. Afterwards
today's reader reads it, and today's writer reproduces it.
"""

from __future__ import annotations

from pathlib import Path

from ebbtide.events.base import Checkpoint, Stamp
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import FLAG_LAST, RawRecord, decode_record, encode_event
from ebbtide.events.decisions import EpisodeClosed, PodEnded, ReleaseLock, ShutdownBegan
from ebbtide.events.facts import BusLost, DaemonStarted, PrepareForShutdown, Tick
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.events.segment import Chain, Identity, Link, SegmentItem, WriterStart, segment_file_name
from tests.journals import checkpoint, step

GOLDEN = Path(__file__).parent.parent / "golden" / "journal-v1"
LISTING = GOLDEN / "listing.txt"
LOCATIONS = ("main", "fallback")

JOURNAL_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
IDENTITY = Identity("node-1", "3a2f", "b007", "0.1.0", "shutdown-1")
WALL_NS, MONO_NS = 1_700_000_000_000_000_000, 5_000_000_000

STEPS = (
    (DaemonStarted(version="0.1.0", pid=7, mode="process", node="node-1", boot_id="b007", userspace_id="1"),),
    (BusLost(error="gone — später wieder"),),
    (
        PrepareForShutdown(active=True, kind="poweroff", grant_ns=15_000_000_000, lock_held=True),
        ShutdownBegan(
            kind="poweroff",
            grant_ns=15_000_000_000,
            requested_ns=30_000_000_000,
            budget_ns=15_000_000_000,
            deadline_ns=MONO_NS + 15_000_000_000,
            release_by_ns=MONO_NS + 15_000_000_000,
            lock_held=True,
        ),
    ),
    (Tick(), PodEnded(uid="u1", wave=0, outcome="graceful", reason="exited")),
    (Tick(), ReleaseLock(key="LogindActor/ReleaseLock//0")),
    (Tick(), EpisodeClosed(outcome="complete")),
)


class Maker:
    """Lays out a journal; ``files`` has the bytes by location and name."""

    def __init__(self) -> None:
        self.chain = Chain(IDENTITY, WriterStart(JOURNAL_ID, Link(), 1))
        self.files: dict[tuple[str, str], bytes] = {}
        self.location = LOCATIONS[0]
        self._episode = 0

    def lay(self, *items: SegmentItem) -> None:
        for item in items:
            self.put(item.end.segment, item.data)

    def put(self, segment: int, data: bytes) -> None:
        key = self.location, segment_file_name(segment, JOURNAL_ID)
        self.files[key] = self.files.get(key, b"") + data

    def begin(self) -> None:
        seq = self.chain.end.seq + 1
        self.lay(*self.chain.begin_segment(self.stamp(seq)))
        mark = checkpoint(seq, self.stamp(seq), Checkpoint(episode=self._episode))
        self.lay(self.chain.append(mark, max(0, seq - 2)))

    def stamp(self, seq: int) -> Stamp:
        return Stamp(MONO_NS + 1_000_000 * seq, WALL_NS + 1_000_000 * seq)

    def step(self, at: int) -> list[SegmentItem]:
        first = self.chain.end.seq + 1
        events = STEPS[at]
        if any(isinstance(event, ShutdownBegan) for event in events):
            self._episode = first
        made = step(*events, first_seq=first, at=self.stamp(first), episode=self._episode)
        return [self.chain.append(record, first - 1) for record in made]


def make() -> dict[tuple[str, str], bytes]:
    """A sealed segment, one with a failing disk, its continuation, one of the next process."""
    maker = Maker()
    maker.begin()
    maker.lay(*maker.step(0), *maker.step(1))
    maker.begin()
    durable = maker.chain.end
    failing = [*maker.step(2), *maker.step(3)]
    maker.lay(*failing[:3])
    maker.location = LOCATIONS[1]
    data, moved = maker.chain.carry(durable, [*failing, *maker.chain.begin_segment(maker.stamp(20))])
    maker.put(moved[-1].end.segment, data)
    maker.lay(*maker.step(4))
    whole = maker.chain.end
    maker.lay(*maker.step(5)[:1])
    maker.chain = Chain(IDENTITY._replace(boot_id="b008"), WriterStart(JOURNAL_ID, whole, 5))
    maker.location = LOCATIONS[0]
    maker.begin()
    maker.lay(*maker.step(5), maker.chain.seal())
    return maker.files


def listing(root: Path = GOLDEN) -> str:
    history = History([DirectorySource(root / location) for location in LOCATIONS])
    lines = [_line(raw) for raw in history.raw()]
    return "\n".join([*lines, history.verdict.banner, ""])


def _line(raw: RawRecord) -> str:
    last = " ." if raw.flags & FLAG_LAST else ""
    return (
        f"{raw.seq} {raw.mono_ns} {raw.wall_ns} {raw.episode} {raw.cause} {raw.actor} {raw.tag} "
        f"{raw.payload.hex()} {raw.hash.hex()} {raw.durable_seq}{last}"
    )


def main() -> None:
    for (location, name), data in make().items():
        (GOLDEN / location).mkdir(parents=True, exist_ok=True)
        (GOLDEN / location / name).write_bytes(data)
    LISTING.write_text(listing())


def sources() -> list[DirectorySource]:
    return [DirectorySource(GOLDEN / location) for location in LOCATIONS]


def test_the_writer_still_writes_the_same_bytes() -> None:
    """A changed byte is a new format version with a new golden journal."""
    files = make()
    assert {(location, path.name) for location in LOCATIONS for path in (GOLDEN / location).iterdir()} == set(
        files
    )
    for (location, name), data in files.items():
        assert (GOLDEN / location / name).read_bytes() == data, name


def test_the_reader_still_reads_them() -> None:
    """Every field, the chain, and the verdict."""
    assert listing() == LISTING.read_text()


def test_every_payload_decodes_to_what_encodes_the_same() -> None:
    """Newer fields have defaults that mean 'as before'."""
    for raw in History(sources()).raw():
        assert encode_event(decode_record(raw).event) == raw.payload


def test_the_shutdown_in_it_is_complete() -> None:
    """Begun on one disk, moved to another, closed by the next boot."""
    (episode,) = episodes(History(sources()))
    assert (episode.id, episode.kind, episode.outcome) == ("00112233-5", "poweroff", "complete")
    assert episode.trace_id == "082e2652c2f91cc6de0ce59ee9cbe9b1"


if __name__ == "__main__":
    main()
