"""Decisions and orders: what the actors conclude. Grouped by the actor that owns the question."""

from __future__ import annotations

from typing import ClassVar, Literal

from ebbtide.events.base import NS_PER_SECOND, Barrier, Decision, Order
from ebbtide.events.model import (
    BootEnding,
    BootEndReason,
    Budget,
    Handover,
    LeftPods,
    Period,
    PlannedPod,
    PlannedWave,
    Pod,
    ShutdownKind,
    TerminationMode,
    Unready,
)

PodOutcome = Literal["graceful", "killed", "failed", "spared", "rejected", "unknown"]
EpisodeOutcome = Literal["running", "complete", "cancelled", "truncated", "never-begun"]
#: How spans are made of a shutdown's records; each shutdown records the one in force when it began. A change
#: of any byte of a span is a new number. It comes with the configuration, as a fact of the program that read
#: it: so an old journal's shutdowns begin with the version that they began with. 1: names are constant; 2:
#: they say whom a span is about, and an error's text begins with the cause.
PROJECTION_VERSION = 2
#: Where no configuration says another one.
FIRST_PROJECTION_VERSION = 1

HookResult = Literal["done", "failed", "timed-out", "cancelled", "unknown", "not-run"]

# --- ConfigReconciler: what is asked, and what is granted --------------------------------------


class ConfigAdopted(Decision):
    """The effective configuration: migrated, sorted by ascending priority. ``enabled`` False: no lock."""

    enabled: bool
    periods: tuple[Period, ...] = ()
    requested_ns: int = 0
    reserve_ns: int = 0
    budget: Budget = "strict"
    sleep_action: bool = True
    status_flush_ns: int = 0
    trace_flush_ns: int = 0
    means: dict[str, str] = {}
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    projection_version: int = 1
    resource: dict[str, str] = {}


class ConfigDeferred(Decision):
    """A configuration that arrived in a shutdown waits for its end."""


class GrantAssessed(Decision):
    """Whether logind's limit covers what is requested and reserved. Too little degrades, never refuses."""

    needed_ns: int
    grant_ns: int
    sufficient: bool
    overridden_by: str = ""


class WriteDropIn(Order):
    """Raise logind's limit: write our drop-in, make logind read it, wait until the property shows it."""

    barrier: ClassVar[Barrier] = "synced"
    seconds: int


class RemoveDropIn(Order):
    """Take our drop-in away again: it is no longer needed."""

    barrier: ClassVar[Barrier] = "synced"


# --- LogindActor: are we armed, is the machine going down --------------------------------------


class Arm(Order):
    """Subscribe, take the delay lock, read the state; report `LogindRead` before the outcome.

    ``lock`` False: only listen (a shutdown runs already, no lock can be had).
    """

    lock: bool = True
    attempt: int = 1


class Disarm(Order):
    """Give the lock back and go on listening: switched off by configuration."""


class Armed(Decision):
    """The lock is held and the signal is trusted."""

    grant_ns: int
    attempt: int = 1


class Disarmed(Decision):
    """Not protected. ``retry_at_ns`` (monotonic) says when arming is tried again; 0: not."""

    reason: str
    retry_at_ns: int = 0


class ShutdownDetected(Decision):
    """The machine is going down. ``again``: a second signal within one episode, with a new deadline.

    ``overtime``: logind was bypassed or its timer fired, and the service manager is stopping us.
    """

    kind: ShutdownKind
    grant_ns: int
    lock_held: bool
    again: bool = False
    overtime: bool = False


class ShutdownWithdrawn(Decision):
    """The machine is not going down after all."""

    reason: Literal["cancelled", "did-not-go-down"]


class ReleaseLock(Order):
    """Let the machine go. An episode is complete if and only if this order is durable."""

    barrier: ClassVar[Barrier] = "synced"


class Leave(Decision):
    """The daemon may end now; pods' processes are left alone."""

    reason: str


# --- KubeletActor: who ends the pods -----------------------------------------------------------


class MeansChosen(Decision):
    """How this shutdown ends its pods, and why so.

    ``taints`` False: the node cannot be tainted, so a DaemonSet's pod would be made again here.
    """

    means: TerminationMode
    reason: str
    taints: bool = True


class HandedOver(Decision):
    """From the API to the runtime, once and for all: the kubelet is stopped, no hook is repeated.

    ``wave``: the one that runs, -1 if none does, and ``until_ns`` its deadline.
    """

    reason: str
    wave: int = -1
    until_ns: int = 0


class StopKubelet(Order):
    """Stop the kubelet's unit, so that nobody starts again what is stopped; bounded, then SIGKILL."""


class KubeletStopped(Decision):
    """It writes no status any more. ``result`` of the order: one that failed keeps nothing waiting."""

    result: Literal["done", "failed", "timed-out", "cancelled", "unknown"]


class StartKubelet(Order):
    """Start the unit again that we have stopped: the machine stays up."""


# --- EpisodeActor: where is this shutdown ------------------------------------------------------


class Resumed(Decision):
    """What a start does about the episode that it found: the action of the resume table's one row.

    ``previous`` says for people what the last boot left; empty when there is nothing to say.
    """

    action: str
    previous: str = ""


class LastBootEnded(Decision):
    """How the last boot ended for its pods, and why so.

    ``wave``: the one in which it was cut short, else -1. ``recorded``: the journal has its shutdown, the last
    one before this record. ``alive_wall_ns`` as in `LastBootRead`.
    """

    boot_id: str
    ending: BootEnding
    why: BootEndReason = ""
    wave: int = -1
    recorded: bool = False
    alive_wall_ns: int = 0


class ShutdownBegan(Decision):
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
    #: Of its trace, beside what the segment's header says.
    resource: dict[str, str] = {}


class DeadlineMoved(Decision):
    """A second signal, or the service manager's stop time: the same episode, another end."""

    deadline_ns: int
    release_by_ns: int
    kill_by_ns: int
    overtime: bool = False


#: What a listing at the signal waits for the first word on its pods' priorities: the API server's first list,
#: and the manifests of static pods. A server that is there answers the first list a second after the start;
#: of logind's own 5 s more than two thirds are left. With less than that no pod waits until only its floor
#: is left.
FIRST_WORD_NS = NS_PER_SECOND * 3 // 2


class TakeInventory(Order):
    """List the pods of this node. ``refresh`` False: from the warm cache, without any call."""

    #: Stands between the signal and the first stop: a disk that hangs must not hold it.
    barrier: ClassVar[Barrier] = "none"

    refresh: bool = False
    #: Until then (monotonic) pods that come later are reported as `PodJoined`; 0: not at all.
    late_until_ns: int = 0
    #: No later than this (monotonic) the first word on the pods' priorities is waited for; 0: no such limit.
    priorities_by_ns: int = 0


class PlanMade(Decision):
    """The waves in their order, each with its share of the grant, and how many pods they hold."""

    waves: tuple[PlannedWave, ...]
    pods: int
    #: False: no listing could be had, so nobody knows which pods there are.
    listed: bool = True


class PodPlanned(Decision):
    """A pod's place in the plan. ``late``: it was not in the inventory at the signal. ``again``: its end was
    said in this shutdown, and its kubelet has started it again; its next end is said as well.

    ``first_ordinal`` is where the ordinals of its order keys begin: never those of an earlier shutdown.
    """

    wave: int
    grace_seconds: int
    pod: Pod
    sleep_action: bool = True
    late: bool = False
    first_ordinal: int = 0
    means: TerminationMode = ""
    again: bool = False


class WaveStarted(Decision):
    wave: int
    priority: int
    period_ns: int
    deadline_ns: int
    kill_by_ns: int
    pods: tuple[PlannedPod, ...] = ()
    handover: bool = False


class ShutdownCancelled(Decision):
    """Honoured at once: what has not begun is spared, what has begun is finished within its grace."""

    reason: str


class PodsEnded(Decision):
    """Nothing is left to wait for. ``unfinished`` are the UIDs that outlived the budget."""

    unfinished: tuple[str, ...] = ()


class EpisodeClosed(Decision):
    """The last word on a shutdown, after a cancel or on the next boot. ``last_wave``: -1 if none began.

    ``followed``: the next shutdown begins in the same step, so what waits for an episode's end waits on.
    """

    outcome: EpisodeOutcome
    last_wave: int = -1
    followed: bool = False


# --- WaveActor: one priority range -------------------------------------------------------------


class PodStopBegan(Decision):
    """From now on the pod's grace runs. ``kill_by_ns``: no SIGKILL of this shutdown comes later."""

    uid: str
    wave: int
    grace_ns: int
    kill_by_ns: int


class WaveEnded(Decision):
    """Complete (all pods ended), overran (deadline; stragglers by UID), or cancelled.

    ``mounted``: pods, by UID, whose volumes were still mounted at the deadline.
    """

    wave: int
    outcome: Literal["complete", "overran", "cancelled"]
    unused_ns: int = 0
    stragglers: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()


class StragglerEnded(Decision):
    """A pod ended after its wave's deadline."""

    wave: int
    uid: str
    late_ns: int


class AwaitUnmounts(Order):
    """Report `VolumesUnmounted` for each of these pods (UIDs); ends with the last, or its time."""

    barrier: ClassVar[Barrier] = "none"
    uids: tuple[str, ...]
    timeout_ns: int


# --- HookActor: one pod ------------------------------------------------------------------------


class DeletePod(Order):
    """Mark the pod as disrupted and delete its object, if it still has this UID; the kubelet ends it.

    Given again it only ever shortens the grace. ``after_taint``: not before the node is tainted, for a
    bounded time, else a DaemonSet makes it again here.
    """

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    uid: str
    namespace: str
    name: str
    grace_seconds: int
    after_taint: bool = False


class DeleteRefused(Decision):
    """The API server did not take a pod's delete in time."""

    uid: str
    reason: str


class HookStarted(Decision):
    """A preStop hook begins. For ``sleep`` nothing else happens: ``until_ns`` is a deadline in the actor."""

    uid: str
    container: str
    kind: str
    until_ns: int


class RunHook(Order):
    """Run an exec or httpGet hook. At most once: an open one after a crash counts as spent."""

    idempotent: ClassVar[bool] = False

    uid: str
    container: str
    timeout_ns: int


class CancelOrder(Order):
    """Cancel the effect of another order; that order then ends cancelled or timed out.

    ``waiting_only``: leave an effect alone that has begun; only what waits behind its barrier is cancelled.
    """

    target: str
    timed_out: bool = False
    waiting_only: bool = False


class HookEnded(Decision):
    """``early``: a sleep that ended because its container had exited, or its grace was over."""

    uid: str
    container: str
    result: HookResult
    reason: str = ""
    early: bool = False
    elapsed_ns: int = 0


class SendSignal(Order):
    """The stop signal, to the container's first process. ``by_runtime``: the kubelet may ask the runtime for
    it as well, which tells a container once, however many ask.
    """

    uid: str
    container: str
    signal: str
    by_runtime: bool = False


class TakeAutopsy(Order):
    """Look at a straggler before SIGKILL; reported as `AutopsyTaken`."""

    uid: str
    container: str


class KillContainer(Order):
    """SIGKILL to the container's whole process tree."""

    uid: str
    container: str


class PodEnded(Decision):
    """A pod's fate and why, in words. ``elapsed_ns`` since its stop began."""

    uid: str
    wave: int
    outcome: PodOutcome
    reason: str
    elapsed_ns: int = 0
    #: Whether every container exited with code 0: its phase would be Succeeded.
    succeeded: bool = False
    # Of a node's pod, for those who have to be told of it.
    means: TerminationMode = ""
    namespace: str = ""
    name: str = ""
    owner: str = ""
    #: Its object is being deleted, and the kubelet, which would take it away, may be stopped.
    deleted: bool = False
    #: A DaemonSet makes it again here: ``always``, whatever the node shows, or unless it is tainted.
    returns: Literal["", "untainted", "always"] = ""
    #: Of an outcome that is unknown: none of its containers runs any more, however they ended.
    gone: bool = False
    #: Its end was said in this shutdown, and it runs again: this one takes its place.
    again: bool = False


# --- NodeStatusActor: what others see of this node ---------------------------------------------


class AnnounceNode(Order):
    """Show the node as going down (``ready`` False), or as it was."""

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    ready: bool
    reason: str = ""
    message: str = ""
    #: Set Ready to False, with reason and message; where a kubelet lives it would only set it back.
    unready: bool = True
    #: Taint the node and make it unschedulable.
    cordon: bool = False
    #: The conditions that are True from now on (KEP-5683, KEP-6249); ours that are not here become False.
    conditions: tuple[str, ...] = ()


class PostEvent(Order):
    """A Kubernetes Event, named after ``key``: a repeat is a conflict. ``namespace`` empty: on the Node."""

    barrier: ClassVar[Barrier] = "synced"
    kind: str
    name: str
    reason: str
    message: str
    namespace: str = ""
    warning: bool = False


class WithdrawPods(Order):
    """Ready=False on each of these pods, so that no Service sends them anything new."""

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    uids: tuple[str, ...]


class AwaitStatuses(Order):
    """Wait until the API server has a final status of each of these pods, or no object; `StatusesSeen`."""

    barrier: ClassVar[Barrier] = "none"
    uids: tuple[str, ...]
    timeout_ns: int


class CheckMounts(Order):
    """See what is still mounted for pods and their volumes; `MountsRead`."""

    barrier: ClassVar[Barrier] = "none"


class DetachCertified(Decision):
    """Whether this node's volumes may be attached elsewhere: every pod ended and nothing mounted.
    ``restarts``: the kubelet may have started again what has ended.
    """

    safe: bool
    ended: int = 0
    #: Pods not seen to end, by UID, and what is mounted.
    running: tuple[str, ...] = ()
    mounted: tuple[tuple[str, str], ...] = ()
    restarts: bool = False


class PublishCertificate(Order):
    """Put the certificate on the Node as an annotation, so that others can act on it."""

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    safe: bool
    ended: int = 0
    running: tuple[str, ...] = ()
    mounted: tuple[tuple[str, str], ...] = ()
    restarts: bool = False


class PublishLastBoot(Order):
    """Put on the Node, as an annotation, how its last boot ended (`LastBootEnded`)."""

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    boot_id: str
    ending: BootEnding
    why: BootEndReason = ""
    wave: int = -1
    recorded: bool = False
    alive_wall_ns: int = 0


class LeftUndone(Decision):
    """Mode observe: what the kubelet had not done when the lock was released, by UID."""

    running: tuple[str, ...] = ()
    without_status: tuple[str, ...] = ()


class StartPod(Order):
    """Admit a pod."""

    idempotent: ClassVar[bool] = False
    uid: str


class PodRejected(Decision):
    """A pod that arrived while the node goes down."""

    uid: str
    label: str
    reason: str
    message: str


class DeliverStatuses(Order):
    """Final statuses, one ``(uid, phase, reason, message)`` a pod."""

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    statuses: tuple[tuple[str, str, str, str], ...]
    #: Remove the objects afterwards: their containers have ended.
    remove: bool = False
    #: From an earlier boot: only where nothing has changed since (resourceVersion, no container started).
    unchanged_only: bool = False


class FlushTraces(Order):
    """Have the exporter send what has ended until now. Ends after ``timeout_ns`` at the latest, and at once
    where the back end is known not to answer: the rest is sent after the reboot.
    """

    barrier: ClassVar[Barrier] = "synced"
    timeout_ns: int


class StatusesSettled(Decision):
    """Every status is delivered, or their time is over (``undelivered`` of them)."""

    undelivered: int = 0


# --- the system itself -------------------------------------------------------------------------


class ActorFailed(Decision):
    """``handle`` raised. The actor takes no further part in this episode; its pods pass to the fallback."""

    actor: str
    subject: str
    error: str
    #: Its own pod, or, from an actor that many pods depend on, every pod that has not ended.
    handover: tuple[Handover, ...] = ()


class FallbackEngaged(Decision):
    """The fallback took these pods over."""

    pods: tuple[str, ...] = ()
    reason: str = ""
