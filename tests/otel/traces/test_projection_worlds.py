"""Properties of the projection over whole simulated nodes: crashes, power cuts, cancels, failing disks.

A failure names its seed: ``python -m tests.world --seed N -v`` tells its story.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

import pytest

from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.decisions import PodEnded
from ebbtide.events.reader import Batch
from ebbtide.events.record.episodes import episodes
from ebbtide.otel import attributes as at
from ebbtide.otel.span import Resource, Span
from tests.conftest import Sample
from tests.journals import Remembered
from tests.otel.wire import encode_traces
from tests.otel.worlds import Step, journals, project, steps
from tests.world.worlds import Name, every_point

SEEDS = 200
PARTS = 3
#: Sampled, one seed of so many, and one point: with an odd number points before and after a write are met.
SEEDS_ONE_OF, POINTS_ONE_OF = 8, 15

NOWHERE = Resource((), 1)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_laws_of_spans_hold_in_worlds(part: int, sample: Sample) -> None:
    """Over drawn scenarios: the same bytes however they are read, whole traces, and the journal's words."""
    for seed in sample(range(SEEDS), SEEDS_ONE_OF)[part::PARTS]:
        journal_id, found = journals(seed)
        batches = found[-1]
        fine, spans = steps(batches), project(batches, journal_id)
        assert project(fine, journal_id) == spans, seed
        assert project(_cut(fine, random.Random(seed)), journal_id) == spans, seed
        _check_restart(fine, spans, journal_id, seed)
        _check_earlier(found, journal_id, seed)
        _check_traces(spans, batches, f"seed {seed}")
        _check_pods(spans, batches, seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_power_may_go_at_every_point(part: int, sample: Sample) -> None:
    """Also where it strikes in the middle of a step, of a sync, of the release."""
    for name in sample(every_point(Name(), "cut-at"), POINTS_ONE_OF)[part::PARTS]:
        journal_id, found = journals(None, name.cut_at)
        _check_traces(project(found[-1], journal_id), found[-1], str(name))


def _cut(fine: list[Step], chance: random.Random) -> list[Step]:
    """Neighbouring steps of one segment together, as it happens."""
    grouped = groupby(fine, key=lambda step: (step[0], chance.random() < 0.7))
    return [(header, [raw for _, records in group for raw in records]) for (header, _), group in grouped]


def _check_restart(fine: list[Step], spans: list[Span], journal_id: bytes, seed: int) -> None:
    """An exporter that dies anywhere and begins again at a checkpoint sends every span, byte for byte."""
    died_after = random.Random(seed).randrange(len(fine) + 1)
    live = project(fine[:died_after], journal_id)
    again = project(fine[_last_checkpoint(fine, died_after) :], journal_id)
    assert live == spans[: len(live)], seed
    union = {_bytes(span): span for span in (*live, *again)}
    assert list(union) == [_bytes(span) for span in spans], seed


def _last_checkpoint(fine: list[Step], before: int) -> int:
    """Where a reader can begin: a segment's checkpoint outside of a shutdown, 0 if there is none."""
    fronts = (
        index
        for index in range(before - 1, -1, -1)
        if fine[index][1][0].tag == "Checkpoint" and not fine[index][1][0].episode
    )
    return next(fronts, 0)


def _bytes(span: Span) -> bytes:
    return encode_traces([span], NOWHERE)


def _check_earlier(found: list[list[Batch]], journal_id: bytes, seed: int) -> None:
    """No later boot changes a span whose records it still finds."""
    kept = {(raw.seq, raw.hash) for raw in _records(found[-1])}
    final = dict.fromkeys(project(found[-1], journal_id))
    for batches in found[:-1]:
        hashes = {raw.seq: raw.hash for raw in _records(batches)}
        for span in project(batches, journal_id):
            survived = {(span.seq, hashes[span.seq]), (span.episode, hashes[span.episode])} <= kept
            assert not survived or span in final, (seed, span.name, span.seq)


def _check_traces(spans: list[Span], batches: list[Batch], where: str) -> None:
    """One root, no span twice, no span without its parent, none without length."""
    twice = [
        key for key, count in Counter((span.trace_id, span.span_id) for span in spans).items() if count > 1
    ]
    assert not twice, where
    shutdowns = _summaries(batches)
    for number, trace_id in shutdowns.items():
        of_trace = [span for span in spans if span.trace_id == trace_id]
        roots = [span for span in of_trace if not span.parent_id]
        over = any(span.name == "shutdown" for span in of_trace)
        assert len(roots) == over <= 1, (where, number)
        assert over == _is_over(batches, number), (where, number)
        known = {span.span_id for span in of_trace}
        orphans = [span.name for span in of_trace if over and span.parent_id and span.parent_id not in known]
        assert not orphans, (where, number, orphans)
    for span in spans:
        assert span.start_ns < span.end_ns, (where, span)
        assert span.trace_id == shutdowns[span.episode] or span.name == "next boot", (where, span)


def _summaries(batches: list[Batch]) -> dict[int, bytes]:
    """Shutdowns whose first record is there, by number, with the trace ids that `journal ls` prints."""
    there = {raw.seq for raw in _records(batches)}
    found = episodes(Remembered(batches))
    return {each.first_seq: bytes.fromhex(each.trace_id) for each in found if each.first_seq in there}


def _is_over(batches: list[Batch], number: int) -> bool:
    ends = ("ReleaseLock", "EpisodeClosed")
    return any(raw.tag in ends and raw.episode == number for raw in _records(batches))


def _records(batches: list[Batch]) -> list[RawRecord]:
    return [raw for batch in batches for raw in batch.records]


def _check_pods(spans: list[Span], batches: list[Batch], seed: int) -> None:
    """Each pod's last word is its span's; killed ones are errors with that reason, graceful ones are none."""
    fates = {
        (span.episode, dict(span.attributes)["k8s.pod.uid"]): span for span in spans if span.name == "pod"
    }
    for raw in _records(batches):
        event = decode_event(raw.tag, raw.payload) if raw.tag == "PodEnded" else None
        span = fates.get((raw.episode, event.uid)) if isinstance(event, PodEnded) else None
        if span is None or span.seq != raw.seq:
            continue
        assert dict(span.attributes)[at.POD_OUTCOME] == event.outcome
        bad = event.outcome in ("killed", "failed")
        assert (span.status == "error") == bad or event.outcome == "unknown", (seed, raw.seq)
        assert span.status_text == (event.reason if span.status == "error" else "")
