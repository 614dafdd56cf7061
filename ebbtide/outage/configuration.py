"""The outage controller's configuration: fields with type, default and meaning. The reader and
``docs/outage-configuration.md`` follow from them.

Only this file has the addresses of management controllers: they get credentials, and a kubelet can annotate
its own Node.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Meta, field

from ebbtide.actors.edges.documents import DocumentError, quote
from ebbtide.actors.edges.proof_sources import ec2, ipmi, redfish
from ebbtide.actors.edges.proof_sources.ipmi import CipherSuite, GuidOrder, Privilege
from ebbtide.actors.edges.proof_sources.proof_source import Identify, ProofSource
from ebbtide.actors.edges.proof_sources.redfish import UuidOrder
from ebbtide.config.fields import (
    DNS_LABEL,
    LISTEN_ADDRESS,
    NODE_NAME,
    PATH,
    PORT_MAX,
    Kind,
    RuleError,
    checked,
    document_of_kind,
    duration,
    is_node_name,
    matching,
    read,
)
from ebbtide.config.loading import documents, located, read_configuration
from ebbtide.config.schema import OWN_VERSION, Section, TraceSection
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import Effect, OutageSettings

OUTAGE_KIND, OUTAGE_VERSION = "OutageConfiguration", OWN_VERSION

Statement = Literal["certificate", "declared", "cloud-taint", "remediator"]
STATEMENTS: tuple[Statement, ...] = get_args(Statement)
#: Remediators differ in their setup.
BELIEVED: tuple[Statement, ...] = ("certificate", "declared", "cloud-taint")

#: For the Node's name in an address or a system's id.
NODE_PLACE = "{node}"
_BRACES = re.compile(r"\{[^{}]*\}?|\}")

#: A waiting proof is renewed after half of this time, and a reading may take 10 s. A longer one would outlive
#: a contradiction.
_PROOF = duration(30 * NS_PER_SECOND, 600 * NS_PER_SECOND, whole=True)
#: A reminder is a record; an outage may last for weeks.
_REMINDER = duration(60 * NS_PER_SECOND, 7 * 86400 * NS_PER_SECOND, whole=True)
#: After a network fault a node needs some seconds.
_POWER_OFF = duration(10 * NS_PER_SECOND, 86400 * NS_PER_SECOND, whole=True)
#: Kubernetes supports no larger cluster.
NODES_MAX = 5000
POOLS_MAX = 64
SELECTOR_MAX = 16
ADDRESS_LENGTH_MAX = 2048

_HOST_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9.])?")
#: A label's value, or its name behind a prefix.
_LABEL_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAMESPACE = matching(DNS_LABEL, "a namespace's name: small letters, digits and '-'")
_POOL_NAME = matching(_LABEL_WORD, "up to 63 letters, digits, '-', '_' and '.'")
_LABEL_VALUE = matching(re.compile(f"({_LABEL_WORD.pattern})?"), "a label's value; put it in quotes")
_REGION = matching(re.compile(r"[a-z]{2,}(-[a-z0-9]+){1,4}"), "a region such as eu-west-1")
_FINGERPRINT = matching(
    re.compile(r"[0-9a-fA-F]{2}(:?[0-9a-fA-F]{2}){31}"),
    "a certificate's SHA-256: 64 hexadecimal digits, with or without ':' between them",
)
_PROFILE = matching(re.compile(r"[A-Za-z0-9_.@+-]{1,64}"), "the name of a profile in that file")


def _label_name(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if not _LABEL_WORD.fullmatch(name) or (slash and not is_node_name(prefix)):
        raise ValueError
    return text


def _template(text: str) -> str:
    if not 1 <= len(text) <= ADDRESS_LENGTH_MAX:
        raise ValueError(f"it must have from 1 to {ADDRESS_LENGTH_MAX} characters")
    for found in _BRACES.findall(text):
        if found != NODE_PLACE:
            raise ValueError(f"write {NODE_PLACE} for the Node's name, in place of {quote(found)}")
    return text


def _url(text: str) -> str:
    """HTTPS, or HTTP on the loopback."""
    name = _template(text).replace(NODE_PLACE, "node")
    try:
        parts = urlsplit(name)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("write a URL like https://bmc.example") from None
    if "@" in parts.netloc:
        raise ValueError("move the user's name into usernameFile")
    if parts.path not in ("", "/") or parts.query or parts.fragment or not host:
        raise ValueError("write a base URL like https://bmc.example")
    address = _address(host)
    loopback = host == "localhost" if address is None else address.is_loopback
    if parts.scheme != "https" and not (parts.scheme == "http" and loopback):
        raise ValueError("it must begin with https://: the controller sends credentials there")
    return text.rstrip("/")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host(text: str) -> str:
    name = _template(text).replace(NODE_PLACE, "node")
    if not _HOST_NAME.fullmatch(name) and _address(name) is None:
        raise ValueError("write a name or an address; the port is a field of its own")
    return text


def _percent(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}%", text) or not 1 <= int(text[:-1]) <= 100:
        raise ValueError
    return int(text[:-1])


_TEMPLATE = checked(_template, "a word")
_URL = checked(_url, "a URL like https://bmc.example")
_HOST = checked(_host, "a host")
_PERCENT = Kind("a share from 1% to 100%", _percent, lambda percent: f"{percent}%")
_LABEL_NAME = Kind("a label's name", _label_name)

#: A Node's creator chooses its name, and a resolver may know any name. Two labels: anyone may register a name
#: below the last one, which is no number, or a Node's name could complete an IP address.
_SUFFIX = re.compile(r"(\.[A-Za-z0-9][-A-Za-z0-9_]*)+\.[A-Za-z][-A-Za-z0-9]*\.?(:[0-9]*)?")
_IDENTIFY = (
    "uuid: the machine is the one whose UUID is the Node's systemUUID, if no other Node has it and it never "
    "changed. name: it is the one that this section names for the Node, by {node} or addresses; no UUID "
    "is compared, so check the wiring yourself."
)

_ADDRESSES = Meta(max_length=NODES_MAX)


def _check_addresses(section: Redfish | Ipmi, *, trusted: bool = False, system: str = "") -> None:
    """``trusted``: the controller must show a certificate that the configuration names."""
    address, addresses = section.address, section.addresses
    behind = address.rpartition(NODE_PLACE)[2]
    if NODE_PLACE in address and not (trusted or _SUFFIX.fullmatch(behind)):
        raise RuleError(
            f"write a domain of yours behind {NODE_PLACE}, as in {NODE_PLACE}.bmc.example (or, for redfish,"
            " certificate or fingerprint): a Node's name alone could direct the credentials elsewhere",
            "address",
        )
    if not address and not addresses:
        raise ValueError(f"write address, with {NODE_PLACE} for the Node's name, or addresses")
    by_name = section.identify == "name"
    if by_name and address and NODE_PLACE not in address + system:
        raise RuleError(
            f"write {NODE_PLACE} here (or, for redfish, in system), or only addresses: with identify: name"
            " all nodes would be one machine",
            "address",
        )
    for node, each in addresses.items():
        if NODE_PLACE in each:
            raise RuleError(f"write the address of this node, without {NODE_PLACE}", "addresses", node)


def _place(host: str, port: int, system: str = "") -> tuple[str, int, str]:
    """One spelling of a machine's place."""
    return str(_address(host) or host.lower().rstrip(".")), port, system


class _Controllers(Section, frozen=True):
    username_file: Annotated[str, PATH, "Read again for each request, so that a Secret may change."]
    password_file: Annotated[str, PATH, "Like usernameFile."]
    address: str = ""
    addresses: dict[str, str] = {}

    def address_of(self, node: str) -> str:
        return self.addresses.get(node) or self.address.replace(NODE_PLACE, node)


class Redfish(_Controllers, frozen=True):
    address: Annotated[
        str,
        _URL,
        f"The URL of each node's controller: https://, with {NODE_PLACE} for the Node's name (http:// only "
        f"on the loopback). Behind {NODE_PLACE} write '.' and a domain of yours, or set certificate or "
        "fingerprint. The controller never takes it from the Node: a kubelet can write there.",
    ] = ""
    addresses: Annotated[
        dict[Annotated[str, NODE_NAME], Annotated[str, _URL]],
        _ADDRESSES,
        "A mapping of Nodes' names to URLs. An entry wins over address.",
    ] = {}
    system: Annotated[
        str,
        _TEMPLATE,
        f"The id of the ComputerSystem; may have {NODE_PLACE}. Default: the system whose UUID is the Node's "
        "systemUUID.",
    ] = ""
    certificate: Annotated[
        str | None, PATH, "A PEM file of authorities to trust. Default: the machine's own."
    ] = None
    fingerprint: Annotated[
        str, _FINGERPRINT, "In place of authorities: the SHA-256 of the controller's own certificate."
    ] = ""
    uuid_order: Annotated[
        UuidOrder,
        "swapped: the controller has the first three fields of the UUID in the other byte order than the "
        "Node. 'ebbtide outage doctor' shows which order fits.",
    ] = "as-written"
    identify: Annotated[Identify, _IDENTIFY] = "uuid"

    def __post_init__(self) -> None:
        if self.certificate is not None and self.fingerprint:
            raise ValueError("certificate and fingerprint exclude each other: keep one")
        if self.identify == "name" and not self.system:
            raise RuleError("name the system of each node: a controller may have several", "system")
        trusted = self.certificate is not None or bool(self.fingerprint)
        _check_addresses(self, trusted=trusted, system=self.system)

    def place_of(self, node: str) -> tuple[str, int, str]:
        parts = urlsplit(self.address_of(node))
        port = parts.port or (443 if parts.scheme == "https" else 80)
        path = redfish.system_path(self.system.replace(NODE_PLACE, node))
        return _place(parts.hostname or "", port, path.rstrip("/"))

    def source(self, node: str) -> ProofSource | None:
        if not (url := self.address_of(node)):
            return None
        return redfish.Redfish(
            url=url,
            username_file=Path(self.username_file),
            password_file=Path(self.password_file),
            system=self.system.replace(NODE_PLACE, node),
            ca_file=Path(self.certificate) if self.certificate is not None else None,
            fingerprint=self.fingerprint,
            uuid_order=self.uuid_order,
            identify=self.identify,
        )


class Ipmi(_Controllers, frozen=True):
    """The same over IPMI v2.0 (RMCP+, lanplus)."""

    address: Annotated[str, _HOST, f"A host name or an IP address, with {NODE_PLACE} as for redfish."] = ""
    addresses: Annotated[
        dict[Annotated[str, NODE_NAME], Annotated[str, _HOST]],
        _ADDRESSES,
        "A mapping of Nodes' names to addresses. An entry wins over address.",
    ] = {}
    port: Annotated[int, Meta(ge=1, le=PORT_MAX), "The UDP port."] = 623
    cipher_suite: Annotated[
        CipherSuite, "17 (HMAC-SHA256 and AES), or 3 (with SHA1) for old controllers."
    ] = 17
    privilege: Annotated[Privilege, "user is enough to read; powerOff needs operator."] = "operator"
    guid_order: Annotated[
        GuidOrder,
        "The byte order of the GUID against the Node's systemUUID. 'ebbtide outage doctor' shows which order "
        "fits.",
    ] = "smbios"
    identify: Annotated[Identify, "As for redfish."] = "uuid"

    def __post_init__(self) -> None:
        _check_addresses(self)

    def place_of(self, node: str) -> tuple[str, int, str]:
        return _place(self.address_of(node), self.port)

    def source(self, node: str) -> ProofSource | None:
        if not (host := self.address_of(node)):
            return None
        return ipmi.Ipmi(
            host=host,
            port=self.port,
            username_file=Path(self.username_file),
            password_file=Path(self.password_file),
            cipher_suite=self.cipher_suite,
            privilege=self.privilege,
            guid_order=self.guid_order,
            identify=self.identify,
        )


class Ec2(Section, frozen=True):
    """Instances of EC2, by the Node's providerID."""

    region: Annotated[
        str, _REGION, "The region, such as eu-west-1. The right ec2:DescribeInstances is enough."
    ]
    endpoint: Annotated[str | None, _URL, "A URL in place of AWS' own."] = None
    certificate: Annotated[str | None, PATH, "A PEM file of authorities to trust for the endpoint."] = None
    credentials_file: Annotated[
        str | None,
        PATH,
        "A file of the AWS tools; read again for each request. Default: the environment's keys "
        "(AWS_ACCESS_KEY_ID …), else the role of the service account (AWS_WEB_IDENTITY_TOKEN_FILE with "
        "AWS_ROLE_ARN, set by EKS for IRSA), else EKS' agent for pod identities "
        "(AWS_CONTAINER_CREDENTIALS_FULL_URI); never the machine's own.",
    ] = None
    profile: Annotated[str | None, _PROFILE, "A profile in the file. Default: default."] = None

    def __post_init__(self) -> None:
        if NODE_PLACE in (self.endpoint or ""):
            raise RuleError(f"take {NODE_PLACE} out: the endpoint belongs to the region", "endpoint")

    def source(self) -> ProofSource:
        """One for all nodes: they share requests."""
        file = Path(self.credentials_file) if self.credentials_file is not None else None
        credentials = ec2.Credentials(self.region, file, self.profile)
        return ec2.Ec2Source(ec2.Ec2(self.region, credentials, self.endpoint, self.certificate))


class Cloud(Section, frozen=True):
    ec2: Annotated[Ec2 | None, "Instances of EC2, by the Node's providerID."] = None


class PowerOff(Section, frozen=True):
    after_ns: Annotated[
        int,
        _POWER_OFF,
        "How long the node must have been silent. A booting machine is silent too: name more than its "
        "boot takes.",
    ] = field(name="after")


class ClusterApi(Section, frozen=True):
    kubeconfig: Annotated[
        str | None,
        PATH,
        "The management cluster's address and an account there that may get machines.cluster.x-k8s.io. "
        "Default: the Machines are in this cluster.",
    ] = None


class Pool(Section, frozen=True):
    name: Annotated[str, _POOL_NAME, "The pool's name."]
    node_selector: Annotated[
        dict[Annotated[str, _LABEL_NAME], Annotated[str, _LABEL_VALUE]],
        Meta(max_length=SELECTOR_MAX),
        "A mapping of labels. Empty: all nodes. A kubelet may set most labels of its own Node: where pools "
        "differ in what they believe, select by labels below node-restriction.kubernetes.io/, which a "
        "kubelet may not set.",
    ] = {}
    believe: Annotated[
        tuple[Statement, ...],
        Meta(max_length=len(STATEMENTS)),
        "Which statements on the Node count as proofs.",
    ] = BELIEVED
    max_nodes: Annotated[
        int,
        Meta(ge=0, le=NODES_MAX),
        "How many nodes of this pool may be in recovery at once. 0: as many as brake allows.",
    ] = 0
    ask_kubelet: Annotated[
        bool, "Ask the node's kubelet. Its answer can only contradict a proof; it also delays powerOff."
    ] = True
    redfish: Annotated[Redfish | None, "Management controllers with Redfish."] = None
    ipmi: Annotated[Ipmi | None, "Management controllers with IPMI v2.0 (RMCP+, lanplus)."] = None
    cloud: Annotated[Cloud | None, "The cloud's API."] = None
    power_off: Annotated[
        PowerOff | None,
        "Switch off a machine without a proof that it is off. Opt-in; needs redfish or ipmi. With "
        "askKubelet, the default, a node stays on while its kubelet answers, also cut off from the "
        "API server; with askKubelet: false it is switched off.",
    ] = None

    def __post_init__(self) -> None:
        if self.power_off is not None and self.redfish is None:
            if self.ipmi is None:
                raise RuleError("add redfish or ipmi: only these switch a machine off", "powerOff")
            if self.ipmi.privilege == "user":
                raise RuleError("it needs ipmi.privilege operator: a user may only read", "powerOff")

    @property
    def bound(self) -> bool:
        """It can switch a machine off without its UUID."""
        can = self.ipmi if self.ipmi is not None and self.ipmi.privilege != "user" else None
        return any(each.identify == "name" for each in (self.redfish, can) if each is not None)

    def takes(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(name) == value for name, value in self.node_selector.items())

    def machine_sources(self) -> Callable[[str], list[ProofSource]]:
        """By node, in the order of the power switches."""
        cloud = [self.cloud.ec2.source()] if self.cloud is not None and self.cloud.ec2 is not None else []
        controllers = [each for each in (self.redfish, self.ipmi) if each is not None]

        def sources(node: str) -> list[ProofSource]:
            found = [each.source(node) for each in controllers]
            return [*(each for each in found if each is not None), *cloud]

        return sources


#: For a node that no pool takes.
DEFAULT_POOL = Pool(name="default")


class Brake(Section, frozen=True):
    """The least of these limits holds."""

    max_nodes: Annotated[int, Meta(ge=1, le=NODES_MAX), "The largest number of nodes."] = 5
    max_share_percent: Annotated[
        int,
        _PERCENT,
        "The largest share of the nodes that are in service or in recovery; one node in any case, two of "
        "five or more.",
    ] = field(name="maxShare", default=20)
    min_healthy: Annotated[int, Meta(ge=0, le=NODES_MAX), "The number of nodes that must stay Ready."] = 1
    max_nodes_per_zone: Annotated[
        int,
        Meta(ge=0, le=NODES_MAX),
        "The largest number of nodes with the same label topology.kubernetes.io/zone. 0: no limit.",
    ] = 0


class OutageConfiguration(Section, frozen=True):
    """Durations are nanoseconds here, and Go's (`30s`) in the file."""

    effect: Annotated[
        Effect,
        "The effect of the out-of-service taint. NoExecute: Kubernetes deletes pods that do not tolerate it. "
        "NoSchedule: the taint deletes no pod, and helps only pods that are Terminating already.",
    ] = "NoExecute"
    dry_run: Annotated[bool, "Decide and record, without a change in the cluster."] = False
    proof_period: Annotated[
        int,
        _PROOF,
        "How long a proof counts after its observation. A person's declaration has its own time.",
    ] = OutageSettings().proof_seconds * NS_PER_SECOND
    reminder_period: Annotated[int, _REMINDER, "How often the controller reports an open outage again."] = (
        OutageSettings().reminder_seconds * NS_PER_SECOND
    )
    namespace: Annotated[str, _NAMESPACE, "The namespace of the journals and the leader's Lease."] = "ebbtide"
    brake: Annotated[
        Brake,
        "The storm brake: how many nodes may be in recovery at once, from the permit until their work is "
        "elsewhere. The least of the limits holds.",
    ] = Brake()
    cluster_api: Annotated[
        ClusterApi, "Where Cluster API's Machines are, for pools that believe remediator."
    ] = ClusterApi()
    metrics_listen: Annotated[
        str, LISTEN_ADDRESS, "Where Prometheus may scrape the metrics. Empty: nowhere."
    ] = ""
    tracing: Annotated[
        TraceSection,
        "Where each outage's trace is sent over OTLP: the fields of configuration.md's section, without "
        "flush.",
    ] = TraceSection()
    pools: Annotated[
        tuple[Pool, ...],
        Meta(max_length=POOLS_MAX),
        "Kinds of machines with their proof sources. A node belongs to the first pool whose nodeSelector "
        "matches its labels; without a match it has the defaults of believe and askKubelet.",
    ] = ()

    def __post_init__(self) -> None:
        owners: dict[tuple[str, int, str], str] = {}
        for at, pool in enumerate(self.pools):
            before = self.pools[:at]
            if any(other.name == pool.name for other in before):
                raise RuleError(
                    f"another pool has the name {quote(pool.name)}: rename one", "pools", at, "name"
                )
            if any(not other.node_selector for other in before):
                message = "it takes no node: an earlier pool has no nodeSelector and takes all, move it back"
                raise RuleError(message, "pools", at)
            # No UUID would distinguish two such nodes.
            for kind, section in (("redfish", pool.redfish), ("ipmi", pool.ipmi)):
                if section is None or section.identify != "name":
                    continue
                for node in section.addresses:
                    if (owner := owners.setdefault(section.place_of(node), node)) != node:
                        raise RuleError(
                            f"{quote(owner)} has this machine: with identify: name each node needs its own",
                            *("pools", at, kind, "addresses", node),
                        )

    @property
    def settings(self) -> OutageSettings:
        return OutageSettings(
            effect=self.effect,
            dry_run=self.dry_run,
            proof_seconds=self.proof_period // NS_PER_SECOND,
            reminder_seconds=self.reminder_period // NS_PER_SECOND,
        )

    def pool_of(self, labels: Mapping[str, str]) -> Pool:
        return next((pool for pool in self.pools if pool.takes(labels)), DEFAULT_POOL)


def load_outage(path: str | Path) -> OutageConfiguration:
    """Raises ConfigError."""
    return parse_outage(str(path), read_configuration(path))


def parse_outage(name: str, raw: bytes) -> OutageConfiguration:
    """Raises ConfigError, also for an empty file: the defaults write to Nodes, and an accident may empty a
    ConfigMap.
    """
    with located(name):
        found = documents(raw)
        if not found:
            begin = f"'apiVersion: {OUTAGE_VERSION}' and 'kind: {OUTAGE_KIND}'"
            raise DocumentError(f"it is empty: begin it with {begin}", 1)
        if found[1:]:
            raise DocumentError("a second document begins here: keep one", found[1].line)
        wanted = f"{OUTAGE_KIND} (apiVersion {OUTAGE_VERSION})"
        _, fields = document_of_kind(found[0], {OUTAGE_KIND: OUTAGE_VERSION}, wanted)
        return read(fields, OutageConfiguration)
