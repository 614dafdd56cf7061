"""How the doctor reads what it looks at: certificates, command lines, kubelet settings, manifests, lists."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, PodEntry
from ebbtide.actors.edges.cri.orders import node_address
from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction
from ebbtide.config.schema import NodeSection
from ebbtide.doctor import gather as pods
from ebbtide.doctor import machine
from ebbtide.doctor.api_server import certificate_validity
from ebbtide.doctor.gather import HookTarget, detect_mode, targets_of_containers
from ebbtide.doctor.machine import command_line_flag, kubelet_settings
from ebbtide.doctor.node_looks import pods_of_list, static_pods
from ebbtide.doctor.snapshot import StaticPod
from ebbtide.events.base import NS_PER_SECOND
from tests.actors.edges.test_documents import merge_bomb

UTC = datetime.UTC


# --- certificates ------------------------------------------------------------------------------


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2099])
def test_until_when_a_certificate_is_valid(year: int) -> None:
    """Both forms of a time, with two digits of a year and with four."""
    ends = datetime.datetime(year, 5, 6, 7, 8, 9, tzinfo=UTC)
    begins = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    leaf = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert(
        "node-1", not_before=begins, not_after=ends, key_type=trustme.KeyType.ECDSA
    )
    assert certificate_validity(leaf.cert_chain_pems[0].bytes()) == (
        int(begins.timestamp()),
        int(ends.timestamp()),
    )


@given(st.binary(max_size=64))
def test_what_is_no_certificate_has_no_validity(data: bytes) -> None:
    """Whatever a file holds, reading it raises nothing."""
    pem = b"-----BEGIN CERTIFICATE-----\n" + data.hex().encode() + b"\n-----END CERTIFICATE-----\n"
    assert certificate_validity(data) is None
    assert certificate_validity(pem) is None


# --- the kubelet -------------------------------------------------------------------------------


@pytest.mark.parametrize("words, value", [
    (["kubelet", "--config=/a"], "/a"), (["kubelet", "--config", "/a"], "/a"),
    (["kubelet", "--config=/a", "--config=/b"], "/b"), (["kubelet", "--config-dir=/d"], ""),
    (["kubelet", "--config"], ""),
])  # fmt: skip
def test_a_flag_of_a_command_line(words: list[str], value: str) -> None:
    """As Go's flags are given; another one with a longer name is another one."""
    assert command_line_flag(words, "config") == value


def kubelet(**fields: object) -> str:
    return json.dumps(
        {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **fields}
    )


def test_what_a_kubelet_asks_for(tmp_path: Path) -> None:
    """Read as that process sees its files; drop-ins go over the file, and their sum is what counts."""
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
    """By the name that it was given, else one that was given none; another node's is not ours."""
    running = [(1, ["/usr/bin/kubelet", "--hostname-override=node-2"]), (2, ["kubelet"]), (3, ["kubeletx"])]
    monkeypatch.setattr(machine, "commands", lambda: iter(running))
    assert machine.kubelet_process("node-2").pid == 1
    assert machine.kubelet_process("node-1").pid == 2
    monkeypatch.setattr(machine, "commands", lambda: iter(running[:1]))
    assert machine.kubelet_process("node-1").pid == 0


def test_the_file_that_has_the_power_key_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments and other values do not count."""
    monkeypatch.setattr(machine, "LOGIND_FOLDERS", (tmp_path,))
    (tmp_path / "a.conf").write_text("[Login]\n#HandlePowerKey=ignore\nHandlePowerKey=poweroff\n")
    assert machine.power_key_file() in ("", "/etc/systemd/logind.conf")
    (tmp_path / "b.conf").write_text("[Login]\n HandlePowerKey = ignore\n")
    assert machine.power_key_file() == str(tmp_path / "b.conf")


# --- hooks ---------------------------------------------------------------------------------------


def test_what_the_hooks_of_a_container_would_ask() -> None:
    """By the pod's address and a port's name; a pod in the node's network by the node's address, and a hook
    that is no request says why.
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


def test_static_pods_without_a_number(tmp_path: Path) -> None:
    """With a class or with nothing; one with a number, and what is no pod or no file, are passed over."""
    pod = {"metadata": {"name": "etcd", "namespace": "kube-system"}, "spec": {"priorityClassName": "x"}}
    (tmp_path / "a.json").write_text(json.dumps(pod))
    (tmp_path / "b.yaml").write_text("metadata: {name: bare}\nspec: {}\n")
    (tmp_path / "c.yaml").write_text("metadata: {name: numbered}\nspec: {priority: 7}\n")
    (tmp_path / "d.yaml").write_text("]")
    (tmp_path / "e.yaml").write_bytes(b"\xff")
    (tmp_path / "f.txt").write_text("metadata: {name: text}\n")
    os.mkfifo(tmp_path / "g.yaml")
    (tmp_path / "h.yaml").write_text(merge_bomb(14))
    assert static_pods(tmp_path) == (
        StaticPod("kube-system/etcd", str(tmp_path / "a.json"), "x"),
        StaticPod("default/bare", str(tmp_path / "b.yaml")),
    )
    assert static_pods(tmp_path / "none") == ()


def test_a_list_of_pods() -> None:
    """What an agent is told by; those that have ended are left out, nulls are as good as absent."""
    owner = {"kind": "DaemonSet", "name": "net", "controller": True}
    agent = {
        "metadata": {
            "uid": "u-1",
            "name": "net-x",
            "namespace": "kube-system",
            "labels": {"k8s-app": "Calico-Node", "secret": "not-telling"},
            "ownerReferences": [owner],
        },
        "spec": {
            "hostNetwork": True,
            "containers": [{"name": "a", "image": "Reg/CNI:1"}],
            "volumes": [{"name": "cni", "hostPath": {"path": "/opt/cni/bin"}}, {"name": "t", "emptyDir": {}}],
        },
        "status": {"phase": "Running"},
    }
    bare = {
        "metadata": {"uid": "u-2", "name": "b", "namespace": "a", "labels": None},
        "spec": {"volumes": None},
    }
    ended = {**agent, "status": {"phase": "Failed"}}
    listed = pods_of_list(json.dumps({"items": [agent, ended, bare]}).encode())
    first, second = listed.pods
    assert (first.uid, first.label, first.daemon, first.host_network) == (
        "u-1",
        "kube-system/net-x",
        True,
        True,
    )
    assert first.paths == ("/opt/cni/bin",)
    assert first.terms == ("net-x", "reg/cni:1", "calico-node")
    assert (second.label, second.paths, second.terms) == ("a/b", (), ("b",))
    assert [each.uid for each in listed.known] == ["u-1", "u-2"]


@pytest.mark.parametrize("body", [b'{"items": 7}', b'{"items": "\xff"}', b'{"items": ' + b"[" * 9000])
def test_a_list_that_is_none(body: bytes) -> None:
    """Said in words."""
    with pytest.raises(ValueError, match="list of pods cannot be read"):
        pods_of_list(body)


def test_what_a_machine_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet's folder with a runtime's socket, an identity, or the configuration's word make a node; a
    runtime alone does not.
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
