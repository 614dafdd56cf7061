"""logind's names on the bus, and the kinds of shutdown in our words."""

from __future__ import annotations

from typing import get_args

from jeepney import DBusAddress

from events.model import ShutdownKind

NAME = "org.freedesktop.login1"
PATH = "/org/freedesktop/login1"
INTERFACE = "org.freedesktop.login1.Manager"
MANAGER = DBusAddress(PATH, NAME, INTERFACE)
SYSTEMD = DBusAddress(
    "/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
)
UNIT = "systemd-logind.service"
PLAIN = "PrepareForShutdown"
#: systemd 255 and later: carries the kind, and comes before the plain one.
WITH_METADATA = "PrepareForShutdownWithMetadata"
OWNER_CHANGED = "NameOwnerChanged"
IN_PROGRESS = "org.freedesktop.login1.OperationInProgress"

WHO = "ebbtide"
WHY = "Ends the pods of this node in order before it goes down"
KUBELET = "kubelet"

KINDS = frozenset(get_args(ShutdownKind))


def kind_of(name: object) -> ShutdownKind:
    """Unknown stays unknown (also an empty name: nothing is scheduled)."""
    return name if isinstance(name, str) and name in KINDS else "unknown"  # type: ignore[return-value]  # one of KINDS


def kind_in_metadata(metadata: object) -> ShutdownKind:
    """The key ``type`` of an ``a{sv}``, as jeepney gives it: name to (signature, value)."""
    if not isinstance(metadata, dict):
        return "unknown"
    return kind_of(metadata.get("type", ("s", ""))[1])


def is_kubelet_lock(row: tuple[str, str, str, str, int, int]) -> bool:
    """Does a row of ``ListInhibitors`` say that a kubelet runs its own graceful node shutdown?"""
    what, who, _, mode, _, _ = row
    return who == KUBELET and mode == "delay" and "shutdown" in what.split(":")
