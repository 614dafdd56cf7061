"""The fields of a log line identify one shutdown, its trace and a span of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, shutdown_trace_id
from ebbtide.events.codec import decode_record
from ebbtide.log import TRACE_IDS_MAX, TraceIds
from tests.otel.simulated import journal
from tests.world.runs import run
from tests.world.scenario import Act, two_waves


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
