"""The configuration document: every field with its type, its default and its meaning.

This is the only list of fields. The reader, ``config show`` and ``docs/configuration.md`` follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from ebbtide.actors.edges.documents import DocumentError, Node, quote
from ebbtide.config import readers
from ebbtide.config.readers import SectionField, format_duration, read_section, show_section
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Budget, LeftPods, Period, Unready
from ebbtide.otel.delivery.destination import (
    BESIDE,
    COMPRESSIONS,
    HEADERS_MAX,
    HIDDEN,
    PROTOCOLS,
    BadDestination,
    Given,
    check_headers,
    checked_endpoint,
    checked_header,
)
from ebbtide.shipping.shipping_destination import BadStore, Store, checked_cluster, checked_url

# The section ``node``: how the pods of a Kubernetes node are ended, and where its parts are. Every value can
# be left out: what a kubeadm, k3s or rke2 node has where it always is, is found there (`ebbtide.modes`).


KUBELET_UNIT = "kubelet.service"
KUBELET_ROOT = "/var/lib/kubelet"
#: In place of a kubeconfig's path: the service account of the pod that the daemon runs in.
IN_CLUSTER = "in-cluster"

_SHUTDOWN_KINDS = ("poweroff", "halt", "reboot", "kexec", "soft-reboot", "unknown")
_TERMINATION_MODES = ("api", "cri")
_UNREADY = ("poweroff", "always", "never")
_LEFT_PODS = ("keep", "delete")

#: systemd.unit(5): what a unit's name may hold; templates' instances have an @.
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]{1,247}\.service")
#: As the kubelet's and crictl's own settings write a socket.
_UNIX_SCHEME = "unix://"


class NodeSection(msgspec.Struct, frozen=True, kw_only=True):
    """None: found on the machine."""

    means: dict[str, str] = {}
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    kubelet_root: str = KUBELET_ROOT
    kubelet_unit: str | None = None
    kubeconfig: str | None = None
    node_name: str | None = None
    cri_socket: str | None = None
    static_pod_path: str | None = None


def _termination_modes(node: Node, path: str) -> dict[str, str]:
    entries, read = readers.mapping(node, path), readers.one_of(_TERMINATION_MODES)
    for kind, value in entries.items():
        if kind not in _SHUTDOWN_KINDS:
            raise readers.unknown(path, kind, _SHUTDOWN_KINDS, value.line)
    return {kind: read(value, f"{path}.{kind}") for kind, value in entries.items()}


def _unit_name(node: Node, path: str) -> str:
    name = readers.text(node, path)
    if not _UNIT_NAME.fullmatch(name):
        raise DocumentError(
            f"{path} is {quote(name)}: it must be a service unit such as {KUBELET_UNIT}", node.line
        )
    return name


def _kubeconfig_or_in_cluster(node: Node, path: str) -> str:
    if node.value == IN_CLUSTER:
        return IN_CLUSTER
    name = readers.text(node, path)
    if not name.startswith("/"):
        raise DocumentError(
            f"{path} is {quote(name)}: it must be an absolute path, or {IN_CLUSTER}", node.line
        )
    return readers.path(node, path)


def is_node_name(name: str) -> bool:
    """Whether a Node of the API can have this name."""
    return len(name) <= readers.SUBDOMAIN_LENGTH_MAX and readers.DNS_SUBDOMAIN.fullmatch(name) is not None


def _node_name(node: Node, path: str) -> str:
    name = readers.text(node, path)
    if not is_node_name(name):
        wanted = "the Node's name in the API, of lower-case letters, digits, '-' and '.'"
        raise DocumentError(f"{path} is {quote(name)}: it must be {wanted}", node.line)
    return name


def _socket_path(node: Node, path: str) -> str:
    name = readers.text(node, path).removeprefix(_UNIX_SCHEME)
    return readers.path(Node(name, node.line), path)


def _optional_folder(node: Node, path: str) -> str | None:
    """The kubelet writes a folder that it does not have as an empty text."""
    return readers.path(node, path) if node.value else None


NODE_FIELDS = {
    "means": SectionField("means", _termination_modes),
    "unready": SectionField("unready", readers.one_of(_UNREADY)),
    "leftPods": SectionField("left_pods", readers.one_of(_LEFT_PODS)),
    "kubeletUnit": SectionField("kubelet_unit", _unit_name),
    "kubeletRoot": SectionField("kubelet_root", readers.path),
    "kubeconfig": SectionField("kubeconfig", _kubeconfig_or_in_cluster),
    "nodeName": SectionField("node_name", _node_name),
    "criSocket": SectionField("cri_socket", _socket_path),
    "staticPodPath": SectionField("static_pod_path", _optional_folder),
}


#: Also read from a KubeletConfiguration, where they stand without a section.
KUBELET_NODE_FIELDS = ("staticPodPath",)


def read_node(node: Node, path: str) -> dict[str, Any]:
    """What this section says, by attribute of `NodeSection`. Raises DocumentError."""
    return read_section(node, path, NODE_FIELDS)


def show_node(section: NodeSection) -> dict[str, Any]:
    """Defaults included; what is found on the machine is not known here."""
    return show_section(msgspec.structs.asdict(section), NODE_FIELDS)


#: For the reference: every field of the section.
NODE_TEXT = (
    "A Kubernetes node (modes auto, api, cri and observe; see docs/node.md). means: for mode auto, a mapping "
    f"of {', '.join(_SHUTDOWN_KINDS)} to api or cri; power-off and halt are api where nothing else stands "
    "here, the others cri. unready: when the Node's Ready condition is set to False: poweroff (also halt), "
    "always, or never. leftPods: whether the objects of ended pods that do not come back are kept or "
    "deleted. kubeletUnit: what is stopped for cri; left out, the first that is installed of "
    "kubelet.service, k3s's and rke2's (which are the runtime too, and are not stopped). kubeletRoot: the "
    f"kubelet's --root-dir, {KUBELET_ROOT}. kubeconfig: who we are for the API server, a file or "
    f"{IN_CLUSTER}; left out, the service account of the pod that we run in, else the first that is there of "
    "/etc/ebbtide/kubeconfig, the kubelet's, k3s's and rke2's. nodeName: the Node's name (the kubelet's "
    "--hostname-override); left out, the host name in lower case. criSocket: the container runtime's socket; "
    "left out, the first that is there of containerd's, CRI-O's and k3s's. staticPodPath: the folder of "
    "static pods, whose priorities are known from there without the API; left out, what a named "
    "KubeletConfiguration says, else the first that is there of /etc/kubernetes/manifests and rke2's. Only "
    "what is decided (means, unready, leftPods) follows a reload; the rest is read at the start. Later files "
    "win field by field."
)


# The section ``tracing``: where a shutdown's trace goes, and how long the shutdown's end may wait for it.
# Field by field this wins over the standard OTEL_* environment (`otel.delivery.destination`). Header values
# are secrets: no message, no ``config show`` and no event repeats one.


#: Half a second is long for a collector that answers, and short for a machine that goes down.
TRACE_FLUSH_NS = NS_PER_SECOND // 2
TRACE_FLUSH_NS_MAX = 60 * NS_PER_SECOND
TIMEOUT_NS_MAX = 3600 * NS_PER_SECOND


class Tracing(msgspec.Struct, frozen=True, kw_only=True):
    """``given`` is this file's share of the destination."""

    given: Given = Given()
    flush_ns: int = TRACE_FLUSH_NS


def _endpoint(node: Node, path: str) -> str:
    """Not repeated where it is wrong: what stands in it may be a password."""
    try:
        return checked_endpoint(readers.secret(node, path))
    except BadDestination as error:
        raise DocumentError(f"{path}: {error}", node.line) from None


def _headers(node: Node, path: str) -> tuple[tuple[str, str], ...]:
    """Nothing of what stands there is repeated: where it is not as it should be, a name may be a value."""
    entries = node.value
    if not isinstance(entries, dict):
        raise DocumentError(f"{path} must be a mapping of names to values: put both in quotes", node.line)
    if len(entries) > HEADERS_MAX:
        raise DocumentError(
            f"{path} has {len(entries)} entries: at most {HEADERS_MAX} can be used", node.line
        )
    found = []
    for index, (name, value) in enumerate(entries.items()):
        try:
            found.append(checked_header(name, readers.secret(value, f"{path}[{index}]")))
        except BadDestination as error:
            raise DocumentError(f"{path}[{index}]: {error}", value.line) from None
    return tuple(found)


def _also_send(node: Node, path: str) -> tuple[str, ...]:
    read = readers.one_of(BESIDE)
    entries = readers.sequence(node, path, len(BESIDE))
    return tuple(dict.fromkeys(read(each, f"{path}[{index}]") for index, each in enumerate(entries)))


#: The section's fields by their names in a file; all but the last describe the destination.
TRACING_FIELDS = {
    "endpoint": SectionField("endpoint", _endpoint),
    "protocol": SectionField("protocol", readers.one_of(PROTOCOLS)),
    "headers": SectionField("headers", _headers, lambda headers: {name: HIDDEN for name, _ in headers}),
    "certificate": SectionField("certificate", readers.path),
    "clientCertificate": SectionField("client_certificate", readers.path),
    "clientKey": SectionField("client_key", readers.path),
    "timeout": SectionField(
        "timeout_ns", readers.bounded_duration(NS_PER_SECOND // 1000, TIMEOUT_NS_MAX), format_duration
    ),
    "compression": SectionField("compression", readers.one_of(COMPRESSIONS)),
    "alsoSend": SectionField("signals", _also_send, list),
    "flush": SectionField("flush_ns", readers.bounded_duration(0, TRACE_FLUSH_NS_MAX), format_duration),
}


def read_tracing(node: Node, path: str) -> Tracing:
    """Raises DocumentError. A field without a value counts as absent."""
    values = read_section(node, path, TRACING_FIELDS)
    # Refused when it is read, while whoever wrote it looks on.
    if ("client_certificate" in values) != ("client_key" in values):
        raise DocumentError(f"{path}: clientCertificate and clientKey belong together", node.line)
    try:
        check_headers(values.get("protocol", PROTOCOLS[0]), values.get("headers", ()))
    except BadDestination as error:
        line = readers.mapping(node, path)["headers"].line
        raise DocumentError(f"{path}.headers: {error}", line) from None
    flush_ns = values.pop("flush_ns", TRACE_FLUSH_NS)
    return Tracing(given=Given(**values), flush_ns=flush_ns)


def show_tracing(tracing: Tracing) -> dict[str, Any]:
    """What the section says, without the values of headers; the time is always there."""
    return show_section(
        msgspec.structs.asdict(tracing.given) | {"flush_ns": tracing.flush_ns}, TRACING_FIELDS
    )


#: For the reference: every field of the section.
TRACING_TEXT = (
    "Where each shutdown's trace is sent over OTLP; without an endpoint here or in the environment it is not "
    "sent. endpoint: a URL such as http://localhost:4318, to which /v1/traces is added where it is missing; "
    "protocol: http/protobuf (the default) or grpc; headers: a mapping, their values are shown nowhere; "
    "certificate: a PEM file of authorities to trust; clientCertificate and clientKey: PEM files for mutual "
    "TLS; timeout: of one request, 10s; compression: none or gzip; alsoSend: logs, metrics, or both, to the "
    "same collector (Jaeger and Tempo take traces only); flush: how long the end of a shutdown may "
    "wait until the back end has what ended so far, 500ms, and not at all for one that does not answer. The "
    "standard variables OTEL_EXPORTER_OTLP_TRACES_* and OTEL_EXPORTER_OTLP_* fill in what is left out here. "
    "A later file's section replaces an earlier one's."
)


# The section ``shipping``: which object store closed segments of the journal go to; not who we are there.


def _store_url(node: Node, path: str) -> str:
    """Not repeated where it is wrong: what stands in it may be a password."""
    try:
        return checked_url(readers.secret(node, path))
    except BadStore as error:
        raise DocumentError(f"{path}: {error}", node.line) from None


def _cluster(node: Node, path: str) -> str:
    try:
        return checked_cluster(readers.text(node, path))
    except BadStore as error:
        raise DocumentError(f"{path}: {error}", node.line) from None


SHIPPING_FIELDS = {
    "url": SectionField("url", _store_url),
    "cluster": SectionField("cluster", _cluster),
    "redact": SectionField("redact", readers.flag),
}


def read_shipping(node: Node, path: str) -> Store:
    """Raises DocumentError. A field without a value counts as absent."""
    values = read_section(node, path, SHIPPING_FIELDS)
    if ("url" in values) != ("cluster" in values):
        raise DocumentError(f"{path}: url and cluster belong together: name both or neither", node.line)
    return Store(**values)


def show_shipping(store: Store) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(store).items() if value != ""}


#: For the reference: every field of the section.
SHIPPING_TEXT = (
    "Which object store closed segments of the journal are sent to, each once; without a url none is (see"
    " docs/fleet.md, Shipping; an installation by hand needs the extra ship). url: s3://bucket/prefix, "
    "gs://…, az://… or file:///folder, without credentials: those come from the environment "
    "(AWS_ACCESS_KEY_ID …), the machine's role, or a file that the environment names. cluster: stands in "
    "each object's name and belongs to url. redact: whether each segment is sent under pseudonyms only, "
    "false where nothing stands here; its name then ends in .redacted.ebj, and still says which node it "
    "is of. A later file's section replaces an earlier one's."
)


OWN_KIND, OWN_VERSION = "EbbtideConfiguration", "ebbtide/v1alpha1"
KUBELET_KIND, KUBELET_VERSION = "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"

#: 64 MiB hold years of idle journal (1 MB a day at most) and hundreds of shutdowns.
JOURNAL_BYTES_MAX = 64 * 2**20


class Doc(NamedTuple):
    """What stands beside a field: how it is read and shown, its type for people, and its meaning."""

    read: Callable[[Node, str], Any]
    show: Callable[[Any], Any]
    kind: str
    text: str
    #: Also read from a KubeletConfiguration, under the same name.
    kubelet: bool = False


class EbbtideConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The effective configuration: what all files together say, defaults filled in. Durations are in
    nanoseconds here and in Go's notation (`30s`, `1m30s`) in a file.
    """

    shutdown_grace_period: Annotated[
        int,
        Doc(
            readers.duration,
            format_duration,
            "duration",
            "How long a shutdown may take in all. 0s: graceful shutdown is off, no lock is taken.",
            kubelet=True,
        ),
    ] = 0
    shutdown_grace_period_critical_pods: Annotated[
        int,
        Doc(
            readers.duration,
            format_duration,
            "duration",
            "The part of shutdownGracePeriod that is kept for critical pods (priority 2000000000 and above), "
            "which end last.",
            kubelet=True,
        ),
    ] = 0
    shutdown_grace_period_by_pod_priority: Annotated[
        tuple[Period, ...],
        Doc(
            readers.periods,
            readers.show_periods,
            "list of {priority, shutdownGracePeriodSeconds}",
            "The other form: one wave an entry, in ascending priority. A pod is in the entry with the "
            "largest priority that is not above its own. Not together with the two fields above.",
            kubelet=True,
        ),
    ] = ()
    feature_gates: Annotated[
        dict[str, bool],
        Doc(
            readers.gates,
            readers.show_gates,
            "mapping of gate to true or false",
            "Kubernetes' gates that concern shutdown, all on by default: GracefulNodeShutdown (off: the "
            "whole feature), GracefulNodeShutdownBasedOnPodPriority (off: no list by priority), "
            "PodLifecycleSleepAction (off: sleep hooks succeed at once), PodLifecycleSleepActionAllowZero "
            "(off: a manifest with a sleep of 0 is refused). Later files win gate by gate.",
            kubelet=True,
        ),
    ] = {}
    budget: Annotated[
        Budget,
        Doc(
            readers.one_of(("strict", "elastic")),
            readers.show_plain,
            "strict or elastic",
            "strict: a wave never gets more than its period. elastic: the time that earlier waves left "
            "unused is added to the next one's.",
        ),
    ] = "strict"
    reserve: Annotated[
        int,
        Doc(
            readers.whole_seconds,
            format_duration,
            "duration, whole seconds up to 1h",
            "Asked of logind on top of the periods, for the 2 s between stop signal and SIGKILL, for "
            "statuses and for the release. Not granted, it is a warning and cuts nothing.",
        ),
    ] = 5 * NS_PER_SECOND
    raise_grant: Annotated[
        bool,
        Doc(
            readers.flag,
            readers.show_plain,
            "true or false",
            "Whether logind's limit (InhibitDelayMaxSec) may be raised with a drop-in where it is too small. "
            "false: the shutdown gets along with what is granted.",
        ),
    ] = True
    status_flush: Annotated[
        int,
        Doc(
            readers.whole_seconds,
            format_duration,
            "duration, whole seconds up to 1h",
            "How long the end of a shutdown may wait until pod statuses are delivered. An API server that is "
            "known to be silent is waited for 1 s at most.",
        ),
    ] = 2 * NS_PER_SECOND
    drop_in_directory: Annotated[
        str,
        Doc(
            readers.drop_in_folder,
            readers.show_plain,
            "one of logind's folders",
            "Where the drop-in for logind is written: logind.conf.d below /etc/systemd, /run/systemd, "
            "/usr/local/lib/systemd or /usr/lib/systemd. Under /run it is gone at the next boot and works "
            "with a read-only /etc.",
        ),
    ] = "/run/systemd/logind.conf.d"
    journal_fallbacks: Annotated[
        tuple[str, ...],
        Doc(
            readers.paths,
            list,
            "list of up to 4 absolute paths",
            "Where the journal goes on, in this order, when its own directory cannot be written any more.",
        ),
    ] = ("/run/ebbtide/journal",)
    journal_bytes_max: Annotated[
        int,
        Doc(
            readers.size,
            readers.show_plain,
            "number of bytes, at least 1048576",
            "The size of the journal above which whole old segments are removed; one that is still needed "
            "stays.",
        ),
    ] = JOURNAL_BYTES_MAX
    metrics_listen: Annotated[
        str,
        Doc(
            readers.listen_address,
            readers.show_plain,
            "address:port, unix:PATH, or empty",
            "Where Prometheus may scrape the metrics (127.0.0.1:9464, [::1]:9464, unix:/run/ebbtide/"
            "metrics.sock). Empty: nowhere; 'ebbtide metrics' prints them all the same.",
        ),
    ] = ""
    metrics_hosts: Annotated[
        tuple[str, ...],
        Doc(
            readers.hosts,
            list,
            "list of up to 16 names",
            "The names by which the metrics may be asked for, beside localhost, the host's own and any "
            "address: a Prometheus that scrapes http://node-1.example:9464 needs node-1.example here. Under "
            "any other name a foreign web page could read them through a browser on this machine.",
        ),
    ] = ()
    metrics_kubelet_names: Annotated[
        bool,
        Doc(
            readers.flag,
            readers.show_plain,
            "true or false",
            "Put kubelet_ before the names of the metrics of KEP-2712 and KEP-3960, so that dashboards made "
            "for the kubelet go on working. Not in mode observe, where the kubelet exports them itself.",
        ),
    ] = False
    node: Annotated[NodeSection, Doc(read_node, show_node, "mapping", NODE_TEXT)] = NodeSection()
    tracing: Annotated[Tracing, Doc(read_tracing, show_tracing, "mapping", TRACING_TEXT)] = Tracing()
    shipping: Annotated[Store, Doc(read_shipping, show_shipping, "mapping", SHIPPING_TEXT)] = Store()


class Field(NamedTuple):
    """One field, with its name in a file and its name in the Struct."""

    name: str
    attribute: str
    default: Any
    doc: Doc


def fields_of(document: type[msgspec.Struct]) -> dict[str, Field]:
    """Every field of a document by its name in a file, in the order of the document."""
    hints, defaults = get_type_hints(document, include_extras=True), document()
    return {
        info.encode_name: Field(
            info.encode_name, info.name, getattr(defaults, info.name), hints[info.name].__metadata__[0]
        )
        for info in msgspec.structs.fields(document)
    }


FIELDS = fields_of(EbbtideConfiguration)
