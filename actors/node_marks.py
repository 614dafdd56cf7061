"""The marks on the Node of a node that goes down: conditions, taint, Ready, Events, its last boot's end.

The first of the three machines of `actors.node_status`. It restores only what it changed. A running kubelet
would overwrite Ready, so Ready changes once the kubelet is stopped.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import asdict, replace

from ebbtide.actors.actor import AND, EVERY, Result, Row, State, Transitions, takes
from ebbtide.actors.policy.termination_mode import NODE_MODES, pods_come_back
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event, order_key, parse_order_key
from ebbtide.events.values import ShutdownKind, TerminationMode, Unready

NAME = "NodeStatusActor"

# The kubelet's texts (pkg/kubelet/nodeshutdown): people and alerts look for them.
NODE_REASON = "KubeletNotReady"
NODE_MESSAGE = "node is shutting down"
EVENT_REASON = "Shutdown"
DETECTED_MESSAGE = "Shutdown manager detected shutdown event"
CANCELLED_MESSAGE = "Shutdown manager detected shutdown cancellation"

#: While pods are ended, and once they have been (KEP-5683, KEP-6249).
GOING_DOWN_CONDITIONS = ("DrainInProgress", "GracefulNodeShutdownInProgress")
DOWN_CONDITIONS = ("Drained", "GracefulNodeShutdownInProgress")

#: kubelet-stopping: it may still overwrite what we write.
KUBELET_PHASES = ("kubelet-runs", "kubelet-stopping", "kubelet-stopped")


class MarksState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    in_episode: bool = False
    #: Over all shutdowns and all three machines.
    ordinal: int = 0
    node: bool = False
    unready: Unready = "poweroff"
    #: The API server answers; we may change taints.
    api: bool | None = None
    taints: bool = True
    #: The last boot's end, until it is on the Node.
    last_boot: d.LastBootEnded | None = None
    last_boot_key: str = ""
    # This shutdown.
    announced: bool = False
    #: To be restored when the API server answers.
    restore_due: bool = False
    kind: ShutdownKind = "unknown"
    means: TerminationMode = ""
    kubelet_stopped: bool = False
    kubelet_stopping: bool = False
    #: Every pod was seen to end for good (`actors.detach_certificate`).
    drained: bool = False

    @property
    def ours(self) -> bool:
        """Ebbtide ends this node's pods."""
        return self.means in ("api", "cri")


KEPT_FIELDS = ("in_episode", "ordinal", "node", "unready", "api", "taints", "last_boot", "last_boot_key")


def _phase_of(state: MarksState) -> str:
    kubelet = "kubelet-stopping" if state.kubelet_stopping else "kubelet-runs"
    shutdown = "down" if state.in_episode else "up"
    return f"{shutdown}{AND}{'kubelet-stopped' if state.kubelet_stopped else kubelet}"


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        (("up", "down"), KUBELET_PHASES), _phase_of,
        Row(EVERY, f.DaemonStarted, _started),
        Row(EVERY, d.ConfigAdopted, takes("unready")),
        # For peers, when this node is back.
        Row(EVERY, d.LastBootEnded, lambda state, event, now: (
                _publish_last_boot(replace(state, last_boot=event)) if state.node else (state, ())),
            decides=(d.PublishLastBoot,)),
        Row(EVERY, d.ShutdownBegan, _began, "down kubelet-runs", (d.AnnounceNode,)),
        Row(EVERY, d.MeansChosen, _mode_chosen, "= kubelet-stopping kubelet-runs",
            (d.AnnounceNode, d.PostEvent)),
        Row(EVERY, d.HandedOver, takes(means="cri", kubelet_stopping=True), "= kubelet-stopping"),
        Row("down", d.KubeletStopped, _kubelet_stopped, "kubelet-stopped kubelet-runs", (d.AnnounceNode,)),
        # It is about to be started again.
        Row("up", d.KubeletStopped, takes(kubelet_stopping=False, kubelet_stopped=False), "kubelet-runs"),
        Row(EVERY, d.ShutdownCancelled, _cancelled, "up", (d.AnnounceNode, d.PostEvent)),
        Row(EVERY, d.EpisodeClosed, _closed, "up kubelet-runs", (d.AnnounceNode,)),
        # The API server.
        Row("up", f.ApiRead, _api_read_up, decides=(d.AnnounceNode, d.PublishLastBoot)),
        Row("down", f.ApiRead, _api_read),
        Row(EVERY, f.OrderEnded, _order_ended, decides=(d.AnnounceNode, d.PublishLastBoot)),
    )
# fmt: on


StateT = TypeVar("StateT", bound=MarksState)


def renewed(state: StateT, part: type[State], *kept: str) -> StateT:
    """Fields of ``part`` are dropped by default, so that a new one belongs to one shutdown."""
    blank = type(state)()
    names = (name for name in part.__annotations__ if name not in kept)
    return replace(state, **{name: getattr(blank, name) for name in names})


def next_key(state: StateT, what: str, subject: str = "") -> tuple[StateT, str]:
    key = order_key(NAME, what, subject, state.ordinal)
    return replace(state, ordinal=state.ordinal + 1), key


def call_back(state: StateT, target: str) -> tuple[StateT, d.CancelOrder]:
    state, key = next_key(state, "uncertify")
    return state, d.CancelOrder(key=key, target=target)


# --- the marks


def announce(state: StateT, *, ready: bool) -> tuple[StateT, d.AnnounceNode]:
    down = state.node and not ready
    state, key = next_key(state, "announce")
    order = d.AnnounceNode(
        key=key,
        ready=ready,
        reason="" if ready else NODE_REASON,
        message="" if ready else NODE_MESSAGE,
        unready=not state.node or (down and state.kubelet_stopped and _shows_unready(state)),
        cordon=down,
        conditions=(DOWN_CONDITIONS if state.drained else GOING_DOWN_CONDITIONS) if down else (),
    )
    return replace(state, announced=not ready), order


def _shows_unready(state: MarksState) -> bool:
    """After 300 s (the default toleration) the pods of a node that only reboots would be evicted."""
    return state.unready == "always" or (state.unready == "poweroff" and not pods_come_back(state.kind))


def _post(state: MarksState, message: str) -> tuple[MarksState, d.PostEvent]:
    state, key = next_key(state, "event")
    return state, d.PostEvent(key=key, kind="Node", name="", reason=EVENT_REASON, message=message)


def _restore(state: MarksState) -> tuple[MarksState, list[Event]]:
    state = replace(state, in_episode=False)
    if not state.announced:
        return state, []
    state, order = announce(state, ready=True)
    return state, [order]


def _order_ended(state: MarksState, event: f.OrderEnded, now: int) -> Result:
    """A lost order is repeated. A mark that was not restored, and a last boot that was not published, wait
    for the API server.
    """
    if event.key == state.last_boot_key != "":
        last_boot = None if event.result == "done" else state.last_boot
        state = replace(state, last_boot=last_boot, last_boot_key="")
        return _publish_last_boot(state) if event.result == "unknown" else (state, ())
    if parse_order_key(event.key).what != "announce":
        return state, ()
    if event.result == "unknown":
        state, order = announce(state, ready=not state.announced)
        return state, [order]
    if event.result == "done" or state.announced or not state.node:
        return state, ()
    return replace(state, restore_due=True), ()


# --- the daemon's start, the API server


def _started(state: MarksState, event: f.DaemonStarted, now: int) -> Result:
    """Restores a former process's marks when the API server answers."""
    if event.mode not in NODE_MODES and not state.node:
        return state, ()
    return replace(state, node=event.mode in NODE_MODES, api=None, restore_due=not state.in_episode), ()


def _api_read(state: MarksState, event: f.ApiRead, now: int) -> Result:
    return replace(state, api=event.reachable, taints=event.taint), ()


def _api_read_up(state: MarksState, event: f.ApiRead, now: int) -> Result:
    state, _ = _api_read(state, event, now)
    decisions: list[Event] = []
    if state.api and state.restore_due:
        state, order = announce(replace(state, restore_due=False), ready=True)
        decisions.append(order)
    if state.last_boot_key:
        return state, decisions
    state, published = _publish_last_boot(state)
    return state, [*decisions, *published]


# --- a shutdown


def _began(state: MarksState, event: d.ShutdownBegan, now: int) -> Result:
    kind: ShutdownKind = event.kind if state.node else "unknown"
    state = replace(renewed(state, MarksState, *KEPT_FIELDS), in_episode=True, kind=kind)
    # On a Kubernetes node the termination mode decides about marks.
    if state.node:
        return state, ()
    state, order = announce(state, ready=False)
    return state, [order]


def _mode_chosen(state: MarksState, event: d.MeansChosen, now: int) -> Result:
    """A node whose kubelet ends the pods gets an Event, but no marks."""
    state, posted = _post(
        replace(state, means=event.means, kubelet_stopping=event.means == "cri"), DETECTED_MESSAGE
    )
    if not state.ours:
        return state, [posted]
    state, announced = announce(state, ready=False)
    return state, [announced, posted]


def _kubelet_stopped(state: MarksState, event: d.KubeletStopped, now: int) -> Result:
    stopped = event.result in ("done", "unknown")
    state = replace(state, kubelet_stopping=False, kubelet_stopped=stopped)
    if not stopped or not _shows_unready(state):
        return state, ()
    state, order = announce(state, ready=False)
    return state, [order]


def _cancelled(state: MarksState, event: d.ShutdownCancelled, now: int) -> Result:
    state, restored = _restore(state)
    if not state.means:
        return state, restored
    state, posted = _post(state, CANCELLED_MESSAGE)
    return state, [*restored, posted]


def _closed(state: MarksState, event: d.EpisodeClosed, now: int) -> Result:
    """In mode observe a former process may have set marks. `ApiRead` comes again only after a silence."""
    observed = state.means == "observe" and event.outcome == "cancelled"
    state, restored = _restore(state)
    state = replace(state, means="", kubelet_stopped=False, kubelet_stopping=False)
    if observed and state.api is True:
        state, order = announce(state, ready=True)
        return state, [*restored, order]
    return replace(state, restore_due=state.restore_due or observed), restored


# --- how the last boot ended


def _publish_last_boot(state: MarksState) -> Result:
    """The edge tries until it is done."""
    ended = state.last_boot
    if ended is None or state.api is not True:
        return state, ()
    state, key = next_key(state, "last-boot")
    return replace(state, last_boot_key=key), [d.PublishLastBoot(key=key, **asdict(ended))]


MARKS = _transitions()
