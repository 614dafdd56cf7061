"""What people may ask of a running daemon. What they ask for becomes a fact, with their uid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.interfaces import Outlet
from ebbtide.control import ControlError, Verb
from ebbtide.standing import Standing
from events.facts import HurryRequested, ReleaseRequested


def verbs(standing: Standing, outlet: Outlet, status: Callable[[], dict[str, Any]]) -> dict[str, Verb]:
    """The control socket's table."""

    async def tell_status(arguments: dict[str, Any], uid: int) -> Any:
        return status()

    async def hurry(arguments: dict[str, Any], uid: int) -> Any:
        _in_episode(standing)
        pod = arguments.get("pod")
        if not isinstance(pod, str) or not _knows(standing, pod):
            raise ControlError(f"no pod {pod!r} in this shutdown: see 'ebbtide status'")
        await outlet.put(HurryRequested(pod=pod, asked_by=uid))
        return {"pod": pod}

    async def release(arguments: dict[str, Any], uid: int) -> Any:
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
