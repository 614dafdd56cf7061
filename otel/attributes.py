"""The attributes of spans. docs/attributes.md explains each one; a test compares the two."""

from __future__ import annotations

from typing import Literal

#: For the names without ``ebbtide.``. Another version is another projection version.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

#: Why a span is an error.
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

# --- by the conventions

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE_ID = "service.instance.id"
HOST_NAME = "host.name"
HOST_ID = "host.id"
NODE_NAME = "k8s.node.name"
NAMESPACE = "k8s.namespace.name"
POD_NAME = "k8s.pod.name"
POD_UID = "k8s.pod.uid"
CONTAINER = "k8s.container.name"
EXIT_CODE = "process.exit.code"
PID = "process.pid"
PARENT_PID = "process.parent_pid"
COMMAND = "process.command"
ERROR_TYPE = "error.type"

# --- the shutdown

EPISODE = "ebbtide.episode.id"
BOOT_ID = "ebbtide.boot.id"
KIND = "ebbtide.shutdown.kind"
OUTCOME = "ebbtide.shutdown.outcome"
GRANT = "ebbtide.shutdown.grant_ms"
REQUESTED = "ebbtide.shutdown.requested_ms"
BUDGET = "ebbtide.shutdown.budget_ms"
LOCK_HELD = "ebbtide.shutdown.lock_held"
LAST_WAVE = "ebbtide.shutdown.last_wave"
PODS = "ebbtide.pods.planned"
POD_COUNTS = {
    outcome: f"ebbtide.pods.{outcome}"
    for outcome in ("graceful", "killed", "failed", "spared", "rejected", "unknown")
}
UNFINISHED_PODS = "ebbtide.pods.unfinished"
WAVES = "ebbtide.plan.waves"
CUT = "ebbtide.cut"
DROPPED = "ebbtide.dropped_events"

# --- waves and pods

WAVE = "ebbtide.wave.index"
PRIORITY = "ebbtide.wave.priority"
PERIOD = "ebbtide.wave.period_ms"
WAVE_PODS = "ebbtide.wave.pods"
WAVE_OUTCOME = "ebbtide.wave.outcome"
UNUSED = "ebbtide.wave.unused_ms"
STRAGGLERS = "ebbtide.wave.stragglers"
POD_OUTCOME = "ebbtide.pod.outcome"
REASON = "ebbtide.reason"
GRACE = "ebbtide.pod.grace_ms"
ASKED = "ebbtide.pod.asked_ms"
POD_PRIORITY = "ebbtide.pod.priority"
LATE = "ebbtide.pod.late"

# --- containers

HOOK_KIND = "ebbtide.hook.kind"
HOOK_RESULT = "ebbtide.hook.result"
HOOK_EARLY = "ebbtide.hook.early"
HOOK_UNTIL = "ebbtide.hook.limit_ms"
SIGNAL = "ebbtide.stop.signal"
EXIT_SIGNAL = "ebbtide.exit.signal"
STATE = "ebbtide.process.state"
WAITING_IN = "ebbtide.process.wait_channel"
CAUGHT = "ebbtide.process.signals_caught"
IGNORED = "ebbtide.process.signals_ignored"
CONNECTIONS = "ebbtide.process.connections"
CONTINUED = "ebbtide.continued"

# --- orders

RESULT = "ebbtide.order.result"
ORDER = "ebbtide.order.key"
REFRESH = "ebbtide.inventory.refresh"
FOUND = "ebbtide.inventory.pods"
SOURCE = "ebbtide.inventory.source"
READY = "ebbtide.announce.ready"
STATUSES = "ebbtide.deliver.statuses"
UNDELIVERED = "ebbtide.flush.undelivered"

# --- a Kubernetes node

TERMINATION_MODE = "ebbtide.shutdown.means"
HANDED_OVER = "ebbtide.shutdown.handed_over"
WAVE_MOUNTED = "ebbtide.wave.mounted"
POD_TERMINATION_MODE = "ebbtide.pod.means"
AFTER_TAINT = "ebbtide.delete.after_taint"
ABOUT_PODS = "ebbtide.order.pods"
MISSING = "ebbtide.statuses.missing"
MOUNTED = "ebbtide.mounts.left"
SAFE_TO_DETACH = "ebbtide.detach.safe"

# --- what goes on beside

ACTION = "ebbtide.resume.action"
LINK = "ebbtide.link"

# --- outages

NODE_UID = "k8s.node.uid"
PERSISTENT_VOLUME = "k8s.persistentvolume.name"
OUTAGE_OUTCOME = "ebbtide.outage.outcome"
NODE_BOOT = "ebbtide.outage.boot.id"
ENDING = "ebbtide.last_boot.ending"
END_REASON = "ebbtide.last_boot.why"
NODE_JOURNAL = "ebbtide.last_boot.journal"
EFFECT = "ebbtide.outage.effect"
TAINT_PROOF = "ebbtide.outage.proof"
UNRECOVERED = "ebbtide.outage.unrecovered"
LOST_PODS = "ebbtide.outage.pods"
ATTACHMENTS = "ebbtide.outage.attachments"
WHO = "ebbtide.proof.source"
SAME_BOOT = "ebbtide.outage.same_boot"
OWNER = "ebbtide.pod.owner"
READY_ON = "ebbtide.pod.ready_on"
LOST_OUTCOME = "ebbtide.outage.outcome_of"
ATTACHMENT = "ebbtide.attachment.name"
DRIVER = "ebbtide.attachment.driver"
BEFORE_TAINT = "ebbtide.attachment.before_taint"
REPLICA = "ebbtide.leader.replica"
