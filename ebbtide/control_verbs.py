"""The control socket's verbs. A request to change something becomes a fact with the caller's uid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from ebbtide.actors.interfaces import Outlet
from ebbtide.control import ControlError, Request, Verb
from ebbtide.daemon_status import DaemonStatus
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.facts import HurryRequested, ReleaseRequested

#: A pod's phase is its outcome once it has ended.
POD_OUTCOMES = get_args(PodOutcome)

AnswerFunction = Callable[[], dict[str, Any]]


def control_verbs(
    status: DaemonStatus,
    outlet: Outlet,
    show_status: AnswerFunction,
    show_metrics: AnswerFunction,
    show_configuration: AnswerFunction,
) -> dict[str, Verb]:
    """The control socket's table."""

    def answer_with(document: AnswerFunction) -> Verb:
        async def verb(request: Request, uid: int) -> Any:
            return document()

        return verb

    async def hurry(request: Request, uid: int) -> Any:
        _require_shutdown(status)
        found = {
            each_uid: each
            for each_uid, each in status.pods.items()
            if request.pod in (each_uid, each.label, each.label.partition("/")[2])
        }
        if not found:
            raise ControlError(f"no pod {request.pod!r} in this shutdown: see 'ebbtide status'")
        waited = {uid: each.label for uid, each in found.items() if each.phase not in POD_OUTCOMES}
        if not waited:
            ended = f"pod {request.pod!r} has ended already ({next(iter(found.values())).phase})"
            raise ControlError(f"{ended}: no wave waits for it")
        if len(waited) > 1:  # a cut grace cannot be restored
            named = f"{request.pod!r} names {len(waited)} pods"
            # A recreated pod has the label of the one that is still ending.
            alike = len(set(waited.values())) < len(waited)
            which = sorted(f"{label} ({uid})" if alike else label for uid, label in waited.items())
            raise ControlError(f"{named}: name one of {', '.join(which)}{', by its UID' if alike else ''}")
        await outlet.put(HurryRequested(pod=request.pod, asked_by=uid))
        return {"pod": request.pod}

    async def release(request: Request, uid: int) -> Any:
        _require_shutdown(status)
        await outlet.put(ReleaseRequested(asked_by=uid))
        return {}

    return {
        "status": answer_with(show_status),
        "metrics": answer_with(show_metrics),
        "configuration": answer_with(show_configuration),
        "hurry": hurry,
        "release": release,
    }


def _require_shutdown(status: DaemonStatus) -> None:
    if status.phase not in ("running", "cancelling"):
        raise ControlError("no shutdown is running: no pod to hurry and no lock to release")
