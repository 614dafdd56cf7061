"""The Perfetto trace, read with Perfetto's own published descriptors, and held against its rules.

What its importer would warn about is checked here: fields it does not know, tracks that are not there, ends
without a begin, events that stand across each other on one track, arrows without a begin or an end.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto_pb2

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.fold import shutdown_records
from ebbtide.events.record.outages import outage_records
from ebbtide.replay.perfetto import perfetto
from ebbtide.replay.timeline import Line, timeline
from tests.replay import outages
from tests.replay.report import journals

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NAMES = ("golden", "story", "hostile", "many", "outage")


@cache
def told(name: str) -> tuple[Any, list[Line]]:
    """A shutdown, or the golden outage, and its lines."""
    if name == "outage":
        history = History([DirectorySource(outages.GOLDEN)])
        (outage,) = outage_records(history)
        return outage, list(timeline(history.batches(), outage.first_seq))
    if name != "golden":
        return journals.told(getattr(journals, name)())
    source = DirectorySource(GOLDEN / "shutdown-v1")
    account = list(shutdown_records(History([source])))[-1]
    return account, list(timeline(History([source]).batches(), account.first_seq))


@cache
def trace_of(name: str) -> Any:
    trace = perfetto_pb2.Trace()
    trace.ParseFromString(b"".join(perfetto(*told(name))))
    return trace


#: What stands below a root beside the actors, and whose track is its own actor's.
SUBJECTS = {"outage": ("pods and volumes", ("StuckPodActor:", "DetachActor:"))}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def events(trace: Any) -> list[Any]:
    return [packet for packet in trace.packet if packet.HasField("track_event")]


def tracks(trace: Any) -> dict[int, Any]:
    found = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    assert len({track.uuid for track in found}) == len(found)
    return {track.uuid: track for track in found}


def path(trace: Any, uuid: int) -> tuple[str, ...]:
    """The names from the top down to a track."""
    known, names = tracks(trace), []
    while uuid:
        names.append(known[uuid].name)
        uuid = known[uuid].parent_uuid
    return tuple(reversed(names))


def test_every_field_is_known(name: str) -> None:
    """Nothing in the file is unknown to Perfetto's descriptors, and enumerations have their values."""
    left = [trace_of(name)]
    while left:
        message = left.pop()
        assert len(unknown_fields.UnknownFieldSet(message)) == 0
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                left += value if field.is_repeated else [value]


def test_packets(name: str) -> None:
    """One sequence, its state cleared at the begin; clocks, then tracks, then events in the order of time."""
    packets = list(trace_of(name).packet)
    assert packets[0].HasField("clock_snapshot")
    assert packets[0].sequence_flags == perfetto_pb2.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
    kinds = [packet.WhichOneof("data") for packet in packets]
    assert kinds == sorted(kinds, key=("clock_snapshot", "track_descriptor", "track_event").index)
    times = [packet.timestamp for packet in events(trace_of(name))]
    assert times == sorted(times)


def test_clocks_show_wall_time() -> None:
    """The signal's moment by the trace's clock and by the wall clock."""
    account, snapshot = told("golden")[0], trace_of("golden").packet[0].clock_snapshot
    clocks = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    assert clocks[snapshot.primary_trace_clock] == account.started_mono_ns
    assert clocks[perfetto_pb2.BUILTIN_CLOCK_REALTIME] == account.started_wall_ns


def test_tracks_hang_together(name: str) -> None:
    """One root, parents before children, every event on a track that is there."""
    known = tracks(trace_of(name))
    assert [track.uuid for track in known.values() if not track.parent_uuid] == [1]
    assert all(track.parent_uuid < track.uuid for track in known.values())
    assert {packet.track_event.track_uuid for packet in events(trace_of(name))} <= set(known)


def test_slices_nest(name: str) -> None:
    """On each track an end has its begin, and no slice begins while another is open."""
    open_on: Counter[int] = Counter()
    for packet in events(trace_of(name)):
        event = packet.track_event
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not open_on[event.track_uuid], path(trace_of(name), event.track_uuid)
            open_on[event.track_uuid] += 1
        if event.type == event.TYPE_SLICE_END:
            assert open_on[event.track_uuid] == 1, path(trace_of(name), event.track_uuid)
            open_on[event.track_uuid] -= 1


def test_a_track_an_actor_and_a_pod(name: str) -> None:
    """Each pod has a track, and so has each actor that wrote; a pod's own actor writes on the pod's."""
    account, lines = told(name)
    known = tracks(trace_of(name)).values()
    below, own = SUBJECTS.get(name, ("pods", ("HookActor:",)))
    pods = next(track.uuid for track in known if track.name == below)
    actors = next(track.uuid for track in known if track.name == "actors")
    labels = [pod.label for pod in account.pods]
    if name == "outage":
        labels = [f"pod {each}" for each in labels] + [f"volume {each.label}" for each in account.attachments]
    assert [track.name for track in known if track.parent_uuid == pods] == labels
    uids = {pod.uid for pod in account.pods} | {each.name for each in getattr(account, "attachments", ())}
    wrote = {
        line.actor
        for line in lines
        if not line.actor.startswith(own) or line.actor.partition(":")[2] not in uids
    }
    assert {track.name for track in known if track.parent_uuid == actors} == wrote


def test_every_record_and_its_cause(name: str) -> None:
    """Each record is an event; an arrow leads to it from its cause, and no arrow leads nowhere."""
    lines = told(name)[1]
    marks = [packet.track_event for packet in events(trace_of(name)) if packet.track_event.categories]
    by_seq = {note.int_value: mark for mark in marks for note in mark.debug_annotations if note.name == "seq"}
    assert sorted(by_seq) == [line.seq for line in lines]
    for line in lines:
        if line.cause in by_seq:
            assert line.seq in by_seq[line.cause].flow_ids
            assert list(by_seq[line.seq].terminating_flow_ids) == [line.seq]
    begun = Counter(flow for mark in marks for flow in mark.flow_ids)
    ended = Counter(flow for mark in marks for flow in mark.terminating_flow_ids)
    assert begun == ended
    assert set(begun.values()) <= {1}


def test_times_are_exact() -> None:
    """A killed pod's slice lies where the account says, to the nanosecond."""
    account, trace = told("golden")[0], trace_of("golden")
    pod = next(pod for pod in account.pods if pod.outcome == "killed")
    track = next(uuid for uuid, each in tracks(trace).items() if each.name == pod.label)
    on = [(p.track_event.type, p.timestamp) for p in events(trace) if p.track_event.track_uuid == track]
    begin, end = perfetto_pb2.TrackEvent.TYPE_SLICE_BEGIN, perfetto_pb2.TrackEvent.TYPE_SLICE_END
    assert (begin, account.started_mono_ns + (pod.began_ns or 0)) in on
    assert (end, account.started_mono_ns + (pod.ended_ns or 0)) in on


def test_golden_trace(request: pytest.FixtureRequest) -> None:
    """The golden shutdown's trace is what it was, as text (``--rewrite`` as for the page's data)."""
    kept = GOLDEN / "report" / "shutdown-v1.pftrace.txt"
    text = "".join(map(_line, trace_of("golden").packet))
    if request.config.getoption("--rewrite", default=False):
        kept.write_text(text, encoding="utf-8")
    assert kept.read_text(encoding="utf-8") == text


def _line(packet: Any) -> str:
    """A packet on a line, without what stands in every one."""
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        return f"track {track.uuid} below {track.parent_uuid}: {track.name}\n"
    if not packet.HasField("track_event"):
        clocks = ", ".join(f"{each.clock_id}={each.timestamp}" for each in packet.clock_snapshot.clocks)
        return f"clocks {clocks}\n"
    event = packet.track_event
    kind = perfetto_pb2.TrackEvent.Type.Name(event.type).removeprefix("TYPE_").lower()
    notes = ", ".join(f"{n.name}={n.string_value or n.int_value}" for n in event.debug_annotations)
    return f"{packet.timestamp} {kind} on {event.track_uuid} {event.name} [{notes}]".rstrip(" []") + "\n"
