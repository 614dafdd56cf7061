"""Simulated journals with their projections.

``ebbtide simulate --seed N --synthetic 12 --journal DIR`` writes the same.
"""

from __future__ import annotations

from functools import lru_cache

from ebbtide.events.codec import decode_record
from ebbtide.events.reader import Batch, History
from ebbtide.events.record.episodes import Episode, episodes
from ebbtide.log import LineContext, TraceIds, journald_fields, log_lines_of
from ebbtide.otel.span import Span
from ebbtide.replay.sim.simulate import MemorySource, SimulationRequest, simulate
from tests.otel.records import project

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
