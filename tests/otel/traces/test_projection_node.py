"""A Kubernetes node's shutdown as spans: what the kubelet did stands beside what we did."""

from __future__ import annotations

from ebbtide.events.decisions import DeletePod, PodEnded, PodPlanned
from ebbtide.events.facts import OrderEnded
from ebbtide.otel import attributes as at
from tests.journals import pod
from tests.otel.records import TICK, Teller, attributes, began, exited, named, signal, wave


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
