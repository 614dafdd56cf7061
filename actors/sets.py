"""The sets of actors that a `System` runs. The logic in a journal's header names its set.

`System.step` is the same for every journal, and names no actor. A set says in tables which events go to which
actors, which events open and close an episode, and how an episode goes on after a failure.

A rule that changes after a release becomes a new logic: another set in `SETS`, with other tables for its
actors. The old set stays until the release after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from ebbtide.actors.actor import NEVER_NS, ActorType, State
from ebbtide.actors.config_reconciler import CONFIG
from ebbtide.actors.container import died_of_our_kill
from ebbtide.actors.episode import EPISODE, EpisodeState, give_up_ns
from ebbtide.actors.fallback import FALLBACK, FallbackPod, FallbackState
from ebbtide.actors.hook import HOOK, PodState
from ebbtide.actors.kubelet import KUBELET
from ebbtide.actors.logind import LOGIND
from ebbtide.actors.node_status import NODE_STATUS
from ebbtide.actors.outage import OUTAGE as OUTAGE_ACTOR
from ebbtide.actors.outage import OUTAGE_FALLBACK
from ebbtide.actors.outage_proof import POWER_OFF, PROOF
from ebbtide.actors.outage_work import DETACH, STUCK_POD
from ebbtide.actors.wave import WAVE
from ebbtide.events import decisions, outage_events
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.segment import LOGICS

#: How to read an event's subject, by actor and event type. Other events go to every instance.
SubjectOf = Mapping[tuple[str, str], Callable[[Any], str]]

#: Delivered by key and by deadline.
_ADDRESSED_DIRECTLY = ("OrderEnded", "Tick")


class Route(NamedTuple):
    """``subject`` None: every instance. ``creates``: this event makes the subject's actor."""

    name: str
    subject: Callable[[Any], str] | None
    creates: ActorType | None


class Rescue(NamedTuple):
    """How an episode goes on after a failure: ``leader`` and all subjects fail together, ``fallback`` leads.

    ``inherit`` makes the fallback's state from its own, the leader's, and the subjects'. A failure of an
    actor in ``go_on`` has the same effect, but that actor takes part in the rest. Starts that failed count
    as a failure of the leader, unless the start leaves nothing to do (``over``).
    """

    leader: ActorType
    fallback: ActorType
    inherit: Callable[[Any, Any, Iterable[State]], State]
    go_on: tuple[ActorType, ...]
    over: Callable[[Any], bool]


class ActorSet:
    """``singletons`` always exist, in the order of delivery; an event makes each of ``subjects``.

    ``start`` is a process's first fact. Decisions ``opens`` and ``closes`` an episode. After a decision of
    ``digested`` a step ends with a digest of the actors that have come to rest, after ``digested_last`` of
    all; ``plans`` needs no digest. ``also_hear``: receives the outcomes of orders with this word, from any
    actor. ``look_until_ns``: the latest end of the wait for the edges' first findings (`system.LOOK_NS`).
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
        #: From event type to recipients, in the order of registration.
        self.routes = self._build_routes(subject_of)
        always = tuple(kind.name for kind in singletons)
        #: The same in two parts, because most events concern only singletons: they come first.
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
        """Actor and subject of an order's outcome, by its key."""
        # Cheaper than `parse_order_key`: a third of all facts are outcomes.
        actor, what, subject, _ = parts if len(parts := key.split("/")) == 4 else ("", "", "", "")
        also = self.also_hear.get(what, actor)
        return [(actor, subject)] if also == actor else [(actor, subject), (also, "")]


# --- the daemon on a node -------------------------------------------------------------------------


def _wave_of_event(event: Any) -> str:
    return str(event.wave)


_uid_of_event: Callable[[Any], str] = attrgetter("uid")
_pod_uid_of_event: Callable[[Any], str] = attrgetter("pod.uid")


def _give_up_ns(state_of: Callable[[ActorType], State]) -> int:
    """Work before the shutdown's end does not wait for a first look."""
    state = state_of(EPISODE)
    assert isinstance(state, EpisodeState)
    return give_up_ns(state) if state.release_by_ns else NEVER_NS


def _inherit_pods(state: FallbackState, episode: EpisodeState, subjects: Iterable[State]) -> FallbackState:
    """The pods that have not ended. A pod whose actor was not made in time is known from the plan."""
    pods = {
        each.uid: FallbackPod(
            pod=episode.pods[each.uid],
            wave=index,
            grace_ns=each.grace_seconds * NS_PER_SECOND,
            left=tuple(
                container.name for container in episode.pods[each.uid].containers if container.running
            ),
        )
        for index, wave in enumerate(episode.waves)
        for each in wave.pods
        if episode.roll.is_open(each.uid)
    }
    for each in subjects:
        if not isinstance(each, PodState) or each.pod is None:
            continue
        pods[each.pod.uid] = FallbackPod(
            pod=each.pod,
            wave=each.wave,
            grace_ns=0 if each.hurried else each.grace_ns,
            left=tuple(down.spec.name for down in each.downs if down.phase != "exited"),
            begun_ns=each.begun_ns,
            outcome="killed" if any(map(died_of_our_kill, each.downs)) else "graceful",
        )
        if each.over:
            del pods[each.pod.uid]
    planned = episode.phase not in ("idle", "listing")
    return replace(state, pods=pods, wave=episode.wave, planned=planned)


SHUTDOWN = ActorSet(
    # The mode and the node's marks are decided before the pods are touched.
    singletons=(CONFIG, LOGIND, KUBELET, NODE_STATUS, EPISODE, FALLBACK),
    subjects=((WAVE, decisions.WaveStarted), (HOOK, decisions.PodPlanned)),
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
    opens=decisions.ShutdownBegan,
    closes=decisions.EpisodeClosed,
    digested=(decisions.WaveEnded, decisions.PodsEnded),
    digested_last=decisions.PodsEnded,
    plans=decisions.PlanMade,
    # The LogindActor has the lock that the fallback released. The NodeStatusActor learns what becomes of a
    # pod's object.
    also_hear={"release": LOGIND, "delete": NODE_STATUS},
    # Only the KubeletActor can start its kubelet again.
    rescue=Rescue(
        EPISODE, FALLBACK, _inherit_pods, go_on=(KUBELET,), over=lambda start: start.preparing is False
    ),
    look_until_ns=_give_up_ns,
)


# --- the controller in the cluster ----------------------------------------------------------------

_name_of_event: Callable[[Any], str] = attrgetter("name")
_attachment_of_event: Callable[[Any], str] = attrgetter("attachment.name")

OUTAGES = ActorSet(
    # The ProofActor decides whether a proof counts before other actors use it.
    singletons=(PROOF, OUTAGE_ACTOR, OUTAGE_FALLBACK),
    subjects=((STUCK_POD, outage_events.PodLost), (DETACH, outage_events.AttachmentLeft)),
    subject_of={
        (STUCK_POD.name, "PodLost"): _pod_uid_of_event,
        (STUCK_POD.name, "LostPodRead"): _pod_uid_of_event,
        (STUCK_POD.name, "LostPodGone"): _uid_of_event,
        (DETACH.name, "AttachmentLeft"): _attachment_of_event,
        (DETACH.name, "AttachmentRead"): _attachment_of_event,
        (DETACH.name, "AttachmentGone"): _name_of_event,
    },
    start=outage_events.LeaderStarted,
    opens=outage_events.OutageBegan,
    closes=outage_events.OutageClosed,
    digested=(outage_events.OutOfService, outage_events.WorkRecovered, outage_events.OutageClosed),
    digested_last=outage_events.OutageClosed,
    # Sources are read before a machine is switched off, and afterwards.
    also_hear={POWER_OFF: PROOF, "sources": OUTAGE_ACTOR},
)


#: All sets, by logic.
SETS: dict[str, ActorSet] = dict(zip(LOGICS, (SHUTDOWN, OUTAGES), strict=True))

#: The actors of all sets: a name is the same actor in each.
ACTOR_TYPE_BY_NAME: dict[str, ActorType] = {kind.name: kind for each in SETS.values() for kind in each.types}
