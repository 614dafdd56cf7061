"""What stands beside a line of the daemon's log names one shutdown, with its own trace and a span of that."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, shutdown_trace_id
from ebbtide.events.codec import decode_record
from ebbtide.log import TRACE_IDS_MAX, LineContext, TraceIds, journald_fields, log_lines_of
from tests.otel.simulated import FOLLOWED, PARTS, journal, journal_id, part_of, spans_of
from tests.world.runs import run
from tests.world.scenario import Act, two_waves


def fields_told(seed: int) -> list[dict[str, str]]:
    """Of each line that a daemon tells late, when all of its records are appended."""
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


def _laws(seed: int) -> None:
    """A line's trace is its own shutdown's, and its span one that the projection makes there."""
    shutdowns = {each.id: each for each in journal(seed)[1]}
    made = {(span.trace_id.hex(), span.span_id.hex()) for span in spans_of(seed)}
    lines = [fields for fields in fields_told(seed) if "EPISODE" in fields]
    assert {fields["EPISODE"] for fields in lines} == set(shutdowns), seed
    for fields in lines:
        shutdown = shutdowns[fields["EPISODE"]]
        assert fields["TRACE_ID"] == shutdown.trace_id, (seed, fields)
        there = (fields["TRACE_ID"], fields["SPAN_ID"]) in made
        assert there or shutdown.outcome == "running", (seed, fields)


@pytest.mark.parametrize("seed", FOLLOWED)
def test_a_line_of_the_former_shutdown_keeps_its_trace(seed: int) -> None:
    """Also when it is told after the first record of the next one, which is in the same step."""
    _laws(seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_line_names_one_shutdown(part: int) -> None:
    """Over all kinds of runs."""
    for seed in part_of(part):
        _laws(seed)


def test_the_last_shutdowns_are_known_and_no_more() -> None:
    """A daemon that runs for years remembers a few; what it recovered with counts as one."""
    traces = TraceIds(7, "recovered")
    assert (traces.current, traces.of(7), traces.of(8)) == ("recovered", "recovered", "")
    first = next(raw for batch in journal(20)[0] for raw in batch.records if raw.seq == raw.episode)
    for number in range(10, 10 + TRACE_IDS_MAX):
        traces.learn(decode_record(first._replace(seq=number, episode=number)), bytes([number]) * 32)
    traces.learn(decode_record(first._replace(seq=99, episode=number)), bytes(32))
    assert traces.of(7) == ""
    assert [traces.of(10), traces.current] == [shutdown_trace_id(bytes([each]) * 32) for each in (10, number)]


def test_the_daemon_passes_them_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real daemon whose node is told to go down, not to, and to go down again while pods still end."""
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
