"""What people may ask of a running daemon. What they ask for becomes a fact, with their uid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from actors.interfaces import Outlet
from ebbtide.control import ControlError, Request, Verb
from ebbtide.standing import Standing
from events.decisions import PodOutcome
from events.facts import HurryRequested, ReleaseRequested

#: A pod's phase is its outcome once it has ended.
ENDED = get_args(PodOutcome)


Ask = Callable[[], dict[str, Any]]


def verbs(standing: Standing, outlet: Outlet, status: Ask, metrics: Ask) -> dict[str, Verb]:
    """The control socket's table."""

    async def tell_status(request: Request, uid: int) -> Any:
        return status()

    async def tell_metrics(request: Request, uid: int) -> Any:
        return metrics()

    async def hurry(request: Request, uid: int) -> Any:
        _in_episode(standing)
        phases = _phases(standing, request.pod)
        if not phases:
            raise ControlError(f"no pod {request.pod!r} in this shutdown: see 'ebbtide status'")
        if all(phase in ENDED for phase in phases):
            raise ControlError(f"pod {request.pod!r} has ended already ({phases[0]}): nobody waits for it")
        await outlet.put(HurryRequested(pod=request.pod, asked_by=uid))
        return {"pod": request.pod}

    async def release(request: Request, uid: int) -> Any:
        _in_episode(standing)
        await outlet.put(ReleaseRequested(asked_by=uid))
        return {}

    return {"status": tell_status, "metrics": tell_metrics, "hurry": hurry, "release": release}


def _in_episode(standing: Standing) -> None:
    if standing.phase not in ("running", "cancelling"):
        raise ControlError("no shutdown is running: there is nothing to hurry or to release")


def _phases(standing: Standing, pod: str) -> list[str]:
    """Of every pod that is called so: by ``namespace/name``, name, or UID."""
    return [
        each.phase
        for uid, each in standing.pods.items()
        if pod in (uid, each.label, each.label.partition("/")[2])
    ]
