"""The kubelet's unit, stopped and started by the KubeletActor: its state, the two orders, and their outcomes.

Whoever stops it is bound to start it again, and only who has stopped it. One of the two at a time.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Result, State
from events.base import NS_PER_SECOND, Event, order_key
from events.decisions import KubeletStopped, StartKubelet, StopKubelet
from events.facts import OrderEnded
from events.model import Means, Period

NAME = "KubeletActor"

#: A node without its kubelet is no node: it is started until it has been, the last pause for ever.
RETRY_SECONDS = (10, 20, 40, 80, 160, 300)


class KubeletState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    #: Empty outside of a Kubernetes node's modes.
    mode: str = ""
    home: str = ""
    wanted: dict[str, str] = {}
    periods: tuple[Period, ...] = ()
    # What is there; None: nobody has said yet.
    kubelet_lock: bool = False
    kubelet: bool | None = None
    runtime: bool | None = None
    api: bool | None = None
    taints: bool = True
    stoppable: bool = True
    # This shutdown.
    means: Means = ""
    handed_over: bool = False
    #: By us, so that it is ours to start again.
    stopped: bool = False
    stops: int = 0
    #: The machine stays up: what has begun is being finished.
    cancelled: bool = False
    starts: int = 0
    stop_key: str = ""
    start_key: str = ""
    ordinal: int = 0
    retry_at_ns: int = NEVER_NS


def stop(state: KubeletState) -> tuple[KubeletState, Event]:
    """Ours to start again from now on, whatever the outcome tells: a stop that timed out may still come.

    But not one that somebody else had stopped before.
    """
    key = order_key(NAME, "stop", "", state.ordinal)
    ours = state.stopped or state.kubelet is not False
    state = replace(state, stop_key=key, stopped=ours, stops=state.stops + 1, ordinal=state.ordinal + 1)
    return state, StopKubelet(key=key)


def start(state: KubeletState) -> Result:
    """Not while it is being stopped: the end of that is soon."""
    if state.stop_key or state.start_key or not state.mode:
        return replace(state, retry_at_ns=NEVER_NS), ()
    key = order_key(NAME, "start", "", state.ordinal)
    state = replace(
        state, start_key=key, starts=state.starts + 1, ordinal=state.ordinal + 1, retry_at_ns=NEVER_NS
    )
    return state, [StartKubelet(key=key)]


def order_ended(state: KubeletState, event: OrderEnded, now: int) -> Result:
    if event.key == state.stop_key:
        return _stop_ended(state, event)
    if event.key != state.start_key:
        return state, ()
    if event.result == "done":
        return replace(state, start_key="", stopped=False, starts=0), ()
    pause = RETRY_SECONDS[min(state.starts, len(RETRY_SECONDS)) - 1]
    return replace(state, start_key="", retry_at_ns=now + pause * NS_PER_SECOND), ()


def _stop_ended(state: KubeletState, event: OrderEnded) -> Result:
    """Not known: it is stopped once more, which harms nobody. After a cancel it is started again."""
    state = replace(state, stop_key="")
    if not state.means:
        return start(state) if state.stopped else (state, ())
    if state.cancelled and state.stopped and state.retry_at_ns == NEVER_NS:  # it was due meanwhile
        return start(state)
    if event.result == "unknown" and not state.cancelled:
        state, order = stop(state)
        return state, [order]
    return state, [KubeletStopped(result=event.result)]
