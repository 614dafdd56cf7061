"""The doctor's input: command lines, kubelet settings, lists."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, PodEntry
from ebbtide.actors.edges.cri.cri_runtime import node_address
from ebbtide.actors.edges.kubernetes import api_client as light
from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction
from ebbtide.config.schema import NodeSection
from ebbtide.doctor import gather as pods
from ebbtide.doctor import node_looks
from ebbtide.doctor.gather import HookTarget, detect_mode, targets_of_containers
from ebbtide.doctor.rules import ApiServerState
from ebbtide.events.base import NS_PER_SECOND
from tests.actors.edges.kubernetes.write_fake import Scripted
from tests.node.client import Object

# --- the kubelet


@pytest.mark.parametrize("words, value", [
    (["kubelet", "--config=/a"], "/a"), (["kubelet", "--config", "/a"], "/a"),
    (["kubelet", "--config=/a", "--config=/b"], "/b"), (["kubelet", "--config-dir=/d"], ""),
    (["kubelet", "--config"], ""),
])  # fmt: skip
def test_a_flag_of_a_command_line(words: list[str], value: str) -> None:
    """Go's flag syntax; a longer flag name does not match."""
    assert node_looks.command_line_flag(words, "config") == value


def kubelet(**fields: object) -> str:
    return json.dumps(
        {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **fields}
    )


def test_what_a_kubelet_asks_for(tmp_path: Path) -> None:
    """Read with that process's file system; drop-ins override the file, and the sum counts."""
    file, folder = tmp_path / "k.yaml", tmp_path / "k.d"
    file.write_text(kubelet(shutdownGracePeriod="30s", shutdownGracePeriodCriticalPods="10s", port=10250))
    words = ["kubelet", f"--config={file}"]
    assert node_looks.kubelet_settings(os.getpid(), words) == (str(file), 30 * NS_PER_SECOND)
    folder.mkdir()
    (folder / "10-off.conf").write_text(
        kubelet(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s")
    )
    assert node_looks.kubelet_settings(os.getpid(), [*words, f"--config-dir={folder}"]) == (str(file), 0)
    assert node_looks.kubelet_settings(os.getpid(), ["kubelet", f"--config={tmp_path / 'no'}"])[1] is None


def test_the_kubelet_of_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet with the configured node name, else one without a name; another node's never."""
    running = [(1, ["/usr/bin/kubelet", "--hostname-override=node-2"]), (2, ["kubelet"]), (3, ["kubeletx"])]
    monkeypatch.setattr(node_looks, "commands", lambda: iter(running))
    assert node_looks.kubelet_process("node-2").pid == 1
    assert node_looks.kubelet_process("node-1").pid == 2
    monkeypatch.setattr(node_looks, "commands", lambda: iter(running[:1]))
    assert node_looks.kubelet_process("node-1").pid == 0


# --- hooks


def test_what_the_hooks_of_a_container_would_ask() -> None:
    """The pod's address and a named port; on the host network the node's. No port: the reason."""
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


# --- pods


def test_a_list_of_pods() -> None:
    """Without ended pods; nulls are as good as absent."""
    pod = {
        "metadata": {"uid": "u-1", "name": "a", "namespace": "a", "labels": None},
        "spec": {"volumes": None},
    }
    ended = {**pod, "status": {"phase": "Failed"}}
    (listed,) = node_looks.known_pods_of(json.dumps({"items": [pod, ended]}).encode())
    assert listed.uid == "u-1"


@pytest.mark.parametrize("body", [b'{"items": 7}', b'{"items": "\xff"}', b'{"items": ' + b"[" * 9000])
def test_a_list_that_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match="list of pods cannot be read"):
        node_looks.known_pods_of(body)


def test_what_a_machine_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet's folder with a socket, an identity, or the configuration make a node; no runtime alone."""
    for name in ("SOCKETS", "KUBECONFIGS"):
        monkeypatch.setattr(pods, name, ())
    assert detect_mode(NodeSection(), tmp_path) == "process"
    assert detect_mode(NodeSection(node_name="node-1"), tmp_path) == "auto"
    identity = tmp_path / "kubelet.conf"
    monkeypatch.setattr(pods, "KUBECONFIGS", (identity,))
    assert detect_mode(NodeSection(kubelet_root=str(tmp_path)), tmp_path) == "process"
    identity.touch()
    assert detect_mode(NodeSection(), tmp_path) == "auto"


# --- the API server


OURS = {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/theirs", "effect": "NoSchedule"}
NODE = "/api/v1/nodes/node-1"


def answered(taints: list[Object], patch: Answer) -> Scripted:
    said: Mapping[str, Any] = {"metadata": {}, "spec": {"taints": taints}}

    def behave(asked: Any) -> tuple[float, Answer]:
        if asked.method == "PATCH":
            return 0.0, patch
        return 0.0, Answer(200, json.dumps(said if asked.path == NODE else {}).encode())

    return Scripted(behave)


@pytest.mark.parametrize(
    "code, may, confined",
    [(200, True, False), (403, False, None), (422, False, True), (404, None, None), (500, None, None)],
)
async def test_what_the_dry_run_says(code: int, may: bool | None, confined: bool | None) -> None:
    """A refusal is a no; a failure is no proof. A role without the right hides the policy."""
    server = answered([THEIRS, OURS], Answer(code, b"{}"))
    api, _ = await node_looks.examine_api_server(server, ApiServerState(), "node-1")
    assert (api.taint, api.confined) == (may, confined)
    patches = {each.path: each.body for each in server.asked if each.method == "PATCH"}
    assert patches[f"{NODE}?dryRun=All"] == {"spec": {"taints": [THEIRS, OURS]}}
    assert all("?dryRun=All" in path for path in patches)


async def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light, "PACKAGE", "no_such_package")
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": ""}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    api, _ = await node_looks.look_at_api_server(path, "node-1")
    assert "[node]'" in api.problem
