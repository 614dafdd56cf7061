"""Shutdowns as flat rows, to query a fleet's journals in SQL (docs/fleet.md).

Durations are whole milliseconds, cut; moments within a shutdown count from its signal. An unrecorded value is
None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from ebbtide.events.base import NS_PER_MS
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record.causes import cause_of, ignored_stop
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.record.shutdown_record import ShutdownRecord, stop_began_ns, took_ns
from ebbtide.events.values import workload_name

#: ``time`` is nanoseconds since 1970, in UTC.
Type = Literal["text", "int", "bool", "time"]


class Row(NamedTuple):
    """``record``: the shutdown or outage; ``it``: the row's subject; ``pod``: the subject's pod."""

    record: Any
    it: Any
    pod: Any = None


class Column:
    """``value``: where a `Row` has it, if not in the field of this name.

    A list's ``int`` is its length. A time's ``int`` is whole milliseconds, so that sums are the same in every
    database; its ``bool`` means that there is one.
    """

    def __init__(self, name: str, type: Type, text: str, value: str | Callable[[Row], Any] = "") -> None:
        self.name, self.type, self.text = name, type, text
        place = (
            value or f"it.{name.removesuffix('_ms')}_ns" if name.endswith("_ms") else value or f"it.{name}"
        )
        self._get: Callable[[Row], Any] = attrgetter(place) if isinstance(place, str) else place
        self._is_time = isinstance(place, str) and place.endswith("_ns") and type != "time"

    def value(self, row: Row) -> Any:
        value = self._get(row)
        if self._is_time:
            if self.type == "bool":
                return value is not None
            return None if value is None else value // NS_PER_MS
        if self.type == "int" and isinstance(value, tuple | list):
            return len(value)
        return "" if value is None and self.type == "text" else value


class Table(NamedTuple):
    """It has a row for each of ``subjects``."""

    name: str
    text: str
    subjects: Callable[[Any], Iterable[Row]]
    columns: tuple[Column, ...]

    def rows(self, record: Any) -> Iterable[tuple[Any, ...]]:
        """In the order of the record."""
        for row in self.subjects(record):
            yield tuple(column.value(row) for column in self.columns)


def _itself(record: Any) -> Iterable[Row]:
    return (Row(record, record),)


def _each(name: str) -> Callable[[Any], Iterable[Row]]:
    return lambda record: (Row(record, each) for each in getattr(record, name))


def _each_of_pods(name: str) -> Callable[[Any], Iterable[Row]]:
    return lambda record: (Row(record, each, pod) for pod in record.pods for each in getattr(pod, name))


def _took(row: Row) -> int | None:
    taken_ns = took_ns(row.it)
    return None if taken_ns is None else taken_ns // NS_PER_MS


def _stop_took(row: Row) -> int | None:
    began_ns, ended_ns = stop_began_ns(row.it), row.it.exited_ns
    return None if began_ns is None or ended_ns is None else (ended_ns - began_ns) // NS_PER_MS


def _configured_ms(row: Row) -> int | None:
    periods = row.record.configuration.periods
    return next((each.seconds * 1000 for each in periods if each.priority == row.it.priority), None)


def _cause(row: Row) -> str:
    cause = cause_of(row.it)
    return "" if cause is None else cause.code


def _fate(outcome: PodOutcome) -> Column:
    return Column(outcome, "int", f"pods of this fate: {outcome}", lambda row: row.record.count(outcome))


def _key(kind: str, started: str) -> tuple[Column, ...]:
    return (
        Column("node", "text", "the node's name", "record.node"),
        Column(kind, "text", f"the {kind}'s id, as in `ebbtide journal ls`", "record.id"),
        Column("started", "time", started, "record.started_wall_ns"),
        # Two nodes' shutdowns may share an id, which begins with eight digits of the journal's.
        Column("journal_id", "text", "of its journal, all 32 digits", "record.journal_id"),
    )


# --- the columns

KEY = _key("shutdown", "the signal, by the wall clock")

SHUTDOWN = (
    *KEY,
    Column("trace_id", "text", "of its trace"),
    Column("machine_id", "text", "systemd's"),
    Column("boot_id", "text", "the kernel's"),
    Column("version", "text", "of the daemon that began it"),
    Column("kind", "text", "poweroff, reboot, halt, kexec, soft-reboot, unknown"),
    Column("outcome", "text", "complete, cancelled, truncated, never-begun, running"),
    Column("took_ms", "int", "to the release of the lock, or the cancel's end", "it.ended_ns"),
    Column("requested_ms", "int", "the configured periods", "it.configuration.requested_ns"),
    Column("reserve_ms", "int", "the time beyond the periods", "it.configuration.reserve_ns"),
    Column("grant_ms", "int", "logind's grant"),
    Column("budget_ms", "int", "the waves' time"),
    Column("budget", "text", "strict or elastic", "it.configuration.budget"),
    Column("lock_held", "bool", "whether the machine had to wait"),
    Column("overtime", "bool", "whether the service manager ended it"),
    Column("cancel_reason", "text", "empty if it was not cancelled"),
    Column("means", "text", "api, cri, observe; empty: no Kubernetes node's", "it.by.means"),
    Column("handed_over", "bool", "from API to runtime", "it.by.handed_over_ns"),
    Column(
        "safe_to_detach",
        "bool",
        "null: not checked",
        lambda row: row.it.by.certificate and row.it.by.certificate.safe,
    ),
    Column("last_wave", "int", "the last one that began, -1 if none"),
    Column("daemons", "int", "its processes: more than one is a crash", "it.own_processes"),
    Column("pods", "int", "all pods"),
    *map(_fate, get_args(PodOutcome)),
    Column("events", "int", "records of it"),
    Column("severity", "text", "good, mixed, bad"),
)

WAVE = (
    *KEY,
    Column("wave", "int", "its place, from 0", "it.index"),
    Column("priority", "int", "the least of its pods"),
    Column("configured_ms", "int", "its period in the configuration", _configured_ms),
    Column("planned_ms", "int", "its share of the grant"),
    Column("had_ms", "int", "its period, with an elastic budget's unused time", "it.period_ns"),
    Column("began_ms", "int", "after the signal"),
    Column("took_ms", "int", "to its end", _took),
    Column("outcome", "text", "complete, overran, cancelled, open, waiting"),
    Column("unused_ms", "int", "left of its period"),
    Column("pods", "int", "its pods"),
    Column("stragglers", "int", "pods that had not ended at its end"),
)

POD_KEY = (
    *KEY,
    Column("namespace", "text", "the pod's", "pod.namespace"),
    Column("pod", "text", "the pod's name", "pod.name"),
    Column("uid", "text", "the pod's", "pod.uid"),
    Column(
        "workload",
        "text",
        "its name without the controller's suffix",
        lambda row: workload_name(row.pod.name, row.record.node),
    ),
)

# After a kill the difference between the plan's and the spec's grace is the first question.
POD = (
    *POD_KEY,
    Column("priority", "int", "the pod's, if it has one"),
    Column("wave", "int", "-1: it had no part in the plan"),
    Column("wanted_s", "int", "terminationGracePeriodSeconds", "it.wanted_grace_seconds"),
    Column("grace_s", "int", "the plan's grace", "it.grace_seconds"),
    Column("late", "bool", "it was not in the inventory at the signal"),
    Column("began_ms", "int", "its stop, after the signal"),
    Column("took_ms", "int", "to its end", _took),
    Column("means", "text", "api, cri, observe"),
    Column("owner", "text", "the workload that it belongs to, as Kind/name"),
    Column(
        "outcome",
        "text",
        "its fate; empty: the record ends before",
        lambda row: "goes-on" if row.it.goes_on else row.it.outcome,
    ),
    Column("reason", "text", "why, in words"),
    Column("succeeded", "bool", "every container exited with 0"),
    Column("hurried", "bool", "a person asked not to wait", "it.hurried_ns"),
    Column("ignored_stop", "bool", "the autopsy showed so before SIGKILL", lambda row: ignored_stop(row.it)),
    Column("cause", "text", "a stable code: why it did not end by itself", _cause),
)

HOOK = (
    *POD_KEY,
    Column("container", "text", "the hook's container"),
    Column("kind", "text", "exec, httpGet, sleep, tcpSocket"),
    Column("detail", "text", "a program's name, or a port and path"),
    Column("began_ms", "int", "after the signal"),
    Column("took_ms", "int", "to its end", _took),
    Column("result", "text", "done, failed, timed-out, cancelled, unknown, not-run"),
    Column("reason", "text", "why, in words"),
    Column("early", "bool", "a sleep that ended before its time"),
)

CONTAINER = (
    *POD_KEY,
    Column("container", "text", "its name", "it.name"),
    Column("sidecar", "bool", "stopped after the others"),
    Column("stop_signal", "text", "the signal that stops it"),
    Column("running", "bool", "it ran at the signal"),
    Column("signalled_ms", "int", "its stop signal, after the shutdown's"),
    Column("stop_ms", "int", "from the stop signal, or its pod's delete, to its exit", _stop_took),
    Column("killed", "bool", "SIGKILL was ordered", "it.killed_ns"),
    Column("exit_code", "int", "null: unknown"),
    Column("exit_signal", "text", "the signal that ended it, if any"),
)

NOTICE = (
    *KEY,
    Column("at_ms", "int", "after the signal"),
    Column("code", "text", "a stable code to count by"),
    Column("text", "text", "for people"),
    Column("uid", "text", "its pod's, if any", "it.pod"),
    Column("seq", "int", "the record that it comes from"),
)

TABLES: tuple[Table, ...] = (
    Table("shutdowns", "one row a shutdown: its outcome, its time, its configuration", _itself, SHUTDOWN),
    Table("waves", "one row a wave of a shutdown's plan", _each("waves"), WAVE),
    Table(
        "pods",
        "one row a pod of a shutdown: its fate",
        lambda record: (Row(record, pod, pod) for pod in record.pods),
        POD,
    ),
    Table("hooks", "one row a run of a preStop hook", _each_of_pods("hooks"), HOOK),
    Table("containers", "one row a container", _each_of_pods("containers"), CONTAINER),
    Table("notices", "one row a warning", _each("notices"), NOTICE),
)


# --- outages

OUTAGE_KEY = _key("outage", "it was suspected, by the wall clock")

OUTAGE = (
    *OUTAGE_KEY,
    Column("trace_id", "text", "of its trace"),
    Column("node_uid", "text", "the Node object's"),
    Column("boot_id", "text", "the Node's, when it began"),
    Column("version", "text", "of the controller that began it"),
    Column("outcome", "text", "as in `docs/outage.md`; open"),
    Column("reason", "text", "why it was suspected"),
    Column("proof", "text", "the source of the taint's proof"),
    Column("effect", "text", "the taint's; empty: there was none"),
    Column("dry_run", "bool", "no change in the cluster", "it.settings.dry_run"),
    Column("took_ms", "int", "to its end", "it.ended_ns"),
    Column("tainted_ms", "int", "to the taint", "it.out_ns"),
    Column("recovered_ms", "int", "to the end of the last hanging object"),
    Column("returned_ms", "int", "until the node was back"),
    Column("same_boot", "bool", "with the former boot id"),
    Column("untainted_ms", "int", "until our taint was gone"),
    Column("alarms", "int", "records that need a person"),
    Column("leaders", "int", "processes that wrote it"),
    Column("pods", "int", "that hung on the node"),
    Column("volumes", "int", "that hung on the node", "it.attachments"),
    Column("unrecovered", "int", "pods and volumes that hung at its end"),
)

HANGING = (
    Column("outcome", "text", "recovered, gone, spared, detached, forced, kept, waiting"),
    Column("began_ms", "int", "followed since"),
    Column("took_ms", "int", "until it was over", _took),
    Column(
        "waits_for",
        "text",
        "its last obstacle",
        lambda row: row.it.waits[-1].reason if row.it.waits else "",
    ),
)

OUTAGE_POD = (
    *OUTAGE_KEY,
    Column("name", "text", "namespace/name", "it.label"),
    Column("uid", "text", "the pod's"),
    *HANGING,
    Column("owner", "text", "the workload that it belongs to, as Kind/name"),
    Column("ready_on", "text", "where it, or its successor, is Ready", "it.node"),
)

OUTAGE_VOLUME = (
    *OUTAGE_KEY,
    Column("name", "text", "the volume's", "it.label"),
    Column("uid", "text", "its attachment's name", "it.name"),
    *HANGING,
    Column("driver", "text", "the CSI driver's name"),
    Column("before_taint", "bool", "gone before the node was out of service"),
)

STATEMENT = (
    *OUTAGE_KEY,
    Column("at_ms", "int", "after it was suspected"),
    Column("what", "text", "accepted, refused, voided, contradicted, contradiction-ended"),
    Column("who", "text", "the source and its name; empty if voided"),
    Column("text", "text", "why, in words"),
)

OUTAGE_TABLES: tuple[Table, ...] = (
    Table("outages", "one row an outage: its outcome, its time, its proof", _itself, OUTAGE),
    Table("outage_pods", "one row a pod that hung on a node", _each("pods"), OUTAGE_POD),
    Table("outage_volumes", "one row a VolumeAttachment that hung", _each("attachments"), OUTAGE_VOLUME),
    Table("outage_statements", "one row a proof that counted, or did not", _each("statements"), STATEMENT),
)

TABLES_OF: dict[type[Any], tuple[Table, ...]] = {ShutdownRecord: TABLES, OutageRecord: OUTAGE_TABLES}
