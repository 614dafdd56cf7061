"""Would the cluster recover from an outage of each node? Rules over what `ebbtide outage doctor` has read.

Each rule yields findings. `RULES` lists them in the order of the output within one level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, get_args

from ebbtide.doctor.snapshot import Finding, Level
from ebbtide.events.outage_events import Effect

#: Server versions in which the feature NodeOutOfServiceVolumeDetach is alpha (off), beta (on), and always on.
ALPHA, BETA, GA = (1, 24), (1, 26), (1, 28)
#: A finding names so many objects and counts the rest.
NAMED_MAX = 3
#: Volumes without an attachment: they stay on their node.
LOCAL_KINDS = ("local", "hostPath")


#: API group of its Machines.
CLUSTER_API = "cluster.x-k8s.io"


class SourceCheck(NamedTuple):
    """The answer of one management controller or cloud. ``error``: why there was none."""

    source: str
    name: str
    verdict: str = "unknown"
    identity_kind: str = "none"
    identity: str = ""
    error: str = ""


#: Statements on a Node (`believe` in the configuration), named by their author.
STATEMENT_WORDS = {
    "certificate": "a certificate of its daemon",
    "declared": "a person",
    "cloud-taint": "the cloud's taint",
    "remediator": "another remediator",
}


class NodeCheck(NamedTuple):
    """``taint``: none, ours, other. ``drivers``: of its CSINode; None: it has none. ``sources``: of its
    ``pool``, which ``believes`` these statements. ``alive``: the person who declared that this boot runs.
    """

    name: str
    pool: str = "default"
    ready: bool = True
    system_uuid: str = ""
    provider_id: str = ""
    taint: str = "none"
    drivers: tuple[str, ...] | None = ()
    believes: tuple[str, ...] = ()
    sources: tuple[SourceCheck, ...] = ()
    alive: str = ""
    #: Cluster API names a Machine on it.
    machine: bool = False


class VolumeCheck(NamedTuple):
    """A bound PersistentVolume. ``kind``: local, hostPath, csi, or another plugin's."""

    name: str
    claim: str
    kind: str
    driver: str = ""


class ClusterCheck(NamedTuple):
    """``version`` (0, 0): unknown. ``leader``: the Lease's holder; empty: none, None: not readable.
    ``denied``: rights that its ``account`` lacks; None: not checked. ``unread``: rights to read other
    remediators. ``policy``: whether it exists. ``tolerating``: pods that tolerate the taint's effect without
    limit. ``attached``: drivers whose CSIDriver requires attachments. ``held``: pools in which an answering
    kubelet prevents powerOff. ``managed``: the configuration names the management cluster.
    """

    version: tuple[int, int]
    nodes: tuple[NodeCheck, ...] = ()
    leader: str | None = ""
    account: str = ""
    denied: tuple[str, ...] | None = ()
    policy: bool | None = True
    groups: tuple[str, ...] = ()
    tolerating: tuple[str, ...] = ()
    volumes: tuple[VolumeCheck, ...] = ()
    attached: dict[str, bool] = {}
    effect: Effect = "NoExecute"
    dry_run: bool = False
    configured: bool = True
    held: tuple[str, ...] = ()
    managed: bool = False
    unread: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def named(words: Iterable[str]) -> str:
    """``a, b, c and 4 more``."""
    found = list(dict.fromkeys(words))
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more


def _version(seen: ClusterCheck) -> Iterator[Finding]:
    major, minor = seen.version
    text = f"the API server is {major}.{minor}"
    if seen.version == (0, 0):
        yield Finding(
            "warning",
            "server-version-unknown",
            "the API server does not say its version",
            "ask it: kubectl version",
        )
    elif seen.version < ALPHA:
        yield Finding(
            "critical",
            "server-too-old",
            f"{text}: it knows no out-of-service taint",
            "use Kubernetes 1.28 or newer",
        )
    elif seen.version < BETA:
        cure = "use 1.28 or newer, or NodeOutOfServiceVolumeDetach=true for kube-controller-manager"
        yield Finding(
            "critical", "feature-off", f"{text}: the out-of-service taint is alpha there, and off", cure
        )
    elif seen.version < GA:
        cure = "look that kube-controller-manager does not have NodeOutOfServiceVolumeDetach=false"
        yield Finding(
            "note", "feature-beta", f"{text}: the out-of-service taint is beta there, on by default", cure
        )


def _leader(seen: ClusterCheck) -> Iterator[Finding]:
    if seen.leader == "":
        cure = (
            "kubectl apply -k deploy/kubernetes/outage, then look at the pods' logs; or name its --namespace"
        )
        yield Finding("critical", "no-leader", "no outage controller leads: nobody renews its Lease", cure)


def _dry_run(seen: ClusterCheck) -> Iterator[Finding]:
    if seen.dry_run:
        text = "the configuration has dryRun: the controller decides and records, and changes nothing"
        yield Finding("warning", "dry-run", text, "set dryRun to false when its records are what you want")


def _unconfigured(seen: ClusterCheck) -> Iterator[Finding]:
    if not seen.configured:
        text = "no configuration was judged: sources of proof are those of its defaults"
        yield Finding("note", "no-configuration", text, "name the controller's with --config FILE")


def _rights(seen: ClusterCheck) -> Iterator[Finding]:
    if seen.denied is None:
        text = f"whether {seen.account} may do what it has to cannot be asked by you"
        yield Finding("note", "rights-unknown", text, "ask with the right to create subjectaccessreviews")
    elif seen.denied:
        text = f"{seen.account} may not: {'; '.join(seen.denied)}"
        yield Finding("critical", "rights", text, "kubectl apply -f deploy/kubernetes/outage/role.yaml")


def _unread(seen: ClusterCheck) -> Iterator[Finding]:
    if seen.unread:
        text = f"a pool believes other remediators, and {seen.account} may not: {'; '.join(seen.unread)}"
        cure = "kubectl apply -k deploy/kubernetes/outage/remediators"
        yield Finding("warning", "remediator-rights", text, cure)


def _elsewhere(seen: ClusterCheck) -> Iterator[Finding]:
    noted = [node.name for node in seen.nodes if node.machine and "remediator" in node.believes]
    if noted and seen.groups and CLUSTER_API not in seen.groups and not seen.managed:
        text = (
            f"Cluster API notes a Machine on {named(noted)}, and is not installed here: nothing is read of it"
        )
        cure = "name the cluster that manages this one: clusterApi.kubeconfig (docs/outage-configuration.md)"
        yield Finding("warning", "machine-elsewhere", text, cure)


def _policy(seen: ClusterCheck) -> Iterator[Finding]:
    if seen.policy is False:
        text = "nothing keeps the controller's account to its own taints: no policy, or no binding"
        cure = "kubectl apply -f deploy/kubernetes/outage/only-our-taints.yaml (Kubernetes 1.30 or newer)"
        yield Finding("warning", "policy", text, cure)


def _identities(seen: ClusterCheck) -> Iterator[Finding]:
    missing = [node.name for node in seen.nodes if not node.system_uuid]
    if missing:
        text = (
            f"no systemUUID in the status of {named(missing)}: a management controller proves nothing of it"
        )
        yield Finding(
            "warning", "no-system-uuid", text, "look at the machine's firmware (dmidecode -s system-uuid)"
        )
    owners: dict[str, list[str]] = {}
    for node in seen.nodes:
        if node.system_uuid:
            owners.setdefault(node.system_uuid, []).append(node.name)
    for uuid, names in sorted(owners.items()):
        if names[1:]:
            text = f"{named(names)} have one systemUUID, {uuid}: a proof of one is taken for the other"
            yield Finding(
                "critical",
                "same-uuid",
                text,
                "give each machine a UUID of its own: clones have that of another",
            )


def _sources(seen: ClusterCheck) -> Iterator[Finding]:
    """By pool, where several nodes have the same finding."""
    bare: dict[str, list[str]] = {}
    for node in seen.nodes:
        if not node.sources:
            bare.setdefault(node.pool, []).append(node.name)
    for pool, names in bare.items():
        believes = next(node.believes for node in seen.nodes if node.pool == pool)
        said = ", ".join(STATEMENT_WORDS.get(each, each) for each in believes)
        off = f"{named(names)} {'is' if len(names) == 1 else 'are'} off"
        text = f"pool {pool}: " + (
            f"only what stands on the Node proves that {off}: {said}"
            if said
            else f"nothing proves that {off}: it has no source, and nothing is believed"
        )
        by_hand = ", or be ready to declare it by hand" * ("declared" in believes)
        cure = f"give the pool redfish, ipmi or cloud in the configuration{by_hand}"
        yield Finding("warning", "no-source", text, cure)
    for node in seen.nodes:
        answered = [each for each in node.sources if not each.error]
        for each in node.sources:
            if each.error:
                text = f"{node.name}: {each.source} {each.name} is of no use: {each.error}"
                cure = "look at its address, its credentials, and the network policy of the controller's pods"
                yield Finding("warning" if answered else "critical", "source-unreachable", text, cure)


def _machines(seen: ClusterCheck) -> Iterator[Finding]:
    """Sources that report a machine's power."""
    for node in seen.nodes:
        for each in node.sources:
            if each.error:
                continue
            wanted = {"systemUUID": node.system_uuid, "providerID": node.provider_id}.get(
                each.identity_kind, ""
            )
            if each.identity_kind == "none":
                text = f"{node.name}: {each.source} {each.name} does not say whose power it is"
                yield Finding(
                    "critical",
                    "source-no-identity",
                    text,
                    "use another source: it has no UUID that can be used",
                )
            elif each.identity != wanted:
                text = (
                    f"{node.name}: {each.source} {each.name} is about another machine:"
                    f" {each.identity}, where the Node says {wanted or 'nothing'}"
                )
                yield Finding(
                    "critical", "source-other-machine", text, "correct the address of this node in its pool"
                )
            elif node.ready and each.verdict == "off":
                text = (
                    f"{node.name} is Ready, and {each.source} {each.name} says that it is off: it would lie"
                )
                yield Finding(
                    "critical", "source-lies", text, "do not use it: two nodes would write the same data"
                )


def _declared_alive(seen: ClusterCheck) -> Iterator[Finding]:
    for node in seen.nodes:
        if node.alive:
            text = (
                f"{node.alive} has declared that {node.name} lives: while that stands, nothing proves it off"
            )
            cure = f"where that is over, take it back: ebbtide outage declare {node.name} --alive --withdraw"
            yield Finding("note" if node.ready else "warning", "declared-alive", text, cure)


def _held(seen: ClusterCheck) -> Iterator[Finding]:
    if seen.held:
        text = (
            f"pool {named(seen.held)}: powerOff is held up by a kubelet that answers: a node that is cut off"
            " from the API server alone is never switched off"
        )
        cure = "set askKubelet: false in that pool, if a node that lives there shall be switched off"
        yield Finding("warning", "power-off-held", text, cure)


def _others(seen: ClusterCheck) -> Iterator[Finding]:
    foreign = [node.name for node in seen.nodes if node.taint == "other"]
    if foreign:
        text = f"another's out-of-service taint stands on {named(foreign)}: there we stand aside"
        cure = "find out who sets it, and let one controller do it; take it away when the node is back"
        yield Finding("warning", "other-taint", text, cure)
    groups = [group for group in seen.groups if group.endswith("medik8s.io")]
    if groups:
        text = (
            f"another remediator is installed ({named(groups)}): it may set the same taint, or restart nodes"
        )
        cure = "let one of both act for a node: pools by nodeSelector here, its own selector there"
        yield Finding("note", "other-remediator", text, cure)


def _tolerating(seen: ClusterCheck) -> Iterator[Finding]:
    if seen.tolerating:
        text = f"{named(seen.tolerating)} tolerate the out-of-service taint: they stay, with their volumes"
        cure = "have them tolerate keys by name, and not every key (operator: Exists without a key)"
        yield Finding("warning", "tolerates", text, cure)
    if seen.effect == "NoSchedule":
        text = "the effect is NoSchedule: what is not Terminating already is not deleted"
        yield Finding(
            "note", "no-schedule", text, "set effect to NoExecute, unless something else deletes the pods"
        )


def _volumes(seen: ClusterCheck) -> Iterator[Finding]:
    for kind in LOCAL_KINDS:
        bound = [each.claim or each.name for each in seen.volumes if each.kind == kind]
        if bound:
            text = f"the volumes of {named(bound)} are {kind}: their pods wait for the one machine"
            yield Finding(
                "warning", "volume-local", text, "replicate the data in the application, or use other storage"
            )
    drivers = list(dict.fromkeys(each.driver for each in seen.volumes if each.driver))
    for driver in drivers:
        bound = [each.claim or each.name for each in seen.volumes if each.driver == driver]
        if driver not in seen.attached:
            text = f"{driver}, of the volumes of {named(bound)}, has no CSIDriver: it is not installed"
            yield Finding(
                "warning", "driver-missing", text, "install it: nothing attaches or detaches these volumes"
            )
        elif not seen.attached[driver]:
            text = (
                f"{driver} attaches nothing (attachRequired: false): there is no detach that keeps two apart"
            )
            yield Finding(
                "note",
                "driver-no-attach",
                text,
                "know that the storage itself has to bear two writers, or refuse one",
            )
        has = [node.name for node in seen.nodes if node.drivers is not None and driver in node.drivers]
        if driver in seen.attached and len(has) < 2 <= len(seen.nodes):
            text = f"{driver} is on {named(has) or 'no node'} only: its volumes can attach nowhere else"
            yield Finding(
                "warning", "driver-nowhere-else", text, "run its node plugin (a DaemonSet) on other nodes too"
            )
    missing = [node.name for node in seen.nodes if node.drivers is None]
    if missing and drivers:
        text = f"{named(missing)} has no CSINode: no CSI volume attaches there"
        yield Finding("note", "no-csinode", text, "look at its kubelet's log")


def _timer(seen: ClusterCheck) -> Iterator[Finding]:
    if not any(seen.attached.get(each.driver) for each in seen.volumes):
        return
    text = (
        "whether the six-minute detach is disabled no API says (disable-force-detach-on-timeout of"
        " kube-controller-manager): enabled, a volume may be detached without a proof, against CSI's order;"
        " disabled, only the taint recovers it"
    )
    cure = (
        "see it: kubectl -n kube-system get pods -l component=kube-controller-manager -o yaml | grep"
        " disable-force-detach; with this controller leading, disabled is the safe choice"
    )
    yield Finding("note", "force-detach-timer", text, cure)


def _unseen(seen: ClusterCheck) -> Iterator[Finding]:
    for each in seen.unseen:
        yield Finding("note", "unseen", f"not judged: {each}", "ask with more rights")


RULES: tuple[Callable[[ClusterCheck], Iterator[Finding]], ...] = (
    _version,
    _leader,
    _rights,
    _unread,
    _elsewhere,
    _identities,
    _sources,
    _machines,
    _declared_alive,
    _held,
    _others,
    _volumes,
    _tolerating,
    _dry_run,
    _policy,
    _unconfigured,
    _timer,
    _unseen,
)


def examine(seen: ClusterCheck) -> list[Finding]:
    """Worst level first."""
    found = [finding for rule in RULES for finding in rule(seen)]
    levels = get_args(Level)
    return sorted(found, key=lambda finding: levels.index(finding.level))
