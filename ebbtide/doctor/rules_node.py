"""The doctor's rules about what a node's mode needs: packages, kubelet, runtime, API server, and time.

How grave a lack is depends on the mode: what one mode cannot do without is another one's second way.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors.policy.explain import seconds_text
from ebbtide.doctor.seen import ONE_UNIT, NodeSeen
from ebbtide.doctor.sight import Finding, Level, Sight
from events.base import NS_PER_SECOND

#: What the admission plugin DefaultTolerationSeconds gives every pod for not-ready and unreachable nodes.
TOLERATION_SECONDS = 300

#: The modes in which a wave may be the API server's; their other way is the runtime.
BY_API = ("api", "auto")
#: Those in which we end pods, rather than look on.
OURS = ("api", "auto", "cri")
#: A socket below this folder belongs to a unit of `ONE_UNIT`.
K3S_FOLDER = "/run/k3s/"

_KUBELET_OFF = "set shutdownGracePeriod: 0s in the kubelet's configuration and restart it"


def packages(sight: Sight) -> Iterator[Finding]:
    if sight.node is not None and sight.node.missing:
        needed = ", ".join(sight.node.missing)
        level: Level = "warning" if sight.node.mode == "auto" else "critical"
        message = f"mode {sight.node.mode} needs packages that are not installed: {needed}"
        yield Finding(level, "packages-missing", message, "pip install 'ebbtide[node]'")


def unfit(sight: Sight) -> Iterator[Finding]:
    """What ``ebbtide run`` would refuse; its line names the cure."""
    if sight.node is not None and sight.node.unfit:
        message, _, cure = sight.node.unfit.partition(": ")
        yield Finding("critical", "mode-unfit", message, cure or "see 'ebbtide run --help'")


# --- the kubelet -------------------------------------------------------------------------------


def graceful_kubelet(sight: Sight) -> Iterator[Finding]:
    """The kubelet's own graceful shutdown: in the way, or missing, by mode."""
    mode = sight.node.mode if sight.node is not None else "process"
    if sight.bus is None:
        return
    if sight.bus.kubelet_lock:
        yield from _kubelet_has_a_lock(mode)
    elif sight.node is not None:
        yield from _kubelet_without_lock(sight.node, sight.bus.grant_ns)


def _kubelet_has_a_lock(mode: str) -> Iterator[Finding]:
    said = "a kubelet holds a delay lock as well"
    if mode in ("api", "cri"):
        message = f"{said}: mode {mode} does not arm beside it, since two would end the same pods"
        yield Finding("critical", "kubelet-too", message, f"{_KUBELET_OFF}, or use mode observe")
    elif mode == "auto":
        message = f"{said}: mode auto only looks on (observe), the kubelet ends the pods"
        yield Finding("note", "kubelet-too", message, f"{_KUBELET_OFF}, if Ebbtide is to end them")
    elif mode == "process":
        yield Finding("warning", "kubelet-too", f"{said}: two would end the same pods", _KUBELET_OFF)


def _kubelet_without_lock(node: NodeSeen, grant_ns: int) -> Iterator[Finding]:
    asks = node.kubelet.grace_ns
    if node.mode == "observe":
        why = "it may have met a logind that was going down already, and never tries again"
        if asks == 0:
            why = "its graceful shutdown is off"
        elif asks is not None and grant_ns < asks:
            why = f"logind grants {seconds_text(grant_ns)} of the {seconds_text(asks)} that it asks for"
        message = f"mode observe leaves the pods to the kubelet, and no kubelet holds a delay lock: {why}"
        cure = "set shutdownGracePeriod in the kubelet's configuration and restart it, or use mode auto"
        yield Finding("critical", "kubelet-not-armed", message, cure)
    elif asks:
        message = (
            f"the kubelet's configuration {node.kubelet.config} asks for {seconds_text(asks)} of graceful "
            "shutdown: it holds no lock now, but takes one when it starts"
        )
        yield Finding("warning", "kubelet-configured", message, _KUBELET_OFF)


def kubelet_unit(sight: Sight) -> Iterator[Finding]:
    """Whether the kubelet can be stopped, and whether it is there to carry out deletes."""
    node = sight.node
    if node is None or node.mode not in OURS:
        return
    kubelet, unit = node.kubelet, node.kubelet.unit
    if kubelet.loaded is False:
        level: Level = "critical" if node.mode == "cri" and kubelet.pid else "warning"
        other = f" ({kubelet.beside[0]} is active)" if kubelet.beside else ""
        message = (
            f"there is no unit {unit}{other}: the kubelet cannot be stopped and starts again what is ended"
        )
        yield Finding(level, "kubelet-unit-missing", message, "name its unit in node.kubeletUnit")
    elif kubelet.active is False and node.mode in BY_API:
        message = (
            f"{unit} is not active: nobody carries out a delete, so every shutdown goes over the runtime"
        )
        yield Finding("warning", "kubelet-down", message, f"systemctl start {unit}")


def one_unit(sight: Sight) -> Iterator[Finding]:
    """k3s and rke2: the kubelet cannot be stopped without its container runtime."""
    node = sight.node
    if node is None or node.mode not in OURS:
        return
    unit = node.kubelet.unit if node.kubelet.unit in ONE_UNIT else next(iter(node.kubelet.beside), "")
    if not unit and node.runtime.socket.startswith(K3S_FOLDER):
        unit = f"the owner of {node.runtime.socket}"
    if unit:
        level: Level = "critical" if node.mode == "cri" else "warning"
        message = (
            f"{unit} is kubelet and container runtime in one: it cannot be stopped for waves over the "
            "runtime, and starts again what they end"
        )
        cure = "use mode api (in auto: node.means with api for every kind of shutdown)"
        yield Finding(level, "one-unit", message, cure)


# --- the two ways ------------------------------------------------------------------------------


def runtime(sight: Sight) -> Iterator[Finding]:
    node = sight.node
    if node is None or node.missing or not node.runtime.problem:
        return
    socket = node.runtime.socket or "any known socket"
    said = f"the container runtime at {socket} cannot be used: {node.runtime.problem}"
    cure = "systemctl status containerd crio; another socket is named with node.criSocket or --cri"
    if node.mode == "observe":
        message = f"{said}; what becomes of the pods will not be on record"
        yield Finding("warning", "runtime-away", message, cure)
    elif node.mode == "cri" or not node.api.answers:
        yield Finding("critical", "runtime-away", f"{said}; no pod can be ended", cure)
    else:
        message = f"{said}; static pods, and whatever is late, would be left to the machine's end"
        yield Finding("warning", "runtime-away", message, cure)


#: What a mode loses without an API server.
_WITHOUT_API = {
    "api": "every shutdown goes over the runtime",
    "auto": "every shutdown goes over the runtime",
    "cri": "the node and its pods are shown as running until the cluster misses them",
    "observe": "nobody waits for the pods' final statuses",
}


def api(sight: Sight) -> Iterator[Finding]:
    """Where the runtime cannot be used either, its own finding is the critical one."""
    node = sight.node
    if node is None or node.missing or node.api.answers:
        return
    level: Level = "note" if node.mode == "cri" and not node.api.source else "warning"
    loss = _WITHOUT_API[node.mode]
    if not node.api.source:
        message, cure = "no kubeconfig is named or found", "name one with node.kubeconfig or --kubeconfig"
        yield Finding(level, "kubeconfig-missing", f"{message}: {loss}", cure)
    else:
        message = f"the API server cannot be asked with {node.api.source}: {node.api.problem}; {loss}"
        cure = f"see what 'kubectl --kubeconfig {node.api.source} get node {node.name}' says"
        if node.api.source in node.api.problem:  # of the file itself, not of the server
            cure = "use sudo, or name another with node.kubeconfig or --kubeconfig"
        yield Finding("warning", "api-away", message, cure)


def name(sight: Sight) -> Iterator[Finding]:
    if sight.node is not None and sight.node.api.known is False:
        message = f"the API server has no Node called {sight.node.name}: none of its pods would be found"
        cure = (
            "name it with node.nodeName or --node-name (kubectl get nodes; the kubelet's --hostname-override)"
        )
        yield Finding("critical", "node-unknown", message, cure)


# --- time --------------------------------------------------------------------------------------


def away_too_long(sight: Sight) -> Iterator[Finding]:
    """Pods that shall come back here are evicted when their node is away for longer than they tolerate.

    The 40 to 50 s until the cluster takes a node for gone come on top; not counted, they are the margin.
    """
    node, plan = sight.node, sight.plan
    if node is None or plan is None or node.boot_ns is None or node.mode == "api":
        return
    waves_ns = (plan.budget_seconds + plan.reserve_seconds) * NS_PER_SECOND
    if plan.enabled and waves_ns + node.boot_ns > TOLERATION_SECONDS * NS_PER_SECOND:
        message = (
            f"a reboot may take {seconds_text(waves_ns)} of shutdown and, as the last one, "
            f"{seconds_text(node.boot_ns)} of boot: after {TOLERATION_SECONDS} s pods are evicted, and come "
            "up elsewhere"
        )
        cure = "shorten the periods, or give pods that shall come back a longer tolerationSeconds"
        yield Finding("warning", "away-too-long", message, cure)


RULES = (packages, unfit, kubelet_unit, one_unit, runtime, api, name, away_too_long)
