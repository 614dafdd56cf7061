"""Which actors a `System` runs, and all that it knows of them: a *set*, named by the journal's logic.

`System.step` is the same for every journal. What differs is who hears of what, which event opens an episode
and which closes it, and where a failed actor's work goes: that is a set's, as tables, and nothing of it is
asked of one actor by name in `actors.system`. A journal's header says by its logic which set wrote it.

A rule that changes after a release is a new logic: a set in `SETS` of its own, in which the actors concerned
have another table, beside the set of before, which stays as it is until the release after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from ebbtide.actors.actor import NEVER_NS, ActorType, State
from ebbtide.actors.config_reconciler import CONFIG
from ebbtide.actors.episode import EPISODE, EpisodeState, give_up_ns
from ebbtide.actors.fallback import FALLBACK
from ebbtide.actors.hook import HOOK
from ebbtide.actors.kubelet import KUBELET
from ebbtide.actors.logind import LOGIND
from ebbtide.actors.node_status import NODE_STATUS
from ebbtide.actors.outage import OUTAGE as OUTAGE_ACTOR
from ebbtide.actors.outage import OUTAGE_FALLBACK
from ebbtide.actors.outage_proof import POWER_OFF, PROOF
from ebbtide.actors.outage_work import DETACH, STUCK_POD
from ebbtide.actors.wave import WAVE
from ebbtide.events.base import Event
from ebbtide.events.decisions import (
    EpisodeClosed,
    PlanMade,
    PodPlanned,
    PodsEnded,
    ShutdownBegan,
    WaveEnded,
    WaveStarted,
)
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.outage_events import (
    AttachmentLeft,
    LeaderStarted,
    OutageBegan,
    OutageClosed,
    OutOfService,
    PodLost,
    WorkRecovered,
)
from ebbtide.events.segment import LOGICS

#: How an event names its subject, by actor and event type; an event that is not there goes to every instance.
SubjectOf = Mapping[tuple[str, str], Callable[[Any], str]]

#: Delivered by key or by deadline, not by a table.
_ADDRESSED_DIRECTLY = ("OrderEnded", "Tick")


class Route(NamedTuple):
    """``subject`` None: every instance. ``creates``: a subject's first event makes its actor."""

    name: str
    subject: Callable[[Any], str] | None
    creates: ActorType | None


class Rescue(NamedTuple):
    """How an episode goes on after a failure: ``leader`` and all subjects fail together, ``fallback`` leads.

    A failure of an actor in ``go_on`` has the same effect, but that actor takes part in the rest. Starts that
    failed count as a failure of the leader, unless the start leaves nothing to do (``over``).
    """

    leader: ActorType
    fallback: ActorType
    go_on: tuple[ActorType, ...]
    over: Callable[[Any], bool]


class ActorSet:
    """``singletons`` are always there, in the order in which they hear; ``subjects`` are made by an event.

    ``start`` is the fact with which a process begins to write. ``opens`` and ``closes`` an episode are
    decisions. Behind those of ``digested`` a step ends with a digest of who has changed and come to rest,
    behind ``digested_last`` of all; what is decided by ``plans`` needs no digest. ``also_hear``: of the
    outcome of an order with this word, whoever gave it. ``look_until_ns``: after a start in mid-episode,
    until when what fell due waits for what the edges find; of the singletons' states, by name.
    """

    def __init__(
        self,
        *,
        singletons: tuple[ActorType, ...],
        subjects: tuple[tuple[ActorType, type[Event]], ...],
        subject_of: SubjectOf,
        start: type[Event],
        opens: type[Event],
        closes: type[Event],
        digested: tuple[type[Event], ...],
        digested_last: type[Event],
        plans: type[Event] | None = None,
        also_hear: Mapping[str, ActorType] | None = None,
        rescue: Rescue | None = None,
        look_until_ns: Callable[[Callable[[ActorType], State]], int] = lambda state_of: NEVER_NS,
    ) -> None:
        self.singletons, self.subjects = singletons, subjects
        self.start, self.opens, self.closes = start, opens, closes
        self.digested, self.digested_last, self.plans = digested, digested_last, plans
        self.also_hear = {word: kind.name for word, kind in (also_hear or {}).items()}
        self.rescue = rescue
        self.look_until_ns = look_until_ns
        self.types: tuple[ActorType, ...] = (*singletons, *(kind for kind, _ in subjects))
        self.by_name = {kind.name: kind for kind in self.types}
        # Who hears of what: one static table from event type to recipients, in the order in which they hear
        # it, which is the order of registration. An order's outcome goes to the actor that its key names, a
        # `Tick` to who is due.
        self.routes = self._build_routes(subject_of)
        always = tuple(kind.name for kind in singletons)
        #: The same in two: the places of those who are always there, and the others' rows. The former come
        #: first. Most events concern singletons only, and a step of a thousand pods asks thousands of times.
        self.to_singletons = {
            kind: tuple((route.name, "") for route in routes if route.name in always)
            for kind, routes in self.routes.items()
        }
        self.to_subjects = {
            kind: tuple(route for route in routes if route.name not in always)
            for kind, routes in self.routes.items()
        }

    def _build_routes(self, subject_of: SubjectOf) -> dict[type[Event], tuple[Route, ...]]:
        table: dict[type[Event], list[Route]] = {}
        creators = {kind.name: creator for kind, creator in self.subjects}
        for kind in self.types:
            for event_type in kind.transitions.events:
                if event_type.__name__ in _ADDRESSED_DIRECTLY:
                    continue
                subject = subject_of.get((kind.name, event_type.__name__))
                creates = kind if creators.get(kind.name) is event_type else None
                table.setdefault(event_type, []).append(Route(kind.name, subject, creates))
        return {event_type: tuple(routes) for event_type, routes in table.items()}

    def outcome_recipients(self, key: str) -> list[tuple[str, str]]:
        """Actor and subject whom an order's outcome concerns, by the order's key."""
        # Not taken apart further, as by `parse_order_key`: every outcome comes by here, a third of all facts.
        actor, what, subject, _ = parts if len(parts := key.split("/")) == 4 else ("", "", "", "")
        also = self.also_hear.get(what, actor)
        return [(actor, subject)] if also == actor else [(actor, subject), (also, "")]


# --- the daemon on a node -------------------------------------------------------------------------


def _wave_of_event(event: Any) -> str:
    return str(event.wave)


_uid_of_event: Callable[[Any], str] = attrgetter("uid")
_pod_uid_of_event: Callable[[Any], str] = attrgetter("pod.uid")


def _give_up_ns(state_of: Callable[[ActorType], State]) -> int:
    """Nothing that has to be done before the shutdown's end waits for a look."""
    state = state_of(EPISODE)
    assert isinstance(state, EpisodeState)
    return give_up_ns(state) if state.release_by_ns else NEVER_NS


SHUTDOWN = ActorSet(
    # Who ends the pods is said, and the node's view told, before pods are touched.
    singletons=(CONFIG, LOGIND, KUBELET, NODE_STATUS, EPISODE, FALLBACK),
    subjects=((WAVE, WaveStarted), (HOOK, PodPlanned)),
    subject_of={
        (WAVE.name, "WaveStarted"): _wave_of_event,
        (WAVE.name, "PodPlanned"): _wave_of_event,
        (WAVE.name, "PodEnded"): _wave_of_event,
        (HOOK.name, "PodPlanned"): _pod_uid_of_event,
        (HOOK.name, "PodStopBegan"): _uid_of_event,
        (HOOK.name, "PodEnded"): _uid_of_event,
        (HOOK.name, "ContainerExited"): _uid_of_event,
        (HOOK.name, "AutopsyTaken"): _uid_of_event,
        (HOOK.name, "PodJoined"): _pod_uid_of_event,
    },
    start=DaemonStarted,
    opens=ShutdownBegan,
    closes=EpisodeClosed,
    digested=(WaveEnded, PodsEnded),
    digested_last=PodsEnded,
    # A plan says by itself what it made of its actors.
    plans=PlanMade,
    # That of a release is also the LogindActor's business when the fallback ordered it: it has the lock. That
    # of a pod's delete tells the NodeStatusActor what becomes of its object.
    also_hear={"release": LOGIND, "delete": NODE_STATUS},
    # Only the KubeletActor can start its kubelet again.
    rescue=Rescue(EPISODE, FALLBACK, go_on=(KUBELET,), over=lambda start: start.preparing is False),
    look_until_ns=_give_up_ns,
)


# --- the controller in the cluster ----------------------------------------------------------------

_name_of_event: Callable[[Any], str] = attrgetter("name")
_attachment_of_event: Callable[[Any], str] = attrgetter("attachment.name")

OUTAGES = ActorSet(
    # Whether a proof counts is said before anybody acts on it.
    singletons=(PROOF, OUTAGE_ACTOR, OUTAGE_FALLBACK),
    subjects=((STUCK_POD, PodLost), (DETACH, AttachmentLeft)),
    subject_of={
        (STUCK_POD.name, "PodLost"): _pod_uid_of_event,
        (STUCK_POD.name, "LostPodRead"): _pod_uid_of_event,
        (STUCK_POD.name, "LostPodGone"): _uid_of_event,
        (DETACH.name, "AttachmentLeft"): _attachment_of_event,
        (DETACH.name, "AttachmentRead"): _attachment_of_event,
        (DETACH.name, "AttachmentGone"): _name_of_event,
    },
    start=LeaderStarted,
    opens=OutageBegan,
    closes=OutageClosed,
    digested=(OutOfService, WorkRecovered, OutageClosed),
    digested_last=OutageClosed,
    # Before a machine is switched off, and afterwards, its sources are read.
    also_hear={POWER_OFF: PROOF, "sources": OUTAGE_ACTOR},
)


#: Every set that there is, by its logic.
SETS: dict[str, ActorSet] = dict(zip(LOGICS, (SHUTDOWN, OUTAGES), strict=True))

#: The kinds of actors of all of them; a name means the same wherever it stands.
ACTOR_TYPE_BY_NAME: dict[str, ActorType] = {kind.name: kind for each in SETS.values() for kind in each.types}
