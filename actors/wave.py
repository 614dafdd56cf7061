"""WaveActor: one priority range. It starts its pods, watches its deadline, and names who is late.

A wave ends when its pods have ended, or at its deadline; stragglers stay somebody's job (their own
HookActor's) while the next wave runs, and are followed to their end. Where a running kubelet unmounts
volumes, the wave waits for that as well while it has time: the drivers that it needs come later
(kubernetes#115148).

    new -> running -> ended

A wave that has ended still hears of its pods: who ends now is a straggler, and a pod that was not in the
inventory may join the last wave after its end, to get what is left of the wave's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ebbtide.actors.actor import (
    NEVER_NS,
    ActorType,
    Handler,
    Result,
    Row,
    State,
    Transitions,
    ignored,
)
from ebbtide.events.base import NS_PER_SECOND, BoundedTuple, Event, order_key
from ebbtide.events.decisions import (
    AwaitUnmounts,
    CancelOrder,
    DeadlineMoved,
    HandedOver,
    PodEnded,
    PodOutcome,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ShutdownCancelled,
    StragglerEnded,
    WaveEnded,
    WaveStarted,
)
from ebbtide.events.facts import OrderEnded, Tick, VolumesUnmounted

NAME = "WaveActor"

#: Outcomes of pods whose end nobody has seen: they complete no wave, and are no straggler's end.
UNSEEN_OUTCOMES: tuple[PodOutcome, ...] = ("failed", "unknown")

# --- the state ---------------------------------------------------------------------------------

_OPEN, _ENDED = 0, 1


class PodChecklist(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Which pods belong to a wave or a plan, and which of them have ended.

    ``places`` maps each UID to its byte in ``ended``, in the order in which the pods came. Bytes, because
    marking one of a thousand pods then copies a kilobyte and not a dict: a shutdown's cost stays linear.
    """

    places: dict[str, int] = {}
    ended: bytes = b""

    @classmethod
    def of(cls, uids: Iterable[str]) -> PodChecklist:
        places = {uid: at for at, uid in enumerate(uids)}
        return cls(places=places, ended=bytes(len(places)))

    def is_open(self, uid: str) -> bool:
        """Does it belong here, and has it not ended?"""
        at = self.places.get(uid)
        return at is not None and self.ended[at] == _OPEN

    def mark(self, uid: str) -> PodChecklist:
        """The checklist after this pod, which is open, has ended."""
        at = self.places[uid]
        return replace(self, ended=b"%b\1%b" % (self.ended[:at], self.ended[at + 1 :]))

    def join(self, uid: str) -> PodChecklist:
        """One more pod at the end; or one of these, of which its end was said, and which has begun again."""
        at = self.places.get(uid)
        if at is not None:
            return replace(self, ended=b"%b\0%b" % (self.ended[:at], self.ended[at + 1 :]))
        return PodChecklist(places={**self.places, uid: len(self.places)}, ended=self.ended + b"\0")

    @property
    def open_pods(self) -> int:
        return self.ended.count(_OPEN)

    def missing(self) -> Iterator[str]:
        """Who has not ended, in order."""
        return (uid for uid, at in self.places.items() if self.ended[at] == _OPEN)


class WaveState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    wave: int = -1
    deadline_ns: int = 0
    kill_by_ns: int = 0
    #: In the order in which the pods were started.
    roll: PodChecklist = PodChecklist()
    over: bool = False
    #: Pods whose volumes are still mounted, as far as is known.
    mounted: BoundedTuple[str] = ()
    unmount_key: str = ""


def _phase(state: WaveState) -> str:
    if state.over:
        return "ended"
    return "new" if state.wave < 0 else "running"


# --- its pods ----------------------------------------------------------------------------------


def _started(state: WaveState, event: WaveStarted, now: int) -> Result:
    """All pods at once. Who has volumes that a kubelet unmounts is watched, if there is time for it.

    The wave's own deadline makes the order's key another one in each shutdown.
    """
    state = WaveState(
        wave=event.wave,
        deadline_ns=event.deadline_ns,
        kill_by_ns=event.kill_by_ns,
        roll=PodChecklist.of(pod.uid for pod in event.pods),
    )
    begun: list[Event] = [_begin_pod(state, pod.uid, pod.grace_seconds * NS_PER_SECOND) for pod in event.pods]
    if event.deadline_ns > now:
        mounted = tuple(pod.uid for pod in event.pods if pod.volumes)
        if not mounted:
            return state, begun
        key = order_key(NAME, "unmount", str(event.wave), event.deadline_ns)
        order = AwaitUnmounts(key=key, uids=mounted, timeout_ns=event.deadline_ns - now)
        return replace(state, mounted=mounted, unmount_key=key), [*begun, order]
    # A wave without time: each pod gets its stop signal all the same, and the next wave begins in this very
    # step.
    state, ended = _overrun(state, event, now)
    return state, [*begun, *ended]


def _begin_pod(state: WaveState, uid: str, grace_ns: int) -> PodStopBegan:
    return PodStopBegan(uid=uid, wave=state.wave, grace_ns=grace_ns, kill_by_ns=state.kill_by_ns)


def _late_pod(state: WaveState, event: PodPlanned, now: int) -> Result:
    """A pod that was not in the inventory: it gets what is left of this wave."""
    # Not its own time from now: the next wave would wait for it.
    left_ns = max(0, state.deadline_ns - now)
    state = replace(state, roll=state.roll.join(event.pod.uid))
    return state, [_begin_pod(state, event.pod.uid, min(event.grace_seconds * NS_PER_SECOND, left_ns))]


def _mark_ended(state: WaveState, event: PodEnded, now: int) -> Result:
    unseen = event.outcome in UNSEEN_OUTCOMES and not event.gone
    if not state.roll.is_open(event.uid) or unseen:
        return state, ()
    return replace(state, roll=state.roll.mark(event.uid)), ()


def _straggler_ended(state: WaveState, event: PodEnded, now: int) -> Result:
    """After a cancel a pod may end before the deadline: it is not late."""
    marked, _ = _mark_ended(state, event, now)
    if marked is state:
        return state, ()
    # A wave that was cancelled has ended before its deadline.
    late_ns = now - state.deadline_ns
    straggler = StragglerEnded(wave=state.wave, uid=event.uid, late_ns=late_ns)
    return marked, [straggler] if late_ns >= 0 else ()


# --- their volumes -----------------------------------------------------------------------------


def _unmounted(state: WaveState, event: VolumesUnmounted, now: int) -> Result:
    if event.uid not in state.mounted:
        return state, ()
    return replace(state, mounted=tuple(uid for uid in state.mounted if uid != event.uid)), ()


def _handed_over(state: WaveState, event: HandedOver, now: int) -> Result:
    """A kubelet that is stopped unmounts nothing any more."""
    return (replace(state, mounted=()), _cancel_unmounts(state)) if state.mounted else (state, ())


def _cancel_unmounts(state: WaveState) -> list[Event]:
    if not state.mounted:
        return []
    key = order_key(NAME, "look-away", str(state.wave), state.deadline_ns)
    return [CancelOrder(key=key, target=state.unmount_key)]


def _unmounts_ended(state: WaveState, event: OrderEnded, now: int) -> Result:
    """However: from now on nobody reports them, so nobody waits for them."""
    # Timed out is the wave's own deadline, at which it names what is still mounted.
    if event.key != state.unmount_key or event.result == "timed-out":
        return state, ()
    return replace(state, mounted=()), ()


# --- its end -----------------------------------------------------------------------------------


def _then_complete(note: Handler) -> Handler:
    """After what ``note`` makes of the event: the wave has ended if nothing is left to wait for."""

    def handle(state: WaveState, event: Event, now: int) -> Result:
        state, decisions = note(state, event, now)
        if state.roll.open_pods or state.mounted:
            return state, decisions
        unused_ns = max(0, state.deadline_ns - now)
        ended = WaveEnded(wave=state.wave, outcome="complete", unused_ns=unused_ns)
        return replace(state, over=True), [*decisions, ended]

    return handle


def _overrun(state: WaveState, event: Event, now: int) -> Result:
    """At its deadline, or before it when nobody waits any longer."""
    late = tuple(state.roll.missing())
    ended = WaveEnded(wave=state.wave, outcome="overran", stragglers=late, mounted=state.mounted)
    return replace(state, over=True), [ended]


def _deadline_moved(state: WaveState, event: DeadlineMoved, now: int) -> Result:
    # Only ever sooner: the pods of this wave were promised no more when it began, and later waves count on
    # it.
    deadline_ns = min(state.deadline_ns, event.deadline_ns)
    return replace(state, deadline_ns=deadline_ns, kill_by_ns=event.kill_by_ns), ()


def _cancelled(state: WaveState, event: ShutdownCancelled, now: int) -> Result:
    ended = WaveEnded(wave=state.wave, outcome="cancelled")
    return replace(state, over=True, mounted=()), [*_cancel_unmounts(state), ended]


# --- the table ---------------------------------------------------------------------------------

# fmt: off
TRANSITIONS = Transitions(
    ("new", "running", "ended"),
    _phase,
    # phases      event              handler                           leads to         decides
    Row("new",     WaveStarted,       _started,                        "running ended",
        (PodStopBegan, AwaitUnmounts, WaveEnded)),
    Row("running", PodEnded,          _then_complete(_mark_ended),     "= ended",       (WaveEnded,)),
    Row("running", VolumesUnmounted,  _then_complete(_unmounted),      "= ended",       (WaveEnded,)),
    Row("running", OrderEnded,        _then_complete(_unmounts_ended), "= ended",       (WaveEnded,)),
    Row("running", HandedOver,        _then_complete(_handed_over),    "= ended",
        (CancelOrder, WaveEnded)),
    Row("running", Tick,              _overrun,                        "ended",         (WaveEnded,)),
    Row("running", PodsEnded,         _overrun,                        "ended",         (WaveEnded,)),
    Row("running", ShutdownCancelled, _cancelled,                      "ended",
        (CancelOrder, WaveEnded)),
    Row("running ended", PodPlanned,    _late_pod,                     "=",             (PodStopBegan,)),
    Row("running ended", DeadlineMoved, _deadline_moved),
    # Pods and volumes that a wave has not waited for are followed to their end.
    Row("ended",   PodEnded,          _straggler_ended,                "=",             (StragglerEnded,)),
    Row("ended",   VolumesUnmounted,  _unmounted),
    Row("ended",   OrderEnded,        _unmounts_ended),
    Row("ended",   HandedOver,        _handed_over,                    "=",             (CancelOrder,)),
    ignored("running ended", WaveStarted),
    ignored("ended", Tick, PodsEnded, ShutdownCancelled),
    # A wave's actor is made by its beginning, which is the first that it hears.
    ignored("new", PodPlanned, PodEnded, VolumesUnmounted, OrderEnded, HandedOver, Tick, PodsEnded,
            DeadlineMoved, ShutdownCancelled),
)
# fmt: on

WAVE = ActorType(
    NAME,
    WaveState,
    TRANSITIONS,
    deadline=lambda state: NEVER_NS if state.over else state.deadline_ns,
)
