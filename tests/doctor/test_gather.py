"""The doctor's input: command lines, kubelet settings, lists."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, PodEntry
from ebbtide.actors.edges.cri.orders import node_address
from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction
from ebbtide.config.schema import NodeSection
from ebbtide.doctor import gather as pods
from ebbtide.doctor import node_looks
from ebbtide.doctor.gather import HookTarget, detect_mode, targets_of_containers
from ebbtide.doctor.node_looks import command_line_flag, known_pods_of, kubelet_settings
from ebbtide.events.base import NS_PER_SECOND

# --- the kubelet -------------------------------------------------------------------------------


@pytest.mark.parametrize("words, value", [
    (["kubelet", "--config=/a"], "/a"), (["kubelet", "--config", "/a"], "/a"),
    (["kubelet", "--config=/a", "--config=/b"], "/b"), (["kubelet", "--config-dir=/d"], ""),
    (["kubelet", "--config"], ""),
])  # fmt: skip
def test_a_flag_of_a_command_line(words: list[str], value: str) -> None:
    """Go's flag syntax; a longer flag name does not match."""
    assert command_line_flag(words, "config") == value


def kubelet(**fields: object) -> str:
    return json.dumps(
        {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **fields}
    )


def test_what_a_kubelet_asks_for(tmp_path: Path) -> None:
    """Read with that process's file system; drop-ins override the file, and the sum counts."""
    file, folder = tmp_path / "k.yaml", tmp_path / "k.d"
    file.write_text(kubelet(shutdownGracePeriod="30s", shutdownGracePeriodCriticalPods="10s", port=10250))
    words = ["kubelet", f"--config={file}"]
    assert kubelet_settings(os.getpid(), words) == (str(file), 30 * NS_PER_SECOND)
    folder.mkdir()
    (folder / "10-off.conf").write_text(
        kubelet(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s")
    )
    assert kubelet_settings(os.getpid(), [*words, f"--config-dir={folder}"]) == (str(file), 0)
    assert kubelet_settings(os.getpid(), ["kubelet", f"--config={tmp_path / 'no'}"])[1] is None


def test_the_kubelet_of_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet with the configured node name, else one without a name; another node's never."""
    running = [(1, ["/usr/bin/kubelet", "--hostname-override=node-2"]), (2, ["kubelet"]), (3, ["kubeletx"])]
    monkeypatch.setattr(node_looks, "commands", lambda: iter(running))
    assert node_looks.kubelet_process("node-2").pid == 1
    assert node_looks.kubelet_process("node-1").pid == 2
    monkeypatch.setattr(node_looks, "commands", lambda: iter(running[:1]))
    assert node_looks.kubelet_process("node-1").pid == 0


# --- hooks ---------------------------------------------------------------------------------------


def test_what_the_hooks_of_a_container_would_ask() -> None:
    """The pod's address and a named port; on the host network the node's address. A hook without a request
    has a reason.
    """
    pod = PodEntry("u-1", "shop", "web-0", "sandbox")
    get = HttpGetAction(port="web", path="/bye")
    for name, ports in (("main", {"web": 8080}), ("side", {})):
        spec = ContainerSpec(name=name, argv=(), pre_stop=get, ports=ports)
        pod.containers[name] = ContainerEntry(pod, name, spec)
    pod.containers["plain"] = ContainerEntry(pod, "plain", ContainerSpec(name="plain", argv=()))
    pod.pod_ip = "10.1.2.3"
    good, bad = targets_of_containers(pod)
    assert good == HookTarget("shop/web-0 main", "10.1.2.3", 8080)
    assert (bad.name, bad.host) == ("shop/web-0 side", "")
    assert "'web'" in bad.error
    pod.pod_ip = ""
    assert next(targets_of_containers(pod)).host == node_address()


# --- pods --------------------------------------------------------------------------------------


def test_a_list_of_pods() -> None:
    """Without ended pods; nulls are as good as absent."""
    pod = {
        "metadata": {"uid": "u-1", "name": "a", "namespace": "a", "labels": None},
        "spec": {"volumes": None},
    }
    ended = {**pod, "status": {"phase": "Failed"}}
    (listed,) = known_pods_of(json.dumps({"items": [pod, ended]}).encode())
    assert listed.uid == "u-1"


@pytest.mark.parametrize("body", [b'{"items": 7}', b'{"items": "\xff"}', b'{"items": ' + b"[" * 9000])
def test_a_list_that_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match="list of pods cannot be read"):
        known_pods_of(body)


def test_what_a_machine_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet's folder with a runtime socket, an identity, or the configuration make a node; a runtime
    alone does not.
    """
    for name in ("SOCKETS", "KUBECONFIGS"):
        monkeypatch.setattr(pods, name, ())
    assert detect_mode(NodeSection(), tmp_path) == "process"
    assert detect_mode(NodeSection(node_name="node-1"), tmp_path) == "auto"
    identity = tmp_path / "kubelet.conf"
    monkeypatch.setattr(pods, "KUBECONFIGS", (identity,))
    assert detect_mode(NodeSection(kubelet_root=str(tmp_path)), tmp_path) == "process"
    identity.touch()
    assert detect_mode(NodeSection(), tmp_path) == "auto"
