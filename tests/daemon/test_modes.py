"""Finding a node's parts, parts that may come later, and a mode's requirements."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from ebbtide import modes as places
from ebbtide.config.schema import IN_CLUSTER, NodeSection
from ebbtide.modes import ModeUnavailable, NodeParts, find_node_parts
from ebbtide.options import RunOptions


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any of the usual files, until a test adds them."""
    for name in ("SOCKETS", "KUBECONFIGS", "STATIC_PODS", "UNIT_FOLDERS"):
        moved = tuple(tmp_path / path.relative_to("/") for path in getattr(places, name))
        monkeypatch.setattr(places, name, moved)
    monkeypatch.setattr(places, "JOINING", places.KUBECONFIGS[1])
    monkeypatch.setattr(places, "in_a_pod", lambda: False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path


@pytest.fixture
def runtime(machine: Path) -> Path:
    path = places.SOCKETS[1]
    path.parent.mkdir(parents=True)
    os.mknod(path, stat.S_IFSOCK)
    return path


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def found(mode: str, section: NodeSection | None = None, **options: Any) -> NodeParts:
    return find_node_parts(RunOptions(mode=mode)._replace(**options), section or NodeSection())


def test_on_an_ordinary_node_everything_is_found(runtime: Path) -> None:
    """Our own identity precedes the kubelet's."""
    kubelets, ours = put(places.KUBECONFIGS[1]), put(places.KUBECONFIGS[0])
    places.STATIC_PODS[1].mkdir(parents=True)
    assert found("auto") == NodeParts(
        node=os.uname().nodename.lower(),
        cri_socket=runtime,
        kubeconfig=ours,
        has_api=True,
        static_pods=places.STATIC_PODS[1],
        kubelet_unit="kubelet.service",
        kubelet_root=Path("/var/lib/kubelet"),
    )
    ours.unlink()
    assert found("auto").kubeconfig == kubelets


def test_the_kubelets_unit_is_the_one_that_is_installed(machine: Path) -> None:
    """k3s and rke2 have their own; a configured name is used as is."""
    put(places.UNIT_FOLDERS[0] / "k3s-agent.service")
    assert found("auto").kubelet_unit == "k3s-agent.service"
    put(places.UNIT_FOLDERS[2] / "kubelet.service")
    assert found("auto").kubelet_unit == "kubelet.service"
    assert found("auto", NodeSection(kubelet_unit="mine.service")).kubelet_unit == "mine.service"


def test_mode_auto_starts_with_what_there_is(machine: Path) -> None:
    """A node before joining is armed and waits for its parts."""
    said = found("auto")
    assert (said.has_api, said.kubeconfig, said.cri_socket) == (True, places.JOINING, places.SOCKETS[0])


def test_in_a_pod_its_service_account_is_taken(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's own account precedes the kubelet's identity, unless that is configured."""
    put(places.KUBECONFIGS[1])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(places, "in_a_pod", lambda: True)
    assert found("auto").kubeconfig is None
    assert found("auto", kubeconfig=IN_CLUSTER).has_api
    assert found("auto", kubeconfig="/etc/kubernetes/kubelet.conf").kubeconfig is not None


@pytest.mark.parametrize(
    "mode, options, cure",
    [
        ("api", {}, "--kubeconfig PATH"),
        ("observe", {}, "--kubeconfig PATH"),
        ("cri", {}, "--cri PATH"),
        ("auto", {"kubeconfig": IN_CLUSTER}, "--kubeconfig PATH"),
        ("auto", {"kubeconfig": "/"}, "--kubeconfig PATH"),
        ("auto", {"cri": Path("/")}, "--cri PATH"),
        ("auto", {"node_name": "Node-1"}, "--node-name"),
    ],
)
def test_what_a_mode_cannot_do_without_is_refused(
    machine: Path, mode: str, options: dict[str, Any], cure: str
) -> None:
    """In one line that names the option."""
    with pytest.raises(ModeUnavailable) as refused:
        found(mode, **options)
    assert cure in str(refused.value)
    assert "\n" not in str(refused.value)


WRONG = {"empty": b"", "a-map": b"{}", "no-text": bytes(range(256)), "wrong-types": b"clusters: 3\n"}


@pytest.mark.parametrize("mode", ["auto", "api", "cri", "observe"])
@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_file_that_is_no_kubeconfig(runtime: Path, mode: str, content: bytes) -> None:
    """On the command line it is refused. Otherwise only a mode that needs it refuses it."""
    path = put(places.KUBECONFIGS[1])
    path.write_bytes(content)
    section = NodeSection(kubeconfig=str(path))
    with pytest.raises(ModeUnavailable, match=f"^kubeconfig {path}: .*--kubeconfig PATH$"):
        found(mode, kubeconfig=str(path))
    for where in (None, section):
        if mode in ("api", "observe"):
            with pytest.raises(ModeUnavailable, match=r"no kubeconfig|current-context|no YAML"):
                found(mode, where)
        else:
            assert found(mode, where).kubeconfig == path


def test_a_pods_environment_names_its_node(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The downward API precedes the shared configuration and follows the option."""
    monkeypatch.setenv(places.NODE_NAME_VARIABLE, "worker-3")
    assert found("auto", NodeSection(node_name="a")).node == "worker-3"
    assert found("auto", node_name="b").node == "b"
    monkeypatch.setenv(places.NODE_NAME_VARIABLE, "Worker_3")
    with pytest.raises(ModeUnavailable, match="'Worker_3' is no Node's name"):
        found("auto")
