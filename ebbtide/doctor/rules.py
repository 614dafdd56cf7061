"""The doctor's rules: from what was seen to findings, each with its cure.

Each rule is a function that yields findings; the table at the end is the only list of them, in the order in
which they are shown. A rule looks at nothing but its `Snapshot`, so each is tested on plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from ebbtide.actors.edges.logind.drop_ins import DROP_IN_NAME
from ebbtide.actors.policy.planning import Plan, first_names, short_name
from ebbtide.doctor.snapshot import (
    DRY_DELETE,
    DRY_PATCH,
    LOGIND_CALL,
    MASTERS_GROUP,
    NEEDED_RIGHTS,
    NODE_USER,
    SINGLE_UNIT_DISTRIBUTIONS,
    SYNC,
    Finding,
    Level,
    NodePod,
    NodeSnapshot,
    Snapshot,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.record.format import visible
from ebbtide.events.units import short_span, size_text, span, span_s
from ebbtide.events.values import Pod
from ebbtide.extras import install_command

# Which pods are agents that others need, told from what they are made of, and which of them go too early.
#
# There is no field that says "I am a CNI". So an agent is only taken for one where two signs agree, and one
# that is not recognised is passed over:
#
# * network: it has the host's CNI folder mounted (that is how a CNI installs itself), or it belongs to a
#   DaemonSet, shares the node's network, and bears the name of a known one.
# * storage: it has the kubelet's folder of plugins or their registry mounted, as every CSI node driver must.
# * logging: it belongs to a DaemonSet, has the host's /var/log mounted, and bears the name of a known one.
#
# Who needs it: for the network, pods with a network of their own; for storage, pods with volumes that are
# unmounted; for logging, everybody else. A driver in one wave with its users is too early as well: their
# volumes are unmounted after they have ended.


CNI_FOLDERS = ("/etc/cni/net.d", "/opt/cni/bin")
CSI_FOLDERS = ("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry")
LOG_FOLDERS = ("/var/log", "/var/lib/docker/containers")

NETWORK_AGENTS = (
    *("antrea", "aws-node", "azure-cni", "calico", "canal", "cilium", "flannel", "kindnet", "kube-proxy"),
    *("kube-router", "multus", "ovn", "tigera", "weave"),
)
LOGGING_AGENTS = (
    *("alloy", "datadog", "filebeat", "fluent", "logging", "logstash", "opentelemetry", "otel-collector"),
    *("promtail", "splunk", "vector"),
)


class AgentKind(NamedTuple):
    """``same_wave``: ending it together with its users is too early already."""

    what: str
    is_agent: Callable[[NodePod], bool]
    needs_it: Callable[[NodePod], bool]
    same_wave: bool = False


def _mounts(pod: NodePod, folders: Sequence[str]) -> bool:
    """One of these folders, or one below them."""
    return any(
        path.rstrip("/") == each or path.startswith(f"{each}/") for path in pod.paths for each in folders
    )


def _has_name_of(pod: NodePod, names: Sequence[str]) -> bool:
    return any(name in word for word in pod.terms for name in names)


def _is_network_agent(pod: NodePod) -> bool:
    return _mounts(pod, CNI_FOLDERS) or (
        pod.daemon and pod.host_network and _has_name_of(pod, NETWORK_AGENTS)
    )


def _is_storage_agent(pod: NodePod) -> bool:
    return _mounts(pod, CSI_FOLDERS)


def _is_logging_agent(pod: NodePod) -> bool:
    return pod.daemon and _mounts(pod, LOG_FOLDERS) and _has_name_of(pod, LOGGING_AGENTS)


AGENT_KINDS = (
    AgentKind("network", _is_network_agent, lambda pod: not pod.host_network),
    AgentKind("storage", _is_storage_agent, lambda pod: pod.volumes, same_wave=True),
    AgentKind("logging", _is_logging_agent, lambda pod: True),
)


class EarlyAgent(NamedTuple):
    """An agent and those it leaves behind. ``relation``: before them, or together with them."""

    label: str
    what: str
    wave: int
    relation: str
    users: int
    first_user: str


def early_agents(plan: Plan, pods: Sequence[NodePod]) -> Iterator[EarlyAgent]:
    """Pure. Waves count from 0, as in the plan; a pod of no wave (our own) is neither."""
    waves = {planned.uid: number for number, wave in enumerate(plan.waves) for planned in wave.pods}
    planned_pods = [pod for pod in pods if pod.uid in waves]
    for kind in AGENT_KINDS:
        agents = {pod.uid for pod in planned_pods if kind.is_agent(pod)}
        users = [pod for pod in planned_pods if pod.uid not in agents and kind.needs_it(pod)]
        for agent in (pod for pod in planned_pods if pod.uid in agents):
            wave = waves[agent.uid]
            left = [
                pod for pod in users if waves[pod.uid] > wave or (kind.same_wave and waves[pod.uid] == wave)
            ]
            if left:
                relation = "before" if any(waves[pod.uid] > wave for pod in left) else "together with"
                yield EarlyAgent(agent.label, kind.what, wave, relation, len(left), left[0].label)


# What to do about each warning of a plan that concerns single pods: the doctor's findings need a cure.


_WRITE_PRIORITY = "write spec.priority as a number into the manifest (kubectl get pod -o yaml shows it)"

CURES = {
    "grace-cut": "give its wave a longer period, or the pod a shorter terminationGracePeriodSeconds",
    "grace-unset": "set terminationGracePeriodSeconds to what the program needs",
    "grace-below-floor": "give its wave a period of at least 2 s",
    "wave-zero": "give the wave a period, or its pods another priority",
    "priority-duplicate": "keep one entry of shutdownGracePeriodByPodPriority for each priority",
    "priority-unset": _WRITE_PRIORITY,
    "priority-below": "add an entry for that priority to shutdownGracePeriodByPodPriority",
    "hook-not-run": "give its wave a period above 0 s",
    "hook-invalid": "replace the tcpSocket hook by exec or httpGet",
    "sleep-cut": "shorten the sleep, or give the pod and its wave more time",
    "sleep-fills-grace": "shorten the sleep, or lengthen terminationGracePeriodSeconds beyond it",
}


def cure_of(code: str) -> str:
    """The cure; for a code that is not in the table, where to see more."""
    return CURES.get(code, "see 'ebbtide plan'")


# The doctor's rules about single pods: what cannot fit, what will not hear, who goes before whom.


#: Warnings of a plan that are about the grant: they have rules of their own.
GRANT_WARNINGS = frozenset({"grant-too-small", "reserve-not-granted", "wave-cut", "disabled"})

#: The runtime knows no priorities, so where one is missing nobody wrote it wrong.
_NODE_CURES = {"priority-unset": "name a kubeconfig, or annotate the pods with ebbtide/priority: a number"}


def plan_warnings(snapshot: Snapshot) -> Iterator[Finding]:
    """What the plan says about single pods: hooks and graces that cannot fit."""
    cures = _NODE_CURES if snapshot.node is not None else {}
    # Those that no wave could give what they ask for have one finding together (`grace_beyond_waves`).
    beginnings = tuple(f"{short_name(pod)} asks for" for pod in _pods_beyond_waves(snapshot))
    plan = snapshot.plan or Plan(enabled=False)
    for (code, message), label in zip(plan.warnings, chain(plan.warned_pods, repeat("")), strict=False):
        if code not in GRANT_WARNINGS and not (code == "grace-cut" and message.startswith(beginnings)):
            yield Finding("warning", code, message, cures.get(code) or cure_of(code), label)


def _longest_period(snapshot: Snapshot) -> int:
    waves = snapshot.plan.waves if snapshot.plan is not None else ()
    return max((wave.period_seconds for wave in waves), default=0)


def _pods_beyond_waves(snapshot: Snapshot) -> list[Pod]:
    longest = _longest_period(snapshot)
    return [pod for pod in snapshot.pods if longest and (pod.grace_seconds or 0) > longest]


def grace_beyond_waves(snapshot: Snapshot) -> Iterator[Finding]:
    """Pods whose grace no wave has: another priority would not help them, so they are told together."""
    longest, found = _longest_period(snapshot), _pods_beyond_waves(snapshot)
    if found:
        most = max(pod.grace_seconds or 0 for pod in found)
        names = first_names([short_name(pod) for pod in found])
        message = (
            f"no wave is longer than {span_s(longest)}, and up to {span_s(most)} are asked for by {names}"
        )
        cure = f"give a wave {span_s(most)}, or these pods a shorter terminationGracePeriodSeconds"
        yield Finding("warning", "grace-beyond", message, cure)


def failed_starts(snapshot: Snapshot) -> Iterator[Finding]:
    for pod, reason in snapshot.store.failed_starts if snapshot.status is not None else ():
        cure = "put its manifest right, and bring it in again"
        yield Finding("warning", "pod-down", f"{pod} could not be started: {reason}", cure, pod)


def stop_signal_ignored(snapshot: Snapshot) -> Iterator[Finding]:
    for each in snapshot.forecasts:
        if each.verdict in ("ignores", "unclear"):
            level: Level = "warning" if each.verdict == "ignores" else "note"
            label = snapshot.labels.get(each.uid, each.uid)
            name = f"{label}, container {each.container}, process {each.pid}"
            cure = "handle the signal, start it under an init such as tini, or name another with stopSignal"
            yield Finding(level, f"signal-{each.verdict}", f"{name}: {each.signal}: {each.why}", cure, label)


def agents_too_early(snapshot: Snapshot) -> Iterator[Finding]:
    """Whoever gives pods their network, their volumes or their logs, ended before them."""
    if snapshot.node is None or snapshot.plan is None:
        return
    for early in early_agents(snapshot.plan, snapshot.node.pods):
        message = (
            f"{early.label} ({early.what}) is in wave {early.wave}, {early.relation} {early.users} pods that "
            f"need it, the first of them {early.first_user}"
        )
        cure = "give it a higher priority, such as priorityClassName: system-node-critical"
        yield Finding("warning", "agent-early", message, cure, early.label)


def static_pod_priorities(snapshot: Snapshot) -> Iterator[Finding]:
    """Static pods whose manifest has no number: the kubelet takes that for 0 (kubernetes#113940, #133442)."""
    node = snapshot.node
    for each in node.statics if node is not None else ():
        cure = f"write spec.priority as a number into {each.path}"
        if not each.class_name:
            message = f"static pod {each.label} has no priority: it is stopped in the first wave"
            yield Finding("warning", "static-without-priority", message, cure, each.label)
        elif node is not None and node.mode == "observe":
            message = (
                f"static pod {each.label} only names the priority class {each.class_name}: the kubelet stops "
                "it in its first wave"
            )
            yield Finding("warning", "static-class-only", message, cure, each.label)
        else:
            message = (
                f"static pod {each.label} only names the priority class {each.class_name}: Ebbtide knows its "
                "number, the kubelet's own graceful shutdown would stop it first"
            )
            yield Finding("note", "static-class-only", message, cure, each.label)


POD_RULES = (
    plan_warnings,
    grace_beyond_waves,
    agents_too_early,
    static_pod_priorities,
    failed_starts,
    stop_signal_ignored,
)


# The doctor's rules about who we are at the API server, and what we may do there.
#
# There are two forms (docs/node.md): the node's own identity, which NodeRestriction keeps to this node and
# away from taints, and a service account, which may taint, but is not kept to this node by anything built in.


#: A kubelet renews its certificate when 10 to 30 % of its time are left; with less, nothing renews it.
LEFT_DIVISOR = 20

ACCOUNT_USER = "system:serviceaccount:"


def certificate_expiry(snapshot: Snapshot) -> Iterator[Finding]:
    node = snapshot.node
    found = node.api.certificate if node is not None else None
    if node is None or found is None:
        return
    cure = "see the kubelet's log (rotateCertificates), or issue a new one and name it in the kubeconfig"
    left_s = found.ends_s - node.now_s
    if left_s <= 0:
        # Where pods can be ended through the runtime, nobody but the cluster misses the API server.
        level: Level = "warning" if node.mode in ("auto", "cri") and not node.runtime.problem else "critical"
        message = f"the client certificate {found.path} expired {short_span(-left_s)} ago"
        yield Finding(level, "certificate-expired", message, cure)
    elif left_s * LEFT_DIVISOR < found.ends_s - found.begins_s:
        message = (
            f"the client certificate {found.path} expires in {short_span(left_s)}, and nothing renewed it"
        )
        yield Finding("warning", "certificate-expires", message, cure)


def rights_missing(snapshot: Snapshot) -> Iterator[Finding]:
    """One finding for each right that the mode needs and the identity lacks."""
    node = snapshot.node
    if node is None:
        return
    for need in NEEDED_RIGHTS:
        level = need.levels.get(node.mode)
        if need.right in node.api.denied and level is not None:
            code = f"rbac-{need.right.text.replace(' ', '-').replace('/', '-')}"
            message = f"{visible(node.api.user)} may not {need.right.text}: {need.lack}"
            yield Finding(level, code, message, "apply deploy/kubernetes/rbac, or name another kubeconfig")


def taint_refused(snapshot: Snapshot) -> Iterator[Finding]:
    """Without the taint a DaemonSet makes a deleted pod again at once, so those are not deleted."""
    node = snapshot.node
    if node is None or node.api.taint is not False or node.mode not in ("api", "auto"):
        return
    restricted = node.api.user.startswith(NODE_USER)
    why = " (NodeRestriction)" if restricted else ""
    message = (
        f"{visible(node.api.user)} may not taint the Node{why}: a deleted pod of a DaemonSet is made again "
        "here, so those pods are not deleted but ended through the runtime, after the others"
    )
    cure = (
        "use a service account with the ClusterRole of deploy/kubernetes/rbac"
        if restricted
        else "allow patch nodes; a ValidatingAdmissionPolicy may want a token of a pod on this node"
    )
    yield Finding("warning", "no-taint", message, cure)


def identity_limits(snapshot: Snapshot) -> Iterator[Finding]:
    """What this form of identity cannot do, said once, also where all is well."""
    node = snapshot.node
    if node is None or not node.api.answers:
        return
    user = visible(node.api.user)
    if MASTERS_GROUP in node.api.groups:
        message = f"{user} may do anything in the cluster ({MASTERS_GROUP}): far more than a shutdown needs"
        yield Finding("note", "identity-admin", message, "use the node's own identity, or a service account")
    elif user.startswith(NODE_USER):
        message = (
            f"{user}, the node's own identity, may neither taint its Node nor read priority classes, and its "
            "credentials are the kubelet's: while those are not renewed, nothing goes through the API server"
        )
        yield Finding("note", "identity-node", message, "none needed; a service account may taint")
    elif user.startswith(ACCOUNT_USER):
        if node.api.confined:
            message = f"{user}, a service account, changes its own node's pods alone, and may list all pods"
            yield Finding("note", "identity-account", message, "none needed; the node's own lists its own")
        elif node.api.confined is False:
            message = f"no policy keeps {user}, a service account, to this node: its token may delete any pod"
            cure = "apply deploy/kubernetes/rbac (Kubernetes 1.30), or use the node's own identity"
            yield Finding("warning", "identity-unconfined", message, cure)


def foreign_identity(snapshot: Snapshot) -> Iterator[Finding]:
    """A node identity may only touch the node that it is called after."""
    node = snapshot.node
    if node is None or not node.api.user.startswith(NODE_USER):
        return
    theirs = node.api.user.removeprefix(NODE_USER)
    if theirs != node.name:
        message = f"the identity is that of node {visible(theirs)}, and this node is called {node.name}"
        yield Finding("critical", "foreign-identity", message, f"set node.nodeName: {visible(theirs)}")


ACCESS_RULES = (certificate_expiry, foreign_identity, rights_missing, taint_refused, identity_limits)


# The doctor's rules about what a node's mode needs: packages, kubelet, runtime, API server, and time.
#
# How grave a lack is depends on the mode: what one mode cannot do without is another one's second way.


#: What the admission plugin DefaultTolerationSeconds gives every pod for not-ready and unreachable nodes.
TOLERATION_SECONDS = 300

#: The modes in which a wave may be the API server's; their other way is the runtime.
API_MODES = ("api", "auto")
#: Those in which we end pods, rather than look on.
ENDING_MODES = ("api", "auto", "cri")
#: A socket below this folder belongs to a unit of `ONE_UNIT`.
K3S_FOLDER = "/run/k3s/"

_KUBELET_OFF = "set shutdownGracePeriod: 0s in the kubelet's configuration and restart it"


def packages_missing(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.node is not None and snapshot.node.missing:
        needed = ", ".join(snapshot.node.missing)
        level: Level = "warning" if snapshot.node.mode == "auto" else "critical"
        message = f"mode {snapshot.node.mode} needs packages that are not installed: {needed}"
        yield Finding(level, "packages-missing", message, install_command("node"))


def mode_unavailable(snapshot: Snapshot) -> Iterator[Finding]:
    """What ``ebbtide run`` would refuse; its line names the cure."""
    if snapshot.node is not None and snapshot.node.unfit:
        message, _, cure = snapshot.node.unfit.partition(": ")
        yield Finding("critical", "mode-unfit", message, cure or "see 'ebbtide run --help'")


# --- the kubelet -------------------------------------------------------------------------------


def kubelet_graceful_shutdown(snapshot: Snapshot) -> Iterator[Finding]:
    """The kubelet's own graceful shutdown: in the way, or missing, by mode."""
    mode = snapshot.node.mode if snapshot.node is not None else "process"
    if snapshot.bus is None:
        return
    if snapshot.bus.kubelet_lock:
        said = "a kubelet holds a delay lock as well"
        if mode in ("api", "cri"):
            message = f"{said}: mode {mode} does not arm beside it, since two would end the same pods"
            yield Finding("critical", "kubelet-too", message, f"{_KUBELET_OFF}, or use mode observe")
        elif mode == "auto":
            message = f"{said}: mode auto only looks on (observe), the kubelet ends the pods"
            yield Finding("note", "kubelet-too", message, f"{_KUBELET_OFF}, if Ebbtide is to end them")
        elif mode == "process":
            yield Finding("warning", "kubelet-too", f"{said}: two would end the same pods", _KUBELET_OFF)
    elif snapshot.node is not None:
        yield from _kubelet_without_lock(snapshot.node, snapshot.bus.grant_ns)


def _kubelet_without_lock(node: NodeSnapshot, grant_ns: int) -> Iterator[Finding]:
    asks = node.kubelet.grace_ns
    if node.mode == "observe":
        why = "it may have met a logind that was going down already, and never tries again"
        if asks == 0:
            why = "its graceful shutdown is off"
        elif asks is not None and grant_ns < asks:
            why = f"logind grants {span(grant_ns)} of the {span(asks)} that it asks for"
        message = f"mode observe leaves the pods to the kubelet, and no kubelet holds a delay lock: {why}"
        cure = "set shutdownGracePeriod in the kubelet's configuration and restart it, or use mode auto"
        yield Finding("critical", "kubelet-not-armed", message, cure)
    elif asks:
        message = (
            f"the kubelet's configuration {node.kubelet.config} asks for {span(asks)} of graceful "
            "shutdown: it holds no lock now, but takes one when it starts"
        )
        yield Finding("warning", "kubelet-configured", message, _KUBELET_OFF)


def kubelet_unit_state(snapshot: Snapshot) -> Iterator[Finding]:
    """Whether the kubelet can be stopped, and whether it is there to carry out deletes."""
    node = snapshot.node
    if node is None or node.mode not in ENDING_MODES:
        return
    kubelet, unit = node.kubelet, node.kubelet.unit
    if kubelet.loaded is False:
        level: Level = "critical" if node.mode == "cri" and kubelet.pid else "warning"
        other = f" ({kubelet.beside[0]} is active)" if kubelet.beside else ""
        message = (
            f"there is no unit {unit}{other}: the kubelet cannot be stopped and starts again what is ended"
        )
        yield Finding(level, "kubelet-unit-missing", message, "name its unit in node.kubeletUnit")
    elif kubelet.active is False and node.mode in API_MODES:
        message = (
            f"{unit} is not active: nobody carries out a delete, so every shutdown goes over the runtime"
        )
        yield Finding("warning", "kubelet-down", message, f"systemctl start {unit}")


def single_unit_distribution(snapshot: Snapshot) -> Iterator[Finding]:
    """k3s and rke2: the kubelet cannot be stopped without its container runtime."""
    node = snapshot.node
    if node is None or node.mode not in ENDING_MODES:
        return
    unit = (
        node.kubelet.unit
        if node.kubelet.unit in SINGLE_UNIT_DISTRIBUTIONS
        else next(iter(node.kubelet.beside), "")
    )
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


def runtime_away(snapshot: Snapshot) -> Iterator[Finding]:
    node = snapshot.node
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


def api_server_away(snapshot: Snapshot) -> Iterator[Finding]:
    """Where the runtime cannot be used either, its own finding is the critical one."""
    node = snapshot.node
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


def node_unknown(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.node is not None and snapshot.node.api.known is False:
        message = f"the API server has no Node called {snapshot.node.name}: none of its pods would be found"
        cure = (
            "name it with node.nodeName or --node-name (kubectl get nodes; the kubelet's --hostname-override)"
        )
        yield Finding("critical", "node-unknown", message, cure)


# --- time --------------------------------------------------------------------------------------


def away_too_long(snapshot: Snapshot) -> Iterator[Finding]:
    """Pods that shall come back here are evicted when their node is away for longer than they tolerate.

    The 40 to 50 s until the cluster takes a node for gone come on top; not counted, they are the margin.
    """
    node, plan = snapshot.node, snapshot.plan
    # In mode api they are deleted: what comes back is made anew elsewhere, whatever the node does.
    if node is None or plan is None or node.boot_ns is None or node.mode == "api":
        return
    waves_ns = (plan.budget_seconds + plan.reserve_seconds) * NS_PER_SECOND
    if plan.enabled and waves_ns + node.boot_ns > TOLERATION_SECONDS * NS_PER_SECOND:
        message = (
            f"a reboot may take {span(waves_ns)} of shutdown and, as the last one, "
            f"{span(node.boot_ns)} of boot: after {span_s(TOLERATION_SECONDS)} pods are evicted, and come "
            "up elsewhere"
        )
        cure = "shorten the periods, or give pods that shall come back a longer tolerationSeconds"
        yield Finding("warning", "away-too-long", message, cure)


NODE_RULES = (
    packages_missing,
    mode_unavailable,
    kubelet_unit_state,
    single_unit_distribution,
    runtime_away,
    api_server_away,
    node_unknown,
    away_too_long,
)


#: A shutdown of a thousand pods writes some 8 MB; the daemon keeps as much in reserve.
FREE_BYTES_MIN = 32 * 1024 * 1024

#: From here on ``shutdown -h now`` goes through logind (systemd#22058, kubernetes#124039).
SYSTEMD_MIN = 251


def examine(snapshot: Snapshot) -> list[Finding]:
    """Every finding, the gravest first, otherwise in the order of the rules."""
    # The sort keeps the order of what is equally grave.
    found = [finding for rule in RULES for finding in rule(snapshot)]
    grades: tuple[Level, ...] = ("critical", "warning", "note")
    return sorted(found, key=lambda finding: grades.index(finding.level))


# --- configuration and daemon ------------------------------------------------------------------


def _configuration(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.config_error:
        yield Finding("critical", "config-invalid", snapshot.config_error, "see 'ebbtide config check'")
    elif snapshot.plan is not None and not snapshot.plan.enabled:
        yield Finding(
            "critical",
            "switched-off",
            "graceful shutdown is off by configuration: no lock is taken, pods die with the machine",
            "set shutdownGracePeriod or shutdownGracePeriodByPodPriority; leave gate GracefulNodeShutdown on",
        )


def _daemon_silent(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.status is None:
        yield Finding(
            "critical", "daemon-silent", snapshot.status_error, "systemctl start ebbtide, or 'ebbtide run'"
        )


def _not_armed(snapshot: Snapshot) -> Iterator[Finding]:
    status = snapshot.status
    if status is None or status["armed"] or status["phase"] != "idle" or not status["enabled"]:
        return
    why = status["whyNot"] or "no reason was given"
    yield Finding(
        "critical", "not-armed", f"the daemon is not armed: {why}", "see its log; it goes on trying"
    )


def _lock_missing(snapshot: Snapshot) -> Iterator[Finding]:
    if (
        snapshot.status is None
        or snapshot.bus is None
        or not snapshot.status["armed"]
        or snapshot.bus.our_lock
    ):
        return
    yield Finding(
        "critical",
        "lock-missing",
        "the daemon believes it is armed, but logind lists no delay lock of ours",
        "systemctl restart ebbtide, and compare with 'systemd-inhibit --list'",
    )


# --- logind ------------------------------------------------------------------------------------


def _logind_silent(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.bus is None:
        yield Finding(
            "critical",
            "no-logind",
            f"logind does not answer: {snapshot.bus_error}",
            "systemctl status dbus systemd-logind; DBUS_SYSTEM_BUS_ADDRESS names another bus",
        )


def _grant_too_small(snapshot: Snapshot) -> Iterator[Finding]:
    """What is asked against what is granted, and who stands in the way."""
    bus, plan = snapshot.bus, snapshot.plan
    if bus is None or plan is None or not plan.enabled:
        return
    requested_ns = plan.requested_seconds * NS_PER_SECOND
    needed_ns = requested_ns + plan.reserve_seconds * NS_PER_SECOND
    if bus.grant_ns >= needed_ns:
        return
    needed = span(needed_ns)
    said = f"logind grants {span(bus.grant_ns)}, the waves and the reserve need {needed}"
    if _will_be_raised(snapshot):
        yield Finding("note", "grant-will-be-raised", said, "none needed: the daemon raises it when it arms")
        return
    # Without the reserve the last wave gives up some seconds; below the periods whole waves are cut short.
    level: Level = "critical" if bus.grant_ns < requested_ns else "warning"
    yield Finding(level, "grant-too-small", said, _grant_cure(snapshot, needed_ns))


def _will_be_raised(snapshot: Snapshot) -> bool:
    """A daemon that runs has tried, so what is granted now is what there will be."""
    return snapshot.raise_grant and snapshot.status is None and not snapshot.files.overridden_by


def _grant_cure(snapshot: Snapshot, needed_ns: int) -> str:
    overrider = snapshot.files.overridden_by
    seconds = -(-needed_ns // NS_PER_SECOND)
    if overrider:
        name = overrider.rpartition("/")[2]
        return (
            f"{overrider} is read after our {DROP_IN_NAME}: remove it, or mask it with "
            f"'ln -s /dev/null /etc/systemd/logind.conf.d/{name}'; 'systemctl kill -s HUP systemd-logind'"
        )
    if not snapshot.raise_grant:
        return f"set raiseGrant: true, or InhibitDelayMaxSec={seconds} in a drop-in of logind.conf.d"
    return "see the daemon's log for why its drop-in was not taken up"


def _going_down(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.bus is not None and snapshot.bus.preparing and not snapshot.bus.our_lock:
        yield Finding(
            "note", "going-down", "the machine is going down already", "no lock can be had until it is over"
        )


# --- ways around logind ------------------------------------------------------------------------


def _old_systemd(snapshot: Snapshot) -> Iterator[Finding]:
    digits = (
        snapshot.bus.systemd.split(".")[0].split("~")[0].split(" ")[0] if snapshot.bus is not None else ""
    )
    number = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if number and number < SYSTEMD_MIN:
        yield Finding(
            "warning",
            "systemd-old",
            f"systemd {number}: root's 'shutdown -h now', 'reboot', 'halt' go around logind (systemd#22058)",
            f"use 'systemctl poweroff', or systemd {SYSTEMD_MIN} or newer",
        )


def _power_key_ignored(snapshot: Snapshot) -> Iterator[Finding]:
    """As logind says; where it does not, as its files do."""
    said = snapshot.bus.power_key if snapshot.bus is not None else "unknown"
    if said == "ignore" or (not said and snapshot.power_key_file):
        where = snapshot.power_key_file or "logind.conf"
        yield Finding(
            "warning",
            "power-key-ignored",
            "the power key is ignored: whoever needs the machine off will hold it down, and no signal comes",
            f"set HandlePowerKey=poweroff in {where}; 'systemctl kill -s HUP systemd-logind'",
        )


def _acpid_runs(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.acpid:
        yield Finding(
            "warning",
            "acpid",
            "acpid runs: the power key is its business too, and what its scripts call may go around logind",
            "systemctl disable --now acpid.service acpid.socket: logind handles the power key by itself",
        )


# --- the journal -------------------------------------------------------------------------------


def _journal_location(snapshot: Snapshot) -> Iterator[Finding]:
    store = snapshot.store
    elsewhere = "the daemon goes on at a fallback, which a power loss may take"
    if store.error:
        yield Finding(
            "warning", "journal-unreadable", store.error, "use sudo, or name the directory with --journal"
        )
    elif store.exists and not store.writable:
        message = f"the journal's directory {store.path} cannot be written: {elsewhere}"
        yield Finding(
            "warning", "journal-read-only", message, "make it writable for root, or mount it read-write"
        )
    if store.free_bytes is not None and store.free_bytes < FREE_BYTES_MIN:
        message = f"only {size_text(store.free_bytes)} are free at {store.path}: {elsewhere}"
        yield Finding("warning", "journal-space", message, f"free {size_text(FREE_BYTES_MIN)} or more")


def _journal_state(snapshot: Snapshot) -> Iterator[Finding]:
    verdict = snapshot.store.verdict
    if verdict is None or verdict.state == "intact":
        return
    levels: dict[str, Level] = {"torn": "note", "corrupt": "warning", "incompatible": "critical"}
    cures = {
        "torn": "none needed: a start goes on behind the last whole step",
        "corrupt": "keep a copy; the daemon begins a new journal beside it",
        "incompatible": "run the version that wrote it, or move the directory away",
    }
    code = f"journal-{verdict.state}"
    yield Finding(levels[verdict.state], code, verdict.banner, cures[verdict.state])


# --- the store of the shipping -----------------------------------------------------------------

#: S3 refuses requests whose clock is off by 15 minutes; long before that somebody should know.
SKEW_SECONDS_MAX = 60


def store_of_shipping(snapshot: Snapshot) -> Iterator[Finding]:
    """No lack of it stands in the way of a shutdown: segments wait on the node."""
    store = snapshot.shipping
    if store is None:
        return
    if store.problem:
        message = f"nothing can be put into {visible(store.url)}: {visible(store.problem)}"
        cure = f"{store.cure}; tried with this command's environment, the daemon's may differ"
        yield Finding("warning", "store-refuses", message, cure)
    elif store.conditional is False:
        message = (
            f"{visible(store.url)} takes a second object under a name that is taken: If-None-Match is ignored"
        )
        yield Finding("warning", "store-overwrites", message, "switch versioning on, or use another store")
    if store.skew_s is not None and abs(store.skew_s) > SKEW_SECONDS_MAX:
        relation = "ahead of" if store.skew_s > 0 else "behind"
        message = f"the store's clock is {span_s(abs(store.skew_s))} {relation} ours"
        yield Finding("warning", "store-clock", message, "set this machine's clock (timedatectl)")
    if store.present:
        message = f"{store.present} segments found their name taken, and nobody has compared the content"
        cure = "none where a cursor was lost or two processes shipped; else read them with rights to read"
        yield Finding("note", "store-unverified", message, cure)
    if store.unfit:
        message = f"{store.unfit} segments cannot be redacted, or are too large, and stay on this node"
        yield Finding("note", "store-unfit", message, "copy them by hand: shipped.json has the reasons")
    if store.lost:
        message = f"{store.lost} segments were removed here before they were known to be in the store"
        yield Finding("note", "store-lost", message, "nothing brings them back; the daemon's log names them")


# --- what was measured -------------------------------------------------------------------------

#: Synced records on the way of a shutdown: the announcement, each wave's statuses, and the release.
SYNCS_PER_WAVE = 2
SYNCS_BESIDE = 2
#: The release's calls to logind and its proof.
LOGIND_CALLS = 3
#: Once a wave, since a wave's pods are asked for side by side: what goes before its first signal or delete.
MEASURED_ONCE_A_WAVE = ("exec", "CRI container status", DRY_PATCH, DRY_DELETE)
#: Once a shutdown.
MEASURED_ONCE = ("CRI list of sandboxes", "kubelet unit")

MEASURE_CURES = {
    "httpGet target": "have the container serve that port, or correct its preStop hook",
    SYNC: "make the journal's folder writable, or name another with --journal",
    **dict.fromkeys(
        (DRY_PATCH, DRY_DELETE), "see which webhook or policy refuses it: kubectl --dry-run=server"
    ),
}


class Budget(NamedTuple):
    """``overhead_ns``: what syncs, calls and process starts take beside the waves, each as slow as its worst
    sample. ``slack_ns``: what is granted beside the waves; None where graceful shutdown is off.
    """

    overhead_ns: int
    slack_ns: int | None

    @property
    def holds(self) -> bool:
        return self.slack_ns is not None and self.overhead_ns <= self.slack_ns


def judge_budget(snapshot: Snapshot) -> Budget:
    """A call that failed or was not measured counts nothing: a finding says so."""
    plan, bus = snapshot.plan or Plan(enabled=False), snapshot.bus
    waves, worst = len(plan.waves), {each.what: each.worst_ns for each in snapshot.measured}
    overhead_ns = (
        (SYNCS_BESIDE + SYNCS_PER_WAVE * waves) * worst.get(SYNC, 0)
        + LOGIND_CALLS * worst.get(LOGIND_CALL, 0)
        + sum(waves * worst.get(each, 0) for each in MEASURED_ONCE_A_WAVE)
        + sum(worst.get(each, 0) for each in MEASURED_ONCE)
    )
    if not plan.enabled:
        return Budget(overhead_ns, None)
    slack_ns = plan.reserve_seconds * NS_PER_SECOND
    if bus is not None and not _will_be_raised(snapshot):
        slack_ns = min(slack_ns, bus.grant_ns - plan.requested_seconds * NS_PER_SECOND)
    return Budget(overhead_ns, max(0, slack_ns))


def calls_too_slow(snapshot: Snapshot) -> Iterator[Finding]:
    """Without measurements there is no overhead."""
    overhead_ns, slack_ns = budget = judge_budget(snapshot)
    if overhead_ns and slack_ns is not None and not budget.holds:
        message = (
            f"a shutdown's calls take {span(overhead_ns)}, and {span(slack_ns)} are granted beside the waves"
        )
        cure = "raise reserve, have logind grant it, and see which calls are slow"
        yield Finding("critical", "budget-exceeded", message, cure)


def calls_failed(snapshot: Snapshot) -> Iterator[Finding]:
    mode = snapshot.node.mode if snapshot.node is not None else ""
    for each in snapshot.measured:
        if each.error:
            # In this mode deletes are all that ends a pod.
            level: Level = "critical" if each.what == DRY_DELETE and mode == "api" else "warning"
            message = f"{each.what} {each.target}: {each.error}"
            yield Finding(
                level, "call-failed", message, MEASURE_CURES.get(each.what, "see its log, and measure again")
            )


RULES: tuple[Callable[[Snapshot], Iterator[Finding]], ...] = (
    _configuration,
    _daemon_silent,
    _logind_silent,
    _not_armed,
    _lock_missing,
    _grant_too_small,
    kubelet_graceful_shutdown,
    _going_down,
    _journal_state,
    _journal_location,
    _old_systemd,
    _power_key_ignored,
    _acpid_runs,
    store_of_shipping,
    calls_too_slow,
    calls_failed,
    *NODE_RULES,
    *ACCESS_RULES,
    *POD_RULES,
)
