"""Projection version 2: a waterfall tells without a click whom each span is about, and why it is red."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.values import Pod
from ebbtide.otel.span import Span
from ebbtide.otel.traces.projection import Projection
from tests.journals import pod
from tests.otel.node_story import node
from tests.otel.records import JOURNAL_ID, RELEASE, TICK, Teller, going_down
from tests.otel.story import everything

WEB = pod("web-7d4b9c6f5-x2x9k")


def told(teller: Teller, uid: str, reason: str, outcome: d.PodOutcome = "killed") -> Span:
    """The span of this pod after its end and the release."""
    teller.tell(TICK, d.PodEnded(uid=uid, wave=0, outcome=outcome, reason=reason), RELEASE)
    (span,) = (span for span in teller.spans() if span.name.split()[0] == "pod")
    return span


def stop(of: Pod, container: str = "main") -> d.SendSignal:
    key = f"HookActor/stop:{container}/{of.uid}/0"
    return d.SendSignal(key=key, uid=of.uid, container=container, signal="SIGTERM")


def failed(key: str, reason: str) -> f.OrderEnded:
    return f.OrderEnded(key=key, result="failed", reason=reason)


@pytest.mark.parametrize("story", [everything, node])
def test_nothing_but_names_and_texts_of_errors_is_another(story: Callable[[], Teller]) -> None:
    """Ids, times, parents, attributes: whoever named a span before it existed named this one."""
    before, after = story().spans(), story().under(2).spans()
    for one, two in zip(before, after, strict=True):
        assert two._replace(name=one.name, status_text=one.status_text) == one
        assert two.name.split()[: len(one.name.split())] == one.name.split()
        assert one.status_text in two.status_text or "refused" in two.status_text


def test_a_killed_pods_text_begins_with_what_kept_it_from_being_asked() -> None:
    """The runtime refused the signal: that is the cause, and not the grace that was waited for in vain."""
    reason = "SIGTERM did not reach main (no answer); SIGKILL for main after 10 s"
    signal = stop(WEB)
    teller = going_down(WEB).under(2)
    teller.tell(TICK, signal)
    teller.tell(failed(signal.key, "no answer"))
    span = told(teller, WEB.uid, reason)
    cause = "the runtime refused the stop signal (no answer); SIGKILL for main after 10 s"
    assert (span.status, span.status_text) == ("error", cause)
    assert dict(span.attributes)["ebbtide.reason"] == reason


def test_the_resource_is_the_journals() -> None:
    """A cluster's name stands behind what the journal knows; only the service's name replaces that."""
    given = {"k8s.cluster.name": "blue", "host.name": "another", "service.name": "shutdowns"}
    teller, projection = going_down(WEB).under(2, given), Projection()
    for step in teller.steps:
        projection.feed(*step, JOURNAL_ID)
    resource = projection.resource(1)
    assert resource.version == 2
    found = dict(resource.attributes)
    assert found["k8s.cluster.name"] == "blue"
    assert found["service.name"] == "shutdowns"
    assert found["host.name"] == found["k8s.node.name"] != "another"
