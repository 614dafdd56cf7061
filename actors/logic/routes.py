"""Who hears of what: one static table from event type to recipients.

Recipients hear an event in the order of this table's rows, which is the order of registration. The
outcome of an order goes to the actor that its key names; a `Tick` to whoever is due.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from actors.logic.actor import ActorType
from actors.logic.config import CONFIG
from actors.logic.episode import EPISODE
from actors.logic.fallback import FALLBACK
from actors.logic.hook import HOOK
from actors.logic.kubelet import KUBELET
from actors.logic.logind import LOGIND
from actors.logic.node_status import NODE_STATUS
from actors.logic.wave import WAVE
from events.base import Event
from events.decisions import PodPlanned, WaveStarted

#: One per node, always there, in this order. Who ends the pods is said, and the node's view told, before pods
#: are touched.
SINGLETONS: tuple[ActorType, ...] = (CONFIG, LOGIND, KUBELET, NODE_STATUS, EPISODE, FALLBACK)

#: One per wave and one per pod; created by the event beside it.
SUBJECTS: tuple[tuple[ActorType, type[Event]], ...] = ((WAVE, WaveStarted), (HOOK, PodPlanned))

ALL: tuple[ActorType, ...] = (*SINGLETONS, *(kind for kind, _ in SUBJECTS))
BY_NAME: dict[str, ActorType] = {kind.name: kind for kind in ALL}


def _wave(event: Any) -> str:
    return str(event.wave)


_uid: Callable[[Any], str] = attrgetter("uid")
_pod_uid: Callable[[Any], str] = attrgetter("pod.uid")

#: How an event names its subject, by actor and event type; an event that is not here goes to every instance.
_SUBJECT_OF: dict[tuple[str, str], Callable[[Any], str]] = {
    (WAVE.name, "WaveStarted"): _wave,
    (WAVE.name, "PodPlanned"): _wave,
    (WAVE.name, "PodEnded"): _wave,
    (HOOK.name, "PodPlanned"): _pod_uid,
    (HOOK.name, "PodStopBegan"): _uid,
    (HOOK.name, "PodEnded"): _uid,
    (HOOK.name, "ContainerExited"): _uid,
    (HOOK.name, "AutopsyTaken"): _uid,
}

#: Delivered by key or by deadline, not by this table.
_DYNAMIC = ("OrderEnded", "Tick")


class Route(NamedTuple):
    """``subject`` None: every instance of the actor, the one of a singleton. ``creates``: the first event
    of a subject makes its actor.
    """

    name: str
    subject: Callable[[Any], str] | None
    creates: ActorType | None


def _routes() -> dict[type[Event], tuple[Route, ...]]:
    table: dict[type[Event], list[Route]] = {}
    creators = {kind.name: creator for kind, creator in SUBJECTS}
    for kind in ALL:
        for event_type in kind.handlers:
            if event_type.__name__ in _DYNAMIC:
                continue
            subject = _SUBJECT_OF.get((kind.name, event_type.__name__))
            creates = kind if creators.get(kind.name) is event_type else None
            table.setdefault(event_type, []).append(Route(kind.name, subject, creates))
    return {event_type: tuple(routes) for event_type, routes in table.items()}


def who_hears_outcome(key: str) -> list[tuple[str, str]]:
    """Actor and subject whom an order's outcome concerns, by the order's key.

    That of a release is also the LogindActor's business when the fallback ordered it: it has the lock.
    """
    actor, what, subject, _ = parts if len(parts := key.split("/")) == 4 else ("", "", "", "")
    heard = [(actor, subject)]
    return [*heard, (LOGIND.name, "")] if what == "release" and actor != LOGIND.name else heard


ROUTES: dict[type[Event], tuple[Route, ...]] = _routes()

_ALWAYS_THERE = tuple(kind.name for kind in SINGLETONS)

#: The same in two: the places of those who are always there, and the others' rows. The former come first.
TO_SINGLETONS: dict[type[Event], tuple[tuple[str, str], ...]] = {
    kind: tuple((route.name, "") for route in routes if route.name in _ALWAYS_THERE)
    for kind, routes in ROUTES.items()
}
TO_SUBJECTS: dict[type[Event], tuple[Route, ...]] = {
    kind: tuple(route for route in routes if route.name not in _ALWAYS_THERE)
    for kind, routes in ROUTES.items()
}
