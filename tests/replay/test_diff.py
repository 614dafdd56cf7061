"""Diff: pairing of pods, and the order."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from ebbtide import replay
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord
from ebbtide.replay.diff import Difference, diff, owner, pod_pairs
from tests.events.record.worlds import told
from tests.journals import SHUTDOWN

MS = 1_000_000


def account() -> ShutdownRecord:
    return replay.open(SHUTDOWN).shutdown().account


def named(*names: str, node: str = "node-1") -> ShutdownRecord:
    """A shutdown of pods of these names."""
    pods = tuple(PodRecord(uid=f"{node}:{at}", namespace="shop", name=name) for at, name in enumerate(names))
    return replace(account(), node=node, pods=pods, waves=())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-6c9f7d8b5-q7zwt", "shop/web"),
        ("agent-x2k4z", "shop/agent"),
        ("db-0", "shop/db-0"),
        ("etcd-node-1", "shop/etcd"),
        ("my-proxy", "shop/my-proxy"),
        ("web-6c9f7d8b5-q7zwt-1", "shop/web-6c9f7d8b5-q7zwt-1"),
    ],
)
def test_owners(name: str, expected: str) -> None:
    """Only Kubernetes' random suffixes and node names are removed."""
    assert owner(PodRecord(uid="u", namespace="shop", name=name), "node-1") == expected


def paired(a: ShutdownRecord, b: ShutdownRecord) -> list[tuple[str | None, str | None]]:
    return [(one and one.name, other and other.name) for one, other in pod_pairs(a, b)]


def test_pods_are_paired_by_name_before_owner() -> None:
    """An unchanged pod pairs with itself, never with a replica; the rest stays unpaired."""
    a = named("web-6c9f7d8b5-q7zwt", "web-6c9f7d8b5-k8xrm", "db-0", "old-0")
    b = named("web-5d4f8c7b9-x2k4z", "web-6c9f7d8b5-k8xrm", "db-0", "new-0")
    assert paired(a, b) == [
        ("web-6c9f7d8b5-q7zwt", "web-5d4f8c7b9-x2k4z"),
        ("web-6c9f7d8b5-k8xrm", "web-6c9f7d8b5-k8xrm"),
        ("db-0", "db-0"),
        ("old-0", None),
        (None, "new-0"),
    ]


def test_a_shutdown_does_not_differ_from_itself() -> None:
    one = account()
    assert diff(one, one) == Difference(changes=(), pods_alike=5)


def test_what_took_longer_comes_first() -> None:
    """By pod; below a millisecond is equal; used times precede allowed times."""
    a = account()
    later = {"web-0": 40 * MS, "web-1": 90 * MS, "api-0": MS - 1}
    pods = tuple(replace(pod, ended_ns=(pod.ended_ns or 0) + later.get(pod.name, 0)) for pod in a.pods)
    pods = tuple(replace(pod, grace_ns=60_000 * MS) if pod.name == "db-0" else pod for pod in pods)
    found = diff(a, replace(a, pods=pods))
    assert [(change.subject, change.what, change.more_ns) for change in found.changes] == [
        ("shop/web-1", "took", 90 * MS),
        ("shop/web-0", "took", 40 * MS),
        ("shop/db-0", "grace", 55_000 * MS),
    ]
    assert found.pods_alike == 2


def test_diff_of_any_two_worlds() -> None:
    """Each pod is paired or listed once; the reverse diff negates the figures."""
    for a, b in pairwise(told(0)):
        there, back = diff(a, b), diff(b, a)
        assert there.pods_alike == back.pods_alike
        assert sorted(change.more_ns for change in there.changes) == sorted(
            -change.more_ns for change in back.changes
        )
        found = list(pod_pairs(a, b))
        assert sorted(pair.a.uid for pair in found if pair.a) == sorted(pod.uid for pod in a.pods)
        assert sorted(pair.b.uid for pair in found if pair.b) == sorted(pod.uid for pod in b.pods)
