"""The writer on simulated disks: order, durability, disk failures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ebbtide.events import writer as writer_module
from ebbtide.events.base import Checkpoint, Record
from ebbtide.events.bounds import Bounds
from ebbtide.events.codec import FRAME_BYTES_MAX
from ebbtide.events.decisions import PodEnded, PodsEnded, WaveStarted
from ebbtide.events.disk import disk_waits
from ebbtide.events.facts import BusLost, StorageFailed
from ebbtide.events.recovery import Verdict
from ebbtide.events.writer import LINE_BYTES_MAX, RESERVE_BYTES, transition_line, write_last_resort
from ebbtide.replay.sim.scenario import Draws
from tests.events.making import (
    OTHER_ID,
    Told,
    assert_whole,
    make_writer,
    read,
    rotate,
    running,
    stamp,
    step,
    write_steps,
)
from tests.journals import NEW
from tests.world.disk import Fault, SimulatedDisk, SimulatedFile

BOUNDS = Bounds()


def disk(location: str = "main", seed: int = 1, **options: object) -> SimulatedDisk:
    return SimulatedDisk(location, Draws(seed), **options)  # type: ignore[arg-type]


def seqs(records: list[Record]) -> list[int]:
    return [record.seq for record in records]


@pytest.mark.parametrize("fault", ["eio", "torn", "hang"])
async def test_a_failing_disk_moves_the_journal(fault: Fault, autojump_clock: MockClock) -> None:
    """After any failed operation each record is there once, the chain unbroken over both locations."""
    for operation in range(1, 16):
        await _fails_at(operation, fault, autojump_clock)


async def _fails_at(operation: int, fault: Fault, autojump_clock: MockClock) -> None:
    told, main, other = Told(), disk(faults={operation: fault}), disk("other")
    hashes = []
    async with running([main, other], told=told) as writer:
        for number in range(8):
            hashes += writer.append(step(writer.last_seq + 1, synced=number % 3 == 2))
            if number == 4:
                hashes.append(b"")
                await rotate(writer)
            with trio.move_on_after(0.02):
                await writer.wait_written(writer.last_seq)
        assert await writer.wait_synced(writer.last_seq)
        last = writer.last_seq
    assert_whole([main, other], last)
    if operation < main.operations - 1:
        assert [where for where, _ in told.failed] in (["main"], [])
        assert [where for where, _ in told.moved] in ([], ["main"], ["other"], ["other", "main"])
        assert told.failed or not told.moved


@pytest.mark.parametrize(
    ("syncs", "bound_seconds"), [(False, BOUNDS.disk_seconds), (True, BOUNDS.disk_sync_seconds)]
)
async def test_a_hung_disk_is_given_up_after_its_bound(
    syncs: bool, bound_seconds: float, autojump_clock: MockClock
) -> None:
    """A silent disk counts as failed after its bound; waiting ends."""

    class Hung(SimulatedDisk):
        async def operation(self, file: SimulatedFile | None = None, data: bytes = b"") -> None:
            await super().operation(file, data)
            if file is not None and self.operations > 5 and bool(data) != syncs:
                await trio.sleep_forever()

    told, main, other = Told(), Hung("main", Draws(1)), disk("other")
    async with running([main, other], told=told) as writer:
        began = trio.current_time()
        while not told.moved:
            writer.append(step(writer.last_seq + 1))
            assert await writer.wait_synced(writer.last_seq)
        assert bound_seconds <= trio.current_time() - began <= bound_seconds + 0.3
    assert told.moved[0][0] == "other"


async def test_a_full_disk_goes_on_in_its_reserve(autojump_clock: MockClock) -> None:
    """The reserve continues the journal in place."""
    told = Told()
    main = disk(capacity_bytes=RESERVE_BYTES + 4096)
    async with running([main], told=told) as writer:
        await write_steps(writer, 30)
        assert await writer.wait_synced(writer.last_seq)
    assert_whole([main], 91)
    assert [where for where, _ in told.moved] == ["main"]
    assert "reserve" in told.failed[0][1]


async def test_with_no_storage_left_the_transitions_are_told(autojump_clock: MockClock) -> None:
    """The loss is recorded, waiting ends, and the shutdown's transitions go to the last resort."""
    told, main = Told(), disk(faults={6: "eio"})
    async with running([main], told=told) as writer:
        ended = step(2)
        ended[1] = msgspec.structs.replace(ended[1], event=PodsEnded())
        writer.append(ended)
        assert not await writer.wait_synced(4)
        writer.append(step(5))
        assert not await writer.wait_written(7)
        assert writer.location == ""
    assert len(told.lost) == 1
    assert told.lines == ["ebbtide: 3 2000000 PodsEnded unfinished=0"]


async def test_a_gap_in_the_numbers_is_refused(autojump_clock: MockClock) -> None:
    """The writer takes records in their order only."""
    writer = make_writer([disk()], NEW)
    writer.begin_segment(stamp(1), None)
    with pytest.raises(ValueError, match="record 3 cannot follow record 0"):
        writer.append(step(3))


@pytest.mark.parametrize("power", [False, True])
async def test_a_crash_at_every_operation_loses_nothing_promised(
    power: bool, autojump_clock: MockClock
) -> None:
    """Synced records survive a power cut, written ones our death; the tail is never corrupt."""
    for operation in range(1, 40):
        verdict, promised = await _crash(operation, power, autojump_clock)
        assert verdict.state in ("intact", "torn"), (operation, verdict.banner)
        assert verdict.end.seq >= promised, (operation, verdict.banner)


async def _crash(operation: int, power: bool, autojump_clock: MockClock) -> tuple[Verdict, int]:
    main = disk(seed=operation % 6, faults={operation: "halt"}, latency_microseconds_max=3000)
    promised = 0
    with trio.move_on_after(0.5):
        async with running([main]) as writer:
            for number in range(12):
                writer.append(step(writer.last_seq + 1, synced=number % 4 == 1))
                if number == 6:
                    writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))
                with trio.move_on_after(0.02):
                    await writer.wait_written(writer.last_seq)
                promised = writer.synced_seq if power else writer.written_seq
            await main.halted.wait()
    survivor = main.crash(power=power)
    verdict = read([survivor])[1]
    async with running([survivor], verdict.start(OTHER_ID)) as writer:
        await write_steps(writer, 2)
        assert await writer.wait_synced(writer.last_seq)
        last = writer.last_seq
    assert_whole([survivor.crash(power=True)], last)
    return verdict, promised


async def test_a_slow_sync_moves_nothing(autojump_clock: MockClock) -> None:
    """A busy disk is still the best location; writing continues."""

    class Slow(SimulatedDisk):
        async def operation(self, file: SimulatedFile | None = None, data: bytes = b"") -> None:
            await super().operation(file, data)
            if file is not None and not data:
                await trio.sleep(BOUNDS.disk_sync_seconds * 0.8)

    told, main = Told(), Slow("main", Draws(1))
    async with running([main, disk("other")], told=told) as writer:
        began = trio.current_time()
        await write_steps(writer, 20)
        assert trio.current_time() - began < 0.1
        assert await writer.wait_synced(writer.last_seq)
    assert told.failed == []


async def test_a_later_segment_goes_back_to_the_first_location(autojump_clock: MockClock) -> None:
    """A recovered disk gets everything: after a reboot the fallback is gone."""
    told, main, other = Told(), disk(faults={6: "eio"}), disk("other")
    async with running([main, other], told=told) as writer:
        await write_steps(writer, 3)
        assert await writer.wait_synced(writer.last_seq)
        assert writer.away
        await rotate(writer)
        await trio.testing.wait_all_tasks_blocked()
        assert writer.away
        await rotate(writer)
        await write_steps(writer, 3)
        assert await writer.wait_synced(writer.last_seq)
        assert (writer.away, writer.location) == (False, "main")
        await trio.testing.wait_all_tasks_blocked()
        assert (main.reserved_bytes, other.reserved_bytes) == (RESERVE_BYTES, RESERVE_BYTES)
    assert [where for where, _ in told.moved] == ["other", "main"]
    assert_whole([main.crash(power=True)], 21)


async def test_an_idle_journal_that_is_gone_moves(autojump_clock: MockClock) -> None:
    """What was durable is lost; readers begin at the next checkpoint."""
    told, main, other = Told(), disk(), disk("other")
    async with running([main, other], told=told) as writer:
        await write_steps(writer, 3)
        assert await writer.wait_synced(writer.last_seq)
        main.vanish()
        await trio.testing.wait_all_tasks_blocked()
        assert told.failed == [("main", "[Errno 2] its folder was moved or deleted")]
        assert (writer.location, writer.severed) == ("other", True)
        await rotate(writer)
        first = writer.last_seq
        await write_steps(writer, 3)
        assert await writer.wait_synced(writer.last_seq)
        last, severed = writer.last_seq, writer.severed
    assert not severed
    assert seqs(read([main, other])[0]) == list(range(first, last + 1))


async def test_the_only_location_is_made_again(autojump_clock: MockClock) -> None:
    """Its disk works: no record is lost after the look."""
    told, main = Told(), disk()
    async with running([main], told=told) as writer:
        await write_steps(writer, 3)
        assert await writer.wait_synced(writer.last_seq)
        main.files_by_name.clear()
        await write_steps(writer, 3)
        assert await writer.wait_synced(writer.last_seq)
        await rotate(writer)
    assert [where for where, _ in told.moved] == ["main"]
    assert not told.lost
    assert read([main])[1].state == "intact"


@pytest.mark.parametrize("operation", range(7, 14))
async def test_the_way_back_holds_up_no_record(operation: int, autojump_clock: MockClock) -> None:
    """A hang at the first location does not delay writing."""
    main, other = disk(faults={6: "eio", operation: "hang"}), disk("other")
    async with running([main, other]) as writer:
        await write_steps(writer, 3)
        assert await writer.wait_synced(writer.last_seq)
        began = trio.current_time()
        await rotate(writer)
        await write_steps(writer, 5)
        assert trio.current_time() - began < BOUNDS.disk_seconds
        assert await writer.wait_synced(writer.last_seq)
    assert seqs(read([main, other])[0]) == list(range(1, writer.last_seq + 1))


async def test_an_event_that_no_frame_holds_is_told_of_in_its_place(autojump_clock: MockClock) -> None:
    """The daemon continues; the journal names the missing event."""
    told, main = Told(), disk()
    async with running([main], told=told) as writer:
        record = msgspec.structs.replace(
            step(writer.last_seq + 1)[0], event=BusLost(error="x" * FRAME_BYTES_MAX), last=True
        )
        writer.append([record])
        await write_steps(writer, 1, synced=True)
    records, verdict = read([main])
    assert verdict.state == "intact"
    (failed,) = [one.event for one in records if isinstance(one.event, StorageFailed)]
    assert failed.error.startswith("BusLost of 16777")
    assert told.failed == [("main", failed.error)]


# --- the last resort: one line a transition, wherever it may survive


def test_a_transition_is_one_line_of_plain_fields() -> None:
    """Tuples are counted, texts are quoted."""
    ended = PodEnded(uid="u1", wave=0, outcome="killed", reason="ignored SIGTERM")
    record = msgspec.structs.replace(step(5)[1], event=ended)
    line = transition_line(record)
    assert line is not None
    assert line.startswith(
        "ebbtide: 6 5000000 PodEnded uid='u1' wave=0 outcome='killed' reason='ignored SIGTERM'"
    )
    started = WaveStarted(wave=1, priority=0, period_ns=1, deadline_ns=2, kill_by_ns=3)
    assert "pods=0" in (transition_line(msgspec.structs.replace(record, event=started)) or "")
    # The kernel's log refuses longer ones.
    long = msgspec.structs.replace(record, event=msgspec.structs.replace(ended, reason="x" * 5000))
    assert len(transition_line(long) or "") == LINE_BYTES_MAX


def test_the_kernel_log_and_pstore_get_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, where both are there."""
    places = [tmp_path / "kmsg", tmp_path / "pmsg0"]
    for place, name in zip(places, ("KERNEL_LOG", "PSTORE"), strict=True):
        place.touch()
        monkeypatch.setattr(writer_module, name, str(place))
    write_last_resort("ebbtide: 1 WaveEnded")
    assert [place.read_text() for place in places] == ["ebbtide: 1 WaveEnded\n"] * 2


def test_without_them_standard_error_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No error, whatever is missing."""
    monkeypatch.setattr(writer_module, "KERNEL_LOG", str(tmp_path / "none"))
    monkeypatch.setattr(writer_module, "PSTORE", "/dev/full")
    write_last_resort("ebbtide: 1 WaveEnded")
    assert capsys.readouterr().err == "ebbtide: 1 WaveEnded\n"


# --- where a write costs a request


async def test_what_nobody_waits_for_gathers(autojump_clock: MockClock) -> None:
    """Two-second steps are one write; a waiter gets it at once with the rest."""
    main = disk()
    main.waits = disk_waits()._replace(unsynced_seconds=30.0, gather_seconds=2.0)
    async with running([main]) as writer:
        await writer.wait_synced(1)
        before = main.operations
        for _ in range(4):
            writer.append(step(writer.last_seq + 1))
            await trio.sleep(0.4)
            assert writer.written_seq == 1
        await trio.sleep(0.5)
        assert (writer.written_seq, writer.synced_seq) == (writer.last_seq, 1)
        assert main.operations == before + 1
        writer.append(step(writer.last_seq + 1))
        began = trio.current_time()
        assert await writer.wait_synced(writer.last_seq)
        assert trio.current_time() == began
        writer.append(step(writer.last_seq + 1))
        await trio.testing.wait_all_tasks_blocked()
        await writer.close()
        assert trio.current_time() == began
    assert_whole([main], writer.last_seq)
