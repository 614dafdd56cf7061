"""WaveActor: one priority range. It starts its pods, keeps its deadline, and names the stragglers.

    new -> running -> ended

A wave ends when its pods have ended, or at its deadline; each straggler's HookActor goes on. In mode api,
while the wave has time, it also waits until the kubelet has unmounted its pods' volumes, because the drivers
stop in a later wave (kubernetes#115148).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ebbtide.actors.actor import NEVER_NS, ActorType, Handler, Result, Row, State, Transitions, ignored
from ebbtide.actors.policy.grace_periods import GRACE_NS_MIN
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, BoundedTuple, Event, order_key

NAME = "WaveActor"

# --- the state

_OPEN, _ENDED = 0, 1


class PodChecklist(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The pods of a wave or a plan, and which have ended.

    ``places`` maps each UID to its byte in ``ended``. Marking a pod copies a byte per pod instead of a dict,
    which keeps a shutdown's cost linear.
    """

    places: dict[kinds.Uid, int] = {}
    ended: bytes = b""

    @classmethod
    def of(cls, uids: Iterable[str]) -> PodChecklist:
        places = {uid: at for at, uid in enumerate(uids)}
        return cls(places=places, ended=bytes(len(places)))

    def is_open(self, uid: str) -> bool:
        at = self.places.get(uid)
        return at is not None and self.ended[at] == _OPEN

    def mark(self, uid: str) -> PodChecklist:
        """The pod must be open."""
        at = self.places[uid]
        return replace(self, ended=b"%b\1%b" % (self.ended[:at], self.ended[at + 1 :]))

    def join(self, uid: str) -> PodChecklist:
        at = self.places.get(uid)
        if at is not None:
            return replace(self, ended=b"%b\0%b" % (self.ended[:at], self.ended[at + 1 :]))
        return PodChecklist(places={**self.places, uid: len(self.places)}, ended=self.ended + b"\0")

    @property
    def open_pods(self) -> int:
        return self.ended.count(_OPEN)

    def missing(self) -> Iterator[str]:
        return (uid for uid, at in self.places.items() if self.ended[at] == _OPEN)


class WaveState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    wave: int = -1
    deadline_ns: int = 0
    kill_by_ns: int = 0
    #: In the order of their stops.
    roll: PodChecklist = PodChecklist()
    over: bool = False
    #: Pods with mounted volumes.
    mounted: BoundedTuple[kinds.Uid] = ()
    unmount_key: str = ""


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        ("new", "running", "ended"),
        lambda state: "ended" if state.over else "new" if state.wave < 0 else "running",
        # phases      event              handler                           leads to         decides
        Row("new",     d.WaveStarted,       _started,                        "running ended",
            (d.PodStopBegan, d.AwaitUnmounts, d.WaveEnded)),
        Row("running", d.PodEnded,          _then_complete(_mark_ended),     "= ended",       (d.WaveEnded,)),
        Row("running", f.VolumesUnmounted,  _then_complete(_unmounted),      "= ended",       (d.WaveEnded,)),
        Row("running", f.OrderEnded,        _then_complete(_unmounts_ended), "= ended",       (d.WaveEnded,)),
        Row("running", d.HandedOver,        _then_complete(_handed_over),    "= ended",
            (d.CancelOrder, d.WaveEnded)),
        Row("running", f.Tick,              _overrun,                        "ended",         (d.WaveEnded,)),
        Row("running", d.PodsEnded,         _overrun,                        "ended",         (d.WaveEnded,)),
        Row("running", d.ShutdownCancelled, _cancelled,                      "ended",
            (d.CancelOrder, d.WaveEnded)),
        Row("running ended", d.PodPlanned,    _late_pod,                     "=",
            (d.PodStopBegan,)),
        Row("running ended", d.DeadlineMoved, _deadline_moved),
        # Stragglers, and volumes that the wave did not wait for.
        Row("ended",   d.PodEnded,          _straggler_ended,                "=",
            (d.StragglerEnded,)),
        Row("ended",   f.VolumesUnmounted,  _unmounted),
        Row("ended",   f.OrderEnded,        _unmounts_ended),
        Row("ended",   d.HandedOver,        _handed_over,                    "=",
            (d.CancelOrder,)),
        ignored("running ended", d.WaveStarted),
        ignored("ended", f.Tick, d.PodsEnded, d.ShutdownCancelled),
        ignored("new", d.PodPlanned, d.PodEnded, f.VolumesUnmounted, f.OrderEnded, d.HandedOver, f.Tick,
                d.PodsEnded,
                d.DeadlineMoved, d.ShutdownCancelled),
    )
# fmt: on


# --- its pods


def _started(state: WaveState, event: d.WaveStarted, now: int) -> Result:
    """The deadline makes the order's key unique to this shutdown."""
    state = WaveState(
        wave=event.wave,
        deadline_ns=event.deadline_ns,
        kill_by_ns=event.kill_by_ns,
        roll=PodChecklist.of(pod.uid for pod in event.pods),
    )
    begun: list[Event] = [
        _begin_pod(state, pod.uid, pod.grace_seconds * NS_PER_SECOND, now) for pod in event.pods
    ]
    if event.deadline_ns > now:
        mounted = tuple(pod.uid for pod in event.pods if pod.volumes)
        if not mounted:
            return state, begun
        key = order_key(NAME, "unmount", str(event.wave), event.deadline_ns)
        order = d.AwaitUnmounts(key=key, uids=mounted, timeout_ns=event.deadline_ns - now)
        return replace(state, mounted=mounted, unmount_key=key), [*begun, order]
    # A wave without time still stops its pods.
    state, ended = _overrun(state, event, now)
    return state, [*begun, *ended]


def _begin_pod(state: WaveState, uid: str, grace_ns: int, now: int) -> d.PodStopBegan:
    """After the daemon's absence its time may be over."""
    grace_ns = min(grace_ns, max(0, state.kill_by_ns - now))
    return d.PodStopBegan(uid=uid, wave=state.wave, grace_ns=grace_ns, kill_by_ns=state.kill_by_ns)


def _late_pod(state: WaveState, event: d.PodPlanned, now: int) -> Result:
    # The next wave does not wait longer for a late pod.
    left_ns = max(GRACE_NS_MIN, state.deadline_ns - now)
    state = replace(state, roll=state.roll.join(event.pod.uid))
    return state, [_begin_pod(state, event.pod.uid, min(event.grace_seconds * NS_PER_SECOND, left_ns), now)]


def _mark_ended(state: WaveState, event: d.PodEnded, now: int) -> Result:
    if not state.roll.is_open(event.uid) or event.unseen:
        return state, ()
    return replace(state, roll=state.roll.mark(event.uid)), ()


def _straggler_ended(state: WaveState, event: d.PodEnded, now: int) -> Result:
    marked, _ = _mark_ended(state, event, now)
    if marked is state:
        return state, ()
    # After a cancel a pod may end before the deadline.
    late_ns = now - state.deadline_ns
    straggler = d.StragglerEnded(wave=state.wave, uid=event.uid, late_ns=late_ns)
    return marked, [straggler] if late_ns >= 0 else ()


# --- their volumes


def _unmounted(state: WaveState, event: f.VolumesUnmounted, now: int) -> Result:
    if event.uid not in state.mounted:
        return state, ()
    return replace(state, mounted=tuple(uid for uid in state.mounted if uid != event.uid)), ()


def _handed_over(state: WaveState, event: d.HandedOver, now: int) -> Result:
    """A stopped kubelet unmounts no volume."""
    return (replace(state, mounted=()), _cancel_unmounts(state)) if state.mounted else (state, ())


def _cancel_unmounts(state: WaveState) -> list[Event]:
    if not state.mounted:
        return []
    key = order_key(NAME, "look-away", str(state.wave), state.deadline_ns)
    return [d.CancelOrder(key=key, target=state.unmount_key)]


def _unmounts_ended(state: WaveState, event: f.OrderEnded, now: int) -> Result:
    """No component reports the volumes any more."""
    # A time-out is the wave's own deadline; `_overrun` names the mounted volumes.
    if event.key != state.unmount_key or event.result == "timed-out":
        return state, ()
    return replace(state, mounted=()), ()


# --- its end


def _then_complete(note: Handler) -> Handler:

    def handle(state: WaveState, event: Event, now: int) -> Result:
        state, decisions = note(state, event, now)
        if state.roll.open_pods or state.mounted:
            return state, decisions
        unused_ns = max(0, state.deadline_ns - now)
        ended = d.WaveEnded(wave=state.wave, outcome="complete", unused_ns=unused_ns)
        return replace(state, over=True), [*decisions, ended]

    return handle


def _overrun(state: WaveState, event: Event, now: int) -> Result:
    late = tuple(state.roll.missing())
    ended = d.WaveEnded(wave=state.wave, outcome="overran", stragglers=late, mounted=state.mounted)
    return replace(state, over=True), [ended]


def _deadline_moved(state: WaveState, event: d.DeadlineMoved, now: int) -> Result:
    # Only sooner: the later waves need the time.
    deadline_ns = min(state.deadline_ns, event.deadline_ns)
    return replace(state, deadline_ns=deadline_ns, kill_by_ns=event.kill_by_ns), ()


def _cancelled(state: WaveState, event: d.ShutdownCancelled, now: int) -> Result:
    ended = d.WaveEnded(wave=state.wave, outcome="cancelled")
    return replace(state, over=True, mounted=()), [*_cancel_unmounts(state), ended]


WAVE = ActorType(
    NAME,
    WaveState,
    _transitions(),
    deadline=lambda state: NEVER_NS if state.over else state.deadline_ns,
)
