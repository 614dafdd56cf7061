"""What the events of one pod mean for its account: its place, its hooks, its containers' ends, its fate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from events.decisions import (
    HookEnded,
    HookStarted,
    KillContainer,
    PodEnded,
    PodPlanned,
    PodRejected,
    PodStopBegan,
    SendSignal,
)
from events.facts import AutopsyTaken, ContainerExited, HurryRequested, InventoryTaken
from events.model import Hook, Pod
from replay.account.model import AutopsyTold, HookTold
from replay.account.node import asked_to_end
from replay.account.tale import Tale
from replay.account.words import span

#: Fates of pods whose end was seen.
SEEN = ("graceful", "killed")

#: Fates that are worth a notice each.
_NOTED_FATES = {"killed": "pod-killed", "failed": "pod-failed", "unknown": "pod-unknown"}
#: Of hooks; a cancelled one had nothing left to wait for.
_NOTED_HOOKS = {
    "failed": "hook-failed",
    "timed-out": "hook-timed-out",
    "not-run": "hook-not-run",
    "unknown": "hook-unknown",
}


def _inventory(tale: Tale, event: InventoryTaken) -> None:
    """Counts until the plan is made; later differences come as late pods, or too late."""
    if tale.planned:
        tale.listed |= {spec.uid: spec for spec in event.pods}
        return
    for spec in event.pods:
        tale.introduce(spec)
        tale.change_pod(spec.uid, outcome=None)


def _planned(tale: Tale, event: PodPlanned) -> None:
    tale.planned = True
    uid = event.pod.uid
    tale.introduce(event.pod)
    given = event.grace_seconds
    tale.change_pod(uid, wave=event.wave, grace_seconds=given, late=event.late, means=event.means)
    wave = tale.change_wave(event.wave)
    if uid not in wave.pods:
        tale.change_wave(event.wave, pods=(*wave.pods, uid))
    if event.late:
        tale.note("pod-late", uid, wave=event.wave)


def _began(tale: Tale, event: PodStopBegan) -> None:
    """Said again by the fallback, it changes nothing: the grace runs since the first time."""
    if tale.pod(event.uid).began_ns is None:
        at_ns = tale.place.at_ns
        kill_by_ns = tale.since(event.kill_by_ns)
        tale.change_pod(event.uid, began_ns=at_ns, grace_ns=event.grace_ns, kill_by_ns=kill_by_ns)
        if tale.pod(event.uid).means == "observe":
            asked_to_end(tale, event.uid)


def _hook_began(tale: Tale, event: HookStarted) -> None:
    spec = _hook_of(tale, event.uid, event.container)
    hook = HookTold(
        container=event.container,
        kind=event.kind,
        detail=spec.detail,
        began_ns=tale.place.at_ns,
        until_ns=tale.since(event.until_ns),
    )
    tale.change_pod(event.uid, hooks=(*tale.pod(event.uid).hooks, hook))


def _hook_ended(tale: Tale, event: HookEnded) -> None:
    """One that was passed over ends without having begun."""
    at_ns = tale.place.at_ns
    changes = {"ended_ns": at_ns, "result": event.result, "reason": event.reason, "early": event.early}
    hook = tale.change_hook(event.uid, event.container, **changes)
    if hook is None:
        spec = _hook_of(tale, event.uid, event.container)
        hook = HookTold(
            container=event.container,
            kind=spec.kind,
            detail=spec.detail,
            began_ns=at_ns,
            until_ns=at_ns,
            **changes,  # type: ignore[arg-type]  # a table of fields of several types
        )
        tale.change_pod(event.uid, hooks=(*tale.pod(event.uid).hooks, hook))
    code = _NOTED_HOOKS.get(event.result)
    if code is not None:
        took, reason = span(event.elapsed_ns), event.reason or event.result
        tale.note(code, event.uid, kind=hook.kind, container=event.container, took=took, reason=reason)


def _hook_of(tale: Tale, uid: str, container: str) -> Hook:
    """As the manifest has it; nothing is known of one that the record does not introduce."""
    spec = tale.specs.get(uid, Pod(uid=uid, namespace="", name=uid))
    hooks = (each.hook for each in spec.containers if each.name == container and each.hook is not None)
    return next(hooks, Hook(kind="exec"))


def _signalled(tale: Tale, event: SendSignal) -> None:
    """The first one: it is repeated only where nobody knows whether it was sent."""
    if tale.container(event.uid, event.container).signalled_ns is None:
        changes = {"signalled_ns": tale.place.at_ns, "stop_signal": event.signal}
        tale.change_container(event.uid, event.container, **changes)


def _killed(tale: Tale, event: KillContainer) -> None:
    if tale.container(event.uid, event.container).killed_ns is None:
        tale.change_container(event.uid, event.container, killed_ns=tale.place.at_ns)


def _exited(tale: Tale, event: ContainerExited) -> None:
    """Of pods of this shutdown only: others may start and end beside it."""
    if event.uid in tale.pods and tale.container(event.uid, event.container).exited_ns is None:
        exit_code, exit_signal = event.exit_code, event.signal
        at_ns = tale.place.at_ns
        tale.change_container(
            event.uid, event.container, exited_ns=at_ns, exit_code=exit_code, exit_signal=exit_signal
        )


def _autopsied(tale: Tale, event: AutopsyTaken) -> None:
    taken = AutopsyTold(
        container=event.container,
        at_ns=tale.place.at_ns,
        processes=event.processes,
        last_lines=event.last_lines,
    )
    tale.change_pod(event.uid, autopsies=(*tale.pod(event.uid).autopsies, taken))


def _ended(tale: Tale, event: PodEnded) -> None:
    """A fate is a word; an end is something that somebody saw."""
    tale.change_pod(
        event.uid,
        ended_ns=tale.place.at_ns if event.outcome in SEEN else None,
        outcome=event.outcome,
        reason=event.reason,
        succeeded=event.succeeded,
    )
    code = _NOTED_FATES.get(event.outcome)
    if code is not None:
        tale.note(code, event.uid, reason=event.reason)


def _rejected(tale: Tale, event: PodRejected) -> None:
    if event.uid in tale.pods:
        return
    namespace, _, name = event.label.rpartition("/")
    tale.introduce(Pod(uid=event.uid, namespace=namespace, name=name))
    tale.change_pod(event.uid, outcome="rejected", reason=event.message or event.reason)


def _hurried(tale: Tale, event: HurryRequested) -> None:
    """As the actors understand a name: a UID, a name, or ``namespace/name``."""
    for pod in list(tale.pods.values()):
        if event.pod in (pod.uid, pod.name, pod.label) and pod.outcome is None:
            tale.change_pod(pod.uid, hurried_ns=tale.place.at_ns)
            tale.note("hurried", pod.uid, asker=event.asked_by)


PODS: dict[type, Callable[[Tale, Any], None]] = {
    InventoryTaken: _inventory,
    PodPlanned: _planned,
    PodStopBegan: _began,
    HookStarted: _hook_began,
    HookEnded: _hook_ended,
    SendSignal: _signalled,
    KillContainer: _killed,
    ContainerExited: _exited,
    AutopsyTaken: _autopsied,
    PodEnded: _ended,
    PodRejected: _rejected,
    HurryRequested: _hurried,
}
