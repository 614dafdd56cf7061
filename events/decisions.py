"""Decisions and orders: the actors' conclusions, grouped by actor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from msgspec.structs import replace

from ebbtide.events import kinds, values
from ebbtide.events.base import NS_PER_SECOND, Barrier, BoundedDict, BoundedTuple, Decision, Order, Stamp
from ebbtide.events.facts import order_text
from ebbtide.events.messages import (
    ERROR,
    INFO,
    NOTICE,
    OF_POD,
    PLAIN,
    TIMED_OF_POD,
    UNLOGGED,
    WARNING,
    Message,
    Names,
    boot_end_text,
    mounts_text,
    plural,
)
from ebbtide.events.units import span, span_s

PodOutcome = Literal["graceful", "killed", "failed", "spared", "rejected", "unknown"]
EpisodeOutcome = Literal["running", "complete", "cancelled", "truncated", "never-begun"]
#: How the code makes spans of a shutdown's records. A change of any byte of a span needs a new number.
#: 1: names are constant; 2: they name the subject, and an error's text begins with the cause.
PROJECTION_VERSION = 2
#: Without a version in the configuration.
FIRST_PROJECTION_VERSION = 1

HookResult = Literal["done", "failed", "timed-out", "cancelled", "unknown", "not-run"]

#: Texts of the termination modes; empty: mode process.
TERMINATION_MODES = {
    "": "our own processes",
    "api": "api, the pods are deleted and the kubelet ends them",
    "cri": "cri, over the container runtime, without the kubelet",
    "observe": "observe, the kubelet ends the pods itself",
}

# --- ConfigReconciler


class ConfigAdopted(Decision):
    """Migrated, sorted by ascending priority. ``enabled`` False: no lock."""

    level = INFO

    enabled: bool
    periods: BoundedTuple[values.Period] = ()
    requested_ns: int = 0
    reserve_ns: int = 0
    budget: values.Budget = "strict"
    sleep_action: bool = True
    status_flush_ns: int = 0
    trace_flush_ns: int = 0
    means: BoundedDict[str, str] = {}
    unready: values.Unready = "poweroff"
    left_pods: values.LeftPods = "keep"
    projection_version: int = 1
    resource: BoundedDict[str, str] = {}

    def text(self, names: Names, at: Stamp) -> str:
        if not self.enabled:
            return "configuration adopted: graceful shutdown is off"
        periods = ", ".join(f"{span_s(each.seconds)} from priority {each.priority}" for each in self.periods)
        return f"configuration adopted: {periods}, {self.budget} budget"


class ConfigDeferred(Decision):
    template = "configuration read; it waits for the end of this shutdown"
    level = NOTICE
    log = PLAIN


class GrantAssessed(Decision):
    """Whether logind's limit covers request and reserve. Ebbtide also arms with a smaller limit."""

    level_by = ("sufficient", NOTICE, WARNING)
    log = PLAIN

    needed_ns: int
    grant_ns: int
    sufficient: bool
    overridden_by: kinds.Path = ""

    def text(self, names: Names, at: Stamp) -> str:
        grant, needed = span(self.grant_ns), span(self.needed_ns)
        if self.sufficient:
            return f"logind grants {grant}, {needed} needed"
        who = f"; {self.overridden_by} overrides ours" if self.overridden_by else ""
        return f"logind grants {grant} of the {needed} needed{who}; the highest priorities are served first"


class WriteDropIn(Order):
    """Write our drop-in, make logind read it, wait until the property shows it."""

    template = "drop-in: asking logind for InhibitDelayMaxSec={self.seconds}"
    level = NOTICE
    log = PLAIN

    barrier: ClassVar[Barrier] = "synced"
    seconds: int


class RemoveDropIn(Order):
    template = "drop-in: removing ours, it is no longer needed"
    level = NOTICE
    log = PLAIN

    barrier: ClassVar[Barrier] = "synced"


# --- LogindActor


class Arm(Order):
    """Subscribe, take the delay lock, report `LogindRead` before the outcome.

    ``lock`` False: only listen, because logind grants no lock in a shutdown.
    """

    lock: bool = True
    attempt: int = 1

    def text(self, names: Names, at: Stamp) -> str:
        return "taking the delay lock" if self.lock else "listening to logind without a lock"


class Disarm(Order):
    """Release the lock but keep listening: the configuration switched it off."""

    template = "giving the delay lock back"


class Armed(Decision):
    level = NOTICE
    log = PLAIN

    grant_ns: int
    attempt: int = 1

    def text(self, names: Names, at: Stamp) -> str:
        return f"armed: delay lock taken, logind grants {span(self.grant_ns)}"


class Disarmed(Decision):
    """``retry_at_ns``: the next try; 0: none."""

    level_by = ("retry_at_ns", WARNING, NOTICE)
    log = PLAIN

    reason: str
    retry_at_ns: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        again = f"; next try in {span(self.retry_at_ns - at.mono_ns)}" if self.retry_at_ns else ""
        return f"not armed: {self.reason}{again}"


class ShutdownDetected(Decision):
    """``again``: a second signal within one episode, with a new deadline.

    ``overtime``: the service manager is stopping us, because logind was bypassed or its timer fired.
    """

    kind: values.ShutdownKind
    grant_ns: int
    lock_held: bool
    again: bool = False
    overtime: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        how = ", once more" if self.again else ", in overtime" if self.overtime else ""
        return f"the machine is going down: {self.kind}{how}"


class ShutdownWithdrawn(Decision):
    last_resort = True

    reason: Literal["cancelled", "did-not-go-down"]

    def text(self, names: Names, at: Stamp) -> str:
        return f"the machine stays up: {self.reason.replace('-', ' ')}"


class ReleaseLock(Order):
    """An episode is complete if and only if this order is durable."""

    beside = "release"
    span_role = "release"
    level = NOTICE
    last_resort = True

    barrier: ClassVar[Barrier] = "synced"

    def text(self, names: Names, at: Stamp) -> str:
        return "lock released" if names.lock_held else "no lock was held"


class Leave(Decision):
    """The daemon may end now; the pods continue."""

    template = "exiting: {self.reason}"
    level = NOTICE
    log = PLAIN

    reason: str


# --- KubeletActor


class MeansChosen(Decision):
    """``taints`` False: the node cannot be tainted, so a DaemonSet would make its pod again here.

    ``kubelet``: it works, so it has begun to stop the pods that are being deleted already.
    """

    level = NOTICE

    means: values.TerminationMode
    reason: str
    taints: bool = True
    kubelet: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        return f"termination mode: {TERMINATION_MODES.get(self.means, self.means)} ({self.reason})"


class HandedOver(Decision):
    """From the API to the runtime; the kubelet is stopped. A hook runs only if the pod's delete was refused:
    else the kubelet has run it.

    ``wave``: the running one, -1 if none, and ``until_ns`` its deadline.
    """

    template = "handed over to the container runtime: {self.reason}"
    level = NOTICE

    reason: str
    wave: int = -1
    until_ns: int = 0


class StopKubelet(Order):
    """Stop the kubelet's unit, or it would start containers again; bounded, then SIGKILL."""

    beside = "kubelet"
    template = "stopping the kubelet"
    span_role = "stop kubelet"
    level = INFO


class KubeletStopped(Decision):
    """``result`` is the order's: no actor waits for a failed one."""

    result: Literal["done", "failed", "timed-out", "cancelled", "unknown"]

    def text(self, names: Names, at: Stamp) -> str:
        if self.result == "done":
            return "the kubelet is stopped"
        return f"the kubelet may still run (its stop: {self.result}); the shutdown does not wait for it"

    @property
    def level(self) -> int:
        return NOTICE if self.result == "done" else WARNING


class StartKubelet(Order):
    beside = "kubelet-start"
    template = "starting the kubelet again, which we have stopped"
    level = NOTICE


# --- EpisodeActor


class Resumed(Decision):
    """The action of the resume table. ``previous``: what the last boot left, for people; or empty."""

    action: str
    previous: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        previous = f"last shutdown: {self.previous}; " if self.previous else ""
        return f"{previous}start: {self.action.replace('-', ' ')}"

    @property
    def level(self) -> int:
        return NOTICE if not self.previous or "complete" in self.previous else WARNING

    def log_messages(self, names: Names, message: Message, since: str) -> Iterator[Message]:
        # One line for the last shutdown, one for the action. A plain start logs neither.
        left, _, start = message.text.rpartition("; ")
        if left:
            yield message._replace(text=left)
        if self.action not in ("fresh", "begin"):
            yield Message(NOTICE, start)


class LastBootEnded(Decision):
    """How the last boot ended for its pods.

    ``wave``: where it was cut short, else -1. ``recorded``: the last shutdown before this record is its own.
    ``alive_wall_ns``: as in `LastBootRead`.
    """

    log = PLAIN

    boot_id: str
    ending: values.BootEnding
    why: values.BootEndReason = ""
    wave: int = -1
    recorded: bool = False
    alive_wall_ns: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        return f"last boot: {boot_end_text(self.ending, self.why, self.wave)}"

    @property
    def level(self) -> int:
        return NOTICE if self.ending == "graceful" and not self.why else WARNING


class ShutdownBegan(Decision):
    """``deadline_ns`` ends the budget; at ``release_by_ns`` the lock is released in any case."""

    level = NOTICE
    log = PLAIN
    last_resort = True

    kind: values.ShutdownKind
    grant_ns: int
    requested_ns: int
    budget_ns: int
    deadline_ns: int
    release_by_ns: int
    lock_held: bool
    budget: values.Budget = "strict"
    projection_version: int = 1
    #: Resource attributes of its trace, beside the segment header's.
    resource: BoundedDict[str, str] = {}

    def text(self, names: Names, at: Stamp) -> str:
        lock = "" if self.lock_held else ", without a lock"
        return (
            f"shutdown began: {self.kind}, budget {span(self.budget_ns)} of"
            f" {span(self.requested_ns)} asked for,"
            f" logind grants {span(self.grant_ns)}{lock}"
        )

    def introduce(self, names: Names) -> None:
        # A wave of the shutdown before would put a pod into the wrong column.
        names.lock_held, names.grant_ns = self.lock_held, self.grant_ns
        names.waves.clear()


class DeadlineMoved(Decision):
    """After a second signal, or from the service manager's stop time."""

    level = WARNING
    log = PLAIN

    deadline_ns: int
    release_by_ns: int
    kill_by_ns: int
    overtime: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        why = "in overtime" if self.overtime else "logind starts its delay anew"
        return f"deadline moved: {span(self.deadline_ns - at.mono_ns)} left, {why}"


#: How long a listing at the signal waits for the pods' priorities: the API server's first list, which takes a
#: second, and the static pods' manifests. It leaves two thirds of logind's default 5 s.
FIRST_WORD_NS = NS_PER_SECOND * 3 // 2


class TakeInventory(Order):
    """``refresh`` False: list from the warm cache, without any call."""

    beside = "inventory"
    span_role = "inventory"
    #: The first stop waits for it, so a hung disk must not delay it.
    barrier: ClassVar[Barrier] = "none"

    refresh: bool = False
    #: Until then (monotonic) report later pods as `PodJoined`; 0: never.
    late_until_ns: int = 0
    #: The latest time (monotonic) to wait for the pods' priorities; 0: no limit.
    priorities_by_ns: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        return f"listing the pods {'anew' if self.refresh else 'from memory'}"


class PlanMade(Decision):
    level = INFO
    log_level_max = INFO

    waves: BoundedTuple[values.PlannedWave]
    pods: int
    #: False: the listing failed, so the pods are unknown.
    listed: bool = True

    def text(self, names: Names, at: Stamp) -> str:
        held = [len(wave.pods) for wave in self.waves if wave.pods]
        waves = f" ({' + '.join(map(str, held))})" if len(held) > 1 else ""
        return f"plan: {plural(self.pods, 'pod')} in {plural(len(held), 'wave')}{waves}"

    def introduce(self, names: Names) -> None:
        names.period_seconds = tuple(wave.period_seconds for wave in self.waves)


class PodPlanned(Decision):
    """``late``: the inventory at the signal did not have it. ``again``: it ended in this shutdown, and its
    kubelet started it again.

    ``first_ordinal``: of its order keys, which no earlier shutdown used. ``stopping``: it is being deleted,
    and the kubelet has begun its stop.
    """

    level = INFO
    log = "pod {pod}: {text}"
    log_level_max = INFO

    wave: int
    grace_seconds: int
    pod: values.Pod
    sleep_action: bool = True
    late: bool = False
    first_ordinal: int = 0
    means: values.TerminationMode = ""
    again: bool = False
    stopping: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        asked_seconds, why = self.pod.grace_seconds, ""
        short = asked_seconds is not None and asked_seconds > self.grace_seconds
        if self.pod.deletion is not None:
            why = ": it is being deleted already"
        elif self.wave < len(names.period_seconds):
            period = span_s(names.period_seconds[self.wave])
            why = f": its wave has a period of {period}, and logind grants {span(names.grant_ns)}"
        asked = f" of the {span_s(asked_seconds)} that it asks for{why}" if short else ""
        late = ", started again by its kubelet" if self.again else ", joined late" if self.late else ""
        return f"wave {self.wave}, {span_s(self.grace_seconds)}{asked}{late}"

    def introduce(self, names: Names) -> None:
        names.labels[self.pod.uid] = self.pod.label
        names.waves[self.pod.uid] = self.wave

    @property
    def repeats(self) -> bool:
        return not self.late

    def sentence(self, text: str, wave: int | None) -> str:
        return f"it was planned for wave {wave}, with {span_s(self.grace_seconds)}"


class WaveStarted(Decision):
    level = NOTICE
    last_resort = True
    wave: int
    priority: int
    period_ns: int
    deadline_ns: int
    kill_by_ns: int
    pods: BoundedTuple[values.PlannedPod] = ()
    handover: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        pods, period = plural(len(self.pods), "pod"), span(self.deadline_ns - at.mono_ns)
        how = ", over the container runtime" if self.handover else ""
        return f"wave {self.wave} (priority {self.priority}): {pods}, {period}{how}"


class ShutdownCancelled(Decision):
    """Spare pods whose stop has not begun; the others finish within their grace."""

    level = NOTICE
    last_resort = True

    reason: str

    def text(self, names: Names, at: Stamp) -> str:
        went_down = self.reason != "did-not-go-down"
        return f"shutdown {self.reason}" if went_down else "the machine did not go down"


class PodsEnded(Decision):
    """``unfinished``: UIDs of pods that outlived the budget."""

    level_by = ("unfinished", WARNING, NOTICE)
    last_resort = True

    unfinished: BoundedTuple[str] = ()

    def text(self, names: Names, at: Stamp) -> str:
        return f"not ended in time: {names.all_of(self.unfinished)}" if self.unfinished else "all pods ended"


class EpisodeClosed(Decision):
    """The end of a shutdown, after a cancel or on the next boot. ``last_wave``: -1 if none began.

    ``followed``: the next shutdown begins in the same step, so tasks for an episode's end wait for that end.
    """

    template = "shutdown closed: {self.outcome}"
    level = NOTICE
    log = PLAIN
    last_resort = True

    outcome: EpisodeOutcome
    last_wave: int = -1
    followed: bool = False


# --- WaveActor


class PodStopBegan(Decision):
    """``kill_by_ns``: the latest SIGKILL of this shutdown."""

    level = INFO

    uid: str
    wave: int
    grace_ns: int
    kill_by_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        return f"stop began: {span(self.grace_ns)} of grace"

    def sentence(self, text: str, wave: int | None) -> str:
        return f"its end began with wave {wave}; it had {span(self.grace_ns)} of grace"


class WaveEnded(Decision):
    """At the deadline ``stragglers`` (UIDs) still ran, and ``mounted`` (UIDs) had mounted volumes."""

    last_resort = True

    wave: int
    outcome: Literal["complete", "overran", "cancelled"]
    unused_ns: int = 0
    stragglers: BoundedTuple[str] = ()
    mounted: BoundedTuple[str] = ()

    def text(self, names: Names, at: Stamp) -> str:
        late = f"; still running: {names.all_of(self.stragglers)}" if self.stragglers else ""
        late += f"; still mounted: volumes of {names.all_of(self.mounted)}" if self.mounted else ""
        return f"wave {self.wave} {self.outcome}{late}"

    @property
    def level(self) -> int:
        return WARNING if self.stragglers or self.mounted else NOTICE


class StragglerEnded(Decision):
    level = INFO

    wave: int
    uid: str
    late_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        return f"ended {span(self.late_ns)} after the end of wave {self.wave}"

    def sentence(self, text: str, wave: int | None) -> str:
        return f"that was {span(self.late_ns)} after the end of wave {wave}"


class AwaitUnmounts(Order):
    """Report `VolumesUnmounted` for each of these pods (UIDs)."""

    span_role = "unmounts"
    barrier: ClassVar[Barrier] = "none"
    uids: BoundedTuple[str]
    timeout_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        pods = plural(len(self.uids), "pod")
        return f"waiting for the volumes of {pods}, for {span(self.timeout_ns)} at most"


# --- HookActor


class DeletePod(Order):
    """Mark the pod as disrupted and delete its object, if it still has this UID.

    A repeat only shortens the grace. ``after_taint``: first wait a bounded time for the node's taint, or a
    DaemonSet makes the pod again here.
    """

    span_role = "delete"
    level = INFO

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    uid: str
    namespace: str
    name: kinds.PodName
    grace_seconds: int
    after_taint: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        after = ", once the node is tainted" if self.after_taint else ""
        return f"delete: {span_s(self.grace_seconds)} of grace{after}"

    def sentence(self, text: str, wave: int | None) -> str:
        return f"its delete was ordered, with {span_s(self.grace_seconds)} of grace"


class DeleteRefused(Decision):
    template = "the API server did not accept its delete: {self.reason}"
    level = WARNING
    log = "{since} pod {pod}: {text}"

    uid: str
    reason: str
    #: It was to shorten an earlier deletion, which continues.
    earlier_until_ns: int = 0


class DeleteOverdue(Decision):
    template = "the kubelet did not end it in its grace"
    level = WARNING
    log = "{since} pod {pod}: {text}"

    uid: str


class HookStarted(Decision):
    """A ``sleep`` is only a deadline in the actor: ``until_ns``."""

    story = "the preStop hook of {self.container} ({self.kind}) began"
    template = "{self.container}: preStop {self.kind} began"
    level = INFO

    uid: str
    container: str
    kind: str
    until_ns: int


class RunHook(Order):
    """Run an exec or httpGet hook, at most once: after a crash no process repeats an open one."""

    span_role = "hook"

    uid: str
    container: str
    timeout_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        return f"{self.container}: running the preStop hook, for {span(self.timeout_ns)} at most"


class CancelOrder(Order):
    """Cancel the effect of another order, which then ends cancelled or timed out.

    ``waiting_only``: only if it still waits behind its barrier.
    """

    target: kinds.Key
    timed_out: bool = False
    waiting_only: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        return f"cancelling {order_text(names, self.target)}"


_HOOK_ENDS = {"timed-out": "ran out of time", "failed": "failed", "cancelled": "was broken off"}


class HookEnded(Decision):
    """``early``: a sleep ended because its container had exited, or its grace was over."""

    log = "{since} pod {pod}: {text}"
    log_level_max = WARNING

    uid: str
    container: str
    result: HookResult
    reason: str = ""
    early: bool = False
    elapsed_ns: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        if self.result != "done":
            return f"preStop of {self.container} {self.result}: {self.reason}"
        took = f"after {span(self.elapsed_ns)}"
        how = f"ended early {took}: {self.reason}" if self.early else f"done {took}"
        return f"preStop of {self.container} {how}"

    @property
    def level(self) -> int:
        return INFO if self.result == "done" else WARNING

    def sentence(self, text: str, wave: int | None) -> str:
        how = _HOOK_ENDS.get(self.result, self.result)
        if self.result == "done":
            how = f"{'ended early' if self.early else 'was done'} after {span(self.elapsed_ns)}"
        return f"the preStop hook of {self.container} {how}{f': {self.reason}' if self.reason else ''}"


class SendSignal(Order):
    """To the container's first process."""

    story = "container {self.container} was told to stop, with {self.signal}"
    template = "{self.container}: {self.signal}"
    span_role = "stop"
    level = INFO

    uid: str
    container: str
    signal: kinds.Signal


class TakeAutopsy(Order):
    """Before SIGKILL; reports `AutopsyTaken`."""

    template = "{self.container}: looking at what still runs"
    uid: str
    container: str


class KillContainer(Order):
    """To the container's whole process tree."""

    story = "container {self.container} was sent SIGKILL"
    template = "{self.container}: SIGKILL"
    span_role = "kill"
    level = WARNING
    log = UNLOGGED

    uid: str
    container: str


_ENDS: dict[PodOutcome, str] = {
    "graceful": "it ended by itself",
    "killed": "it was killed",
    "failed": "it could not be ended",
    "spared": "it was spared",
    "rejected": "it was rejected",
    "unknown": "how it ended is not known",
}


class PodEnded(Decision):
    """``elapsed_ns``: since its stop began."""

    log = TIMED_OF_POD
    log_level_max = INFO
    last_resort = True

    uid: str
    wave: int
    outcome: PodOutcome
    reason: str
    elapsed_ns: int = 0
    #: Every container but the sidecars exited with code 0: its phase would be Succeeded.
    succeeded: bool = False
    # The rest is for a Kubernetes pod's final status and Events.
    means: values.TerminationMode = ""
    namespace: str = ""
    name: str = ""
    owner: str = ""
    #: Its object is being deleted, and the kubelet that would remove it may be stopped.
    deleted: bool = False
    #: A DaemonSet makes it again here: ``always``, or only on an untainted node.
    returns: Literal["", "untainted", "always"] = ""
    #: Its outcome is unknown, but none of its containers runs any more.
    gone: bool = False
    #: It ended before in this shutdown and ran again: this end replaces the other.
    again: bool = False
    exit_codes: BoundedTuple[kinds.ExitCode] = ()

    @property
    def unseen(self) -> bool:
        """The pod may still run."""
        return self.outcome in ("failed", "unknown") and not self.gone

    def on_node(
        self,
        pod: values.Pod,
        means: values.TerminationMode,
        exit_codes: tuple[kinds.ExitCode, ...],
        *,
        deleted: bool,
    ) -> PodEnded:
        return replace(
            self,
            means=means,
            namespace=pod.namespace,
            name=pod.name,
            owner=pod.owner,
            deleted=deleted,
            exit_codes=exit_codes,
            returns=("always" if pod.tolerates_all else "untainted") if pod.daemon else "",
        )

    def text(self, names: Names, at: Stamp) -> str:
        return f"{self.outcome} after {span(self.elapsed_ns)}: {self.reason}"

    @property
    def level(self) -> int:
        return INFO if self.outcome in ("graceful", "spared") else WARNING

    def sentence(self, text: str, wave: int | None) -> str:
        comma = "," if self.outcome == "graceful" else ""
        after = f"{comma} after {span(self.elapsed_ns)}" if self.elapsed_ns else ""
        return f"{_ENDS[self.outcome]}{after}{f': {self.reason}' if self.reason else ''}"


# --- NodeStatusActor


class AnnounceNode(Order):
    """``ready`` False: show the node as going down; True: as before."""

    beside = "announce"
    span_role = "announce"
    level = INFO

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    ready: bool
    reason: kinds.Word = ""
    message: str = ""
    #: Set the condition Ready to False, with reason and message. A running kubelet would reset it.
    unready: bool = True
    cordon: bool = False
    #: These conditions become True (KEP-5683, KEP-6249), our others False.
    conditions: BoundedTuple[kinds.Word] = ()

    def text(self, names: Names, at: Stamp) -> str:
        what = "the node is shown as before" if self.ready else "the node is shown as going down"
        return f"{what}: {self.message}" if self.message else what


class PostEvent(Order):
    """The Event is named after ``key``, so a repeat is a conflict. ``namespace`` empty: on the Node.

    ``uid``: of its pod; `kubectl describe` looks for it.
    """

    barrier: ClassVar[Barrier] = "synced"
    kind: kinds.WorkloadKind
    name: kinds.EventSubject
    reason: kinds.Word
    message: str
    namespace: str = ""
    uid: str = ""
    warning: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"Event {self.reason} on {self.kind} {where}: {self.message}"


class WithdrawPods(Order):
    """Set Ready=False on these pods, so that no Service sends them new requests."""

    beside = "withdraw"
    span_role = "withdraw"
    level = INFO

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    uids: BoundedTuple[str]

    def text(self, names: Names, at: Stamp) -> str:
        return f"taking {plural(len(self.uids), 'pod')} out of the Services: {names.some_of(self.uids)}"


class AwaitStatuses(Order):
    """Wait until the API server has a final status or no object for each of these pods; `StatusesSeen`."""

    beside = "await"
    span_role = "await statuses"
    level = INFO

    barrier: ClassVar[Barrier] = "none"
    uids: BoundedTuple[str]
    timeout_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        return (
            f"waiting for the final status of {plural(len(self.uids), 'pod')},"
            f" for {span(self.timeout_ns)} at most"
        )


class CheckMounts(Order):
    """Reports `MountsRead`."""

    beside = "mounts"
    template = "looking at what is still mounted"
    span_role = "check mounts"
    barrier: ClassVar[Barrier] = "none"


class DetachCertified(Decision):
    """``safe``: this node's volumes may be attached elsewhere, because every pod ended and no volume is
    mounted. ``restarts``: the kubelet may have started ended pods again.
    """

    level_by = ("safe", NOTICE, WARNING)

    safe: bool
    ended: int = 0
    #: Pods not seen to end, by UID, and the mounts.
    running: BoundedTuple[str] = ()
    mounted: BoundedTuple[tuple[str, str]] = ()
    restarts: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        if self.safe:
            return f"safe to detach: {plural(self.ended, 'pod')} ended, no volume is mounted"
        return f"not safe to detach: {self.why_unsafe(names)}"

    def why_unsafe(self, names: Names) -> str:
        running = f"not seen to end: {names.some_of(self.running)}" if self.running else ""
        mounted = f"mounted: {mounts_text(names, self.mounted)}" if self.mounted else ""
        again = "the kubelet may have started pods again" if self.restarts else ""
        return "; ".join(each for each in (running, again, mounted) if each) or "the mounts are unknown"


class PublishCertificate(Order):
    """Annotate the Node with `DetachCertified`, for other programs."""

    beside = "certificate"
    span_role = "certify"

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    safe: bool
    ended: int = 0
    running: BoundedTuple[kinds.Uid] = ()
    mounted: BoundedTuple[kinds.Mount] = ()
    restarts: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        return f"publishing that it is {'' if self.safe else 'not '}safe to detach"


class PublishLastBoot(Order):
    """Annotate the Node with `LastBootEnded`."""

    template = "showing on the Node how its last boot ended"

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    boot_id: str
    ending: values.BootEnding
    why: values.BootEndReason = ""
    wave: int = -1
    recorded: bool = False
    alive_wall_ns: int = 0


class LeftUndone(Decision):
    """Mode observe: the kubelet's unfinished pods (UIDs) at the release."""

    log_level_max = INFO

    running: BoundedTuple[str] = ()
    without_status: BoundedTuple[str] = ()

    def text(self, names: Names, at: Stamp) -> str:
        running = f"still running: {names.some_of(self.running)}" if self.running else ""
        without = (
            f"without a final status: {names.some_of(self.without_status)}" if self.without_status else ""
        )
        left = "; ".join(each for each in (running, without) if each)
        return f"the kubelet did not finish: {left}" if left else "the kubelet finished everything"

    @property
    def level(self) -> int:
        return WARNING if self.running or self.without_status else INFO


class StartPod(Order):
    template = "being started"
    uid: str


class PodRejected(Decision):
    story = "it came while the node was going down, and was rejected: {self.message}"
    template = "rejected: {self.message}"
    level = NOTICE
    log = OF_POD

    uid: str
    label: str
    reason: str
    message: str

    def introduce(self, names: Names) -> None:
        names.labels[self.uid] = self.label


class DeliverStatuses(Order):
    beside = "statuses"
    span_role = "deliver"

    barrier: ClassVar[Barrier] = "synced"
    this_boot: ClassVar[bool] = True
    statuses: BoundedTuple[kinds.PodStatus]
    #: Remove the objects afterwards, because their containers have ended.
    remove: bool = False
    #: Statuses from an earlier boot: skip pods that have changed since, or started a container.
    unchanged_only: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        return f"delivering the status of {plural(len(self.statuses), 'pod')}"


class FlushTraces(Order):
    """Have the exporter send all ended spans. Ends at once if the back end does not answer: the next boot
    sends the rest.
    """

    beside = "traces"
    span_role = "export"
    barrier: ClassVar[Barrier] = "synced"
    timeout_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        return f"sending the traces, for {span(self.timeout_ns)} at most"


class StatusesSettled(Decision):
    """``missing``: pods whose due status no component confirmed. A pod that was not seen to end has none."""

    level_by = ("missing", WARNING, INFO)
    log = UNLOGGED

    missing: BoundedTuple[kinds.Uid] = ()

    def text(self, names: Names, at: Stamp) -> str:
        if not self.missing:
            return "all due pod statuses delivered"
        return f"not delivered in time: the status of {names.some_of(self.missing)}"


# --- the system itself


class ActorFailed(Decision):
    """``handle`` raised. It takes no further part in this shutdown, nor does any actor that ends pods."""

    level = ERROR
    log = PLAIN
    last_resort = True

    actor: str
    subject: str
    error: str

    def text(self, names: Names, at: Stamp) -> str:
        who = f"{self.actor} {names.of(self.subject)}".rstrip()
        return f"{who} failed ({self.error}); the fallback takes over"


class FallbackEngaged(Decision):
    """The fallback now leads this shutdown. ``pods`` have not ended."""

    level = WARNING
    log = UNLOGGED
    last_resort = True

    pods: BoundedTuple[str] = ()
    reason: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        pods = f" {names.all_of(self.pods)}" if self.pods else ""
        return f"the fallback took over{pods}{f': {self.reason}' if self.reason else ''}"
