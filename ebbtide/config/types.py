"""The configuration document: every field with its type, its default and its meaning.

This is the only list of fields. The reader, ``config show`` and ``docs/configuration.md`` follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from ebbtide.config import addresses, readers
from ebbtide.config.documents import Node
from ebbtide.config.node import NODE_TEXT, NodeSection, read_node, show_node
from ebbtide.config.tracing import TRACING_TEXT, Tracing, read_tracing, show_tracing
from events.base import NS_PER_SECOND
from events.model import Budget, Period

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
            readers.show_duration,
            "duration",
            "How long a shutdown may take in all. 0s: graceful shutdown is off, no lock is taken.",
            kubelet=True,
        ),
    ] = 0
    shutdown_grace_period_critical_pods: Annotated[
        int,
        Doc(
            readers.duration,
            readers.show_duration,
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
            readers.show_duration,
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
            readers.show_duration,
            "duration, whole seconds up to 1h",
            "How long the end of a shutdown may wait until pod statuses are delivered.",
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
            readers.show_list,
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
            addresses.listen_address,
            readers.show_plain,
            "address:port, unix:PATH, or empty",
            "Where Prometheus may scrape the metrics (127.0.0.1:9464, [::1]:9464, unix:/run/ebbtide/"
            "metrics.sock). Empty: nowhere; 'ebbtide metrics' prints them all the same.",
        ),
    ] = ""
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


class Field(NamedTuple):
    """One field, with its name in a file and its name in the Struct."""

    name: str
    attribute: str
    default: Any
    doc: Doc


def _fields() -> dict[str, Field]:
    hints = get_type_hints(EbbtideConfiguration, include_extras=True)
    default = EbbtideConfiguration()
    return {
        info.encode_name: Field(
            info.encode_name, info.name, getattr(default, info.name), hints[info.name].__metadata__[0]
        )
        for info in msgspec.structs.fields(EbbtideConfiguration)
    }


#: Every field by its name in a file, in the order of the document.
FIELDS: dict[str, Field] = _fields()
