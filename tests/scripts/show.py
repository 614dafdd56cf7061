"""Records as columns: number, cause, seconds since the start, actor, type, fields.

Fields in the key are not repeated; an edge's fact shows only the actors' fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from ebbtide.events.base import NS_PER_SECOND, Event, Order, Record
from ebbtide.events.outage_events import Attachment, BrakeLimit, LostPod
from ebbtide.events.values import Container, Period, PlannedPod, PlannedWave, Pod

#: The monotonic start: not 0, so that absolute times and differences stay distinct.
BASE_NS = 1000 * NS_PER_SECOND

#: Absolute time fields; other ``_ns`` fields are differences.
_POINTS = (
    "deadline_ns",
    "release_by_ns",
    "kill_by_ns",
    "until_ns",
    "retry_at_ns",
    "earlier_until_ns",
    "late_until_ns",
    "wake_ns",
)

_HIDDEN: dict[str, tuple[str, ...]] = {
    "DaemonStarted": ("version", "pid", "mode", "node"),
    "InventoryTaken": ("key", "as_of_ns", "source"),
    "SettingsLoaded": ("settings", "sources"),
    "AutopsyTaken": ("processes",),
    "HurryRequested": ("asked_by",),
    "ReleaseRequested": ("asked_by",),
    "StatesDigest": ("actors",),
    "LeaderStarted": ("version", "node", "node_uid", "settings"),
    "OutageBegan": ("node", "node_uid"),
    "NodeRead": ("uid", "system_uuid"),
    "EvidenceRead": ("begun_ns", "identity_kind"),
    "NodesCounted": ("key", "max_nodes", "max_share_percent", "min_healthy"),
    "WorkListed": ("key",),
    **dict.fromkeys(
        (
            "SetTaint",
            "RemoveTaint",
            "SetQuarantine",
            "ListWork",
            "ReadSources",
            "RequestPermit",
            "ReturnPermit",
        ),
        ("node", "node_uid"),
    ),
}


#: Cached: each look-up evaluates all annotations, a quarter of a script's time.
_fields_of = cache(msgspec.structs.fields)


def seconds(ns: int) -> str:
    """``20s``, ``0.25s``: exact to the nanosecond, without trailing zeros."""
    whole, rest = divmod(abs(ns), NS_PER_SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' if ns < 0 else ''}{whole}{fraction}s"


def point(ns: int) -> str:
    return f"@{seconds(ns - BASE_NS)}"


def line(record: Record) -> str:
    clock = f"{(record.mono_ns - BASE_NS) // 1_000_000 / 1000:.3f}"
    cause = record.cause or "-"
    head = f"{record.seq:>4} {cause:>4} {clock:>8}  {record.actor:<18} {type(record.event).__name__:<18}"
    return f"{head} {fields(record.event)}".rstrip()


def fields(event: msgspec.Struct) -> str:
    hidden = _HIDDEN.get(type(event).__name__, ())
    if isinstance(event, Order):
        hidden = (*hidden, "uid", "container")
    shown = (_field(event, each) for each in _fields_of(type(event)) if each.name not in hidden)
    return " ".join(text for text in shown if text)


def _field(event: msgspec.Struct, each: msgspec.structs.FieldInfo) -> str:
    value = getattr(event, each.name)
    if value == each.default or (value in ((), {}) and not each.required):
        return ""
    name = each.name.removesuffix("_ns").removesuffix("_seconds")
    if each.name in _POINTS:
        return f"{name}={point(value)}" if value else ""
    if each.name.endswith("_ns"):
        return f"{name}={seconds(value)}"
    if each.name.endswith("_seconds"):
        return f"{name}={value}s"
    if each.name == "key" and isinstance(event, Order):
        return str(value).partition("/")[2]
    if each.name == "exit_codes":
        codes = " ".join(f"{container}:{code}" for container, code in value if code)
        return f"exit_codes={codes}" if codes else ""
    if each.name == "statuses":
        return " ".join(":".join(status[:3]) for status in value)
    return f"{name}={_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f'"{value}"' if " " in value or not value else value
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    show = _SHORT.get(type(value))
    return show(value) if show else str(value)


def _wave(wave: PlannedWave) -> str:
    pods = "".join(f" {_value(pod)}" for pod in wave.pods)
    return f"{wave.priority}:{wave.period_seconds}s{pods}"


_SHORT: dict[type, Callable[[Any], str]] = {
    Pod: lambda pod: str(pod.uid),
    Container: lambda container: str(container.name),
    Period: lambda period: f"{period.priority}:{period.seconds}s",
    PlannedPod: lambda pod: f"{pod.uid}:{pod.grace_seconds}s",
    PlannedWave: _wave,
    LostPod: lambda pod: str(pod.uid),
    BrakeLimit: lambda limit: f"{limit.part}:{limit.out}/{limit.most}",
    Attachment: lambda attachment: str(attachment.name),
}


def state(value: msgspec.Struct) -> list[str]:
    """An actor's state, one field per line, without initial values."""
    shown = ((each.name, getattr(value, each.name), each.default) for each in _fields_of(type(value)))
    return [
        f"{name}: {_state_value(name, now)}" for name, now, default in shown if now != default and now != ()
    ]


def _state_value(name: str, value: Any) -> str:
    if name in _POINTS and isinstance(value, int):
        return point(value)
    if isinstance(value, int) and name.endswith("_ns"):
        return seconds(value)
    if isinstance(value, dict):
        return " ".join(f"{key}={_value(each)}" for key, each in value.items())
    return fields(value) if isinstance(value, Event) else _value(value)
