"""The doctor's rules about single pods: agents before their users, static pods, graces, what is alike."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.cli.doctor import shortened
from ebbtide.doctor.snapshot import NodePod, StaticPod
from ebbtide.events.model import Pod
from tests.doctor.values import CNI, DISK, HOST, WEB, WELL, found, grades, node, plan

CSI = NodePod("u-agent", "kube-system/csi", paths=("/var/lib/kubelet/plugins_registry",))
LOG = NodePod("u-agent", "kube-system/log", daemon=True, paths=("/var/log",), terms=("reg/fluent-bit:3",))
PROXY = NodePod("u-agent", "kube-system/proxy", daemon=True, host_network=True, terms=("kube-proxy-x1",))
AGENT = ("u-agent",)


@pytest.mark.parametrize("agent, user", [(CSI, DISK), (LOG, WEB), (LOG, HOST), (PROXY, WEB)])
def test_an_agent_before_those_who_need_it(agent: NodePod, user: NodePod) -> None:
    """Named with its wave, how many need it, and the first of them."""
    sight = node(pods=(agent, user))._replace(plan=plan(AGENT, (user.uid,)))
    (finding,) = found(sight)
    assert (finding.level, finding.code) == ("warning", "agent-early")
    assert finding.message.startswith(agent.label)
    assert f"is in wave 0, before 1 pods that need it, the first of them {user.label}" in finding.message


@pytest.mark.parametrize("agent, user", [(CSI, DISK), (LOG, WEB), (PROXY, WEB), (CNI, WEB)])
def test_an_agent_after_those_who_need_it_is_well(agent: NodePod, user: NodePod) -> None:
    """The order that a priority class of the system's gives."""
    assert grades(node(pods=(agent, user))._replace(plan=plan((user.uid,), (agent.uid,)))) == []


@pytest.mark.parametrize("agent, user", [(CSI, WEB), (PROXY, HOST), (CNI, HOST)])
def test_pods_that_do_not_need_the_agent_may_go_later(agent: NodePod, user: NodePod) -> None:
    """No volumes: no driver is needed; the node's own network: no CNI is."""
    assert grades(node(pods=(agent, user))._replace(plan=plan((agent.uid,), (user.uid,)))) == []


def test_a_driver_in_one_wave_with_its_users_is_early() -> None:
    """Volumes are unmounted after their pod has ended; the network is not needed any more then."""
    together = node(pods=(CSI, DISK))._replace(plan=plan((CSI.uid, DISK.uid)))
    (finding,) = found(together)
    assert "together with" in finding.message
    assert grades(node(pods=(CNI, WEB))._replace(plan=plan((CNI.uid, WEB.uid)))) == []


@pytest.mark.parametrize(
    "pod",
    [
        NodePod("u-agent", "a/flannel-docs", terms=("flannel-docs",)),
        NodePod("u-agent", "a/collector", daemon=True, terms=("fluent",)),
        NodePod("u-agent", "a/npd", daemon=True, paths=("/var/log",), terms=("node-problem-detector",)),
        NodePod("u-agent", "a/p", paths=("/var/lib/kubelet/plugins-of-mine",)),
        NodePod("u-agent", "a/q", daemon=True, host_network=True, terms=("node-exporter",)),
    ],
    ids=lambda pod: pod.label,
)
def test_one_sign_is_not_enough(pod: NodePod) -> None:
    """What only has the name of an agent, or only its mounts, is not taken for one."""
    assert grades(node(pods=(pod, WEB, DISK))._replace(plan=plan(AGENT, (WEB.uid, DISK.uid)))) == []


def test_a_pod_of_no_wave_is_neither_agent_nor_user() -> None:
    """Our own pod is on the node, and in no wave."""
    assert grades(node(pods=(CSI, DISK))._replace(plan=plan((DISK.uid,)))) == []


def test_static_pods_without_a_number() -> None:
    """Without any priority a warning; a class alone is one where the kubelet itself ends the pods."""
    bare, named = (
        StaticPod("a/etcd", "/m/etcd.yaml"),
        StaticPod("a/api", "/m/api.yaml", "system-node-critical"),
    )
    assert grades(node(statics=(bare,))) == [("warning", "static-without-priority")]
    assert grades(node(statics=(named,))) == [("note", "static-class-only")]
    (finding,) = [each for each in found(node(mode="observe", statics=(named,))) if "static" in each.code]
    assert finding.level == "warning"
    assert finding.cure == "write spec.priority as a number into /m/api.yaml"


def pod(name: str, grace_seconds: int | None) -> Pod:
    return Pod(uid=name, namespace="default", name=name, grace_seconds=grace_seconds)


def test_a_grace_that_no_wave_has() -> None:
    """One finding for all of them, with the longest; a grace as long as the longest wave is none."""
    pods = (pod("a", 15), pod("b", 16), pod("c", 60), pod("d", None))
    (finding,) = found(WELL._replace(pods=pods))
    assert (finding.level, finding.code) == ("warning", "grace-beyond")
    assert finding.message == "no wave is longer than 15 s, and up to 60 s are asked for by b, c"
    assert grades(WELL._replace(pods=pods[:1])) == []


def test_a_cut_that_no_priority_would_spare_is_told_once() -> None:
    """Together with the others that no wave has time for; a cut by its own wave alone stays."""
    assert WELL.plan is not None
    cuts = tuple(("grace-cut", f"{name} asks for 60 s and gets 15 s: wave 0 has 15 s") for name in ("c", "e"))
    sight = WELL._replace(pods=(pod("c", 60),), plan=msgspec.structs.replace(WELL.plan, warnings=cuts))
    assert [each.code for each in found(sight)] == ["grace-cut", "grace-beyond"]
    assert found(sight)[0].message.startswith("e asks for")


def test_many_names_are_counted() -> None:
    """A finding stays a line."""
    (finding,) = found(WELL._replace(pods=tuple(pod(f"p{at}", 99) for at in range(7))))
    assert finding.message.endswith("by p0, p1, p2, p3, p4 and 2 more")


def test_findings_that_are_alike_are_told_three_times() -> None:
    """A node has a hundred pods, often from one template: people see some and a number, scripts see all."""
    cuts = tuple(("grace-cut", f"web-{at} is cut") for at in range(8))
    naps = tuple(("sleep-cut", f"nap-{at} is cut") for at in range(3))
    assert WELL.plan is not None
    all_of_them = found(WELL._replace(plan=msgspec.structs.replace(WELL.plan, warnings=cuts + naps)))
    assert len(all_of_them) == 11
    told = list(shortened(all_of_them))
    assert [each.message for each, _ in told] == [
        *("web-0 is cut", "web-1 is cut", "web-2 is cut"),
        *("nap-0 is cut", "nap-1 is cut", "nap-2 is cut"),
    ]
    assert [more for _, more in told] == [0, 0, 5, 0, 0, 0]


def test_a_priority_that_nobody_told_has_another_cure_on_a_node() -> None:
    """There it is not the manifest that is wrong."""
    assert WELL.plan is not None
    unset = msgspec.structs.replace(WELL.plan, warnings=(("priority-unset", "web-0: none"),))
    (on_a_node,) = found(WELL._replace(plan=unset))
    assert "kubeconfig" in on_a_node.cure
    (of_processes,) = found(WELL._replace(plan=unset, node=None))
    assert "manifest" in of_processes.cure
