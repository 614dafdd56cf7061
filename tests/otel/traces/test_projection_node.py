"""A Kubernetes node's shutdown as spans: what the kubelet did stands beside what we did."""

from __future__ import annotations

import pytest

from ebbtide.events.decisions import DeletePod, PodEnded, PodPlanned
from ebbtide.events.facts import OrderEnded
from ebbtide.otel import attributes as at
from ebbtide.otel.span import Span, order_span_id, span_of
from tests.journals import pod
from tests.otel.node_story import AWAIT, CHECK, DB, PROXY, STOP, UNMOUNT, WEB, node
from tests.otel.records import MS, TICK, Teller, attributes, began, exited, named, signal, wave


def only(spans: list[Span], name: str) -> Span:
    (span,) = named(spans, name)
    return span


def of_pod(spans: list[Span], name: str, uid: str) -> Span:
    (span,) = (span for span in named(spans, name) if attributes(span)[at.POD_UID] == uid)
    return span


SPANS = node().spans()


def test_the_root_tells_the_means_the_hand_over_and_the_certificate() -> None:
    """As attributes to search by, and as events with their reasons."""
    root = only(SPANS, "shutdown")
    found = attributes(root)
    assert (found[at.TERMINATION_MODE], found[at.HANDED_OVER], found[at.SAFE_TO_DETACH]) == (
        "api",
        True,
        False,
    )
    assert [event.name for event in root.events] == [
        "means.chosen",
        *["health"] * 3,
        "handed.over",
        "detach.certified",
        "left.undone",
    ]
    assert dict(root.events[3].attributes)[at.REASON] == "no route to host"
    assert dict(root.events[6].attributes)[at.MISSING] == 1


@pytest.mark.parametrize(
    ("name", "order", "key", "length_ms", "parent"),
    [
        ("stop kubelet", "StopKubelet", STOP, 30, "shutdown"),
        ("check mounts", "CheckMounts", CHECK, 3, "shutdown"),
        ("await statuses", "AwaitStatuses", AWAIT, 1923, "shutdown"),
        ("unmounts", "AwaitUnmounts", UNMOUNT, 9965, "wave"),
    ],
)
def test_an_order_for_the_node_is_a_span(
    name: str, order: str, key: str, length_ms: int, parent: str
) -> None:
    """From its record to its outcome, with the id that its edge could tell beforehand."""
    span = only(SPANS, name)
    assert span.span_id == order_span_id(span.trace_id, order, key)
    assert (span.end_ns - span.start_ns) // MS == length_ms
    assert span.parent_id in {each.span_id for each in named(SPANS, parent)}


def test_what_an_order_found_stands_on_its_span() -> None:
    """How many volumes are mounted, and how many final statuses are missing."""
    assert attributes(only(SPANS, "check mounts"))[at.MOUNTED] == 1
    assert attributes(only(SPANS, "await statuses"))[at.MISSING] == 1
    assert only(SPANS, "await statuses").status == "error"


def test_a_deleted_pod_has_its_delete_and_its_containers_ends() -> None:
    """No signal was ours: the end is an event of the pod, and the span is the API server's part."""
    web, delete = of_pod(SPANS, "pod", WEB.uid), of_pod(SPANS, "delete", WEB.uid)
    assert (delete.parent_id, (delete.end_ns - delete.start_ns) // MS) == (web.span_id, 520)
    assert attributes(web)[at.POD_TERMINATION_MODE] == "api"
    (event,) = web.events
    assert (event.name, dict(event.attributes)) == (
        "container.exited",
        {at.CONTAINER: "main", at.EXIT_CODE: 0},
    )
    assert at.CONTAINER not in attributes(delete)


def test_a_refused_pod_is_signalled_after_the_hand_over() -> None:
    """Its delete is no success, the refusal an event, and from then on it has a stop like any other."""
    db = of_pod(SPANS, "pod", DB.uid)
    assert [event.name for event in db.events] == ["delete.refused"]
    assert attributes(of_pod(SPANS, "delete", DB.uid))[at.RESULT] == "failed"
    assert attributes(of_pod(SPANS, "stop", DB.uid))[at.EXIT_SIGNAL] == "SIGTERM"
    assert of_pod(SPANS, "stop", PROXY.uid).parent_id == of_pod(SPANS, "pod", PROXY.uid).span_id


def test_a_wave_that_waited_for_volumes_says_whose() -> None:
    """It missed its deadline although all of its pods had ended."""
    first = min(named(SPANS, "wave"), key=lambda span: span.start_ns)
    assert first.status_text == "deadline missed by the volumes of 1 pod"
    assert attributes(first)[at.WAVE_MOUNTED] == (DB.label,)


def test_a_delete_that_is_given_again_is_another_span() -> None:
    """With less grace; the second links to the first, and each has its own outcome."""
    teller, web = Teller(), pod("web-0")
    teller.tell(signal(), began(), PodPlanned(wave=0, grace_seconds=10, pod=web, means="api"), *wave(0, web))
    orders = [
        DeletePod(
            key=f"HookActor/delete/{web.uid}/{number}",
            uid=web.uid,
            namespace=web.namespace,
            name=web.name,
            grace_seconds=grace,
        )
        for number, grace in enumerate((10, 1))
    ]
    for order in orders:
        teller.tell(TICK, order, after_ms=1)
        teller.tell(OrderEnded(key=order.key, result="done"), after_ms=5)
    teller.tell(exited(web), PodEnded(uid=web.uid, wave=0, outcome="graceful", reason="exit code 0"))
    first, second = named(teller.spans(), "delete")
    assert [attributes(each)[at.GRACE] for each in (first, second)] == [10_000, 1000]
    assert [attributes(each)[at.RESULT] for each in (first, second)] == ["done", "done"]
    assert second.links[0].span_id == first.span_id


def test_a_log_line_of_a_node_stands_beside_its_order() -> None:
    """The kubelet's stop and a delete name the span that they will have."""
    trace = SPANS[0].trace_id
    delete = of_pod(SPANS, "delete", WEB.uid)
    order = DeletePod(
        key=f"HookActor/delete/{WEB.uid}/0", uid=WEB.uid, namespace="shop", name="web-0", grace_seconds=1
    )
    assert span_of(trace, order) == delete.span_id
