"""Laws of traces and log records over journals that the core itself wrote. A failure names its seed."""

from __future__ import annotations

from collections import Counter

import pytest

from ebbtide.otel import attributes as at
from ebbtide.otel.traces.projection import Projection
from ebbtide.otel.traces.shutdown_trace import NEXT_BOOT
from ebbtide.otel.traces.trace import ROOT
from tests.conftest import Sample
from tests.otel.records import attributes, named
from tests.otel.simulated import FOLLOWED, SEEDS, fields_told, journal, journal_id, records_of, spans_of
from tests.otel.worlds import steps

PARTS = 2
#: Sampled, one seed of so many.
ONE_OF = 6


@pytest.fixture(params=FOLLOWED)
def followed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_step_at_a_time_gives_the_same_spans(followed: int) -> None:
    """A step that ends one shutdown and begins another is read alike in any batch."""
    fine, projection = steps(journal(followed)[0]), Projection()
    spans = [span for step in fine for span in projection.feed(*step, journal_id(followed))]
    assert spans == spans_of(followed)


def _laws_of_spans(seed: int) -> None:
    """Roots are those of `journal ls`, with its outcomes; ids are single; a cursor can pass over spans."""
    spans, (_, shutdowns) = spans_of(seed), journal(seed)
    ids = Counter((span.trace_id, span.span_id) for span in spans)
    assert max(ids.values(), default=1) == 1, seed
    assert [span.seq for span in spans] == sorted(span.seq for span in spans), seed
    roots = {span.trace_id.hex(): span for span in spans if not span.parent_id and span.name != NEXT_BOOT}
    over = {each.trace_id: each for each in shutdowns if each.outcome != "running"}
    assert list(roots) == list(over), seed
    assert len(roots) == len(named(spans, ROOT)), seed
    for trace_id, root in roots.items():
        told = attributes(root)
        assert told[at.OUTCOME] == over[trace_id].outcome, (seed, root)
        cut = told[at.OUTCOME] in ("truncated", "never-begun")
        assert (told.get(at.ERROR_TYPE) == "cut-short") == cut, (seed, root)


# --- log records -------------------------------------------------------------------------------

#: A pod arrives too late; the power goes while later waves still wait.
REJECTED, CUT_EARLY = 5, 9


def _laws_of_records(seed: int) -> None:
    """Every log record stands beside a span that the projection makes, in its own shutdown's trace."""
    made = {(span.trace_id, span.span_id) for span in spans_of(seed)}
    shutdowns = {each.first_seq: each for each in journal(seed)[1]}
    for record in records_of(seed):
        shutdown = shutdowns[record.episode]
        assert record.trace_id.hex() == shutdown.trace_id, (seed, record)
        there = (record.trace_id, record.span_id) in made
        assert there or shutdown.outcome == "running", (seed, record)


def _laws_of_lines(seed: int) -> None:
    """The trace of a line of the log is its own shutdown's, its span one that the projection makes there."""
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
    """Over all kinds of runs: crashes, cancels, power cuts, second signals."""
    for seed in [*sample(SEEDS, ONE_OF), *FOLLOWED, REJECTED, CUT_EARLY][part::PARTS]:
        _laws_of_spans(seed)
        _laws_of_records(seed)
        _laws_of_lines(seed)
