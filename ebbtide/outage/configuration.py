"""The outage controller's configuration file: one document, every field with its type, default and meaning.

This is the only list of its fields; the reader and ``docs/outage-configuration.md`` follow from it.

What a node says of itself decides nothing about where credentials go: a kubelet writes the annotations of
its own Node, so a management controller's address stands in this file, by the node's name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from ebbtide.actors.edges.documents import DocumentError, Node, quote
from ebbtide.actors.edges.proof.ipmi import CipherSuite, GuidOrder, Privilege
from ebbtide.actors.edges.proof.redfish import UuidOrder
from ebbtide.config import readers
from ebbtide.config.loading import document_kind, documents, located, read_configuration
from ebbtide.config.readers import SectionField, format_duration, mapping, read_section, unknown
from ebbtide.config.schema import (
    OWN_VERSION,
    Doc,
    Tracing,
    fields_of,
    is_node_name,
    read_tracing,
    show_tracing,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import Effect, OutageSettings

OUTAGE_KIND, OUTAGE_VERSION = "OutageConfiguration", OWN_VERSION

#: What stands on the Node itself, and can be believed or not.
Statement = Literal["certificate", "declared", "cloud-taint", "remediator"]
STATEMENTS: tuple[Statement, ...] = get_args(Statement)
#: Another remediator is believed for what it says only where somebody has looked at how that one is set up.
BELIEVED: tuple[Statement, ...] = ("certificate", "declared", "cloud-taint")
PRIVILEGES: tuple[Privilege, ...] = get_args(Privilege)

#: What an address or a system's id stands for, in the name of the Node.
NODE_PLACE = "{node}"
_BRACES = re.compile(r"\{[^{}]*\}?|\}")

#: A proof that waits for the storm brake is read again after half of this time, and a reading may take 10 s:
#: less would expire while it is renewed. More is longer than a contradiction counts.
PROOF_NS_MIN, PROOF_NS_MAX = 30 * NS_PER_SECOND, 600 * NS_PER_SECOND
#: A reminder is a record, and an outage may last for weeks.
REMINDER_NS_MIN, REMINDER_NS_MAX = 60 * NS_PER_SECOND, 7 * 86400 * NS_PER_SECOND
#: Switched off at once would be before a node of a short network fault is Ready again; a day is for ever.
POWER_OFF_NS_MIN, POWER_OFF_NS_MAX = 10 * NS_PER_SECOND, 86400 * NS_PER_SECOND
#: The largest cluster that Kubernetes is made for.
NODES_MAX = 5000
#: One pool is one kind of machine.
POOLS_MAX = 64
#: As long as a label's value may be.
NAME_LENGTH_MAX = 63
SELECTOR_MAX = 16
ADDRESS_LENGTH_MAX = 2048
IPMI_PORT = 623
#: 17 is HMAC-SHA256 and AES; 3, with SHA1, is what old controllers have. All others leave out that one side
#: or both are who they say, or that nobody reads along.
CIPHER_SUITES: tuple[CipherSuite, ...] = get_args(CipherSuite)

#: Kubernetes' rules for a label: a prefix that is a DNS name, and a name.
_HOST_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9.])?")
_LABEL_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
#: As AWS writes them: eu-west-1, us-gov-east-1.
_REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+){1,4}")
_FINGERPRINT = re.compile(r"[0-9a-fA-F]{2}(:?[0-9a-fA-F]{2}){31}")
_PROFILE = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")


class Redfish(msgspec.Struct, frozen=True, kw_only=True):
    """Where the management controllers of a pool's nodes are, over HTTPS."""

    username_file: str
    password_file: str
    address: str = ""
    addresses: dict[str, str] = {}
    #: Empty: the system whose UUID is the Node's is looked for.
    system: str = ""
    #: PEM of authorities; None: the machine's own.
    certificate: str | None = None
    #: The controller's own certificate, in place of authorities.
    fingerprint: str = ""
    uuid_order: UuidOrder = "as-written"

    def address_of(self, node: str) -> str:
        """Empty: it has none."""
        return self.addresses.get(node) or self.address.replace(NODE_PLACE, node)

    def system_of(self, node: str) -> str:
        return self.system.replace(NODE_PLACE, node)


class Ipmi(msgspec.Struct, frozen=True, kw_only=True):
    """The same over RMCP+ (lanplus)."""

    username_file: str
    password_file: str
    address: str = ""
    addresses: dict[str, str] = {}
    port: int = IPMI_PORT
    cipher_suite: CipherSuite = 17
    privilege: Privilege = "operator"
    guid_order: GuidOrder = "smbios"

    def address_of(self, node: str) -> tuple[str, int] | None:
        """Host and port; None: it has none."""
        said = self.addresses.get(node) or self.address.replace(NODE_PLACE, node)
        return split_host(said, self.port) if said else None


class Ec2(msgspec.Struct, frozen=True, kw_only=True):
    """``endpoint`` None: AWS' own of that region. Credentials None: the usual chain."""

    region: str
    endpoint: str | None = None
    certificate: str | None = None
    credentials_file: str | None = None
    profile: str | None = None


class Cloud(msgspec.Struct, frozen=True, kw_only=True):
    ec2: Ec2 | None = None


class PowerOff(msgspec.Struct, frozen=True, kw_only=True):
    """Switching off a machine of which nothing is known: after so long without a proof."""

    after_ns: int


class ClusterApi(msgspec.Struct, frozen=True, kw_only=True):
    """``kubeconfig`` None: the Machines are in the controller's own cluster."""

    kubeconfig: str | None = None


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one kind; the first one whose selector a node's labels have is the node's."""

    name: str
    node_selector: dict[str, str] = {}
    believe: tuple[Statement, ...] = BELIEVED
    ask_kubelet: bool = True
    redfish: Redfish | None = None
    ipmi: Ipmi | None = None
    cloud: Cloud | None = None
    power_off: PowerOff | None = None

    def takes(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(name) == value for name, value in self.node_selector.items())


#: Of a node that no pool takes.
DEFAULT_POOL = Pool(name="default")


class Brake(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes may be out of service at once: the least that any of these says."""

    max_nodes: int = 5
    max_share_percent: int = 20
    min_healthy: int = 1


# --- reading ---------------------------------------------------------------------------------------


def _template(node: Node, path: str) -> str:
    value = readers.secret(node, path)
    if not value or len(value) > ADDRESS_LENGTH_MAX:
        raise DocumentError(f"{path} must have from 1 to {ADDRESS_LENGTH_MAX} characters", node.line)
    for found in _BRACES.findall(value):
        if found != NODE_PLACE:
            raise DocumentError(
                f"{path} holds {quote(found)}: only {NODE_PLACE} stands for something, the Node's name",
                node.line,
            )
    return value


def _url(node: Node, path: str) -> str:
    """HTTPS, or HTTP on the loopback. It is not repeated where it is wrong: a password may stand in it."""
    value = _template(node, path)
    try:
        parts = urlsplit(value.replace(NODE_PLACE, "node"))
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise DocumentError(f"{path} is no URL: write it like https://bmc.example", node.line) from None
    if "@" in parts.netloc:
        raise DocumentError(f"{path} holds a user's name: it belongs into usernameFile", node.line)
    if parts.path not in ("", "/") or parts.query or parts.fragment or not host:
        raise DocumentError(f"{path} is no base URL: write it like https://bmc.example", node.line)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise DocumentError(f"{path} must begin with https://: credentials are sent there", node.line)
    return value.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def split_host(value: str, port: int) -> tuple[str, int]:
    """``host``, ``host:port``, ``[v6]:port`` or a bare IPv6 address. Raises ValueError."""
    if value.count(":") > 1 and not value.startswith("["):
        return str(ipaddress.IPv6Address(value)), port
    parts = urlsplit(f"//{value}")
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(value)
    # What urlsplit takes for a name, a resolver does not.
    if not value.startswith("[") and not _HOST_NAME.fullmatch(parts.hostname):
        raise ValueError(value)
    if parts.port == 0:
        raise ValueError(value)
    return parts.hostname, parts.port or port


def _host(node: Node, path: str) -> str:
    value = _template(node, path)
    try:
        split_host(value.replace(NODE_PLACE, "node"), IPMI_PORT)
    except ValueError:
        raise DocumentError(
            f"{path} is no host: write a name or an address, with or without a port", node.line
        ) from None
    return value


def _by_node(read: Any) -> Any:
    """A mapping of Nodes' names."""

    def read_all(node: Node, path: str) -> dict[str, str]:
        entries = mapping(node, path)
        if len(entries) > NODES_MAX:
            raise DocumentError(
                f"{path} has {len(entries)} entries: at most {NODES_MAX} can be used", node.line
            )
        for name, value in entries.items():
            if not is_node_name(name):
                raise DocumentError(f"{path} names {quote(name)}: it must be a Node's name", value.line)
            if NODE_PLACE in str(value.value):
                raise DocumentError(f"{path}.{name} is one node's: write its address", value.line)
        return {name: read(value, f"{path}.{name}") for name, value in entries.items()}

    return read_all


def _word(pattern: re.Pattern[str], wanted: str) -> Any:
    def read(node: Node, path: str) -> str:
        value = readers.text(node, path)
        if not pattern.fullmatch(value):
            raise DocumentError(f"{path} is {quote(value)}: it must be {wanted}", node.line)
        return value

    return read


def _between(least: int, most: int) -> Any:
    return lambda node, path: readers.number(node, path, least, most)


def _cipher_suite(node: Node, path: str) -> int:
    suite = readers.number(node, path, min(CIPHER_SUITES), max(CIPHER_SUITES))
    if suite not in CIPHER_SUITES:
        raise DocumentError(f"{path} is {suite}: it must be 17, or 3 for old controllers", node.line)
    return suite


def _whole_seconds(least_ns: int, most_ns: int) -> Any:
    read = readers.bounded_duration(least_ns, most_ns)

    def read_whole(node: Node, path: str) -> int:
        duration_ns = read(node, path)
        if duration_ns % NS_PER_SECOND:
            raise DocumentError(
                f"{path} is {format_duration(duration_ns)}: it must be whole seconds", node.line
            )
        return duration_ns

    return read_whole


def _percent(node: Node, path: str) -> int:
    """As Kubernetes writes shares: ``20%``."""
    value = readers.text(node, path)
    if not re.fullmatch(r"[0-9]{1,3}%", value) or not 1 <= int(value[:-1]) <= 100:
        raise DocumentError(f"{path} is {quote(value)}: write a share from 1% to 100%", node.line)
    return int(value[:-1])


def _selector(node: Node, path: str) -> dict[str, str]:
    entries = mapping(node, path)
    if len(entries) > SELECTOR_MAX:
        raise DocumentError(
            f"{path} has {len(entries)} entries: at most {SELECTOR_MAX} can be used", node.line
        )
    found = {}
    for name, value in entries.items():
        prefix, _, rest = name.rpartition("/")
        if not _LABEL_WORD.fullmatch(rest) or ("/" in name and not is_node_name(prefix)):
            raise DocumentError(f"{path} names {quote(name)}: it must be a label's name", value.line)
        word = readers.text(value, f"{path}.{name}")
        if word and not _LABEL_WORD.fullmatch(word):
            raise DocumentError(f"{path}.{name} is {quote(word)}: it must be a label's value", value.line)
        found[name] = word
    return found


def _believed(node: Node, path: str) -> tuple[Statement, ...]:
    entries, read = readers.sequence(node, path, len(STATEMENTS)), readers.one_of(STATEMENTS)
    said = [read(each, f"{path}[{index}]") for index, each in enumerate(entries)]
    return tuple(each for each in STATEMENTS if each in said)


def _need(values: Mapping[str, Any], node: Node, path: str, **wanted: str) -> None:
    """Raises DocumentError for what is missing. ``wanted``: attribute -> the field's name in a file."""
    for attribute, name in wanted.items():
        if attribute not in values:
            raise DocumentError(f"{path} needs {name}", node.line)


_CREDENTIALS = {
    "usernameFile": SectionField("username_file", readers.path),
    "passwordFile": SectionField("password_file", readers.path),
}

REDFISH_FIELDS = {
    "address": SectionField("address", _url),
    "addresses": SectionField("addresses", _by_node(_url)),
    **_CREDENTIALS,
    "system": SectionField("system", _template),
    "certificate": SectionField("certificate", readers.path),
    "fingerprint": SectionField(
        "fingerprint",
        _word(_FINGERPRINT, "a certificate's SHA-256: 64 hexadecimal digits, ':' between or not"),
    ),
    "uuidOrder": SectionField("uuid_order", readers.one_of(get_args(UuidOrder))),
}

IPMI_FIELDS = {
    "address": SectionField("address", _host),
    "addresses": SectionField("addresses", _by_node(_host)),
    **_CREDENTIALS,
    "port": SectionField("port", _between(1, readers.PORT_MAX)),
    "cipherSuite": SectionField("cipher_suite", _cipher_suite),
    "privilege": SectionField("privilege", readers.one_of(PRIVILEGES)),
    "guidOrder": SectionField("guid_order", readers.one_of(get_args(GuidOrder))),
}

EC2_FIELDS = {
    "region": SectionField("region", _word(_REGION, "a region such as eu-west-1")),
    "endpoint": SectionField("endpoint", _url),
    "certificate": SectionField("certificate", readers.path),
    "credentialsFile": SectionField("credentials_file", readers.path),
    "profile": SectionField("profile", _word(_PROFILE, "the name of a profile in that file")),
}

#: Of the daemon's section of tracing.
NOT_OF_OUTAGES = {"alsoSend": "sends traces alone", "flush": "waits for no back end"}

POWER_OFF_FIELDS = {
    "after": SectionField("after_ns", _whole_seconds(POWER_OFF_NS_MIN, POWER_OFF_NS_MAX), format_duration),
}


def _controller(kind: Any, fields: Mapping[str, SectionField]) -> Any:
    """Redfish or IPMI: who is asked, and with which credentials."""

    def read(node: Node, path: str) -> Any:
        values = read_section(node, path, fields)
        _need(values, node, path, username_file="usernameFile", password_file="passwordFile")
        if "certificate" in values and "fingerprint" in values:
            raise DocumentError(f"{path} has certificate and fingerprint: keep one", node.line)
        if not values.get("address") and not values.get("addresses"):
            raise DocumentError(
                f"{path} needs address, with {NODE_PLACE} for the Node's name, or addresses", node.line
            )
        return kind(**values)

    return read


def _ec2(node: Node, path: str) -> Ec2:
    values = read_section(node, path, EC2_FIELDS)
    _need(values, node, path, region="region")
    if NODE_PLACE in values.get("endpoint", ""):
        raise DocumentError(
            f"{path}.endpoint is the region's, not a node's: take {NODE_PLACE} out", node.line
        )
    return Ec2(**values)


def _cloud(node: Node, path: str) -> Cloud:
    return Cloud(**read_section(node, path, CLOUD_FIELDS))


def _power_off(node: Node, path: str) -> PowerOff:
    values = read_section(node, path, POWER_OFF_FIELDS)
    _need(values, node, path, after_ns="after")
    return PowerOff(**values)


CLOUD_FIELDS = {"ec2": SectionField("ec2", _ec2)}

POOL_FIELDS = {
    "name": SectionField(
        "name", _word(_LABEL_WORD, f"up to {NAME_LENGTH_MAX} letters, digits, '-', '_' and '.'")
    ),
    "nodeSelector": SectionField("node_selector", _selector),
    "believe": SectionField("believe", _believed, list),
    "askKubelet": SectionField("ask_kubelet", readers.flag),
    "redfish": SectionField("redfish", _controller(Redfish, REDFISH_FIELDS)),
    "ipmi": SectionField("ipmi", _controller(Ipmi, IPMI_FIELDS)),
    "cloud": SectionField("cloud", _cloud),
    "powerOff": SectionField("power_off", _power_off),
}

CLUSTER_API_FIELDS = {"kubeconfig": SectionField("kubeconfig", readers.path)}

BRAKE_FIELDS = {
    "maxNodes": SectionField("max_nodes", _between(1, NODES_MAX)),
    "maxShare": SectionField("max_share_percent", _percent, lambda percent: f"{percent}%"),
    "minHealthy": SectionField("min_healthy", _between(0, NODES_MAX)),
}


def _pools(node: Node, path: str) -> tuple[Pool, ...]:
    found: list[Pool] = []
    for index, each in enumerate(readers.sequence(node, path, POOLS_MAX)):
        where = f"{path}[{index}]"
        values = read_section(each, where, POOL_FIELDS)
        _need(values, each, where, name="name")
        pool = Pool(**values)
        if any(other.name == pool.name for other in found):
            raise DocumentError(f"{where}.name is {quote(pool.name)}: another pool has that name", each.line)
        if any(not other.node_selector for other in found):
            raise DocumentError(
                f"{where} takes no node: a pool before it has no nodeSelector, and takes all", each.line
            )
        if pool.power_off is not None and pool.redfish is None:
            if pool.ipmi is None:
                raise DocumentError(
                    f"{where}.powerOff needs redfish or ipmi: nothing else switches off", each.line
                )
            if pool.ipmi.privilege == "user":
                raise DocumentError(
                    f"{where}.powerOff needs ipmi.privilege operator: a user may only ask", each.line
                )
        found.append(pool)
    return tuple(found)


def _brake(node: Node, path: str) -> Brake:
    return Brake(**read_section(node, path, BRAKE_FIELDS))


def _cluster_api(node: Node, path: str) -> ClusterApi:
    return ClusterApi(**read_section(node, path, CLUSTER_API_FIELDS))


def _tracing(node: Node, path: str) -> Tracing:
    """The daemon's section, but for what only a shutdown has."""
    for name, value in mapping(node, path).items():
        if name in NOT_OF_OUTAGES:
            raise DocumentError(
                f"{path}.{name} is the daemon's: the controller {NOT_OF_OUTAGES[name]}", value.line
            )
    return read_tracing(node, path)


# --- showing ---------------------------------------------------------------------------------------


def _show_brake(brake: Brake) -> dict[str, Any]:
    return readers.show_section(msgspec.structs.asdict(brake), BRAKE_FIELDS)


def _show_cluster_api(said: ClusterApi) -> dict[str, Any]:
    return readers.show_section(msgspec.structs.asdict(said), CLUSTER_API_FIELDS)


def _show_pools(pools: Sequence[Pool]) -> list[Any]:
    return [each.name for each in pools]


# --- the document ----------------------------------------------------------------------------------

POOLS_TEXT = (
    "Kinds of machines, and who is asked about them. The first pool whose nodeSelector a node's labels have "
    "is the node's; one that no pool takes has the default of believe and of askKubelet, and nothing else. "
    "A kubelet may set most labels of its own Node: where pools differ in what is believed, select by labels "
    "below node-restriction.kubernetes.io/, which it may not. name: of the pool. nodeSelector: a mapping of "
    "labels; left out, all nodes. believe: which of "
    f"{', '.join(STATEMENTS)} count where they stand on the Node; left out, {', '.join(BELIEVED)}. "
    "askKubelet: whether the node's kubelet is asked; its answer can only contradict, and holds powerOff up "
    "as well; true. redfish, ipmi, cloud, powerOff: below."
)
#: The sections of a pool, for the reference: by their path, with their fields and what these mean.
SECTIONS: dict[str, tuple[Mapping[str, SectionField], str]] = {
    "pools[].redfish": (
        REDFISH_FIELDS,
        "A management controller that speaks Redfish. address: its URL, https://, in which "
        f"{NODE_PLACE} stands for the Node's name (http:// only on the loopback); addresses: a mapping of "
        "Nodes' names to URLs, each of which wins over address. It is never taken from the Node: a kubelet "
        "can write there, and the credentials are sent to it. usernameFile, passwordFile: absolute paths, as "
        "of a mounted Secret; read again each time. system: the id of the ComputerSystem, in which "
        f"{NODE_PLACE} may stand; left out, the one whose UUID is the Node's systemUUID is looked for. "
        "certificate: a PEM file of authorities to trust; left out, the machine's own. fingerprint: in its "
        "place, the SHA-256 of the controller's own certificate, where no authority has signed it. "
        "uuidOrder: as-written, or swapped for a controller that has the first three fields of the UUID in "
        "the other byte order than the Node: what is read says so.",
    ),
    "pools[].ipmi": (
        IPMI_FIELDS,
        "One that speaks IPMI v2.0 (RMCP+, lanplus). address: a host or an IP address, with or without a "
        f"port, in which {NODE_PLACE} stands for the Node's name; addresses: a mapping of Nodes' names to "
        "such; port: where none is in the address, 623. usernameFile, passwordFile: as for redfish. "
        "cipherSuite: 17, or 3 for old controllers. privilege: user is enough to ask, operator (the "
        "default) to switch off; or administrator. guidOrder: of the GUID's bytes to the Node's systemUUID: "
        "smbios, rfc or ipmi; what is read says which would fit.",
    ),
    "pools[].cloud.ec2": (
        EC2_FIELDS,
        "Instances of EC2, by the Node's providerID. region: as eu-west-1; endpoint: a URL in place of AWS' "
        "own; certificate: a PEM file of authorities to trust for it. credentialsFile, profile: a file as of "
        'the AWS tools and a profile in it, "default" where none is named; read again each time. Left out: '
        "the environment's keys (AWS_ACCESS_KEY_ID …), else the role of the service account "
        "(AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, as EKS sets them for IRSA), else EKS' agent for pod "
        "identities (AWS_CONTAINER_CREDENTIALS_FULL_URI); never the machine's own. The right "
        "ec2:DescribeInstances is enough.",
    ),
    "pools[].powerOff": (
        POWER_OFF_FIELDS,
        "Switch a machine off that nobody has proved to be off: opt-in, needs redfish or ipmi. after: how "
        "long nobody may have heard the node before, from 10s to 24h. A machine that boots gives no sign "
        "either: longer than it takes to boot. With askKubelet, the default, a node that is cut off from the "
        "API server and whose kubelet still answers is not switched off; with askKubelet: false it is.",
    ),
}


class OutageConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Durations are in nanoseconds here and in Go's notation in the file."""

    effect: Annotated[
        Effect,
        Doc(
            readers.one_of(get_args(Effect)),
            readers.show_plain,
            "NoExecute or NoSchedule",
            "The effect of the out-of-service taint. NoExecute: pods that do not tolerate it are deleted. "
            "NoSchedule: nothing is deleted by the taint, and only what is Terminating already is helped.",
        ),
    ] = "NoExecute"
    dry_run: Annotated[
        bool,
        Doc(
            readers.flag,
            readers.show_plain,
            "true or false",
            "Decide and record, and change nothing in the cluster.",
        ),
    ] = False
    proof_period: Annotated[
        int,
        Doc(
            _whole_seconds(PROOF_NS_MIN, PROOF_NS_MAX),
            format_duration,
            "duration, whole seconds from 30s to 10m",
            "How long a proof counts after it was observed. A person's statement has a time of its own.",
        ),
    ] = OutageSettings().proof_seconds * NS_PER_SECOND
    reminder_period: Annotated[
        int,
        Doc(
            _whole_seconds(REMINDER_NS_MIN, REMINDER_NS_MAX),
            format_duration,
            "duration, whole seconds from 1m to 7 days (168h)",
            "How often an outage that stays open says so.",
        ),
    ] = OutageSettings().reminder_seconds * NS_PER_SECOND
    namespace: Annotated[
        str,
        Doc(
            _word(readers.DNS_LABEL, "a namespace's name: small letters, digits and '-'"),
            readers.show_plain,
            "name of a namespace",
            "Where the journals and the Lease of the leader are.",
        ),
    ] = "ebbtide"
    brake: Annotated[
        Brake,
        Doc(
            _brake,
            _show_brake,
            "mapping",
            "The storm brake: how many nodes may be out of service at once. maxNodes: so many at most, 5; "
            "maxShare: so much of all nodes at most, 20%, but one in any case; minHealthy: so many nodes "
            "stay that are Ready, 1. The least of the three holds.",
        ),
    ] = Brake()
    cluster_api: Annotated[
        ClusterApi,
        Doc(
            _cluster_api,
            _show_cluster_api,
            "mapping",
            "Where Cluster API's Machines are, for pools that believe remediator. kubeconfig: an absolute "
            "path, as of a mounted Secret, with the management cluster's address and an account there that "
            "may get machines.cluster.x-k8s.io; left out, they are in this cluster.",
        ),
    ] = ClusterApi()
    metrics_listen: Annotated[
        str,
        Doc(
            readers.listen_address,
            readers.show_plain,
            "address:port, unix:PATH, or empty",
            "Where Prometheus may scrape the metrics (0.0.0.0:9465). Empty: nowhere.",
        ),
    ] = ""
    metrics_hosts: Annotated[
        tuple[str, ...],
        Doc(
            readers.hosts,
            list,
            "list of up to 16 names",
            "The names by which the metrics may be asked for, beside localhost, the host's own and any "
            "address.",
        ),
    ] = ()
    tracing: Annotated[
        Tracing,
        Doc(
            _tracing,
            show_tracing,
            "mapping",
            "Where each outage's trace is sent over OTLP: the daemon's section of that name (see "
            "configuration.md), but for alsoSend and flush.",
        ),
    ] = Tracing()
    pools: Annotated[
        tuple[Pool, ...], Doc(_pools, _show_pools, f"list of up to {POOLS_MAX} mappings", POOLS_TEXT)
    ] = ()

    @property
    def settings(self) -> OutageSettings:
        """What the core is told."""
        return OutageSettings(
            effect=self.effect,
            dry_run=self.dry_run,
            proof_seconds=self.proof_period // NS_PER_SECOND,
            reminder_seconds=self.reminder_period // NS_PER_SECOND,
        )

    def pool_of(self, labels: Mapping[str, str]) -> Pool:
        """The one whose nodes have these labels."""
        return next((pool for pool in self.pools if pool.takes(labels)), DEFAULT_POOL)


OUTAGE_FIELDS = fields_of(OutageConfiguration)


def load_outage(path: str | Path) -> OutageConfiguration:
    """Raises ConfigError."""
    return parse_outage(str(path), read_configuration(path))


def parse_outage(name: str, raw: bytes) -> OutageConfiguration:
    """The one document of a file. Raises ConfigError, also where there is none: the defaults write to Nodes,
    and a ConfigMap is emptied by accident sooner than to ask for that.
    """
    with located(name):
        found = documents(raw)
        if not found:
            begin = f"'apiVersion: {OUTAGE_VERSION}' and 'kind: {OUTAGE_KIND}'"
            raise DocumentError(f"it is empty: begin it with {begin}", 1)
        if found[1:]:
            raise DocumentError("a second document begins here: keep one", found[1].line)
        return _configuration(found[0])


def _configuration(document: Node) -> OutageConfiguration:
    wanted = f"{OUTAGE_KIND} (apiVersion {OUTAGE_VERSION})"
    document_kind(document, {OUTAGE_KIND: OUTAGE_VERSION}, wanted)
    values = {}
    for name, node in mapping(document, "the document").items():
        if name in ("kind", "apiVersion"):
            continue
        if name not in OUTAGE_FIELDS:
            raise unknown("", name, OUTAGE_FIELDS, node.line)
        if node.value is not None:
            values[OUTAGE_FIELDS[name].attribute] = OUTAGE_FIELDS[name].doc.read(node, name)
    return OutageConfiguration(**values)
