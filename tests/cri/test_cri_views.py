"""What an inventory shows of a pod: the runtime's labels, and over them what the API server told."""

from __future__ import annotations

import pytest

from actors.edges.cri.table import ContainerEntry, PodEntry
from actors.edges.cri.views import cached, known_of, view
from actors.edges.kubernetes.calling import Known
from actors.edges.process.endings import End
from actors.edges.process.spec import ContainerSpec
from events.model import Container, Pod
from tests.cri.conftest import Told


def entry(*names: str, static: bool = False, sidecars: frozenset[str] = frozenset()) -> PodEntry:
    """As the runtime has it: priority and grace from annotations."""
    pod = PodEntry("u", "ns", "web", "s")
    pod.priority, pod.grace_seconds, pod.sidecars, pod.static = 5, 10, sidecars, static
    for name in names:
        pod.containers[name] = ContainerEntry(pod, f"id-{name}", ContainerSpec(name=name, argv=()))
    return pod


def known(**fields: object) -> Known:
    return Known(**({"uid": "u", "api_uid": "u", "namespace": "ns", "name": "web"} | fields))  # type: ignore[arg-type]


def names(pod: Pod) -> list[tuple[str, bool, bool]]:
    return [(each.name, each.sidecar, each.running) for each in pod.containers]


def test_what_is_known_wins() -> None:
    """Every field that the runtime has as well comes from the API; the rest comes with it."""
    told = known(
        priority=7,
        grace_seconds=70,
        static=True,
        daemon=True,
        tolerates_all=True,
        volumes=True,
        owner="DaemonSet/web",
        sidecars=("proxy",),
        containers=("main",),
    )
    assert view(entry("main", "proxy", sidecars=frozenset({"main"})), told) == Pod(
        uid="u",
        namespace="ns",
        name="web",
        priority=7,
        grace_seconds=70,
        containers=(Container(name="proxy", sidecar=True), Container(name="main")),
        static=True,
        daemon=True,
        tolerates_all=True,
        volumes=True,
        owner="DaemonSet/web",
    )


def test_annotations_are_what_is_left() -> None:
    """What the API does not say, or nobody has told, comes from the runtime."""
    assert view(entry("main"), known()).priority == view(entry("main")).priority == 5
    assert view(entry("main"), known()).grace_seconds == view(entry("main")).grace_seconds == 10
    both = view(entry("main", "proxy", sidecars=frozenset({"proxy"})))
    assert names(both) == [("proxy", True, True), ("main", False, True)]
    assert view(entry("main", static=True)).static


def test_the_manifests_order() -> None:
    """Sidecars stop in the reverse order of the manifest, however the runtime came to know them."""
    told = known(sidecars=("first", "second"), containers=("a", "b"))
    found = view(entry("second", "b", "debug", "first", "a"), told)
    assert [each.name for each in found.containers] == ["first", "second", "a", "b", "debug"]


def test_what_has_ended_well_adds_nothing() -> None:
    """One that ended badly, or nobody knows how, does: such a pod has not succeeded."""
    pod = entry("main", "well", "badly", "lost")
    pod.containers["well"].finish(End(exit_code=0))
    pod.containers["badly"].finish(End(exit_code=3))
    pod.containers["lost"].finish(End())
    assert names(view(pod)) == [("main", False, True), ("badly", False, False), ("lost", False, False)]


def test_what_ended_before_our_time() -> None:
    """The API server knows the ends that no runtime's list shows; of a container that runs ours is newer."""
    told = known(containers=("main", "well", "badly"), ended={"main": 1, "well": 0, "badly": 3})
    assert names(view(entry("main"), told)) == [("main", False, True), ("badly", False, False)]


def test_who_is_meant() -> None:
    """By UID; a static pod also by its name, but no other: a name may have had another pod before."""
    manifest = known(uid="", api_uid="", priority=2_000_001_000)
    lookup = Told(manifest)
    assert known_of(entry("main", static=True), lookup) == manifest
    assert known_of(entry("main"), lookup) is None
    assert known_of(entry("main"), Told(known(priority=1))) == known(priority=1)
    assert known_of(entry("main"), None) is None


def test_a_pod_from_the_cache() -> None:
    """What only the API server tells of: its containers without hooks, those that ended badly beside them."""
    told = known(
        phase="Running",
        priority=3,
        sidecars=("proxy",),
        containers=("main", "well", "badly"),
        ended={"well": 0, "badly": 2},
        volumes=True,
    )
    found = cached(told)
    assert found is not None
    assert (found.priority, found.volumes) == (3, True)
    assert names(found) == [("proxy", True, True), ("main", False, True), ("badly", False, False)]


@pytest.mark.parametrize(
    "fields",
    [
        {"phase": "Succeeded", "containers": ("main",)},
        {"phase": "Pending", "containers": ("main",)},
        {"phase": "", "containers": ("main",), "uid": ""},
        {"phase": "Running", "containers": ("main",), "ended": {"main": 0}},
    ],
    ids=["ended", "not-begun", "manifest", "nothing-left"],
)
def test_nothing_runs_of_it(fields: dict[str, object]) -> None:
    """A pod of which nothing runs is in no inventory."""
    assert cached(known(**fields)) is None
