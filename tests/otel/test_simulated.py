"""Laws of traces and log lines over simulated journals. A failure names its seed.

``ebbtide simulate --seed N --synthetic 12 --journal DIR`` writes the same. The fields of a log line identify
one shutdown, its trace and a span of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import pytest

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, shutdown_trace_id
from ebbtide.events.codec import decode_record
from ebbtide.events.reader import Batch, History
from ebbtide.events.record.episodes import Episode, episodes, shutdown_records
from ebbtide.log import TRACE_IDS_MAX, LineContext, TraceIds, journald_fields, log_lines_of
from ebbtide.otel import attributes as at
from ebbtide.otel.shutdown_trace import NEXT_BOOT
from ebbtide.otel.span import ROOT_ROLE, Span
from ebbtide.replay.sim.simulate import MemorySource, SimulationRequest, simulate
from tests.conftest import Sample
from tests.journals import Remembered
from tests.otel.records import attributes, named, project, steps
from tests.world.scenario import Act, two_waves
from tests.world.worlds import run

PODS = 12

#: Seeds with a signal during a cancelled shutdown.
FOLLOWED = (20, 41, 81)

SEEDS = range(1, 151)


@lru_cache(maxsize=256)
def journal(seed: int) -> tuple[list[Batch], list[Episode]]:
    """A run's journal and its `journal ls` rows."""
    history = History([MemorySource(simulate(SimulationRequest(synthetic=PODS), seed).files())])
    return list(history.batches()), list(episodes(history))


def spans_of(seed: int) -> list[Span]:
    return project(journal(seed)[0], journal_id(seed))


def journal_id(seed: int) -> bytes:
    return journal(seed)[0][0].header.journal_id


def fields_told(seed: int) -> list[dict[str, str]]:
    """The fields of late log lines, after all their records."""
    raws = [raw for batch in journal(seed)[0] for raw in batch.records]
    records, traces, lines, told = [decode_record(raw) for raw in raws], TraceIds(), LineContext(0, {}), []
    step = []
    for record, raw in zip(records, raws, strict=True):
        traces.learn(record, raw.hash)
        step.append(record)
        if record.last:
            told += [
                journald_fields(each, lines.names, journal_id(seed), traces.of(each.episode))
                for each in step
                for _ in log_lines_of(lines, each)
            ]
            step = []
    return told


PARTS = 2
#: Sampled, one seed of so many.
ONE_OF = 6


@pytest.mark.parametrize("followed", FOLLOWED)
def test_a_step_at_a_time_gives_the_same_spans(followed: int) -> None:
    """A step may end one shutdown and begin another; batches do not matter."""
    assert project(steps(journal(followed)[0]), journal_id(followed)) == spans_of(followed)


def _laws_of_spans(seed: int) -> None:
    """Roots equal `journal ls` with outcomes; IDs are unique; a cursor can skip spans."""
    spans, (_, shutdowns) = spans_of(seed), journal(seed)
    ids = Counter((span.trace_id, span.span_id) for span in spans)
    assert max(ids.values(), default=1) == 1, seed
    assert [span.seq for span in spans] == sorted(span.seq for span in spans), seed
    roots = {span.trace_id.hex(): span for span in spans if not span.parent_id and span.name != NEXT_BOOT}
    over = {each.trace_id: each for each in shutdowns if each.outcome != "running"}
    assert list(roots) == list(over), seed
    assert len(roots) == len(named(spans, ROOT_ROLE)), seed
    for trace_id, root in roots.items():
        told = attributes(root)
        assert told[at.OUTCOME] == over[trace_id].outcome, (seed, root)
        ends = [each.end_ns for each in named(spans, "release") if each.trace_id == root.trace_id]
        assert all(end_ns <= root.end_ns for end_ns in ends[:1]), (seed, root)
        cut = told[at.OUTCOME] in ("truncated", "never-begun")
        assert (told.get(at.ERROR_TYPE) == "cut-short") == cut, (seed, root)


def _laws_of_pods(seed: int) -> None:
    """A pod's span has its record's outcome and reason."""
    records = {record.first_seq: record for record in shutdown_records(Remembered(journal(seed)[0]))}
    for span in named(spans_of(seed), "pod"):
        told = attributes(span)
        pod = next(each for each in records[span.episode].pods if each.uid == told[at.POD_UID])
        # The kubelet may have restarted it after its first end, or the span was cut.
        if (told.get(at.POD_OUTCOME), told.get(at.REASON)) == (pod.outcome, pod.reason):
            assert (span.status == "error") == (
                pod.outcome in ("killed", "failed")
            ) or pod.outcome == "unknown"
            assert span.status_text == (pod.reason if span.status == "error" else ""), seed


#: A pod arrives too late; the power goes before the later waves.
REJECTED, CUT_EARLY = 5, 9


def _laws_of_lines(seed: int) -> None:
    """A log line names its own shutdown's trace and an existing span."""
    shutdowns = {each.id: each for each in journal(seed)[1]}
    made = {(span.trace_id.hex(), span.span_id.hex()) for span in spans_of(seed)}
    lines = [fields for fields in fields_told(seed) if "EPISODE" in fields]
    assert {fields["EPISODE"] for fields in lines} == set(shutdowns), seed
    for fields in lines:
        shutdown = shutdowns[fields["EPISODE"]]
        assert fields["TRACE_ID"] == shutdown.trace_id, (seed, fields)
        there = (fields["TRACE_ID"], fields["SPAN_ID"]) in made
        assert there or shutdown.outcome == "running", (seed, fields)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_laws_hold_of_every_run(part: int, sample: Sample) -> None:
    for seed in [*sample(SEEDS, ONE_OF), *FOLLOWED, REJECTED, CUT_EARLY][part::PARTS]:
        _laws_of_spans(seed)
        _laws_of_pods(seed)
        _laws_of_lines(seed)


# --- the fields of a log line


def test_the_last_shutdowns_are_known_and_no_more() -> None:
    """A daemon that runs for years remembers a few; a recovered shutdown counts."""
    traces = TraceIds(7, "recovered")
    assert (traces.current, traces.of(7), traces.of(8)) == ("recovered", "recovered", "")
    first = next(raw for batch in journal(20)[0] for raw in batch.records if raw.seq == raw.episode)
    for number in range(10, 10 + TRACE_IDS_MAX):
        traces.learn(decode_record(first._replace(seq=number, episode=number)), bytes([number]) * 32)
    traces.learn(decode_record(first._replace(seq=99, episode=number)), bytes(32))
    assert traces.of(7) == ""
    assert [traces.of(10), traces.current] == [shutdown_trace_id(bytes([each]) * 32) for each in (10, number)]


def test_the_daemon_passes_them_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real daemon with a shutdown, a cancel, and another shutdown while pods still end."""
    told: list[Mapping[str, str]] = []
    monkeypatch.setattr("tests.world.daemon.without_fields", lambda _: lambda *line: told.append(line[2]))
    scenario = two_waves()
    acts = (Act(NS_PER_SECOND, "shutdown"), Act(1300 * MS, "cancel"), Act(2 * NS_PER_SECOND, "shutdown"))
    run(scenario._replace(boots=(scenario.boots[0]._replace(acts=acts), *scenario.boots[1:])), seed=1)
    lines = [
        (fields["EPISODE"], fields["TRACE_ID"], fields["EVENT"]) for fields in told if "EPISODE" in fields
    ]
    closed = next(each for each in lines if each[2] == "EpisodeClosed")
    began = [each[:2] for each in lines if each[2] == "ShutdownBegan"]
    assert began[0] == closed[:2]
    assert lines.index(closed) < lines.index((*began[1], "ShutdownBegan"))
    assert len(began) == len({(episode, trace) for episode, trace, _ in lines}) == 2
