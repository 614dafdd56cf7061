"""Laws of traces and log lines over simulated journals. A failure names its seed."""

from __future__ import annotations

from collections import Counter

import pytest

from ebbtide.events.record.episodes import shutdown_records
from ebbtide.otel import attributes as at
from ebbtide.otel.span import ROOT_ROLE
from ebbtide.otel.traces.shutdown_trace import NEXT_BOOT
from tests.conftest import Sample
from tests.journals import Remembered
from tests.otel.records import attributes, named, project, steps
from tests.otel.simulated import FOLLOWED, SEEDS, fields_told, journal, journal_id, spans_of

PARTS = 2
#: Sampled, one seed of so many.
ONE_OF = 6


@pytest.fixture(params=FOLLOWED)
def followed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


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
