"""What people may ask of a running daemon. What they ask for becomes a fact, with their uid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.interfaces import Outlet
from ebbtide.control import ControlError, Request, Verb
from ebbtide.standing import Standing
from events.facts import HurryRequested, ReleaseRequested


def verbs(standing: Standing, outlet: Outlet, status: Callable[[], dict[str, Any]]) -> dict[str, Verb]:
    """The control socket's table."""

    async def tell_status(request: Request, uid: int) -> Any:
        return status()

    async def hurry(request: Request, uid: int) -> Any:
        _in_episode(standing)
        if not _knows(standing, request.pod):
            raise ControlError(f"no pod {request.pod!r} in this shutdown: see 'ebbtide status'")
        await outlet.put(HurryRequested(pod=request.pod, asked_by=uid))
        return {"pod": request.pod}

    async def release(request: Request, uid: int) -> Any:
        _in_episode(standing)
        await outlet.put(ReleaseRequested(asked_by=uid))
        return {}

    return {"status": tell_status, "hurry": hurry, "release": release}


def _in_episode(standing: Standing) -> None:
    if standing.phase not in ("running", "cancelling"):
        raise ControlError("no shutdown is running: there is nothing to hurry or to release")


def _knows(standing: Standing, pod: str) -> bool:
    """By ``namespace/name``, name, or UID."""
    return any(pod in (uid, each.label, each.label.partition("/")[2]) for uid, each in standing.pods.items())
