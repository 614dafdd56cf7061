"""Decisions and orders: what the actors conclude. Grouped by the actor that owns the question."""

from __future__ import annotations

from typing import ClassVar, Literal

from events.base import Barrier, Decision, Order, register
from events.model import Budget, Handover, Period, PlannedPod, PlannedWave, Pod, ShutdownKind

PodOutcome = Literal["graceful", "killed", "failed", "spared", "rejected", "unknown"]
EpisodeOutcome = Literal["running", "complete", "cancelled", "truncated", "never-begun"]
#: How spans are made of a shutdown's records; each shutdown records the one in force when it began. A change
#: of any byte of a span is a new number, and the number, being a decision, a logic flag.
PROJECTION_VERSION = 1

HookResult = Literal["done", "failed", "timed-out", "cancelled", "unknown", "not-run"]

# --- ConfigReconciler: what is asked, and what is granted --------------------------------------


@register
class ConfigAdopted(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The effective configuration: migrated, sorted by ascending priority. ``enabled`` False: no lock."""

    enabled: bool
    periods: tuple[Period, ...] = ()
    requested_ns: int = 0
    reserve_ns: int = 0
    budget: Budget = "strict"
    sleep_action: bool = True
    status_flush_ns: int = 0
    trace_flush_ns: int = 0


@register
class ConfigDeferred(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A configuration that arrived in a shutdown waits for its end."""


@register
class GrantAssessed(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether logind's limit covers what is requested and reserved. Too little degrades, never refuses."""

    needed_ns: int
    grant_ns: int
    sufficient: bool
    overridden_by: str = ""


@register
class WriteDropIn(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Raise logind's limit: write our drop-in, make logind read it, wait until the property shows it."""

    barrier: ClassVar[Barrier] = "synced"
    seconds: int


@register
class RemoveDropIn(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Take our drop-in away again: it is no longer needed."""

    barrier: ClassVar[Barrier] = "synced"


# --- LogindActor: are we armed, is the machine going down --------------------------------------


@register
class Arm(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Subscribe, take the delay lock, read the state; report `LogindRead` before the outcome.

    ``lock`` False: only listen (a shutdown runs already, no lock can be had).
    """

    lock: bool = True
    attempt: int = 1


@register
class Disarm(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Give the lock back and go on listening: switched off by configuration."""


@register
class Armed(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The lock is held and the signal is trusted."""

    grant_ns: int
    attempt: int = 1


@register
class Disarmed(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Not protected. ``retry_at_ns`` (monotonic) says when arming is tried again; 0: not."""

    reason: str
    retry_at_ns: int = 0


@register
class ShutdownDetected(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The machine is going down. ``again``: a second signal within one episode, with a new deadline.

    ``overtime``: logind was bypassed or its timer fired, and the service manager is stopping us.
    """

    kind: ShutdownKind
    grant_ns: int
    lock_held: bool
    again: bool = False
    overtime: bool = False


@register
class ShutdownWithdrawn(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The machine is not going down after all."""

    reason: Literal["cancelled", "did-not-go-down"]


@register
class ReleaseLock(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Let the machine go. An episode is complete if and only if this order is durable."""

    barrier: ClassVar[Barrier] = "synced"


@register
class Leave(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The daemon may end now; pods' processes are left alone."""

    reason: str


# --- EpisodeActor: where is this shutdown ------------------------------------------------------


@register
class Resumed(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a start does about the episode that it found: the action of the resume table's one row.

    ``previous`` says for people what the last boot left; empty when there is nothing to say.
    """

    action: str
    previous: str = ""


@register
class ShutdownBegan(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An episode opens. ``deadline_ns`` ends the budget; at ``release_by_ns`` the lock goes in any case."""

    kind: ShutdownKind
    grant_ns: int
    requested_ns: int
    budget_ns: int
    deadline_ns: int
    release_by_ns: int
    lock_held: bool
    budget: Budget = "strict"
    projection_version: int = 1


@register
class DeadlineMoved(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A second signal, or the service manager's stop time: the same episode, another end."""

    deadline_ns: int
    release_by_ns: int
    kill_by_ns: int
    overtime: bool = False


@register
class TakeInventory(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """List the pods of this node. ``refresh`` False: from the warm cache, without any call."""

    #: Stands between the signal and the first stop: a disk that hangs must not hold it.
    barrier: ClassVar[Barrier] = "none"

    refresh: bool = False


@register
class PlanMade(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The waves in their order, each with its share of the grant, and how many pods they hold."""

    waves: tuple[PlannedWave, ...]
    pods: int


@register
class PodPlanned(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod's place in the plan. ``late``: it was not in the inventory at the signal.

    ``first_ordinal`` is where the ordinals of its order keys begin: never those of an earlier shutdown.
    """

    wave: int
    grace_seconds: int
    pod: Pod
    sleep_action: bool = True
    late: bool = False
    first_ordinal: int = 0


@register
class WaveStarted(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    wave: int
    priority: int
    period_ns: int
    deadline_ns: int
    kill_by_ns: int
    pods: tuple[PlannedPod, ...] = ()


@register
class ShutdownCancelled(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Honoured at once: what has not begun is spared, what has begun is finished within its grace."""

    reason: str


@register
class PodsEnded(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Nothing is left to wait for. ``unfinished`` are the UIDs that outlived the budget."""

    unfinished: tuple[str, ...] = ()


@register
class EpisodeClosed(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The last word on a shutdown, after a cancel or on the next boot. ``last_wave``: -1 if none began.

    ``followed``: the next shutdown begins in the same step, so what waits for an episode's end waits on.
    """

    outcome: EpisodeOutcome
    last_wave: int = -1
    followed: bool = False


# --- WaveActor: one priority range -------------------------------------------------------------


@register
class PodStopBegan(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """From now on the pod's grace runs. ``kill_by_ns``: no SIGKILL of this shutdown comes later."""

    uid: str
    wave: int
    grace_ns: int
    kill_by_ns: int


@register
class WaveEnded(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Complete (all pods ended), overran (deadline; stragglers by UID), or cancelled."""

    wave: int
    outcome: Literal["complete", "overran", "cancelled"]
    unused_ns: int = 0
    stragglers: tuple[str, ...] = ()


@register
class StragglerEnded(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod ended after its wave's deadline."""

    wave: int
    uid: str
    late_ns: int


# --- HookActor: one pod ------------------------------------------------------------------------


@register
class HookStarted(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A preStop hook begins. For ``sleep`` nothing else happens: ``until_ns`` is a deadline in the actor."""

    uid: str
    container: str
    kind: str
    until_ns: int


@register
class RunHook(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Run an exec or httpGet hook. At most once: an open one after a crash counts as spent."""

    idempotent: ClassVar[bool] = False

    uid: str
    container: str
    timeout_ns: int


@register
class CancelOrder(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Cancel the effect of another order; that order then ends cancelled or timed out.

    ``waiting_only``: leave an effect alone that has begun; only what waits behind its barrier is cancelled.
    """

    target: str
    timed_out: bool = False
    waiting_only: bool = False


@register
class HookEnded(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``early``: a sleep that ended because its container had exited, or its grace was over."""

    uid: str
    container: str
    result: HookResult
    reason: str = ""
    early: bool = False
    elapsed_ns: int = 0


@register
class SendSignal(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The stop signal, to the container's first process."""

    uid: str
    container: str
    signal: str


@register
class TakeAutopsy(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Look at a straggler before SIGKILL; reported as `AutopsyTaken`."""

    uid: str
    container: str


@register
class KillContainer(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """SIGKILL to the container's whole process tree."""

    uid: str
    container: str


@register
class PodEnded(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod's fate and why, in words. ``elapsed_ns`` since its stop began."""

    uid: str
    wave: int
    outcome: PodOutcome
    reason: str
    elapsed_ns: int = 0
    #: Whether every container exited with code 0: its phase would be Succeeded.
    succeeded: bool = False


# --- NodeStatusActor: what others see of this node ---------------------------------------------


@register
class AnnounceNode(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Show the node as going down (``ready`` False), or as it was."""

    barrier: ClassVar[Barrier] = "synced"
    ready: bool
    reason: str = ""
    message: str = ""


@register
class StartPod(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Admit a pod."""

    idempotent: ClassVar[bool] = False
    uid: str


@register
class PodRejected(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that arrived while the node goes down."""

    uid: str
    label: str
    reason: str
    message: str


@register
class DeliverStatuses(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Final statuses, one ``(uid, phase, reason, message)`` a pod."""

    barrier: ClassVar[Barrier] = "synced"
    statuses: tuple[tuple[str, str, str, str], ...]


@register
class FlushTraces(Order, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Have the exporter send what has ended until now. Ends after ``timeout_ns`` at the latest, and at once
    where the back end is known not to answer: the rest is sent after the reboot.
    """

    barrier: ClassVar[Barrier] = "synced"
    timeout_ns: int


@register
class StatusesSettled(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Every status is delivered, or their time is over (``undelivered`` of them)."""

    undelivered: int = 0


# --- the system itself -------------------------------------------------------------------------


@register
class ActorFailed(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``handle`` raised. The actor takes no further part in this episode; its pods pass to the fallback."""

    actor: str
    subject: str
    error: str
    #: Its own pod, or, from an actor that many pods depend on, every pod that has not ended.
    handover: tuple[Handover, ...] = ()


@register
class FallbackEngaged(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The fallback took these pods over."""

    pods: tuple[str, ...] = ()
    reason: str = ""
