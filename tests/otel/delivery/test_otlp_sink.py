"""The journal's way to a back end: retries and sizes, the cursor, the durable part, the follower's process.

`Sending` runs on the mock clock, the follower against our collector.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from benchmarks.episodes import lay_out
from ebbtide import follower, side_process
from ebbtide.daemon import _trim_journal
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Stamp
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.disk import DirectoryStorage, Limits
from ebbtide.events.reader import History
from ebbtide.events.segment import Chain, segment_file_name
from ebbtide.follower import follow
from ebbtide.otel import cursor as cursors
from ebbtide.otel import sending
from ebbtide.otel.cursor import Cursor
from ebbtide.otel.destination import Destination
from ebbtide.otel.otlp import sender_for
from ebbtide.otel.otlp_sink import BATCH_SPANS_MAX, OtlpSink, SpanSender, Tail
from ebbtide.otel.sending import GIVE_UP_SECONDS, Accepted, Again, Answer, GaveUp, Rejected, Sending
from ebbtide.otel.span import Resource, Span
from ebbtide.side_process import EXIT_KEPT, EXIT_WRONG, OtlpJob, encode_line
from ebbtide.tracing import TracingEdge
from tests.backends.compare import shutdowns
from tests.daemon.test_tracing import Journal, Outlet
from tests.events.making import IDENTITY, running, stamp, step, write_steps
from tests.journals import JOURNAL_ID
from tests.otel.delivery.collector import Collector, collecting
from tests.otel.delivery.spans import RESOURCE, spans

# --- sending again


class Script:
    """A scripted transport: the last answer repeats. It takes so many spans in one request."""

    def __init__(self, clock: MockClock, *answers: Answer, takes_spans: int = 10_000) -> None:
        self.clock, self.answers, self.takes_spans = clock, list(answers), takes_spans
        self.sent: list[tuple[float, list[Span]]] = []
        self.settled: list[Span] = []
        self.losses: list[int] = []
        self.troubles: list[str] = []

    async def send(self, batch: Sequence[Span], resource: Resource) -> Answer:
        self.sent.append((self.clock.current_time(), list(batch)))
        await trio.lowlevel.checkpoint()
        if len(batch) > self.takes_spans:
            return Rejected("too large", too_large=True)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def close(self) -> None:
        """Nothing to close."""

    async def deliver(self, count: int) -> list[int]:
        """The sizes of the requests."""
        again = Sending(self.troubles.append, draw=lambda: 1.0)
        sender = SpanSender(self, again, self.settled.extend, lambda number, *_: self.losses.append(number))
        await sender.deliver(spans(count), RESOURCE)
        return [len(batch) for _, batch in self.sent]


async def test_the_pauses_double_up_to_a_limit(autojump_clock: MockClock) -> None:
    """The same bytes each time; a longer Retry-After wins."""
    script = Script(autojump_clock, *[Again("busy")] * 8, Again("busy", 70 * NS_PER_SECOND), Accepted())
    await script.deliver(3)
    pauses = [round(later - at, 6) for (at, _), (later, _) in pairwise(script.sent)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 70]
    assert all(batch == spans(3) for _, batch in script.sent)
    assert script.troubles == ["busy", ""]


async def test_after_a_while_it_gives_up(autojump_clock: MockClock) -> None:
    """The spans are kept, with the last failure as reason."""
    script, began = Script(autojump_clock, Again("down")), autojump_clock.current_time()
    with pytest.raises(GaveUp, match="down"):
        await script.deliver(1)
    assert GIVE_UP_SECONDS - 30 <= autojump_clock.current_time() - began <= GIVE_UP_SECONDS
    assert script.settled == []


async def test_requests_are_cut_by_number_and_by_size(autojump_clock: MockClock) -> None:
    """At most 512 spans and the back end's size. A span that is too large by itself is lost, not repeated."""
    assert await Script(autojump_clock, Accepted()).deliver(2 * BATCH_SPANS_MAX + 1) == [
        BATCH_SPANS_MAX,
        BATCH_SPANS_MAX,
        1,
    ]
    large = Script(autojump_clock, Accepted(), takes_spans=30)
    assert await large.deliver(100) == [100, 50, 25, 25, 25, 25]
    assert large.settled == spans(100)
    none = Script(autojump_clock, Accepted(), takes_spans=0)
    await none.deliver(2)
    assert (none.losses, none.settled) == ([1, 1], spans(2))


# --- the cursor

UNUSABLE = [
    b"", b"{", b"[]", b'{"format": 2, "journal": "x"}', b"\xff" * 300_000,
    b'{"journal":"ab\xff\xfe","seq":3}', b'{"journal":"x","seq":1e999}', b'{"journal":"\xed\xa0\x80"}',
]  # fmt: skip


@pytest.mark.parametrize("content", UNUSABLE)
def test_a_cursor_that_cannot_be_used_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    """An invalid cursor repeats everything and loses no record."""
    (tmp_path / cursors.FILE_NAME).write_bytes(content)
    assert cursors.load(tmp_path) is None
    assert cursors.keep_from([tmp_path], bytes(16), 10**9) == 1


def test_the_cursor_says_what_retention_must_keep(tmp_path: Path) -> None:
    """The most advanced location counts; a foreign journal's cursor keeps everything."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    journal = bytes(range(16))
    cursors.save(tmp_path / "a", Cursor(journal=journal.hex(), seq=5, from_seq=3, wall_ns=1))
    cursors.save(tmp_path / "b", Cursor(journal=journal.hex(), seq=9, from_seq=8, wall_ns=2))
    places = [tmp_path / "a", tmp_path / "b", tmp_path / "none"]
    assert cursors.keep_from(places, journal, 9) == 8
    assert cursors.keep_from(places, bytes(16), 9) == 1


# --- old segments stay while their spans are not delivered

SMALL = Limits(total_bytes=1)


class Writer:
    away, synced_seq, journal_id = False, 10**6, JOURNAL_ID


async def test_an_undelivered_segment_stays_up_to_the_hard_cap(tmp_path: Path) -> None:
    """The cursor decides; without one keep everything; above the cap no segment is needed."""
    storage = DirectoryStorage(tmp_path)
    edge = TracingEdge(Destination(endpoint="http://localhost:1/"), [str(tmp_path)], Writer(), print)
    begins = []
    async with running([storage]) as writer:
        for _ in range(3):
            await write_steps(writer, 2, synced=True)
            writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))
            begins.append(writer.last_seq)
        await writer.wait_synced(writer.last_seq)
        assert await _trim_journal([storage], SMALL, edge, None) == []
        cursors.save(tmp_path, Cursor(journal=JOURNAL_ID.hex(), seq=begins[0], from_seq=begins[0] + 1))
        assert len(await _trim_journal([storage], SMALL, edge, None)) == 1
        assert await _trim_journal([storage], SMALL, edge, 1) == []
        assert len(await _trim_journal([storage], SMALL._replace(hard_bytes=1), edge, None)) == 2
    assert edge._wanted.is_set()


# --- the durable part


def given(tail: Tail) -> list[int]:
    return [raw.seq for batch in tail.read(10_000) for raw in batch.records]


async def test_what_is_not_synced_is_held_back(tmp_path: Path) -> None:
    """A power cut could revoke unsynced records, and with them their spans."""
    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        await writer.wait_synced(writer.last_seq)
        await write_steps(writer, 2, synced=True)
        tail = Tail([storage.source])
        first = given(tail)
        assert first == list(range(1, len(first) + 1))
        assert len(first) < writer.last_seq
        tail.learn(writer.synced_seq)
        assert first + given(tail) == list(range(1, writer.synced_seq + 1))
        assert given(tail) == []


async def test_what_is_synced_in_memory_only_is_not_durable(tmp_path: Path) -> None:
    """A memory-only location is no proof, whatever its frames claim."""
    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        await write_steps(writer, 3, synced=True)
        lasting = Tail([storage.source])
        volatile = Tail([storage.source], volatile=(str(tmp_path),))
        assert given(lasting)
        assert given(volatile) == []


async def test_a_daemon_that_died_in_a_step_leaves_no_trace_of_it(tmp_path: Path) -> None:
    """The step is held back: none of its orders was released. The next process continues before it."""
    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        await write_steps(writer, 1, synced=True)
        whole = writer.last_seq
        writer.append(step(writer.last_seq + 1, whole=False))
        await writer.wait_synced(writer.last_seq)
        tail = Tail([storage.source])
        tail.learn(writer.last_seq)
        assert given(tail) == list(range(1, whole + 1))
    await storage.release()
    verdict = History([storage.source]).read()
    async with running([DirectoryStorage(tmp_path)], verdict.start(bytes(16))) as writer:
        await write_steps(writer, 1, synced=True)
        tail.learn(writer.last_seq)
        assert given(tail) == list(range(whole + 1, writer.last_seq + 1))


# --- following


class Bed:
    """A journal of some shutdowns, and the follower's log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lay_out(folder, 6, 3)
        self.said: list[str] = []

    def log(self, level: int, text: str) -> None:
        self.said.append(text)

    def well(self, reason: str) -> None:
        """Ignored."""

    async def export(self) -> tuple[Collector, str]:
        collector = Collector()
        async with collecting(collector):
            sender = sender_for(Destination(endpoint=f"{collector.endpoint}/v1/traces"))
            keep = partial(cursors.save, str(self.folder))
            sink = OtlpSink(Tail([DirectorySource(self.folder)]), sender, self, keep, lambda: self.cursor)
            reason = await follow(sink, self.log)
        return collector, reason

    @property
    def cursor(self) -> Cursor | None:
        return cursors.load(self.folder)

    def spans(self) -> dict[tuple[bytes, bytes], Span]:
        made = (span for shutdown in shutdowns(self.folder) for span in shutdown.spans)
        return {(span.trace_id, span.span_id): span for span in made}


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr(OtlpSink, "idle_seconds", 0.05)
    monkeypatch.setattr(follower, "LOOK_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(sending, "BACKOFF_FIRST_SECONDS", 0.001)
    return Bed(tmp_path)


async def test_everything_is_sent_once_and_it_goes(bed: Bed) -> None:
    collector, reason = await bed.export()
    assert (collector.spans.keys(), reason) == (bed.spans().keys(), "")
    assert bed.cursor is not None
    assert bed.cursor.seq >= max(span.seq for span in bed.spans().values())
    again, _ = await bed.export()
    assert again.got == []


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
async def test_only_what_is_before_damage_is_sent(bed: Bed, share: float) -> None:
    """One bit is wrong in a segment that another one continues. The same spans as the command, one log line,
    and the cursor before the damage.
    """
    start = History([DirectorySource(bed.folder)]).read().start(bytes(16))
    second = Chain(IDENTITY, start).begin_segment(Stamp(0, 0))
    file, name = min(bed.folder.glob("*.ebj")), segment_file_name(start.number, start.journal_id)
    (bed.folder / name).write_bytes(b"".join(item.data for item in second))
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 1
    file.write_bytes(data)
    collector, reason = await bed.export()
    assert collector.spans.keys() == bed.spans().keys()
    assert "is damaged behind record" in reason
    assert len([each for each in bed.said if "damaged" in each]) == 1
    last = History([DirectorySource(bed.folder)]).path.segments[-1].header
    assert bed.cursor is not None
    assert last is not None
    assert bed.cursor.seq < last.link.seq


# --- the follower's process

NOWHERE = "https://localhost:1/v1/traces"
JOBS = [
    (
        OtlpJob(destination=Destination(endpoint=NOWHERE), locations=("/nowhere/at/all",)),
        EXIT_KEPT,
        "cannot be read",
    ),
    (
        OtlpJob(destination=Destination(endpoint=NOWHERE, certificate="/nowhere.pem"), locations=("/tmp",)),
        EXIT_WRONG,
        "nowhere.pem",
    ),
]


@pytest.mark.parametrize("job, code, words", JOBS)
def test_what_is_in_the_way_is_a_line_and_a_code(job: OtlpJob, code: int, words: str) -> None:
    """No traceback, and not the code of one."""
    argv = [sys.executable, "-P", "-m", "ebbtide.follower"]
    done = subprocess.run(argv, input=encode_line(job), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (code, b"")
    assert words in done.stdout.decode()


@pytest.mark.parametrize(
    "code, starts", [(1, side_process.CRASHES_MAX + 1), (EXIT_KEPT, 1), (EXIT_WRONG, 1), (-9, 4)]
)
async def test_only_crashes_are_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, starts: int,
    autojump_clock: MockClock,
) -> None:  # fmt: skip
    """A traceback restarts soon, a few times; an exporter's own error waits."""
    lay_out(tmp_path, 1, 1)
    edge = TracingEdge(Destination(endpoint="http://localhost:1/"), [str(tmp_path)], Journal(tmp_path), print)
    lives = []

    async def live() -> int:
        lives.append(code)
        await trio.sleep(1)
        return code

    monkeypatch.setattr(edge, "_live", live)
    edge.want()
    with trio.move_on_after(side_process.AGAIN_SECONDS / 2):
        await edge.run(Outlet())
    assert len(lives) == starts
