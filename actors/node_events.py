"""NodeEventsActor: a Kubernetes Event on the Node at each turn of its outage (a StuckPodActor posts on its
pod).

Its reason is the decision's name, its message the decision's text.
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


class NodeEventsState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: Literal["posting"] = "posting"
    node: str = ""
    changes: int = 0
    ordinal: int = 0


def _post(state: NodeEventsState, event: Event, now: int) -> Result:
    changes = 0 if isinstance(event, o.OutageBegan) else state.changes + isinstance(event, CHANGES)
    if changes > CHANGES_MAX and isinstance(event, CHANGES):
        return state, ()
    order = o.PostOutageEvent(
        key=order_key(NAME, "event", "", state.ordinal),
        kind="Node",
        name=state.node,
        reason=type(event).__name__,
        # None of these texts names a pod, or a time.
        message=event.text(Names(), Stamp(0, 0)),
        warning=event.level <= WARNING,
    )
    return replace(state, changes=changes, ordinal=state.ordinal + 1), [order]


NODE_EVENTS = ActorType(
    NAME,
    NodeEventsState,
    Transitions(
        ("posting",),
        lambda state: state.phase,
        Row(EVERY, o.LeaderStarted, takes("node")),
        *(Row(EVERY, turn, _post, decides=(o.PostOutageEvent,)) for turn in TURNS),
        ignored(EVERY, f.OrderEnded),
    ),
    deadline=lambda state: NEVER_NS,
)
