"""Would the cluster recover from an outage of each node? The rules of `ebbtide outage doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ebbtide.actors.edges.kubernetes.config_maps import NODE_LABEL
from ebbtide.actors.edges.kubernetes.node_view import NodeView
from ebbtide.actors.outage_proof import is_junk, taint_is_final
from ebbtide.doctor.rules import Finding, Findings, Level, critical, gravest_first, note, warning
from ebbtide.events.messages import plural, shortened_list
from ebbtide.events.outage_events import EvidenceRead, unswapped
from ebbtide.outage.configuration import OutageConfiguration, Pool
from ebbtide.outage.first_uuids import LABEL as FIRST_UUIDS_LABEL
from ebbtide.outage.permits import may_lose

#: Versions in which NodeOutOfServiceVolumeDetach is alpha (off), beta (on), and always on.
ALPHA, BETA, GA = (1, 24), (1, 26), (1, 28)
#: A finding counts further objects.
NAMED_MAX = 3
JOURNAL_CURE = (
    "repair what refuses it: a webhook (kubectl get validatingwebhookconfigurations; exempt the controller's"
    " namespace from it), a quota (kubectl get resourcequota), a policy, or a right"
)
#: Volumes that stay on their node.
LOCAL_KINDS = ("local", "hostPath")
#: The group of its Machines.
CLUSTER_API = "cluster.x-k8s.io"


#: The authors of believed statements.
STATEMENT_WORDS = {
    "certificate": "a certificate of its daemon",
    "declared": "a person",
    "cloud-taint": "the cloud's taint",
    "remediator": "another remediator",
}


class NodeCheck(NamedTuple):
    """``drivers``: of its CSINode, or None. ``sources``: its pool's answers. ``alive``: the person who
    declared that this boot runs. ``first_uuid``: on the controller's record, or empty.
    """

    view: NodeView
    pool: Pool
    drivers: tuple[str, ...] | None = ()
    sources: tuple[EvidenceRead, ...] = ()
    alive: str = ""
    first_uuid: str = ""

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def ready(self) -> bool:
        return self.view.ready == "True"


class VolumeCheck(NamedTuple):
    """A bound one. ``kind``: local, hostPath, csi, or another plugin's."""

    name: str
    claim: str
    kind: str
    driver: str = ""


class ClusterCheck(NamedTuple):
    """``version`` (0, 0): unknown. ``leader``: the Lease's holder, or empty; None: not readable. ``denied``:
    rights that its ``account`` lacks; None: not checked. ``unread``: the same for other remediators.
    ``policy``: does it exist? ``etcd``: do its PodDisruptionBudgets allow a disruption? ``tolerating``: pods
    that tolerate the taint without limit. ``attached``: by driver, does its CSIDriver require attachments?
    ``blocked``: why the leader stores no record; ``create``: why a dry run of one failed.
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
    configuration: OutageConfiguration = OutageConfiguration()
    configured: bool = True
    unread: tuple[str, ...] = ()
    etcd: bool = True
    unseen: tuple[str, ...] = ()
    blocked: str = ""
    paused: str = ""
    create: str = ""


def named(words: Iterable[str]) -> str:
    return shortened_list(list(dict.fromkeys(words)), NAMED_MAX)


def server(seen: ClusterCheck) -> Findings:
    text = f"the API server is {'.'.join(map(str, seen.version))}"
    if seen.version == (0, 0):
        text, cure = "the API server does not report its version", "ask it: kubectl version"
        yield warning("server-version-unknown", text, cure)
    elif seen.version < ALPHA:
        text += ": it does not know the out-of-service taint"
        yield critical("server-too-old", text, "use Kubernetes 1.28 or newer")
    elif seen.version < BETA:
        cure = "use 1.28 or newer, or NodeOutOfServiceVolumeDetach=true for kube-controller-manager"
        yield critical("feature-off", f"{text}: the out-of-service taint is alpha there, and off", cure)
    elif seen.version < GA:
        cure = "make sure that kube-controller-manager does not have NodeOutOfServiceVolumeDetach=false"
        yield note("feature-beta", f"{text}: the out-of-service taint is beta there, on by default", cure)
    if any(seen.attached.get(each.driver) for each in seen.volumes):
        text = (
            "no API reports whether the six-minute detach is disabled (disable-force-detach-on-timeout of"
            " kube-controller-manager): enabled, a volume may be detached without a proof, against CSI's"
            " order; disabled, only the taint recovers it"
        )
        cure = (
            "see it: kubectl -n kube-system get pods -l component=kube-controller-manager -o yaml | grep"
            " disable-force-detach; with this controller leading, disabled is the safe choice"
        )
        yield note("force-detach-timer", text, cure)


def controller(seen: ClusterCheck) -> Findings:
    if seen.leader == "":
        cure = "kubectl apply -k deploy/kubernetes/outage, then look at the pods' logs; or name --namespace"
        yield critical("no-leader", "no outage controller leads: its Lease is not renewed", cure)
    if why := seen.create or seen.blocked:
        text = (
            f"the controller's journals cannot be written: {why}" if seen.create else f"the controller: {why}"
        )
        yield critical("journal-blocked", text, JOURNAL_CURE)
    if seen.paused:
        text = f"the controller sets no taint and switches no machine off: paused, {seen.paused}"
        yield warning("paused", text, "end a pause: ebbtide outage pause [NODE] --withdraw")
    if seen.denied is None:
        text = f"you may not ask whether {seen.account} has its rights"
        yield note("rights-unknown", text, "ask with the right to create subjectaccessreviews")
    elif seen.denied:
        text = f"{seen.account} may not: {'; '.join(seen.denied)}"
        yield critical("rights", text, "kubectl apply -f deploy/kubernetes/outage/role.yaml")
    if seen.policy is False:
        text = "no bound policy limits the controller to its taints, and other accounts may forge journals"
        files = [f"-f deploy/kubernetes/outage/only-our-{each}.yaml" for each in ("taints", "journals")]
        cure = f"kubectl apply {' '.join(files)} (Kubernetes 1.30 or newer)"
        yield critical("policy", text, cure)
    if not seen.configured:
        text = "no configuration was named: the sources of proof are the defaults"
        yield note("no-configuration", text, "name the controller's with --config FILE")
    if seen.configuration.dry_run:
        text = "the configuration has dryRun: the controller decides and records, and changes nothing"
        yield warning("dry-run", text, "set dryRun: false once its records are right")
    if seen.configuration.effect == "NoSchedule":
        text = "the effect is NoSchedule: pods that are not Terminating already are not deleted"
        yield note("no-schedule", text, "set effect to NoExecute, unless another component deletes the pods")
    held = [each.name for each in seen.configuration.pools if each.power_off and each.ask_kubelet]
    if held:
        text = (
            f"pool {named(held)}: an answering kubelet prevents powerOff: a node that is only cut off"
            " from the API server is never switched off"
        )
        cure = "set askKubelet: false in that pool, if a live node that is cut off shall be switched off"
        yield warning("power-off-held", text, cure)


def other_controllers(seen: ClusterCheck) -> Findings:
    if foreign := named(node.name for node in seen.nodes if node.view.taint == "other"):
        text = f"{foreign} has another controller's out-of-service taint: the controller only records there"
        cure = "find out who sets it, and let one controller do it; remove it when the node is back"
        yield warning("other-taint", text, cure)
    if groups := named(group for group in seen.groups if group.endswith("medik8s.io")):
        text = f"another remediator is installed ({groups}): it may set the same taint, or restart nodes"
        cure = "let only one of them act on a node: pools by nodeSelector here, its own selector there"
        yield note("other-remediator", text, cure)
    if seen.unread:
        text = f"a pool believes other remediators, and {seen.account} may not: {'; '.join(seen.unread)}"
        cure = "kubectl apply -k deploy/kubernetes/outage/remediators"
        yield warning("remediator-rights", text, cure)
    noted = named(node.name for node in seen.nodes if node.view.machine and "remediator" in node.pool.believe)
    managed = seen.configuration.cluster_api.kubeconfig is not None
    if noted and seen.groups and CLUSTER_API not in seen.groups and not managed:
        text = f"Cluster API notes a Machine on {noted}, and is not installed here: its reports are not read"
        cure = "name the cluster that manages this one: clusterApi.kubeconfig (docs/outage-configuration.md)"
        yield warning("machine-elsewhere", text, cure)


def brake(seen: ClusterCheck) -> Findings:
    lost, refused = may_lose(seen.configuration, [node.view for node in seen.nodes], etcd=seen.etcd)
    # Only the controller knows which tainted nodes have recovered, and take no place any more.
    text = f"the cluster may lose at least {lost} of {plural(len(seen.nodes), 'node')} at once now"
    if refused:
        text += f"; the storm brake refuses the next: {refused}"
    cure = "these limits are brake and a pool's maxNodes in the configuration"
    yield note("may-lose", text, cure) if lost else warning("may-lose-none", text, cure)


BIND = "bind its pool's nodes to their systems by name (identify: name)"


def machine_ids(seen: ClusterCheck) -> Findings:
    by_uuid = [node for node in seen.nodes if not node.pool.bound]
    if missing := named(node.name for node in by_uuid if not node.view.system_uuid):
        text = f"no systemUUID in the status of {missing}: a management controller proves nothing about it"
        cure = "look at the machine's firmware (dmidecode -s system-uuid)"
        yield warning("no-system-uuid", text, cure)
    owners: dict[tuple[str, str], list[str]] = {}
    spelled: dict[str, str] = {}
    for node in seen.nodes:
        owners.setdefault(("providerID", node.view.provider_id), []).append(node.name)
    for node in by_uuid:
        uuid = node.view.system_uuid
        if is_junk(uuid):
            text = f"the systemUUID {uuid} of {node.name} is a default of firmwares: it proves nothing"
            yield critical("junk-uuid", text, f"have its vendor's tool write one, or {BIND}")
            continue
        owners.setdefault(("systemUUID", spelled.setdefault(unswapped(uuid), uuid)), []).append(node.name)
        if node.sources and node.first_uuid not in ("", uuid):
            text = (
                f"the systemUUID of {node.name} was {node.first_uuid} first, and is {uuid}: its kubelet may"
                " name another machine, so it proves nothing, and powerOff does not act"
            )
            cure = (
                f"find out why. If its board was replaced, {BIND}; or delete the ConfigMaps with the labels"
                f" {FIRST_UUIDS_LABEL} and {NODE_LABEL}={node.view.uid} (its journal), then the leader's pod"
            )
            yield critical("changed-uuid", text, cure)
    for (kind, name), names in sorted(owners.items()):
        if names[1:] and name:
            text = f"{named(names)} share the {kind} {name}: it proves nothing for any of them"
            cure = f"give each machine a UUID of its own (clones share one), or {BIND}"
            if kind == "providerID":
                cure = "find out which of them is that instance, and delete the other Node"
            code = "same-uuid" if kind == "systemUUID" else "same-provider"
            yield critical(code, text, cure)


def no_sources(seen: ClusterCheck) -> Findings:
    """By pool: its nodes have the same finding."""
    bare: dict[str, list[NodeCheck]] = {}
    for node in seen.nodes:
        if not node.sources:
            bare.setdefault(node.pool.name, []).append(node)
    for pool, nodes in bare.items():
        believes = nodes[0].pool.believe
        counts = [
            each for each in believes if each != "cloud-taint" or taint_is_final(nodes[0].view.provider_id)
        ]
        said = ", ".join(STATEMENT_WORDS.get(each, each) for each in counts)
        off = f"{named(node.name for node in nodes)} {'is' if len(nodes) == 1 else 'are'} off"
        text = f"pool {pool}: no source proves that {off}, and no statement is believed"
        if said:
            text = f"pool {pool}: only a statement on the Node proves that {off}: {said}"
        by_hand = ", or be ready to declare it by hand" * ("declared" in believes)
        yield warning(
            "no-source", text, f"give the pool redfish, ipmi or cloud in the configuration{by_hand}"
        )


def sources(seen: ClusterCheck) -> Findings:
    for node in seen.nodes:
        answered = any(not each.error for each in node.sources)
        for each in node.sources:
            source = f"{node.name}: {each.source} {each.name}"
            wanted = {
                "systemUUID": node.view.system_uuid,
                "providerID": node.view.provider_id,
                "nodeName": node.name,
            }.get(each.identity_kind, "")
            if each.error:
                cure = "look at its address, its credentials, and the network policy of the controller's pods"
                level: Level = "warning" if answered else "critical"
                yield Finding(level, "source-unreachable", f"{source} proves nothing: {each.error}", cure)
            elif each.identity_kind == "none":
                cure = "use another source: it has no usable UUID"
                yield critical("source-no-identity", f"{source} does not say which machine it is about", cure)
            elif each.identity != wanted:
                text = (
                    f"{source} is about another machine: {each.identity}, and the Node has {wanted or 'none'}"
                )
                yield critical("source-other-machine", text, "correct the address of this node in its pool")
            elif node.ready and each.verdict == "off":
                text = f"{source} says that it is off, but the Node is Ready: a false proof"
                yield critical("source-lies", text, "do not use it: two nodes would write the same data")
        if node.alive:
            text = f"{node.alive} has declared that {node.name} lives: no proof counts while that is in force"
            cure = f"if that is over, withdraw it: ebbtide outage declare {node.name} --alive --withdraw"
            yield Finding("note" if node.ready else "warning", "declared-alive", text, cure)


def volumes(seen: ClusterCheck) -> Findings:
    if seen.tolerating:
        text = f"{named(seen.tolerating)} tolerate the out-of-service taint: they stay, with their volumes"
        cure = "have them tolerate keys by name, and not every key (operator: Exists without a key)"
        yield warning("tolerates", text, cure)
    for kind in LOCAL_KINDS:
        if bound := named(each.claim or each.name for each in seen.volumes if each.kind == kind):
            text = f"the volumes of {bound} are {kind}: their pods wait for the one machine"
            cure = "replicate the data in the application, or use other storage"
            yield warning("volume-local", text, cure)
    drivers = list(dict.fromkeys(each.driver for each in seen.volumes if each.driver))
    for driver in drivers:
        bound = named(each.claim or each.name for each in seen.volumes if each.driver == driver)
        has = [node.name for node in seen.nodes if node.drivers is not None and driver in node.drivers]
        if driver not in seen.attached:
            text = f"{driver}, of the volumes of {bound}, has no CSIDriver: it is not installed"
            yield warning(
                "driver-missing", text, "install it: these volumes are neither attached nor detached"
            )
            continue
        if not seen.attached[driver]:
            text = f"{driver} attaches no volume (attachRequired: false): no detach stops a second writer"
            cure = "use storage that allows or refuses a second writer"
            yield note("driver-no-attach", text, cure)
        if len(has) < 2 <= len(seen.nodes):
            text = f"{driver} is on {named(has) or 'no node'} only: its volumes can attach nowhere else"
            cure = "run its node plugin (a DaemonSet) on other nodes too"
            yield warning("driver-nowhere-else", text, cure)
    missing = named(node.name for node in seen.nodes if node.drivers is None)
    if missing and drivers:
        text = f"{missing} has no CSINode: no CSI volume attaches there"
        yield note("no-csinode", text, "look at its kubelet's log")


RULES: tuple[Callable[[ClusterCheck], Findings], ...] = (
    server,
    controller,
    brake,
    machine_ids,
    no_sources,
    sources,
    other_controllers,
    volumes,
    lambda seen: (note("unseen", f"not checked: {each}", "ask with more rights") for each in seen.unseen),
)


def examine(seen: ClusterCheck) -> list[Finding]:
    return gravest_first(finding for rule in RULES for finding in rule(seen))
