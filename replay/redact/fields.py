"""What each text in a fact, a state or an order names, and so what kind of pseudonym it gets.

The table is complete: a test asks it for every field with text that there is, so that whoever adds one
decides. What is kept says nothing of who runs here: words of this program, of the kernel, of Kubernetes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from msgspec import inspect

Kind = Literal[
    "kept",
    "uid",
    "namespace",
    "pod",
    "container",
    "node",
    "boot",
    "home",
    "path",
    "place",
    "command",
    "hook",
    "tty",
    "message",
    "key",
    "pod reference",
    "status",
    "mount",
    "owner",
    "told owner",
    "event subject",
    "person",
    "dropped",
]

#: By the name of the class and the field. A kind is for every text in the field, keys of maps included.
FIELDS: dict[tuple[str, str], Kind] = {
    # --- facts
    ("DaemonStarted", "version"): "kept",
    ("DaemonStarted", "mode"): "kept",
    ("DaemonStarted", "node"): "node",
    ("DaemonStarted", "boot_id"): "boot",
    ("DaemonStarted", "userspace_id"): "boot",
    ("SettingsLoaded", "sources"): "place",
    ("SettingsRejected", "error"): "message",
    ("OrderEnded", "key"): "key",
    ("OrderEnded", "reason"): "message",
    ("EffectPanicked", "key"): "key",
    ("EffectPanicked", "error"): "message",
    ("DurabilityLate", "key"): "key",
    ("DurabilityLate", "barrier"): "kept",
    ("StorageFailed", "location"): "path",
    ("StorageFailed", "error"): "message",
    ("StorageMoved", "location"): "path",
    # Unique bus names (``:1.7``) are numbers, and of logind's.
    ("LogindRead", "owner"): "kept",
    ("PrepareForShutdown", "owner"): "kept",
    ("PreparingRead", "owner"): "kept",
    ("SignalRejected", "member"): "kept",
    ("SignalRejected", "reason"): "message",
    ("SignalRejected", "sender"): "kept",
    ("ScheduleRead", "uid"): "person",
    ("ScheduleRead", "tty"): "tty",
    ("ScheduleRead", "wall_message"): "message",
    ("BusLost", "error"): "message",
    ("DropInsRead", "others_path"): "path",
    ("DropInsRead", "overridden_by"): "path",
    ("InventoryTaken", "key"): "key",
    ("InventoryTaken", "source"): "kept",
    ("ManifestRejected", "path"): "path",
    ("ManifestRejected", "error"): "message",
    ("ContainerStarted", "uid"): "uid",
    ("ContainerStarted", "container"): "container",
    ("ContainerExited", "uid"): "uid",
    ("ContainerExited", "container"): "container",
    ("ContainerExited", "signal"): "kept",
    ("AutopsyTaken", "uid"): "uid",
    ("AutopsyTaken", "container"): "container",
    ("AutopsyTaken", "last_lines"): "dropped",
    # Names of units are the installation's, mostly the same everywhere.
    ("KubeletRead", "unit"): "kept",
    ("RuntimeRead", "error"): "message",
    ("ApiRead", "error"): "message",
    ("MountsRead", "mounted"): "mount",
    ("StatusesSeen", "missing"): "uid",
    ("HurryRequested", "pod"): "pod reference",
    ("HurryRequested", "asked_by"): "person",
    ("ReleaseRequested", "asked_by"): "person",
    # --- values
    ("Settings", "gates"): "kept",
    ("Settings", "means"): "kept",
    ("Pod", "uid"): "uid",
    ("Pod", "namespace"): "namespace",
    ("Pod", "name"): "pod",
    ("Pod", "owner"): "owner",
    ("Container", "name"): "container",
    ("Container", "stop_signal"): "kept",
    ("Hook", "detail"): "hook",
    ("ProcessReport", "command"): "command",
    ("ProcessReport", "state"): "kept",
    ("ProcessReport", "wait_channel"): "kept",
    ("ProcessReport", "signals_caught"): "kept",
    ("ProcessReport", "signals_ignored"): "kept",
    ("PlannedPod", "uid"): "uid",
    # --- states, as the first checkpoint holds them
    ("ConfigState", "order_open"): "key",
    ("GrantAssessed", "overridden_by"): "path",
    ("LogindState", "arm_key"): "key",
    ("LogindState", "release_key"): "key",
    ("KubeletState", "mode"): "kept",
    ("KubeletState", "home"): "home",
    ("KubeletState", "wanted"): "kept",
    ("KubeletState", "stop_key"): "key",
    ("KubeletState", "start_key"): "key",
    ("NodeStatusState", "late_statuses"): "status",
    ("NodeStatusState", "withheld"): "uid",
    ("NodeStatusState", "followed"): "status",
    ("NodeStatusState", "orphaned"): "status",
    ("NodeStatusState", "running"): "uid",
    ("NodeStatusState", "told_owners"): "told owner",
    ("NodeStatusState", "await_key"): "key",
    ("NodeStatusState", "check_key"): "key",
    ("NodeStatusState", "certificate_key"): "key",
    ("NodeStatusState", "mounted"): "mount",
    ("NodeStatusState", "pending"): "status",
    ("NodeStatusState", "deliveries"): "status",
    ("EpisodeState", "boot_id"): "boot",
    ("EpisodeState", "userspace_id"): "boot",
    ("EpisodeState", "listing_key"): "key",
    ("EpisodeState", "refreshing"): "key",
    ("EpisodeState", "pods"): "uid",
    ("EpisodeState", "carried"): "uid",
    ("Roll", "places"): "uid",
    ("FallbackState", "failed"): "kept",
    ("FallbackState", "cares"): "uid",
    ("FallbackState", "waited"): "uid",
    ("FallbackState", "listing_key"): "key",
    ("FallbackState", "home"): "home",
    ("Care", "left"): "container",
    ("WaveState", "mounted"): "uid",
    ("WaveState", "unmount_key"): "key",
    ("PodState", "delete_key"): "key",
    ("PodState", "finding"): "message",
    ("Down", "uid"): "uid",
    ("Down", "hook_key"): "key",
    ("Down", "exit_signal"): "kept",
    ("Down", "hook_note"): "message",
    ("Down", "error"): "message",
    # --- orders, as the first checkpoint holds the open ones
    ("CancelOrder", "target"): "key",
    ("SendSignal", "signal"): "kept",
    ("AnnounceNode", "reason"): "kept",
    ("AnnounceNode", "message"): "message",
    ("AnnounceNode", "conditions"): "kept",
    ("DeletePod", "namespace"): "namespace",
    ("DeletePod", "name"): "pod",
    ("PostEvent", "kind"): "kept",
    ("PostEvent", "namespace"): "namespace",
    ("PostEvent", "name"): "event subject",
    ("PostEvent", "reason"): "kept",
    ("PostEvent", "message"): "message",
    ("PublishCertificate", "running"): "uid",
    ("PublishCertificate", "mounted"): "mount",
    ("DeliverStatuses", "statuses"): "status",
}

#: The same in every order that has them.
OF_ORDERS: dict[str, Kind] = {"key": "key", "uid": "uid", "uids": "uid", "container": "container"}


@cache
def kinds(cls: type) -> dict[str, Kind]:
    """Each field's kind. One that nobody has decided about (a test finds it) is a message if it has text."""
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.name: decided(cls, field.name) or _unknown(field.type) for field in info.fields}


def decided(cls: type, field: str) -> Kind | None:
    """What the tables say."""
    return FIELDS.get((cls.__name__, field)) or OF_ORDERS.get(field)


def _unknown(kind: inspect.Type) -> Kind:
    return "message" if has_text(kind) else "kept"


def has_text(kind: Any) -> bool:
    """Whether a value of this type may hold text of any kind; one of a list of words is none."""
    if isinstance(kind, inspect.StrType):
        return True
    parts = [getattr(kind, name, ()) for name in ("types", "item_types")]
    parts.append(
        [getattr(kind, name) for name in ("item_type", "key_type", "value_type") if hasattr(kind, name)]
    )
    return any(has_text(part) for group in parts for part in group)
