"""Shutdowns as flat rows, to query a fleet's journals in SQL (docs/fleet.md).

Six tables, each with the node, the shutdown's id and its start, so that each is complete by itself; four of
outages, likewise. Rows come from one record at a time, the same as for every verb. Durations are whole
milliseconds, cut; moments within a shutdown count from its signal. An unrecorded value is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, get_args

from ebbtide.events.base import NS_PER_MS
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record.causes import cause_of, ignored_stop
from ebbtide.events.record.episodes import EpisodeRecord
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord, WaveRecord, stop_began_ns
from ebbtide.events.values import workload_name

#: ``time`` is nanoseconds since 1970, in UTC.
Type = Literal["text", "int", "bool", "time"]


class Column(NamedTuple):
    """One column. ``value`` takes the shutdown, or the outage, and the row's subject."""

    name: str
    type: Type
    text: str
    value: Callable[[Any, Any], Any]


class Table(NamedTuple):
    """``subjects`` are what it has a row for."""

    name: str
    text: str
    subjects: Callable[[Any], Iterable[Any]]
    columns: tuple[Column, ...]

    def rows(self, shutdown: EpisodeRecord) -> Iterable[tuple[Any, ...]]:
        """This shutdown's, or outage's, rows, in the order of its record."""
        for subject in self.subjects(shutdown):
            yield tuple(column.value(shutdown, subject) for column in self.columns)


class InPod(NamedTuple):
    """A pod, and a part of it: a hook, a container, or none."""

    pod: PodRecord
    it: Any


# Whole milliseconds: sums over a fleet are the same in every database.


def _ms(duration_ns: int | None) -> int | None:
    return None if duration_ns is None else duration_ns // NS_PER_MS


def _took_ms(began_ns: int | None, ended_ns: int | None) -> int | None:
    return None if began_ns is None or ended_ns is None else (ended_ns - began_ns) // NS_PER_MS


def _fate(outcome: PodOutcome) -> Column:
    return Column(
        outcome, "int", f"pods of this fate: {outcome}", lambda shutdown, _: shutdown.count(outcome)
    )


def _configured_ms(shutdown: ShutdownRecord, wave: WaveRecord) -> int | None:
    periods = shutdown.configuration.periods
    return next((each.seconds * 1000 for each in periods if each.priority == wave.priority), None)


def _cause(_: ShutdownRecord, at: InPod) -> str:
    cause = cause_of(at.pod)
    return "" if cause is None else cause.code


# --- what is in each table ---------------------------------------------------------------------

# For joins. Node and start are in each table, or most questions of a fleet ("which node?", "since when?")
# would need a join.
KEY = (
    Column("node", "text", "the node's name", lambda shutdown, _: shutdown.node),
    Column(
        "shutdown", "text", "the shutdown's id, as in `ebbtide journal ls`", lambda shutdown, _: shutdown.id
    ),
    Column("started", "time", "the signal, by the wall clock", lambda shutdown, _: shutdown.started_wall_ns),
    # Two nodes' shutdowns may share an id, which begins with eight digits of the journal's.
    Column("journal_id", "text", "of its journal, all 32 digits", lambda shutdown, _: shutdown.journal_id),
)

SHUTDOWN = (
    *KEY,
    Column("trace_id", "text", "of its trace", lambda a, _: a.trace_id),
    Column("machine_id", "text", "systemd's", lambda a, _: a.machine_id),
    Column("boot_id", "text", "the kernel's", lambda a, _: a.boot_id),
    Column("version", "text", "of the daemon that began it", lambda a, _: a.version),
    Column("kind", "text", "poweroff, reboot, halt, kexec, soft-reboot, unknown", lambda a, _: a.kind),
    Column("outcome", "text", "complete, cancelled, truncated, never-begun, running", lambda a, _: a.outcome),
    Column("took_ms", "int", "to the release of the lock, or the cancel's end", lambda a, _: _ms(a.ended_ns)),
    Column("requested_ms", "int", "the configured periods", lambda a, _: _ms(a.configuration.requested_ns)),
    Column("reserve_ms", "int", "asked of logind on top", lambda a, _: _ms(a.configuration.reserve_ns)),
    Column("grant_ms", "int", "what logind really allowed", lambda a, _: _ms(a.grant_ns)),
    Column("budget_ms", "int", "what the waves could use", lambda a, _: _ms(a.budget_ns)),
    Column("budget", "text", "strict or elastic", lambda a, _: a.configuration.budget),
    Column("lock_held", "bool", "whether the machine had to wait", lambda a, _: a.lock_held),
    Column("overtime", "bool", "whether the service manager ended it", lambda a, _: a.overtime),
    Column("cancel_reason", "text", "empty if it was not cancelled", lambda a, _: a.cancel_reason),
    Column("means", "text", "api, cri, observe; empty: no Kubernetes node's", lambda a, _: a.by.means),
    Column("handed_over", "bool", "from API to runtime", lambda a, _: a.by.handed_over_ns is not None),
    Column(
        "safe_to_detach",
        "bool",
        "null: not checked",
        lambda a, _: a.by.certificate and a.by.certificate.safe,
    ),
    Column("last_wave", "int", "the last one that began, -1 if none", lambda a, _: a.last_wave),
    # Without the next boot's daemon, which only closed it.
    Column(
        "daemons",
        "int",
        "its processes: more than one is a crash",
        # A daemon of another boot means a power cut, no crash of a daemon.
        lambda a, _: sum(each.boot_id == a.boot_id and not each.came_after for each in a.processes),
    ),
    Column("pods", "int", "all pods", lambda a, _: len(a.pods)),
    *map(_fate, get_args(PodOutcome)),
    Column("events", "int", "records of it", lambda a, _: a.events),
    Column("severity", "text", "good, mixed, bad", lambda a, _: a.severity),
)

WAVE = (
    *KEY,
    Column("wave", "int", "its place, from 0", lambda _, wave: wave.index),
    Column("priority", "int", "the least of its pods", lambda _, wave: wave.priority),
    Column("configured_ms", "int", "its period in the configuration", _configured_ms),
    Column("planned_ms", "int", "its share of the grant", lambda _, wave: _ms(wave.planned_ns)),
    Column("had_ms", "int", "with what an elastic budget handed on", lambda _, wave: _ms(wave.period_ns)),
    Column("began_ms", "int", "after the signal", lambda _, wave: _ms(wave.began_ns)),
    Column("took_ms", "int", "to its end", lambda _, wave: _took_ms(wave.began_ns, wave.ended_ns)),
    Column("outcome", "text", "complete, overran, cancelled, open, waiting", lambda _, wave: wave.outcome),
    Column("unused_ms", "int", "left of its period", lambda _, wave: _ms(wave.unused_ns)),
    Column("pods", "int", "its pods", lambda _, wave: len(wave.pods)),
    Column("stragglers", "int", "pods that outlived it", lambda _, wave: len(wave.stragglers)),
)

POD_KEY = (
    *KEY,
    Column("namespace", "text", "the pod's", lambda _, at: at.pod.namespace),
    Column("pod", "text", "the pod's name", lambda _, at: at.pod.name),
    Column("uid", "text", "the pod's", lambda _, at: at.pod.uid),
    Column(
        "workload",
        "text",
        "its name without what its controller appended",
        lambda a, at: workload_name(at.pod.name, a.node),
    ),
)

# The plan's grace is beside the spec's: after a kill their difference is the first question. Moments count
# from the signal, so that pods of two nodes are comparable.
POD = (
    *POD_KEY,
    Column("priority", "int", "the pod's, if it has one", lambda _, at: at.pod.priority),
    Column("wave", "int", "-1: it had no part in the plan", lambda _, at: at.pod.wave),
    Column("wanted_s", "int", "terminationGracePeriodSeconds", lambda _, at: at.pod.wanted_grace_seconds),
    Column("grace_s", "int", "what the plan gave it", lambda _, at: at.pod.grace_seconds),
    Column("late", "bool", "it was not in the inventory at the signal", lambda _, at: at.pod.late),
    Column("began_ms", "int", "its stop, after the signal", lambda _, at: _ms(at.pod.began_ns)),
    Column("took_ms", "int", "to its end", lambda _, at: _took_ms(at.pod.began_ns, at.pod.ended_ns)),
    Column("means", "text", "what was to end it: api, cri, observe", lambda _, at: at.pod.means),
    Column("owner", "text", "the workload that it belongs to, as Kind/name", lambda _, at: at.pod.owner),
    Column("outcome", "text", "its fate; empty: the record ends before", lambda _, at: at.pod.outcome or ""),
    Column("reason", "text", "why, in words", lambda _, at: at.pod.reason),
    Column("succeeded", "bool", "every container exited with 0", lambda _, at: at.pod.succeeded),
    Column("hurried", "bool", "a person asked not to wait", lambda _, at: at.pod.hurried_ns is not None),
    Column("ignored_stop", "bool", "a look at it said so before SIGKILL", lambda _, at: ignored_stop(at.pod)),
    Column("cause", "text", "why it did not end by itself: stable, what to count by", _cause),
)

HOOK = (
    *POD_KEY,
    Column("container", "text", "whose hook it is", lambda _, at: at.it.container),
    Column("kind", "text", "exec, httpGet, sleep, tcpSocket", lambda _, at: at.it.kind),
    Column("detail", "text", "a program's name, or a port and path", lambda _, at: at.it.detail),
    Column("began_ms", "int", "after the signal", lambda _, at: _ms(at.it.began_ns)),
    Column("took_ms", "int", "to its end", lambda _, at: _took_ms(at.it.began_ns, at.it.ended_ns)),
    Column(
        "result",
        "text",
        "done, failed, timed-out, cancelled, unknown, not-run",
        lambda _, at: at.it.result or "",
    ),
    Column("reason", "text", "why, in words", lambda _, at: at.it.reason),
    Column("early", "bool", "a sleep that ended before its time", lambda _, at: at.it.early),
)

CONTAINER = (
    *POD_KEY,
    Column("container", "text", "its name", lambda _, at: at.it.name),
    Column("sidecar", "bool", "stopped after the others", lambda _, at: at.it.sidecar),
    Column("stop_signal", "text", "the signal that stops it", lambda _, at: at.it.stop_signal),
    Column("running", "bool", "it ran at the signal", lambda _, at: at.it.running),
    Column("signalled_ms", "int", "told to stop, after the signal", lambda _, at: _ms(at.it.signalled_ns)),
    Column(
        "stop_ms",
        "int",
        "from that, or its pod's delete, to its exit",
        lambda _, at: _took_ms(stop_began_ns(at.it), at.it.exited_ns),
    ),
    Column("killed", "bool", "SIGKILL was ordered", lambda _, at: at.it.killed_ns is not None),
    Column("exit_code", "int", "null: unknown", lambda _, at: at.it.exit_code),
    Column("exit_signal", "text", "what ended it, if a signal did", lambda _, at: at.it.exit_signal),
)

NOTICE = (
    *KEY,
    Column("at_ms", "int", "after the signal", lambda _, notice: _ms(notice.at_ns)),
    Column("code", "text", "stable: what to count by", lambda _, notice: notice.code),
    Column("text", "text", "for people", lambda _, notice: notice.text),
    Column("uid", "text", "the pod's, if it is about one", lambda _, notice: notice.pod),
    Column("seq", "int", "the record that it comes from", lambda _, notice: notice.seq),
)


TABLES: tuple[Table, ...] = (
    Table(
        "shutdowns", "one row a shutdown: its outcome, its time, its configuration", lambda a: (a,), SHUTDOWN
    ),
    Table("waves", "one row a wave of a shutdown's plan", lambda a: a.waves, WAVE),
    Table(
        "pods", "one row a pod of a shutdown: its fate", lambda a: (InPod(pod, None) for pod in a.pods), POD
    ),
    Table(
        "hooks",
        "one row a run of a preStop hook",
        lambda a: (InPod(pod, hook) for pod in a.pods for hook in pod.hooks),
        HOOK,
    ),
    Table(
        "containers",
        "one row a container",
        lambda a: (InPod(pod, container) for pod in a.pods for container in pod.containers),
        CONTAINER,
    ),
    Table("notices", "one row a warning: what an operator should know", lambda a: a.notices, NOTICE),
)


# --- outages -----------------------------------------------------------------------------------

OUTAGE_KEY = (
    Column("node", "text", "the node's name", lambda outage, _: outage.node),
    Column("outage", "text", "the outage's id, as in `ebbtide journal ls`", lambda outage, _: outage.id),
    Column(
        "started", "time", "it was suspected, by the wall clock", lambda outage, _: outage.started_wall_ns
    ),
    Column("journal_id", "text", "of its journal, all 32 digits", lambda outage, _: outage.journal_id),
)

OUTAGE = (
    *OUTAGE_KEY,
    Column("trace_id", "text", "of its trace", lambda a, _: a.trace_id),
    Column("node_uid", "text", "the Node object's", lambda a, _: a.node_uid),
    Column("boot_id", "text", "the Node's, when it began", lambda a, _: a.boot_id),
    Column("version", "text", "of the controller that began it", lambda a, _: a.version),
    Column("outcome", "text", "as in `docs/outage.md`; open", lambda a, _: a.outcome),
    Column("reason", "text", "why it was suspected", lambda a, _: a.reason),
    Column("proof", "text", "the source of the taint's proof", lambda a, _: a.proof),
    Column("effect", "text", "the taint's; empty: there was none", lambda a, _: a.effect),
    Column("dry_run", "bool", "no change in the cluster", lambda a, _: a.settings.dry_run),
    Column("took_ms", "int", "to its end", lambda a, _: _ms(a.ended_ns)),
    Column("tainted_ms", "int", "to the taint", lambda a, _: _ms(a.out_ns)),
    Column("recovered_ms", "int", "to the end of the last hanging object", lambda a, _: _ms(a.recovered_ns)),
    Column("returned_ms", "int", "until the node was back", lambda a, _: _ms(a.returned_ns)),
    Column("same_boot", "bool", "under the boot id of before", lambda a, _: a.same_boot),
    Column("untainted_ms", "int", "until our taint was gone", lambda a, _: _ms(a.untainted_ns)),
    Column("alarms", "int", "records that need a look", lambda a, _: len(a.alarms)),
    Column("leaders", "int", "processes that wrote it", lambda a, _: len(a.leaders)),
    Column("pods", "int", "that hung on the node", lambda a, _: len(a.pods)),
    Column("volumes", "int", "that hung on the node", lambda a, _: len(a.attachments)),
    Column("unrecovered", "int", "left at its end", lambda a, _: len(a.unrecovered)),
)

HANGING = (
    *OUTAGE_KEY,
    Column("name", "text", "namespace/name, or the volume's", lambda _, it: it.label),
    Column("uid", "text", "the pod's; of a volume its attachment's name", lambda _, it: _uid_of(it)),
    Column(
        "outcome",
        "text",
        "recovered, gone, spared, detached, forced, kept, waiting",
        lambda _, it: it.outcome,
    ),
    Column("began_ms", "int", "followed since", lambda _, it: _ms(it.began_ns)),
    Column("took_ms", "int", "until it was over", lambda _, it: _took_ms(it.began_ns, it.ended_ns)),
    Column(
        "waits_for", "text", "what it waited for last", lambda _, it: it.waits[-1].reason if it.waits else ""
    ),
)

OUTAGE_POD = (
    *HANGING,
    Column("owner", "text", "the workload that it belongs to, as Kind/name", lambda _, it: it.owner),
    Column("ready_on", "text", "where it, or its successor, is Ready", lambda _, it: it.node),
)

OUTAGE_VOLUME = (
    *HANGING,
    Column("driver", "text", "the CSI driver's name", lambda _, it: it.driver),
    Column("before_taint", "bool", "gone before the node was out of service", lambda _, it: it.before_taint),
)

STATEMENT = (
    *OUTAGE_KEY,
    Column("at_ms", "int", "after it was suspected", lambda _, it: _ms(it.at_ns)),
    Column(
        "what", "text", "accepted, refused, voided, contradicted, contradiction-ended", lambda _, it: it.what
    ),
    Column("who", "text", "the source and its name; empty of what was voided", lambda _, it: it.who),
    Column("text", "text", "why, in words", lambda _, it: it.text),
)


def _uid_of(subject: Any) -> str:
    return str(getattr(subject, "uid", subject.name))


OUTAGE_TABLES: tuple[Table, ...] = (
    Table("outages", "one row an outage: its outcome, its time, its proof", lambda a: (a,), OUTAGE),
    Table("outage_pods", "one row a pod that hung on a node", lambda a: a.pods, OUTAGE_POD),
    Table("outage_volumes", "one row a VolumeAttachment that hung", lambda a: a.attachments, OUTAGE_VOLUME),
    Table("outage_statements", "one row a proof that counted, or did not", lambda a: a.statements, STATEMENT),
)

#: By a record's type.
TABLES_OF: dict[type[Any], tuple[Table, ...]] = {ShutdownRecord: TABLES, OutageRecord: OUTAGE_TABLES}
