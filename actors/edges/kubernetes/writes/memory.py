"""What we changed on the Node stands on the Node: exactly that is taken back, after whatever crash or reboot.

Each change is written in one request with its note here, so there is no moment with the one and without the
other. What was there before us is not in the note, or stands in it as it was: a cordoned node stays cordoned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.edges.kubernetes.writes.shapes import NodeObject, Object, condition, of_kind
from actors.edges.kubernetes.writes.shapes import now as rfc3339

CHANGED = "ebbtide.dev/changed"
#: A note that says nothing.
NOTHING = "{}"
CERTIFICATE = "ebbtide.dev/safe-to-detach"
TAINT_KEY = "ebbtide.dev/shutting-down"
TAINT: Object = {"key": TAINT_KEY, "effect": "NoSchedule"}
REASON, MESSAGE = "NodeShutdown", "node is shutting down"


class Changed(msgspec.Struct, omit_defaults=True):
    """The annotation. ``conditions``: by type, the one that stood there before, None where there was none."""

    taint: bool = False
    unschedulable: bool = False
    conditions: dict[str, Object | None] = {}

    def __bool__(self) -> bool:
        return self.taint or self.unschedulable or bool(self.conditions)


def noted(node: NodeObject) -> Changed:
    """What a Node says that we changed. An annotation that somebody has spoilt says nothing."""
    try:
        return msgspec.json.decode(node.metadata.annotations.get(CHANGED, "{}"), type=Changed)
    except msgspec.DecodeError:
        return Changed()


def is_tainted(node: NodeObject) -> bool:
    return any(taint.get("key") == TAINT_KEY for taint in node.spec.taints)


def _patch(node: NodeObject, changed: Changed, **halves: Object) -> Object:
    """Only of the Node in the version that was read: others' taints are in it, and replaced with it."""
    said = msgspec.json.encode(changed).decode() if changed else None
    annotations: dict[str, Any] = {CHANGED: said}
    meta = {"resourceVersion": node.metadata.resource_version, "annotations": annotations}
    return {"metadata": meta, **halves}


def cordon(node: NodeObject, *, taint: bool) -> Object | None:
    """A merge patch of the Node that taints it and makes it unschedulable; None where it is both already."""
    changed, spec = noted(node), Object()
    if taint and not is_tainted(node):
        spec["taints"] = [*node.spec.taints, TAINT]
        changed.taint = True
    if not node.spec.unschedulable:
        spec["unschedulable"] = True
        changed.unschedulable = True
    return _patch(node, changed, spec=spec) if spec else None


def uncordon(node: NodeObject) -> Object | None:
    """The same, back. The taint's key is ours alone, so it goes wherever it is found."""
    changed, spec = noted(node), Object()
    if is_tainted(node):
        spec["taints"] = [taint for taint in node.spec.taints if taint.get("key") != TAINT_KEY] or None
    if changed.unschedulable and node.spec.unschedulable:
        spec["unschedulable"] = None
    left = Changed(conditions=changed.conditions)
    if not spec and not changed.taint and not changed.unschedulable:
        return None
    return _patch(node, left, spec=spec)


def show(node: NodeObject, kinds: tuple[str, ...], ready: Object | None) -> Object | None:
    """A strategic patch of the Node's status: these conditions True, those that we set before False, and
    ``ready``. One that somebody else holds at True is left to them.
    """
    changed, now = noted(node), node.status.conditions
    kinds = tuple(kind for kind in kinds if kind in changed.conditions or not _is_others(now, kind))
    changed.conditions = {**{kind: _former(now, kind) for kind in kinds}, **changed.conditions}
    wanted = {kind: "True" if kind in kinds else "False" for kind in changed.conditions}
    written = [
        condition(now, kind, status, REASON, MESSAGE, lastHeartbeatTime=rfc3339())
        for kind, status in wanted.items()
        if not _stands(now, kind, status, REASON, MESSAGE)
    ]
    if ready is not None and not _stands(now, "Ready", "False", ready["reason"], ready["message"]):
        said = (ready["reason"], ready["message"])
        written.append(condition(now, "Ready", "False", *said, lastHeartbeatTime=rfc3339()))
    if not written and changed == noted(node):
        return None
    return _patch(node, changed, status={"conditions": written})


def hide(node: NodeObject) -> Object | None:
    """The same, back: each condition as it stood before us, unless it is somebody else's by now."""
    changed, now = noted(node), node.status.conditions
    if not changed.conditions:
        return None
    written = [
        {"$patch": "delete", "type": kind} if former is None else {"reason": None, "message": None, **former}
        for kind, former in changed.conditions.items()
        if _is_ours(of_kind(now, kind))
    ]
    left = Changed(taint=changed.taint, unschedulable=changed.unschedulable)
    return _patch(node, left, status={"conditions": written})


def with_certificate(node: NodeObject, text: str) -> Object:
    """A merge patch of the Node, in the version that was read."""
    return _annotated(node, {CERTIFICATE: text})


def fence(node: NodeObject) -> Object:
    """Changes nothing but the Node's version: the note with a space at its end, or without it again."""
    text = node.metadata.annotations.get(CHANGED, NOTHING)
    return _annotated(node, {CHANGED: text.rstrip() if text != text.rstrip() else f"{text} "})


def tidied(node: NodeObject) -> Object | None:
    """A merge patch of the Node: from now on its volumes are in use again, and a fence's note is gone."""
    annotations = node.metadata.annotations
    gone = {CERTIFICATE: None} if CERTIFICATE in annotations else {}
    if annotations.get(CHANGED, "").strip() == NOTHING:
        gone[CHANGED] = None
    return _annotated(node, gone) if gone else None


def _annotated(node: NodeObject, annotations: Mapping[str, str | None]) -> Object:
    return {"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": annotations}}


def _is_ours(found: Object | None) -> bool:
    return found is not None and found.get("reason") == REASON


def _is_others(conditions: list[Object], kind: str) -> bool:
    found = of_kind(conditions, kind)
    return found is not None and found.get("status") == "True" and not _is_ours(found)


def _former(conditions: list[Object], kind: str) -> Object | None:
    """What to put back. One of ours whose note was lost had nothing before it that is known."""
    found = of_kind(conditions, kind)
    return None if _is_ours(found) else found


def _stands(conditions: list[Object], kind: str, status: str, reason: str, message: str) -> bool:
    found = of_kind(conditions, kind) or {}
    return (found.get("status"), found.get("reason"), found.get("message")) == (status, reason, message)
