"""The daemon's writes to its Node: taint, ``unschedulable``, conditions, the end of the last boot, and the
safe-to-detach certificate.

A note on the Node, in the same request, lists our changes: only these are taken back.

The last order counts, but the server may carry out a sent request later. So a later order takes over at once
from one that waits or reads, but lets a write end first, and each write names the Node's version. After an
unanswered write even an unchanged Node is written once more (`fence_patch`): the server then refuses the late
request.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.known_pods import TAINT_KEY
from ebbtide.actors.edges.linux.proc import BOOT_ID_FILE
from ebbtide.actors.interfaces import WARNING, Ending, Outlet, Tell, TraceContext
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.decisions import AnnounceNode, PublishCertificate, PublishLastBoot
from ebbtide.events.values import BootEnding, BootEndReason

CHANGED_ANNOTATION = "ebbtide.dev/changed"
MODIFIED_TEXT = b"the object has been modified"
EMPTY_NOTE = "{}"
CERTIFICATE_ANNOTATION = "ebbtide.dev/safe-to-detach"
LAST_BOOT_ANNOTATION = "ebbtide.dev/last-boot"
TAINT: api.JsonObject = {"key": TAINT_KEY, "effect": "NoSchedule"}
CONDITION_REASON, CONDITION_MESSAGE = "NodeShutdown", "node is shutting down"


NOTE_CHARACTERS_MAX = 2**16

NoteT = TypeVar("NoteT", bound=msgspec.Struct)
#: The journal's id, and its last shutdown's trace before this boot.
JournalLink = Callable[[], tuple[str, str]]


def no_link() -> tuple[str, str]:
    return "", ""


class ChangedNote(msgspec.Struct, omit_defaults=True):
    """``conditions``: the former ones by type; None: there was none."""

    taint: bool = False
    unschedulable: bool = False
    conditions: dict[str, api.JsonObject | None] = {}

    def __bool__(self) -> bool:
        return self.taint or self.unschedulable or bool(self.conditions)


def read_annotation(
    node: api.ApiNode, name: str, kind: type[NoteT], characters_max: int = NOTE_CHARACTERS_MAX
) -> NoteT | None:
    """None also for a spoilt one."""
    text = node.metadata.annotations.get(name, "")
    try:
        return msgspec.json.decode(text, type=kind) if len(text) <= characters_max else None
    except (ValueError, RecursionError):
        return None


def read_note(node: api.ApiNode) -> ChangedNote:
    return read_annotation(node, CHANGED_ANNOTATION, ChangedNote) or ChangedNote()


def is_tainted(node: api.ApiNode) -> bool:
    return any(taint.get("key") == TAINT_KEY for taint in node.spec.taints)


def _noted_patch(node: api.ApiNode, changed: ChangedNote, **fields: api.JsonObject) -> api.JsonObject:
    """Names the version: a patch replaces others' taints too."""
    said = msgspec.json.encode(changed).decode() if changed else None
    annotations: dict[str, Any] = {CHANGED_ANNOTATION: said}
    meta = {"resourceVersion": node.metadata.resource_version, "annotations": annotations}
    return {"metadata": meta, **fields}


def cordon_patch(node: api.ApiNode, *, taint: bool) -> api.JsonObject | None:
    """None: no change needed."""
    changed, spec = read_note(node), api.JsonObject()
    if taint and not is_tainted(node):
        spec["taints"] = [*node.spec.taints, TAINT]
        changed.taint = True
    if not node.spec.unschedulable:
        spec["unschedulable"] = True
        changed.unschedulable = True
    return _noted_patch(node, changed, spec=spec) if spec else None


def uncordon_patch(node: api.ApiNode) -> api.JsonObject | None:
    """All taints with our key are ours."""
    changed, spec = read_note(node), api.JsonObject()
    if is_tainted(node):
        spec["taints"] = [taint for taint in node.spec.taints if taint.get("key") != TAINT_KEY] or None
    if changed.unschedulable and node.spec.unschedulable:
        spec["unschedulable"] = None
    left = ChangedNote(conditions=changed.conditions)
    if not spec and not changed.taint and not changed.unschedulable:
        return None
    return _noted_patch(node, left, spec=spec)


def conditions_patch(
    node: api.ApiNode, kinds: tuple[str, ...], ready: api.JsonObject | None
) -> api.JsonObject | None:
    """Our conditions True, our former ones False, and ``ready``. Another component's True stays."""
    changed, now = read_note(node), node.status.conditions
    found = {kind: api.find_condition(now, kind) for kind in kinds}
    others = [k for k, each in found.items() if each and each.get("status") == "True" and not _is_ours(each)]
    kinds = tuple(kind for kind in kinds if kind in changed.conditions or kind not in others)
    # Of our condition without a note the former one is unknown.
    former = {kind: None if _is_ours(found[kind]) else found[kind] for kind in kinds}
    changed.conditions = {**former, **changed.conditions}
    wanted = {kind: "True" if kind in kinds else "False" for kind in changed.conditions}
    written = [
        api.make_condition(
            now, kind, status, CONDITION_REASON, CONDITION_MESSAGE, lastHeartbeatTime=api.rfc3339_now()
        )
        for kind, status in wanted.items()
        if not _is_set(now, kind, status, CONDITION_REASON, CONDITION_MESSAGE)
    ]
    if ready is not None and not _is_set(now, "Ready", "False", ready["reason"], ready["message"]):
        said = (ready["reason"], ready["message"])
        written.append(api.make_condition(now, "Ready", "False", *said, lastHeartbeatTime=api.rfc3339_now()))
    if not written and changed == read_note(node):
        return None
    return _noted_patch(node, changed, status={"conditions": written})


def restore_conditions_patch(node: api.ApiNode) -> api.JsonObject | None:
    """Restores conditions that no other component has written since."""
    changed, now = read_note(node), node.status.conditions
    if not changed.conditions:
        return None
    written = [
        {"$patch": "delete", "type": kind} if former is None else {"reason": None, "message": None, **former}
        for kind, former in changed.conditions.items()
        if _is_ours(api.find_condition(now, kind))
    ]
    left = ChangedNote(taint=changed.taint, unschedulable=changed.unschedulable)
    return _noted_patch(node, left, status={"conditions": written})


def certificate_patch(node: api.ApiNode, text: str) -> api.JsonObject:
    return _annotations_patch(node, {CERTIFICATE_ANNOTATION: text})


def fence_patch(node: api.ApiNode, note: str = CHANGED_ANNOTATION) -> api.JsonObject:
    """Changes only the Node's version: adds a space to the note or removes it."""
    text = node.metadata.annotations.get(note, EMPTY_NOTE)
    return _annotations_patch(node, {note: text.rstrip() if text != text.rstrip() else f"{text} "})


def tidy_patch(node: api.ApiNode) -> api.JsonObject | None:
    """Remove the certificate (volumes are in use again) and a fence's note."""
    annotations = node.metadata.annotations
    gone = {CERTIFICATE_ANNOTATION: None} if CERTIFICATE_ANNOTATION in annotations else {}
    if annotations.get(CHANGED_ANNOTATION, "").strip() == EMPTY_NOTE:
        gone[CHANGED_ANNOTATION] = None
    return _annotations_patch(node, gone) if gone else None


def _annotations_patch(node: api.ApiNode, annotations: Mapping[str, str | None]) -> api.JsonObject:
    return {"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": annotations}}


def _is_ours(found: api.JsonObject | None) -> bool:
    return found is not None and found.get("reason") == CONDITION_REASON


def _is_set(conditions: list[api.JsonObject], kind: str, status: str, reason: str, message: str) -> bool:
    found = api.find_condition(conditions, kind) or {}
    return (found.get("status"), found.get("reason"), found.get("message")) == (status, reason, message)


class NodePatch(NamedTuple):
    """``change`` returns None without a need. ``part``: the path below the Node."""

    change: Callable[[api.ApiNode], api.JsonObject | None]
    part: str = ""


class NodeHold:
    """One order's turn. A write ends before another order takes over."""

    def __init__(self, writer: NodeWriter, caller: api.ApiCaller, kind: str) -> None:
        self.kind = kind
        #: Of the turn, and of the wait before it.
        self.scope, self.waiting = trio.CancelScope(), trio.CancelScope()
        self.over = trio.Event()
        self._writer, self._caller = writer, caller
        self._is_writing = self._is_unwanted = False

    def give_up(self) -> None:
        """At once, or after an open write."""
        self._is_unwanted = True
        self.waiting.cancel()
        if not self._is_writing:
            self.scope.cancel()

    async def call(self, method: str, path: str, **fields: Any) -> api.Answer:
        if method == "GET":
            return await self._caller.call(method, path, **fields)
        writer, before = self._writer, self._writer.in_doubt
        self._is_writing = writer.in_doubt = True
        try:
            answer = await self._caller.call(method, path, **fields)
        except api.Unanswered as error:
            writer.in_doubt = before or error.sent
            raise
        finally:
            self._is_writing = False
            if self._is_unwanted:
                self.scope.cancel()
        # After a taken write, and on a changed Node, all writes from the same or an older version fail.
        is_over = answer.ok or (answer.code == api.HTTP_CONFLICT and MODIFIED_TEXT in answer.body)
        writer.in_doubt = not is_over and (before or api.is_doubtful(answer))
        return answer


class NodeWriter:
    """``note``: our annotation."""

    def __init__(self, caller: api.ApiCaller, node: str, note: str = CHANGED_ANNOTATION) -> None:
        self._caller, self._path, self._note = caller, api.node_path(node), note
        self._holds: list[NodeHold] = []
        #: The server may still carry out an earlier write, which `change` rules out.
        self.in_doubt = False

    @asynccontextmanager
    async def hold(self, kind: str, overtakes: tuple[str, ...]) -> AsyncIterator[NodeHold]:
        """Begins after the holders that it overtakes. A later order that overtakes it cancels it."""
        earlier = [each for each in self._holds if each.kind in overtakes]
        for each in earlier:
            each.give_up()
        mine = NodeHold(self, self._caller, kind)
        self._holds.append(mine)
        try:
            # If overtaken here, the block is cancelled at its begin.
            with mine.waiting:
                for each in earlier:
                    await each.over.wait()
            with mine.scope:
                yield mine
        finally:
            self._holds.remove(mine)
            mine.over.set()

    async def change(self, call: api.ApiCall, patch: NodePatch) -> str:
        """Again if another component wrote in between. Returns why it failed."""
        while True:
            read = await call.until_answered("GET", self._path)
            if not read.ok:
                return f"the node cannot be read: {api.answer_text(read)}"
            try:
                node = msgspec.json.decode(read.body, type=api.ApiNode)
            except (ValueError, RecursionError) as error:
                return f"the node cannot be read: {error}"
            body = patch.change(node)
            # If an earlier write is in doubt, the fence's new version makes it fail.
            if body is None and not self.in_doubt:
                return ""
            body = body or fence_patch(node, self._note)
            kind = api.STRATEGIC_PATCH if patch.part else api.MERGE_PATCH
            answer = await call.until_answered("PATCH", self._path + patch.part, body, kind)
            if answer.code != api.HTTP_CONFLICT:
                return "" if answer.ok else f"the node cannot be changed: {api.answer_text(answer)}"


# A newer announcement overtakes an older one, and a restore also overtakes the certificate.

ANNOUNCE_SECONDS_MAX = 60.0
#: The API server may come late.
RESTORE_SECONDS_MAX = 24 * 3600.0
RESTORE_AGAIN_SECONDS = 5.0
LAST_BOOT_SECONDS_MAX = 3600.0
LAST_BOOT_AGAIN_SECONDS = 30.0
NO_TAINTS_TEXT = "not allowed to modify taints"

ANNOUNCEMENT_HOLD, CERTIFICATE_HOLD, LAST_BOOT_HOLD = "announcement", "certificate", "last-boot"


RESTORE_PATCHES = (
    NodePatch(uncordon_patch),
    NodePatch(restore_conditions_patch, "/status"),
    NodePatch(tidy_patch),
)


class NodeEffects:
    def __init__(self, writes: NodeWriter, context: TraceContext, tell: Tell, link: JournalLink) -> None:
        self._writes, self._context, self._tell, self._link = writes, context, tell, link
        self._tainted = trio.Event()
        self._told: set[str] = set()

    async def wait_tainted(self) -> None:
        """Until the node is tainted or cannot be."""
        with trio.move_on_after(bounds.now.taint_seconds):
            await self._tainted.wait()

    async def announce(self, order: AnnounceNode, outlet: Outlet) -> Ending:
        if order.ready:
            self._tainted = trio.Event()
        overtakes = (ANNOUNCEMENT_HOLD, CERTIFICATE_HOLD) if order.ready else (ANNOUNCEMENT_HOLD,)
        async with self._writes.hold(ANNOUNCEMENT_HOLD, overtakes) as hold:
            if not order.ready:
                return await self._show(order, hold)
            # Uncordon first: a cordoned node gets no pods.
            what = "the node is not shown as it was yet"
            return await self._until_done(order, hold, RESTORE_PATCHES, what, RESTORE_SECONDS_MAX)
        return Ending("cancelled", "a later announcement has overtaken it")

    async def _show(self, order: AnnounceNode, hold: NodeHold) -> Ending:
        call = api.ApiCall(hold, ANNOUNCE_SECONDS_MAX, self._context(order.key))
        ready = {"reason": order.reason, "message": order.message} if order.unready else None
        problems = []
        try:
            if order.cordon:
                taint = NodePatch(lambda node: cordon_patch(node, taint=True))
                problem = await self._writes.change(call, taint)
                self._tainted.set()
                if NO_TAINTS_TEXT in problem:
                    rest = NodePatch(lambda node: cordon_patch(node, taint=False))
                    failed = await self._writes.change(call, rest)
                    problem = failed or f"no taint ({problem}); the rest is done"
                problems.append(problem)
            show = NodePatch(lambda node: conditions_patch(node, order.conditions, ready), "/status")
            problems.append(await self._writes.change(call, show))
        except api.Unanswered as error:
            return api.unanswered_ending(error)
        found = "; ".join(filter(None, problems))
        if found:
            line = f"what others see of this node: {found}"
            if line not in self._told:
                self._told.add(line)
                self._tell(WARNING, line)
        return Ending("failed", found) if found else Ending()

    async def publish_certificate(self, order: PublishCertificate, outlet: Outlet) -> Ending:
        text = certificate_text(order, BOOT_ID_FILE.read_text().strip())
        patch = NodePatch(lambda node: certificate_patch(node, text))
        until = trio.current_time() + bounds.now.publish_seconds
        async with self._writes.hold(CERTIFICATE_HOLD, (CERTIFICATE_HOLD,)) as hold:
            call = api.ApiCall(hold, until - trio.current_time(), self._context(order.key))
            try:
                problem = await self._writes.change(call, patch)
            except api.Unanswered as error:
                return api.unanswered_ending(error)
            return Ending("failed", problem) if problem else Ending()
        return Ending("cancelled", "a later change of the Node replaces this one")

    async def publish_last_boot(self, order: PublishLastBoot, outlet: Outlet) -> Ending:
        """Without a ``boot_id`` it removes the annotation."""
        text = (
            last_boot_text(order, BOOT_ID_FILE.read_text().strip(), *self._link()) if order.boot_id else None
        )

        def patch(node: api.ApiNode) -> api.JsonObject | None:
            found = node.metadata.annotations.get(LAST_BOOT_ANNOTATION)
            return None if found == text else _annotations_patch(node, {LAST_BOOT_ANNOTATION: text})

        async with self._writes.hold(LAST_BOOT_HOLD, (LAST_BOOT_HOLD,)) as hold:
            what = "how the last boot ended is not on the Node yet"
            bound, pause = LAST_BOOT_SECONDS_MAX, LAST_BOOT_AGAIN_SECONDS
            return await self._until_done(order, hold, (NodePatch(patch),), what, bound, pause)
        return Ending("cancelled", "the end of a later boot has overtaken it")

    async def _until_done(
        self,
        order: Order,
        hold: NodeHold,
        patches: Sequence[NodePatch],
        what: str,
        seconds_max: float,
        again_seconds: float = RESTORE_AGAIN_SECONDS,
    ) -> Ending:
        """Repeats all patches: an unrestored node would stay empty."""
        until, is_told = trio.current_time() + seconds_max, False
        while True:
            call = api.ApiCall(hold, bounds.now.api_unhurried_seconds, self._context(order.key))
            try:
                problems = [await self._writes.change(call, patch) for patch in patches]
                problem = "; ".join(filter(None, problems))
            except api.Unanswered as error:
                problem = str(error)
            if not problem:
                return Ending()
            if not is_told:
                self._tell(WARNING, f"{what}, which is tried again: {problem}")
            is_told = True
            if trio.current_time() >= until:
                return Ending("timed-out", problem)
            await trio.sleep(again_seconds)


#: All annotations of an object share 256 KiB.
NAMED_MAX = 50
NAME_CHARACTERS_MAX = 256


BootId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
HexId = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?\Z")]


class LastBootNote(msgspec.Struct, rename="camel", omit_defaults=True):
    """``boot_id``: the boot that ended; ``said_by``: the writer's. ``alive_at``: RFC 3339."""

    boot_id: BootId
    said_by: BootId
    ending: BootEnding
    why: BootEndReason = ""
    wave: Annotated[int, msgspec.Meta(ge=-1, le=9999)] = -1
    alive_at: str = ""
    journal: HexId = ""
    trace: HexId = ""


def last_boot_text(order: PublishLastBoot, boot_id: str, journal: str, trace: str) -> str:
    alive = order.alive_wall_ns // NS_PER_SECOND
    note = LastBootNote(
        boot_id=str(uuid.UUID(order.boot_id)),
        ending=order.ending,
        why=order.why,
        wave=order.wave,
        alive_at=time.strftime(api.TIME_FORM, time.gmtime(alive)) if alive else "",
        journal=journal,
        trace=trace if order.recorded else "",
        said_by=boot_id,
    )
    return msgspec.json.encode(note).decode()


class CertificateNote(msgspec.Struct, rename={"boot_id": "bootId"}, omit_defaults=True):
    """Void for another boot. ``more``: pods and volumes without a name here."""

    safe: bool | None = None
    at: str = ""
    boot_id: str = ""
    ended: int | None = None
    running: list[str] = []
    restarts: bool = False
    mounted: list[tuple[str, ...]] = []
    more: int = 0


def certificate_text(order: PublishCertificate, boot_id: str) -> str:
    def short(text: str) -> str:
        return text[:NAME_CHARACTERS_MAX]

    note = CertificateNote(
        safe=order.safe,
        at=api.rfc3339_now(),
        boot_id=boot_id,
        ended=order.ended,
        running=[short(uid) for uid in order.running[:NAMED_MAX]],
        restarts=order.restarts,
        mounted=[(short(uid), short(volume)) for uid, volume in order.mounted[:NAMED_MAX]],
        more=max(0, len(order.running) - NAMED_MAX) + max(0, len(order.mounted) - NAMED_MAX),
    )
    return msgspec.json.encode(note).decode()
