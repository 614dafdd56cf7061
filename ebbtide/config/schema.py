"""The configuration's fields with type, default and meaning. The reader, ``config show`` and
``docs/configuration.md`` follow from them.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from ebbtide.config.fields import (
    ANY_DURATION,
    DROP_IN_FOLDER,
    DURATION_NS_MAX,
    INT32_MAX,
    INT32_MIN,
    LISTEN_ADDRESS,
    NODE_NAME,
    PATH,
    Kind,
    RuleError,
    absolute_path,
    checked,
    duration,
    matching,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Budget, LeftPods, ShutdownKind, Unready
from ebbtide.otel import destination
from ebbtide.shipping.shipping_destination import Store, checked_cluster, checked_url

OWN_KIND, OWN_VERSION = "EbbtideConfiguration", "ebbtide/v1alpha1"
KUBELET_KIND, KUBELET_VERSION = "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"

TOTAL_FIELD, CRITICAL_FIELD = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
BY_PRIORITY_FIELD = "shutdownGracePeriodByPodPriority"
GATE, PRIORITY_GATE = "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"
#: Always on since v1.34.
LOCKED_GATES = ("PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero")

#: Years of idle journal (1 MB a day at most) and hundreds of shutdowns.
JOURNAL_BYTES_MAX = 64 * 2**20
#: The least fits a shutdown of a full node and a checkpoint.
JOURNAL_BYTES_LIMITS = Meta(ge=2**20, le=2**40)

#: More than a cluster has priority classes.
PERIODS_MAX = 256
#: As nanoseconds they must fit an int64.
PERIOD_SECONDS_MAX = DURATION_NS_MAX // NS_PER_SECOND

KUBELET_UNIT = "kubelet.service"
KUBELET_ROOT = "/var/lib/kubelet"
#: In place of a path: the service account of the daemon's pod.
IN_CLUSTER = "in-cluster"

#: More than an hour is a wrong unit.
_SHORT = duration(0, 3600 * NS_PER_SECOND, whole=True)
#: systemd.unit(5).
_UNIT = matching(re.compile(r"[A-Za-z0-9:_.\\@-]{1,247}\.service"), f"a service unit such as {KUBELET_UNIT}")
_KUBECONFIG = Kind(
    f"an absolute path, or {IN_CLUSTER}", lambda text: text if text == IN_CLUSTER else absolute_path(text)
)
#: The kubelet's and crictl's settings have the scheme.
_SOCKET = Kind("an absolute path", lambda text: absolute_path(text.removeprefix("unix://")))
#: A kubelet without static pods writes an empty text.
_OPTIONAL_PATH = Kind("an absolute path", lambda text: absolute_path(text) if text else None)


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A mapping with fields of its own."""


class Gates(Section, frozen=True, rename="pascal"):
    graceful_node_shutdown: Annotated[bool, "false: the whole feature is off."] = True
    graceful_node_shutdown_based_on_pod_priority: Annotated[bool, "false: no list by priority."] = True
    pod_lifecycle_sleep_action: Annotated[bool, "false: sleep hooks succeed at once."] = True
    pod_lifecycle_sleep_action_allow_zero: Annotated[
        bool, "false: a manifest with a sleep of 0 is refused."
    ] = True


class KubeletGates(Gates, frozen=True, rename="pascal", forbid_unknown_fields=False):
    """Ignores the kubelet's other gates."""

    all_beta: bool | None = None


class WavePeriod(Section, frozen=True):
    priority: Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX), "The least priority of its pods."] = 0
    shutdown_grace_period_seconds: Annotated[
        int, Meta(ge=0, le=PERIOD_SECONDS_MAX), "How long the wave may take."
    ] = 0


class KubeletWavePeriod(WavePeriod, frozen=True, forbid_unknown_fields=False):
    """The kubelet passes over unknown fields, and counts wrong with other numbers of seconds."""

    shutdown_grace_period_seconds: Annotated[
        int,
        Meta(ge=0, le=PERIOD_SECONDS_MAX),
        Kind(f"a whole number from 0 to {PERIOD_SECONDS_MAX}; the kubelet counts other whole numbers wrong"),
    ] = 0


class NodeSection(Section, frozen=True):
    """None: found on the machine (`ebbtide.modes`)."""

    means: Annotated[
        dict[ShutdownKind, Literal["api", "cri"]],
        "For mode auto: a mapping of poweroff, halt, reboot, kexec, soft-reboot, unknown to api or cri. "
        "Absent kinds: api for poweroff and halt, cri for the others.",
    ] = {}
    unready: Annotated[
        Unready, "When the Node's Ready condition is set to False: poweroff (also halt), always, or never."
    ] = "poweroff"
    left_pods: Annotated[LeftPods, "Keep or delete the objects of ended pods that do not come back."] = "keep"
    kubelet_unit: Annotated[
        str | None,
        _UNIT,
        "The unit to stop for cri. Default: the first installed unit of kubelet.service, k3s and rke2 (these "
        "two are the runtime too, and are not stopped).",
    ] = None
    kubelet_root: Annotated[str, PATH, "The kubelet's --root-dir."] = KUBELET_ROOT
    kubeconfig: Annotated[
        str | None,
        _KUBECONFIG,
        f"The credentials for the API server: a file, or {IN_CLUSTER}. Default: the service account of the "
        "daemon's own pod, else the first file of /etc/ebbtide/kubeconfig, the kubelet's, k3s's and rke2's.",
    ] = None
    node_name: Annotated[
        str | None,
        NODE_NAME,
        "The Node's name (the kubelet's --hostname-override). Default: the host name in lower case.",
    ] = None
    cri_socket: Annotated[
        str | None,
        _SOCKET,
        "The container runtime's socket. Default: the first socket of containerd, CRI-O and k3s.",
    ] = None
    static_pod_path: Annotated[
        str | None,
        _OPTIONAL_PATH,
        "The folder of static pods; the daemon reads their priorities there, without the API server. "
        "Default: staticPodPath of a named KubeletConfiguration, else /etc/kubernetes/manifests or rke2's.",
    ] = None


#: Long for a collector that answers, short for a machine that goes down.
TRACE_FLUSH_NS = NS_PER_SECOND // 2

_HEADER = Kind("a header's name", secret=True)
_HEADER_VALUE = Kind(
    "a word without NUL characters; put it in quotes", show=lambda _: destination.HIDDEN, secret=True
)


class TraceSection(Section, frozen=True):
    """Wins over the OTEL_* variables (`otel.destination`). No output shows a header's value."""

    endpoint: Annotated[
        str | None,
        checked(destination.checked_endpoint, "a URL"),
        "A URL such as http://localhost:4318. /v1/traces is added where it is missing.",
    ] = None
    protocol: Annotated[destination.Protocol | None, "Default: http/protobuf."] = None
    headers: Annotated[
        dict[Annotated[str, _HEADER], Annotated[str, _HEADER_VALUE]] | None,
        Meta(max_length=destination.HEADERS_MAX),
        "A mapping of names to values. No output shows the values.",
    ] = None
    certificate: Annotated[str | None, PATH, "A PEM file of authorities to trust."] = None
    client_certificate: Annotated[str | None, PATH, "A PEM file for mutual TLS."] = None
    client_key: Annotated[str | None, PATH, "A PEM file; belongs to clientCertificate."] = None
    timeout_ns: Annotated[
        int | None, duration(NS_PER_SECOND // 1000, 3600 * NS_PER_SECOND), "Of one request. Default: 10s."
    ] = field(name="timeout", default=None)
    compression: Annotated[destination.Compression | None, "Default: none."] = None

    def __post_init__(self) -> None:
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("clientCertificate and clientKey belong together: name both or neither")
        try:
            destination.check_headers(self.protocol or destination.PROTOCOLS[0], self.given.headers or ())
        except destination.BadDestination as error:
            raise RuleError(str(error), "headers") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint})"

    @property
    def given(self) -> destination.Given:
        fields, named = {name: getattr(self, name) for name in TraceSection.__struct_fields__}, self.headers
        headers = (
            None if named is None else tuple(destination.checked_header(name, named[name]) for name in named)
        )
        return destination.Given(**fields | {"headers": headers})


class Tracing(TraceSection, frozen=True):
    flush_ns: Annotated[
        int,
        duration(0, 60 * NS_PER_SECOND),
        "How long the end of a shutdown may wait until the back end has received the trace. The daemon does "
        "not wait for a back end that does not answer.",
    ] = field(name="flush", default=TRACE_FLUSH_NS)


class Shipping(Section, frozen=True):
    url: Annotated[
        str | None,
        checked(checked_url, "a URL"),
        "s3://bucket/prefix, gs://…, az://… or file:///folder, without credentials: these come from the "
        "environment (AWS_ACCESS_KEY_ID …), the machine's role, or a file that the environment names. "
        "Without a url, segments are not sent.",
    ] = None
    cluster: Annotated[
        str | None, Kind("a name", checked_cluster), "A part of each object's name; belongs to url."
    ] = None
    redact: Annotated[
        bool,
        "Send each segment under pseudonyms. Its name then ends in .redacted.ebj and still has the node.",
    ] = False

    def __post_init__(self) -> None:
        if (self.url is None) != (self.cluster is None):
            raise ValueError("url and cluster belong together: name both or neither")

    @property
    def store(self) -> Store:
        return Store(url=self.url or "", cluster=self.cluster or "", redact=self.redact)


class ShutdownPeriods(msgspec.Struct, frozen=True, rename="camel"):
    """Durations in nanoseconds; in a file as Go's (`30s`)."""

    shutdown_grace_period: Annotated[
        int,
        ANY_DURATION,
        "How long a shutdown may take in all. 0s: graceful shutdown is off, the daemon takes no lock.",
    ] = 0
    shutdown_grace_period_critical_pods: Annotated[
        int,
        ANY_DURATION,
        "The part of shutdownGracePeriod for critical pods (priority 2000000000 and above), which end last.",
    ] = 0
    shutdown_grace_period_by_pod_priority: Annotated[
        tuple[WavePeriod, ...],
        Meta(max_length=PERIODS_MAX),
        "The other form: one entry for each wave. A pod is in the entry with the largest priority up to its "
        "own. Not together with the two fields above.",
    ] = ()


class KubeletConfiguration(ShutdownPeriods, frozen=True):
    """Ignores the kubelet's other fields. ``static_pod_path`` may be relative to the file."""

    shutdown_grace_period_by_pod_priority: Annotated[
        tuple[KubeletWavePeriod, ...], Meta(max_length=PERIODS_MAX)
    ] = ()
    feature_gates: KubeletGates = KubeletGates()
    static_pod_path: Annotated[str | None, Kind("a path", lambda text: text or None)] = None


class EbbtideConfiguration(ShutdownPeriods, frozen=True, forbid_unknown_fields=True):
    feature_gates: Annotated[
        Gates, "Kubernetes' gates that concern shutdown, all on by default. Later files win gate by gate."
    ] = Gates()
    budget: Annotated[
        Budget,
        "strict: a wave never gets more than its period. elastic: a wave also gets the unused time of "
        "earlier waves.",
    ] = "strict"
    reserve: Annotated[
        int,
        _SHORT,
        "Asked of logind on top of the periods: for the 2 s between stop signal and SIGKILL, for statuses "
        "and for the release. With less than 3s, or where logind does not grant it, no period is cut, but "
        "the last pods have up to 3 s less.",
    ] = 5 * NS_PER_SECOND
    raise_grant: Annotated[
        bool,
        "Whether the daemon may raise logind's limit (InhibitDelayMaxSec) with a drop-in where the limit is "
        "too small. false: the shutdown uses the time that logind grants.",
    ] = True
    status_flush: Annotated[
        int,
        _SHORT,
        "How long after the last pod's end the release may wait until pod statuses are delivered, ours and "
        "the kubelet's. The wait is 1 s at most while the API server does not answer.",
    ] = 2 * NS_PER_SECOND
    drop_in_directory: Annotated[
        str,
        DROP_IN_FOLDER,
        "Where the drop-in for logind is written: logind.conf.d below /etc/systemd, /run/systemd, "
        "/usr/local/lib/systemd or /usr/lib/systemd. Under /run it is gone at the next boot and works "
        "with a read-only /etc.",
    ] = "/run/systemd/logind.conf.d"
    journal_fallbacks: Annotated[
        tuple[Annotated[str, PATH], ...],
        Meta(max_length=4),
        "Where the journal continues, in this order, when its own directory cannot be written.",
    ] = ("/run/ebbtide/journal",)
    journal_bytes_max: Annotated[
        int,
        JOURNAL_BYTES_LIMITS,
        "Above this size the daemon removes whole old segments of the journal, except those still in use.",
    ] = JOURNAL_BYTES_MAX
    metrics_listen: Annotated[
        str,
        LISTEN_ADDRESS,
        "Where Prometheus may scrape the metrics. Empty: nowhere; 'ebbtide metrics' prints them anyway.",
    ] = ""
    metrics_kubelet_names: Annotated[
        bool,
        "Put kubelet_ before the names of the metrics of KEP-2712 and KEP-3960, so that the kubelet's "
        "dashboards keep working. Not in mode observe, where the kubelet exports them itself.",
    ] = False
    node: Annotated[
        NodeSection,
        "A Kubernetes node (modes auto, api, cri and observe; see docs/node.md). A reload changes means, "
        "unready and leftPods; the daemon reads the rest at its start. Later files win field by field.",
    ] = NodeSection()
    tracing: Annotated[
        Tracing,
        "Where each shutdown's trace is sent over OTLP. Without an endpoint here or in the environment it is "
        "not sent. OTEL_EXPORTER_OTLP_TRACES_* and OTEL_EXPORTER_OTLP_* fill in absent fields. A later "
        "file's section replaces an earlier one's.",
    ] = Tracing()
    shipping: Annotated[
        Shipping,
        "The object store that receives closed segments of the journal, each once (see docs/fleet.md, "
        "Shipping; an installation by hand needs the extra ship). A later file's section replaces an earlier "
        "one's.",
    ] = Shipping()
