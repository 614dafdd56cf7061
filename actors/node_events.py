"""NodeEventsActor: a Kubernetes Event on the Node at each turn of its outage, so that `kubectl describe node`
tells it. A StuckPodActor posts those on its pod.

An Event repeats a decision: its reason is the decision's name, its message the decision's text. It decides
nothing, and no decision waits for it.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from ebbtide.actors.actor import EVERY, NEVER_NS, ActorType, Result, Row, State, Transitions, ignored, takes
from ebbtide.events import facts as f
from ebbtide.events import outage_events as o
from ebbtide.events.base import Event, Stamp, order_key
from ebbtide.events.messages import WARNING, Names

NAME = "NodeEventsActor"

#: In one outage: the storm brake's counts and a flapping source may change for ever. client-go's recorder
#: drops an object's Events after as many.
CHANGES_MAX = 25
CHANGES: tuple[type[Event], ...] = (o.OutageWaits, o.Contradicted, o.ContradictionEnded)
TURNS: tuple[type[Event], ...] = (
    *CHANGES,
    *(o.OutageBegan, o.StoodAside, o.PowerOff, o.PowerOffGivenUp, o.OutOfService, o.DetachForced),
    *(o.WorkRecovered, o.NodeReturned, o.ProofWasWrong, o.OutageAbandoned, o.OutageClosed),
)
#: The texts of these decisions name no pod, and no time of their own.
NO_NAMES, NO_TIME = Names(), Stamp(0, 0)


class NodeEventsState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: Literal["posting"] = "posting"
    node: str = ""
    changes: int = 0
    ordinal: int = 0


def _transitions() -> Transitions:
    return Transitions(
        ("posting",),
        lambda state: state.phase,
        Row(EVERY, o.LeaderStarted, takes("node")),
        *(Row(EVERY, turn, _post, decides=(o.PostOutageEvent,)) for turn in TURNS),
        ignored(EVERY, f.OrderEnded),
    )


def _post(state: NodeEventsState, event: Event, now: int) -> Result:
    if isinstance(event, o.OutageBegan):
        state = replace(state, changes=0)
    if isinstance(event, CHANGES):
        if state.changes >= CHANGES_MAX:
            return state, ()
        state = replace(state, changes=state.changes + 1)
    order = o.PostOutageEvent(
        key=order_key(NAME, "event", "", state.ordinal),
        kind="Node",
        name=state.node,
        reason=type(event).__name__,
        message=event.text(NO_NAMES, NO_TIME),
        warning=event.level <= WARNING,
    )
    return replace(state, ordinal=state.ordinal + 1), [order]


def _afresh(
    state: NodeEventsState, now: int, in_episode: bool, start: o.LeaderStarted | None
) -> NodeEventsState | None:
    """In an outage only with a new leader: a lasting defect must not cost a record at each turn."""
    return None if in_episode and start is None else state


NODE_EVENTS = ActorType(
    NAME,
    NodeEventsState,
    _transitions(),
    deadline=lambda state: NEVER_NS,
    afresh=_afresh,
)
