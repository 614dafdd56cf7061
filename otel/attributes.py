"""Every attribute of spans: ``docs/attributes.md`` is made from this table.

OpenTelemetry's names come from their package, in the version of `SCHEMA_URL`. Other names begin with
``ebbtide.``. A test holds that spans have no other attribute.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from opentelemetry.semconv._incubating.attributes import host_attributes as host
from opentelemetry.semconv._incubating.attributes import k8s_attributes as k8s_incubating
from opentelemetry.semconv._incubating.attributes import process_attributes as process
from opentelemetry.semconv.attributes import error_attributes as error
from opentelemetry.semconv.attributes import exception_attributes as exception
from opentelemetry.semconv.attributes import k8s_attributes as k8s
from opentelemetry.semconv.attributes import service_attributes as service

#: The conventions that the names follow. Another version is another projection version.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

PREFIX = "ebbtide."

Kind = Literal["string", "int", "bool", "string[]"]

#: Why a span is an error: a pod was killed, a hook failed, a deadline was missed; of an outage, a proof was
#: wrong, the API server did not take a write, or a volume was detached by the six-minute timer.
Error = Literal[
    "killed",
    "survived-sigkill",
    "hook-failed",
    "hook-timed-out",
    "deadline-missed",
    "cut-short",
    # Of an outage.
    "proof-wrong",
    "order-failed",
    "forced-detach",
]
ERRORS: tuple[Error, ...] = get_args(Error)


class Attribute(NamedTuple):
    """``where``: the spans that have it, or ``resource``, an event in quotes, a link."""

    name: str
    type: Kind
    unit: str
    where: str
    meaning: str


TABLE: dict[str, Attribute] = {}


def _row(name: str, type_: Kind, where: str, meaning: str, unit: str = "") -> str:
    TABLE[name] = Attribute(name, type_, unit, where, meaning)
    return name


def _ours(name: str, type_: Kind, where: str, meaning: str, unit: str = "") -> str:
    return _row(PREFIX + name, type_, where, meaning, unit)


# --- by the conventions ------------------------------------------------------------------------

SERVICE_NAME = _row(
    service.SERVICE_NAME,
    "string",
    "resource",
    "`ebbtide`, or what `OTEL_SERVICE_NAME` said when the configuration was read.",
)
SERVICE_VERSION = _row(
    service.SERVICE_VERSION, "string", "resource", "The version of the daemon that began the shutdown."
)
SERVICE_INSTANCE_ID = _row(
    service.SERVICE_INSTANCE_ID, "string", "resource", "The journal's random id, written as a UUID."
)
HOST_NAME = _row(host.HOST_NAME, "string", "resource", "The node's name.")
HOST_ID = _row(host.HOST_ID, "string", "resource", "The machine id of the node.")
NODE_NAME = _row(k8s.K8S_NODE_NAME, "string", "resource", "The node's name, as Kubernetes knows it.")
NAMESPACE = _row(
    k8s.K8S_NAMESPACE_NAME, "string", "pod, hook, stop, kill, delete, reject", "The pod's namespace."
)
POD_NAME = _row(k8s.K8S_POD_NAME, "string", "pod, hook, stop, kill, delete, reject", "The pod's name.")
POD_UID = _row(k8s.K8S_POD_UID, "string", "pod, hook, stop, kill, delete, reject", "The pod's UID.")
CONTAINER = _row(
    k8s.K8S_CONTAINER_NAME, "string", 'hook, stop, kill, "container.exited"', "The container's name."
)
EXIT_CODE = _row(
    process.PROCESS_EXIT_CODE,
    "int",
    'hook, stop, kill, "container.exited"',
    "The exit code, where one was seen.",
)
PID = _row(process.PROCESS_PID, "int", '"autopsy"', "A process that was still there just before SIGKILL.")
PARENT_PID = _row(process.PROCESS_PARENT_PID, "int", '"autopsy"', "Its parent.")
COMMAND = _row(process.PROCESS_COMMAND, "string", '"autopsy"', "Its command.")
ERROR_TYPE = _row(error.ERROR_TYPE, "string", "any with status error", f"One of {', '.join(ERRORS)}.")
EXCEPTION = _row(exception.EXCEPTION_TYPE, "string", '"actor.failed"', "What the actor raised.")

# --- the shutdown ------------------------------------------------------------------------------

EPISODE = _ours("episode.id", "string", "shutdown, next boot", "The shutdown's id, as `journal ls` shows it.")
BOOT_ID = _ours("boot.id", "string", "resource, next boot", "The boot that went down, or that came after.")
KIND = _ours("shutdown.kind", "string", "shutdown", "poweroff, reboot, halt, kexec, soft-reboot, unknown.")
OUTCOME = _ours(
    "shutdown.outcome",
    "string",
    "shutdown, next boot",
    "complete: the release was ordered. cancelled. truncated, never-begun: cut short in or before the waves.",
)
GRANT = _ours("shutdown.grant_ms", "int", "shutdown", "The delay that logind allows.", "ms")
REQUESTED = _ours("shutdown.requested_ms", "int", "shutdown", "The sum of the configured periods.", "ms")
BUDGET = _ours("shutdown.budget_ms", "int", "shutdown", "What the waves may use, from the signal.", "ms")
LOCK_HELD = _ours("shutdown.lock_held", "bool", "shutdown", "Whether the delay lock was held at the signal.")
LAST_WAVE = _ours("shutdown.last_wave", "int", "shutdown, next boot", "The last wave that began; -1: none.")
PODS = _ours("pods.planned", "int", "shutdown, plan", "Pods in the plan, late ones too.")
POD_COUNTS = {
    outcome: _ours(f"pods.{outcome}", "int", "shutdown", f"Pods whose outcome was {outcome}.")
    for outcome in ("graceful", "killed", "failed", "spared", "rejected", "unknown")
}
UNFINISHED_PODS = _ours("pods.unfinished", "int", "shutdown", "Pods left when waiting ended.")
WAVES = _ours("plan.waves", "int", "plan", "Waves in the plan, empty ones too.")
CUT = _ours(
    "cut",
    "bool",
    "any",
    "It had not ended when the record of its pod, of the shutdown, or of its boot did.",
)
DROPPED = _ours("dropped_events", "int", "any", "Span events beyond the first 128.")

# --- waves and pods ----------------------------------------------------------------------------

WAVE = _ours("wave.index", "int", "wave, pod, last boot", "The wave's place in the plan, from 0.")
PRIORITY = _ours("wave.priority", "int", "wave", "The lowest priority of the wave's range.")
PERIOD = _ours("wave.period_ms", "int", "wave", "The time that the wave has.", "ms")
WAVE_PODS = _ours("wave.pods", "int", "wave", "Pods that the wave began with.")
WAVE_OUTCOME = _ours("wave.outcome", "string", "wave", "complete, overran, cancelled, failed.")
UNUSED = _ours("wave.unused_ms", "int", "wave", "What was left of the period.", "ms")
STRAGGLERS = _ours("wave.stragglers", "string[]", "wave", "Pods that were still there at the deadline (64).")
POD_OUTCOME = _ours(
    "pod.outcome",
    "string",
    "pod",
    "graceful, killed, failed (not even by SIGKILL), spared (by a cancel), unknown (its end was not seen).",
)
REASON = _ours("reason", "string", "any", "Why it ended as it did, in words.")
GRACE = _ours("pod.grace_ms", "int", "pod, delete", "The grace that the pod got.", "ms")
ASKED = _ours("pod.asked_ms", "int", "pod", "Its own terminationGracePeriodSeconds.", "ms")
POD_PRIORITY = _ours("pod.priority", "int", "pod", "The pod's priority.")
LATE = _ours("pod.late", "bool", "pod", "It was not in the inventory at the signal.")

# --- containers --------------------------------------------------------------------------------

HOOK_KIND = _ours("hook.kind", "string", "hook", "exec, httpGet, sleep, tcpSocket.")
HOOK_RESULT = _ours("hook.result", "string", "hook", "done, failed, timed-out, cancelled, unknown, not-run.")
HOOK_EARLY = _ours("hook.early", "bool", "hook", "A sleep that ended before its time.")
HOOK_UNTIL = _ours("hook.limit_ms", "int", "hook", "What the hook had at most.", "ms")
SIGNAL = _ours("stop.signal", "string", "stop", "The stop signal.")
EXIT_SIGNAL = _ours(
    "exit.signal", "string", 'stop, kill, "container.exited"', "The signal that ended the container."
)
STATE = _ours("process.state", "string", 'kill, "autopsy"', "State of the process just before SIGKILL.")
WAITING_IN = _ours("process.wait_channel", "string", 'kill, "autopsy"', "Where in the kernel it waited.")
CAUGHT = _ours("process.signals_caught", "string[]", '"autopsy"', "Signals with a handler.")
IGNORED = _ours("process.signals_ignored", "string[]", 'kill, "autopsy"', "Signals that it ignores.")
CONNECTIONS = _ours("process.connections", "int", '"autopsy"', "Its open network connections.")
CONTINUED = _ours("continued", "bool", "stop, hook", "It began in the cancelled shutdown before this one.")

# --- orders ------------------------------------------------------------------------------------

RESULT = _ours(
    "order.result",
    "string",
    "inventory, announce, deliver, export, release, stop kubelet, delete, withdraw, unmounts, "
    "await statuses, check mounts, certify",
    "done, failed, timed-out, cancelled, unknown (the daemon died meanwhile).",
)
ORDER = _ours("order.key", "string", 'any that is an order, "durability.late"', "The order's stable key.")
REFRESH = _ours("inventory.refresh", "bool", "inventory", "A listing by call, not from the warm cache.")
FOUND = _ours("inventory.pods", "int", "inventory", "Pods that it found.")
SOURCE = _ours("inventory.source", "string", "inventory", "Where it came from.")
READY = _ours("announce.ready", "bool", "announce", "False: the node goes down; true: it is as it was.")
STATUSES = _ours("deliver.statuses", "int", "deliver", "Pod statuses in this delivery.")
UNDELIVERED = _ours(
    "flush.undelivered", "int", "flush", "Statuses that wait in the journal for the next boot."
)

# --- a Kubernetes node -------------------------------------------------------------------------

TERMINATION_MODE = _ours(
    "shutdown.means",
    "string",
    'shutdown, "means.chosen"',
    "How its pods are ended: api (the kubelet, by deletes), cri (the runtime), observe (the kubelet alone).",
)
HANDED_OVER = _ours("shutdown.handed_over", "bool", "shutdown", "From the API to the runtime.")
WAVE_MOUNTED = _ours(
    "wave.mounted", "string[]", "wave", "Pods whose volumes were still mounted at the deadline (64)."
)
POD_TERMINATION_MODE = _ours("pod.means", "string", "pod", "How this pod was to be ended, as shutdown.means.")
AFTER_TAINT = _ours("delete.after_taint", "bool", "delete", "Not before the node was tainted.")
ABOUT_PODS = _ours("order.pods", "int", "withdraw, unmounts, await statuses", "Pods that it is about.")
MISSING = _ours(
    "statuses.missing",
    "int",
    'await statuses, "left.undone"',
    "Pods without a final status in the API.",
)
MOUNTED = _ours("mounts.left", "int", 'check mounts, "detach.certified"', "Volumes that are still mounted.")
STILL_RUNNING = _ours("pods.running", "int", '"detach.certified", "left.undone"', "Pods not seen to end.")
SAFE_TO_DETACH = _ours(
    "detach.safe",
    "bool",
    'shutdown, certify, "detach.certified"',
    "Every pod has ended and no volume is mounted.",
)
PART = _ours("health.part", "string", '"health"', "kubelet, runtime, api.")
ANSWERS = _ours("health.answers", "bool", '"health"', "Whether it does from now on.")

# --- what goes on beside -----------------------------------------------------------------------

ACTION = _ours("resume.action", "string", "resume", "What the start did: a row of the resume table.")
FALLBACK_PODS = _ours("fallback.pods", "int", '"fallback.engaged"', "Pods that it took over.")
ACTOR = _ours("actor", "string", '"actor.failed", log records', "The actor, with its subject.")
SEQ = _ours("seq", "int", "log records", "The number of the journal's record.")
RECORD_HASH = _ours(
    "record.hash",
    "string",
    "log records",
    "Its chain hash: all before it can be verified by it.",
)
STORAGE_ERROR = _ours("storage.error", "string", '"storage.failed"', "The error of the disk.")
ASKED_BY = _ours("asked_by", "int", '"hurry", "release.asked"', "User id of who asked.")
ASKED_POD = _ours("asked_pod", "string", '"hurry"', "Whom it was about, as it was written.")
OVERTIME = _ours("overtime", "bool", '"deadline.moved"', "logind was bypassed, or its timer had fired.")
LEFT = _ours("left_ms", "int", '"deadline.moved"', "The rest of the budget.", "ms")
BARRIER = _ours("barrier", "string", '"durability.late"', "What the order would have waited for.")
WAITED = _ours("waited_ms", "int", '"durability.late"', "How long it did.", "ms")
LOCATION = _ours("location", "string", '"storage.failed", "storage.moved"', "A folder of the journal.")
DELTA = _ours("delta_ms", "int", '"clock.stepped"', "By how much the wall clock moved.", "ms")
LINK = _ours(
    "link", "string", "links", "shutdown, retry, continued, cancelled: what the other span is to this."
)

# --- outages -----------------------------------------------------------------------------------

NODE_UID = _row(k8s.K8S_NODE_UID, "string", "resource, outage", "The Node object's UID.")
PERSISTENT_VOLUME = _row(
    k8s_incubating.K8S_PERSISTENTVOLUME_NAME,
    "string",
    'attachment, "detach.forced"',
    "The PersistentVolume's name.",
)
OUTAGE_OUTCOME = _ours(
    "outage.outcome",
    "string",
    "outage",
    "recovered, proof-wrong, false-alarm, rebooted, left-to-other, node-deleted; open: the record has a gap.",
)
NODE_BOOT = _ours(
    "outage.boot.id",
    "string",
    "outage, return, last boot",
    "The Node's: when it began, and when it was back; which has ended.",
)
ENDING = _ours(
    "last_boot.ending",
    "string",
    "last boot",
    "How the boot ended for its pods: graceful, cut-short, never-begun, abrupt, unknown.",
)
END_REASON = _ours(
    "last_boot.why", "string", "last boot", "Why so, in the words of docs/operations.md (panic, bypassed, …)."
)
NODE_JOURNAL = _ours("last_boot.journal", "string", "last boot", "The id of the node's own journal.")
EFFECT = _ours("outage.effect", "string", "outage, taint", "The taint's: NoExecute, NoSchedule.")
TAINT_PROOF = _ours("outage.proof", "string", "outage", "Whose word the taint was set on.")
UNRECOVERED = _ours("outage.unrecovered", "string[]", "outage", "What still hung at its end, by name.")
LOST_PODS = _ours("outage.pods", "int", "outage", "Pods that hung on the node.")
ATTACHMENTS = _ours("outage.attachments", "int", "outage", "VolumeAttachments that hung on the node.")
WHO = _ours(
    "proof.source",
    "string",
    'proof, "proof.refused", "proof.wrong", "contradicted", "contradiction.ended"',
    "The source and its name.",
)
SAME_BOOT = _ours("outage.same_boot", "bool", "return", "Under the boot id that was proved off.")
OWNER = _ours("pod.owner", "string", "pod (of an outage)", "The workload that it belongs to, as Kind/name.")
READY_ON = _ours("pod.ready_on", "string", "pod (of an outage)", "The node on which its successor is Ready.")
LOST_OUTCOME = _ours(
    "outage.outcome_of",
    "string",
    "pod (of an outage), attachment",
    "recovered, gone (no controller replaces it), spared; detached, forced (the six-minute timer), kept.",
)
ATTACHMENT = _ours("attachment.name", "string", 'attachment, "detach.forced"', "The VolumeAttachment's name.")
DRIVER = _ours("attachment.driver", "string", "attachment", "The CSI driver's name.")
BEFORE_TAINT = _ours(
    "attachment.before_taint", "bool", "attachment", "Gone before the node was out of service."
)
REPLICA = _ours("leader.replica", "string", '"leader.started"', "The process that goes on with it.")
DRY_RUN = _ours("outage.dry_run", "bool", '"leader.started"', "It makes no change in the cluster.")
TAINTED = _ours("outage.tainted", "bool", '"abandoned"', "Our taint stands, or may stand.")
