"""Reading the kubelet's annotations: hooks, ports, grace, and missing or unreadable values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ebbtide.actors.edges import pod_spec
from ebbtide.actors.edges.cri import cri_pods
from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, PodEntry, known_pod_of, pod_view
from ebbtide.actors.edges.cri.cri_runtime import backstop_seconds
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod
from ebbtide.actors.edges.linux.processes import ExitStatus
from ebbtide.events.values import Container, Hook, Pod
from tests.actors.edges.cri.conftest import Told

HANDLERS: list[tuple[dict[str, Any], pod_spec.HookAction | None, Hook | None]] = [
    ({}, None, None),
    (
        {"exec": {"command": ["/opt/bin/bye", "--token=x"]}},
        pod_spec.ExecAction(argv=("/opt/bin/bye", "--token=x")),
        Hook(kind="exec", detail="bye"),
    ),
    ({"exec": {}}, None, None),
    ({"sleep": {"seconds": 5}}, pod_spec.SleepAction(seconds=5), Hook(kind="sleep", sleep_seconds=5)),
    ({"tcpSocket": {"port": 80}}, pod_spec.TcpSocketAction(), Hook(kind="tcpSocket")),
    (
        {"httpGet": {"port": 8080, "scheme": "HTTPS", "path": "/bye?token=x", "host": "h"}},
        pod_spec.HttpGetAction(port=8080, scheme="HTTPS", path="/bye?token=x", host="h"),
        Hook(kind="httpGet", detail=":8080/bye"),
    ),
    (
        {"httpGet": {"port": "web", "httpHeaders": [{"name": "A", "value": "b"}]}},
        pod_spec.HttpGetAction(port="web", headers=(("A", "b"),)),
        Hook(kind="httpGet", detail=":web"),
    ),
]


@pytest.mark.parametrize(("handler", "action", "hook"), HANDLERS)
def test_handlers(handler: dict[str, Any], action: pod_spec.HookAction | None, hook: Hook | None) -> None:
    """Each handler becomes its action. The journal gets no argument and no query."""
    assert cri_pods.pre_stop_of({cri_pods.PRE_STOP_ANNOTATION: json.dumps(handler)}) == action
    assert pod_spec.hook_of(action) == hook


@pytest.mark.parametrize(("grace", "seconds"), [(0, 3), (1, 3), (2, 3), (30, 31), (None, 3601)])
def test_the_runtime_never_kills_first(grace: int | None, seconds: int) -> None:
    """The stop timeout exceeds the core's longest wait: the grace, or the 2 s floor."""
    assert backstop_seconds(grace) == seconds


# An inventory entry: the runtime's labels, overridden by the API server's data.


def entry(*names: str, static: bool = False, sidecars: tuple[str, ...] = ()) -> PodEntry:
    """The runtime's view: priority and grace from annotations."""
    pod = PodEntry("u", "ns", "web", "s")
    pod.priority, pod.grace_seconds, pod.sidecars, pod.static = 5, 10, sidecars, static
    for name in names:
        pod.containers[name] = ContainerEntry(pod, f"id-{name}", pod_spec.ContainerSpec(name=name, argv=()))
    return pod


def known(**fields: object) -> KnownPod:
    return KnownPod(**({"uid": "u", "api_uid": "u", "namespace": "ns", "name": "web"} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("named", [{"namespace": "tenant"}, {"name": "other"}])
def test_a_mirror_of_another_name(named: dict[str, str]) -> None:
    """A mirror describes only the static pod of its own name."""
    theirs = known(static=True, api_uid="claim", grace_seconds=1, **named)
    assert known_pod_of(entry(static=True), Told(theirs)) is None
    own = known(static=True, uid="", api_uid="m", grace_seconds=70)
    assert known_pod_of(entry(static=True), Told(theirs, own)) is own


def test_a_mirror_of_a_pod_without_a_number() -> None:
    """The API server has assigned the class's number; the kubelet has only the manifest."""
    mirror = known(static=True, uid="u", api_uid="m", priority=2_000_001_000)
    manifest = known(static=True, uid="", api_uid="", priority_assigned=True)
    told = known_pod_of(entry("main", static=True), Told(mirror, manifest))
    shown = pod_view(entry("main", static=True), told)
    assert (shown.priority, shown.priority_assigned) == (2_000_001_000, True)


def names(pod: Pod) -> list[tuple[str, bool, bool]]:
    return [(each.name, each.sidecar, each.running) for each in pod.containers]


def test_what_is_known_wins() -> None:
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
    assert pod_view(entry("main", "proxy", sidecars=("main",)), told) == Pod(
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


def test_the_manifests_order() -> None:
    """Sidecars stop in reverse manifest order, however the runtime lists them."""
    told = known(sidecars=("first", "second"), containers=("a", "b"))
    found = pod_view(entry("second", "b", "debug", "first", "a"), told)
    assert [each.name for each in found.containers] == ["first", "second", "a", "b", "debug"]


def test_what_has_ended_well_adds_nothing() -> None:
    """A container that failed, or ended with an unknown code, counts: its pod has not succeeded."""
    pod = entry("main", "well", "badly", "lost")
    pod.containers["well"].finish(ExitStatus(exit_code=0))
    pod.containers["badly"].finish(ExitStatus(exit_code=3))
    pod.containers["lost"].finish(ExitStatus())
    assert names(pod_view(pod)) == [("main", False, True), ("badly", False, False), ("lost", False, False)]


def test_what_has_never_begun() -> None:
    """A container behind an init container is listed as not running."""
    told = known(containers=("main", "well", "later"), ended={"well": 0})
    assert names(pod_view(entry("init"), told)) == [
        ("main", False, False),
        ("later", False, False),
        ("init", False, True),
    ]


def test_who_is_meant() -> None:
    """Match by UID, a static pod also by name: another pod may have had the name before."""
    manifest = known(uid="", api_uid="", priority=2_000_001_000)
    lookup = Told(manifest)
    assert known_pod_of(entry("main", static=True), lookup) == manifest
    assert known_pod_of(entry("main"), lookup) is None
    assert known_pod_of(entry("main"), Told(known(priority=1))) == known(priority=1)
    assert known_pod_of(entry("main"), None) is None
