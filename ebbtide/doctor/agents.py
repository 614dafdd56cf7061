"""Which pods are agents that others need, told from what they are made of, and which of them go too early.

There is no field that says "I am a CNI". So an agent is only taken for one where two signs agree, and one
that is not recognised is passed over:

* network: it has the host's CNI folder mounted (that is how a CNI installs itself), or it belongs to a
  DaemonSet, shares the node's network, and bears the name of a known one.
* storage: it has the kubelet's folder of plugins or their registry mounted, as every CSI node driver must.
* logging: it belongs to a DaemonSet, has the host's /var/log mounted, and bears the name of a known one.

Who needs it: for the network, pods with a network of their own; for storage, pods with volumes that are
unmounted; for logging, everybody else. A driver in one wave with its users is too early as well: their
volumes are unmounted after they have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from actors.policy.plan import Plan
from ebbtide.doctor.seen import NodePod

CNI_FOLDERS = ("/etc/cni/net.d", "/opt/cni/bin")
CSI_FOLDERS = ("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry")
LOG_FOLDERS = ("/var/log", "/var/lib/docker/containers")

NETWORKS = (
    *("antrea", "aws-node", "azure-cni", "calico", "canal", "cilium", "flannel", "kindnet", "kube-proxy"),
    *("kube-router", "multus", "ovn", "tigera", "weave"),
)
LOGGERS = (
    *("alloy", "datadog", "filebeat", "fluent", "logging", "logstash", "opentelemetry", "otel-collector"),
    *("promtail", "splunk", "vector"),
)


class Kind(NamedTuple):
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


def _called(pod: NodePod, names: Sequence[str]) -> bool:
    return any(name in word for word in pod.words for name in names)


def _network(pod: NodePod) -> bool:
    return _mounts(pod, CNI_FOLDERS) or (pod.daemon and pod.host_network and _called(pod, NETWORKS))


def _storage(pod: NodePod) -> bool:
    return _mounts(pod, CSI_FOLDERS)


def _logging(pod: NodePod) -> bool:
    return pod.daemon and _mounts(pod, LOG_FOLDERS) and _called(pod, LOGGERS)


KINDS = (
    Kind("network", _network, lambda pod: not pod.host_network),
    Kind("storage", _storage, lambda pod: pod.volumes, same_wave=True),
    Kind("logging", _logging, lambda pod: True),
)


class Early(NamedTuple):
    """An agent and those it leaves behind. ``relation``: before them, or together with them."""

    label: str
    what: str
    wave: int
    relation: str
    users: int
    first_user: str


def early_agents(plan: Plan, pods: Sequence[NodePod]) -> Iterator[Early]:
    """Pure. Waves count from 0, as in the plan; a pod of no wave (our own) is neither."""
    waves = {planned.uid: number for number, wave in enumerate(plan.waves) for planned in wave.pods}
    going = [pod for pod in pods if pod.uid in waves]
    for kind in KINDS:
        agents = {pod.uid for pod in going if kind.is_agent(pod)}
        users = [pod for pod in going if pod.uid not in agents and kind.needs_it(pod)]
        for agent in (pod for pod in going if pod.uid in agents):
            wave = waves[agent.uid]
            left = [
                pod for pod in users if waves[pod.uid] > wave or (kind.same_wave and waves[pod.uid] == wave)
            ]
            if left:
                relation = "before" if any(waves[pod.uid] > wave for pod in left) else "together with"
                yield Early(agent.label, kind.what, wave, relation, len(left), left[0].label)
