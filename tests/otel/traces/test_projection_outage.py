"""The trace of an outage against its records, in scripts and worlds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ebbtide.events.outage_events import LeaderStarted
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import outage_records
from ebbtide.otel.span import Span, span_id_of
from ebbtide.otel.traces.projection import Projection
from tests.journals import Files, Memory
from tests.otel.outage_story import recovered
from tests.otel.records import attributes, documented, named
from tests.replay import outages


def spans_of(files: Files) -> list[Span]:
    history, projection = History([Memory(files)]), Projection()
    return documented(
        [
            span
            for header, records in history.batches()
            for span in projection.feed(header, records, history.journal_id)
        ]
    )


def hold(files: Files) -> None:
    """One trace per outage, a root exactly if it is closed, and no event after its end."""
    spans = spans_of(files)
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    for record in outage_records(History([Memory(files)])):
        mine = [span for span in spans if span.episode == record.first_seq]
        endings = [attributes(span)["ebbtide.last_boot.ending"] for span in named(mine, "last boot")]
        assert endings == ([] if record.last_boot is None else [record.last_boot.ending])
        roots = named(mine, "outage")
        assert {span.trace_id.hex() for span in mine} <= {record.trace_id}
        assert len(roots) == (record.outcome != "open")
        for root in roots:
            assert attributes(root)["ebbtide.outage.outcome"] == record.outcome
            wrong_proof = any(alarm.code == "proof-wrong" for alarm in record.alarms)
            assert (root.status == "error") == wrong_proof
            assert all(span.parent_id == root.span_id for span in mine if span is not root)
            assert all(root.start_ns <= span.start_ns for span in mine)
            assert [span for span in mine if span.name != "last boot"][-1] is root


@pytest.mark.parametrize("name", outages.SCRIPTS)
def test_every_script_has_its_traces(name: str) -> None:
    hold(outages.script(name).files)


@pytest.mark.parametrize("name", outages.FAILURES)
def test_a_failing_actor_has_its_traces_too(name: str) -> None:
    hold(outages.failing(name))


@pytest.mark.parametrize("seed", range(8))
def test_every_world_has_its_traces(seed: int) -> None:
    hold(outages.world(seed).files)


def test_the_last_boots_shutdown_is_linked() -> None:
    """A late record gives a span below the unchanged root."""
    teller = recovered()
    spans = teller.spans()
    (ended,), (root,) = named(spans, "last boot"), named(spans, "outage")
    assert (ended.trace_id, ended.parent_id) == (root.trace_id, root.span_id)
    (link,) = ended.links
    shutdown = bytes.fromhex("b" * 32)
    assert (link.trace_id, link.span_id) == (shutdown, span_id_of(shutdown, "shutdown", ""))
    teller.steps.pop()
    assert teller.spans() == [span for span in spans if span is not ended]


def test_the_resource_is_what_the_controllers_environment_said_when_it_began() -> None:
    """The settings record it; the journal's own fields win."""
    given = {"k8s.cluster.name": "blue", "k8s.node.name": "of-the-controller"}
    told = []
    for record in outages.script(outages.STORY).records:
        event = record.event
        if isinstance(event, LeaderStarted):
            event = replace(event, settings=replace(event.settings, resource=given))
        told.append(replace(record, event=event))
    history, projection = History([Memory(outages.book(told).files)]), Projection()
    for header, records in history.batches():
        projection.feed(header, records, history.journal_id)
    (outage,) = outage_records(History([Memory(outages.book(told).files)]))
    resource = projection.resource(outage.first_seq)
    found = dict(resource.attributes)
    assert (found["k8s.cluster.name"], found["k8s.node.name"]) == ("blue", outage.node)
    assert (resource.scope, resource.version) == ("ebbtide.outage", 1)
