"""A shutdown as one value, without guesses.

Times are nanoseconds since the signal unless their name says otherwise: monotonic within a boot, by the wall
clock across boots. None: it did not happen, or is not on record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, dataclass_transform

import msgspec
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND, FrozenMeta, FrozenStruct, SideOrder
from ebbtide.events.decisions import DetachCertified, EpisodeOutcome, HookResult, PodOutcome
from ebbtide.events.recovery import State, Verdict
from ebbtide.events.units import span
from ebbtide.events.values import (
    BootEndReason,
    Budget,
    LockHolder,
    Period,
    ProcessReport,
    ShutdownKind,
    TerminationMode,
)

# The outcome is about the machine, which may go down in order and kill every pod. So there is a severity. It
# follows from the summary alone: list, report and status cannot disagree.

#: good: every pod ended by itself; mixed: some did not; bad: look at it first.
Severity = Literal["good", "mixed", "bad"]

#: For severities, pods' fates, and outages that have neither.
_NAMES_BY_SIGN = {
    "✓": "good graceful",
    "!": "mixed",
    "✕": "bad killed failed",
    "?": "unknown",
    "○": "spared rejected cancelled",
    "…": "running goes-on",
}
SIGNS = {name: sign for sign, names in _NAMES_BY_SIGN.items() for name in names.split()}

#: The worst first.
SEVERITY_ORDER: tuple[Severity, ...] = ("bad", "mixed", "good")

#: A larger share of killed pods is bad. A slow pod or two are usual; if a quarter is late, the fault is not
#: theirs.
KILLED_SHARE_BAD = Fraction(1, 4)


class Summary(NamedTuple):
    """``pods``: a count by fate; ``gone``: how many of the unknown ones have ended.

    ``lock_lost``: not held at the signal, or lost later. ``hook_cut``: a preStop hook ran out of time.
    """

    outcome: EpisodeOutcome
    pods: Mapping[str, int]
    gone: int = 0
    lock_lost: bool = False
    headless: bool = False
    hook_cut: bool = False

    def count(self, fate: str) -> int:
        return self.pods.get(fate, 0)

    @property
    def is_killing(self) -> bool:
        stopped = sum(self.count(fate) for fate in ("graceful", "killed", "failed", "unknown"))
        return self.count("killed") > KILLED_SHARE_BAD * stopped


def severity_of(it: Summary) -> Severity:
    # In a running shutdown every open pod is unknown.
    lost = it.outcome != "running" and it.count("unknown") > it.gone
    cut_short = it.outcome in ("truncated", "never-begun")
    if cut_short or it.lock_lost or it.count("failed") or lost or it.is_killing:
        return "bad"
    return "mixed" if it.count("killed") or it.gone or it.headless or it.hook_cut else "good"


class RecordMeta(FrozenMeta):
    """Not frozen: a fold fills a record event by event."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        return super().__new__(mcls, name, bases, namespace, **{"frozen": False} | config)


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class RecordPart(msgspec.Struct, metaclass=RecordMeta):
    """Readers do not change records."""


class NodeRecord(RecordPart):
    """Who ended the node's pods, and what remained. Empty in mode process."""

    means: TerminationMode = ""
    reason: str = ""
    handed_over_ns: int | None = None
    handed_over_reason: str = ""
    certificate: DetachCertified | None = None
    #: At the signal the kubelet held a delay lock for its own graceful shutdown.
    kubelet_lock: bool = False
    #: The kubelet's unfinished pods at the release, by UID.
    left_running: tuple[str, ...] = ()
    left_without_status: tuple[str, ...] = ()


#: ``open``: without an end on record; ``waiting``: never begun.
WaveOutcome = Literal["complete", "overran", "cancelled", "open", "waiting"]


class HookRecord(RecordPart):
    """``early``: a sleep that ended before its time."""

    container: str
    kind: str
    detail: str = ""
    began_ns: int
    #: Its latest end: the pod's grace, or the end of its sleep.
    until_ns: int
    ended_ns: int | None = None
    result: HookResult | None = None
    reason: str = ""
    early: bool = False


class ContainerRecord(RecordPart):
    """``exited_ns`` None beside its pod's outcome: no observed exit."""

    name: str
    sidecar: bool = False
    stop_signal: str = "SIGTERM"
    running: bool = True
    #: When the kubelet began to end it, by request or by itself.
    asked_ns: int | None = None
    #: When Ebbtide ordered its stop signal.
    signalled_ns: int | None = None
    #: When the runtime had taken this order.
    taken_ns: int | None = None
    #: How long the last such order took, whatever its outcome.
    answered_ns: int | None = None
    #: The runtime refused the signal.
    stop_refused: bool = False
    stop_refusal: str = ""
    killed_ns: int | None = None
    #: Why the runtime refused SIGKILL; empty: no known refusal.
    kill_refusal: str = ""
    exited_ns: int | None = None
    exit_code: int | None = None
    exit_signal: str = ""


class AutopsyRecord(RecordPart):
    container: str
    at_ns: int
    processes: tuple[ProcessReport, ...] = ()
    last_lines: tuple[str, ...] = ()


Fate: TypeAlias = PodOutcome | Literal["goes-on"]


class PodRecord(RecordPart):
    """``grace_seconds`` is the plan's, ``wanted_grace_seconds`` its spec's.

    ``outcome`` None: the record ends before its fate. ``wave`` -1: it is not in the plan, because it was
    rejected or listed too late, or because an earlier shutdown was already ending it.
    """

    uid: str
    namespace: str
    name: str
    priority: int | None = None
    wave: int = -1
    grace_seconds: int = 0
    wanted_grace_seconds: int | None = None
    #: It was not in the inventory at the signal.
    late: bool = False
    #: Not its first stop: an earlier shutdown or deletion began it, or the kubelet started the pod again.
    again: bool = False
    began_ns: int | None = None
    #: At the begin of its stop: an elastic budget gives more than the plan, a late start less.
    grace_ns: int | None = None
    kill_by_ns: int | None = None
    ended_ns: int | None = None
    outcome: PodOutcome | None = None
    #: The next shutdown began before its end, and counts it.
    goes_on: bool = False
    #: The cause comes first (`events.record.causes`).
    reason: str = ""
    succeeded: bool = False
    rejected_ns: int | None = None
    #: Its outcome is unknown, but it has ended.
    gone: bool = False
    hurried_ns: int | None = None
    #: Only on a Kubernetes node; ``refused``: why the API server did not take its delete.
    means: TerminationMode = ""
    owner: str = ""
    volumes: bool = False
    unmounted_ns: int | None = None
    refused: str = ""
    fallback: bool = False
    hooks: list[HookRecord] = []
    containers: list[ContainerRecord] = []
    autopsies: list[AutopsyRecord] = []

    @property
    def fate(self) -> Fate:
        return self.outcome or ("goes-on" if self.goes_on else "unknown")

    @property
    def label(self) -> str:
        """Its UID, if its name is not on record."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class WaveRecord(RecordPart):
    """``pods`` are UIDs in inventory order, late ones last."""

    index: int
    priority: int
    #: The plan's share of the grant, and the real period: an elastic budget passes time on.
    planned_ns: int
    period_ns: int | None = None
    began_ns: int | None = None
    deadline_ns: int | None = None
    ended_ns: int | None = None
    outcome: WaveOutcome = "waiting"
    unused_ns: int = 0
    stragglers: tuple[str, ...] = ()
    pods: list[str] = []
    #: As in `PlannedWave`, and in `WaveEnded`.
    handover: bool = False
    mounted: tuple[str, ...] = ()


class FailedPart(RecordPart):
    """A part of the node that failed in the shutdown, or before (``at_ns`` 0).

    ``until_ns`` None: it did not answer again.
    """

    part: Literal["runtime", "kubelet", "api-server"]
    at_ns: int
    text: str
    until_ns: int | None = None


class ConfigurationRecord(FrozenStruct):
    """At the signal; ``sources`` if the journal still has them."""

    periods: tuple[Period, ...] = ()
    requested_ns: int = 0
    reserve_ns: int = 0
    budget: Budget = "strict"
    sleep_action: bool = True
    status_flush_ns: int = 0
    trace_flush_ns: int = 0
    sources: dict[str, str] = {}


class HolderRecord(RecordPart):
    """Another program's delay lock. ``until_ns``: a reading without it, or the begin of the machine's stop;
    None: held at ``seen_ns``, the last reading, or longer.
    """

    who: str
    why: str
    pid: int
    uid: int
    began_ns: int
    seen_ns: int
    until_ns: int | None = None

    def of(self, holder: LockHolder) -> bool:
        return (self.who, self.why, self.pid, self.uid) == (holder.who, holder.why, holder.pid, holder.uid)

    @property
    def held_until_ns(self) -> int:
        """At least."""
        return self.seen_ns if self.until_ns is None else self.until_ns


class ProcessRecord(RecordPart):
    """A daemon that wrote in this shutdown. ``at_ns`` None: it began before the signal."""

    seq: int
    at_ns: int | None
    version: str
    pid: int
    mode: str
    boot_id: str
    #: The last record of the process before it; None: in another boot.
    quiet_since_ns: int | None = None
    #: Of the resume table.
    action: str = ""
    previous: str = ""

    @property
    def came_after(self) -> bool:
        """It only closed the shutdown, after its boot: this was no restart."""
        return self.action.startswith("close-")


class OrderRecord(RecordPart):
    """An order beside the waves."""

    what: SideOrder | Literal[""]
    text: str = ""
    seq: int = 0
    began_ns: int
    ended_ns: int | None = None
    result: str = ""
    reason: str = ""


class Notice(RecordPart):
    """``code`` is stable, ``text`` is for people, ``pod`` is a UID."""

    seq: int
    at_ns: int
    code: str
    text: str
    pod: str = ""


class DamageRecord(FrozenStruct):
    """``here``: the damage ends the record of this shutdown."""

    state: Literal["torn", "corrupt", "incompatible"]
    banner: str
    here: bool = False


class EpisodePart(RecordPart):
    """Base of the records of shutdowns and outages."""

    id: str
    trace_id: str
    journal_id: str
    first_seq: int
    last_seq: int
    node: str
    boot_id: str
    version: str
    logic: str = ""
    started_wall_ns: int
    started_mono_ns: int
    #: The order to release the lock, or the close of a cancelled shutdown. None: cut short, or running.
    ended_ns: int | None = None
    #: The last record of its boot; of an outage, the end of the record.
    last_ns: int = 0
    #: None: the journal is intact as far as it was read.
    damage: DamageRecord | None = None


class ShutdownRecord(EpisodePart):
    """One shutdown. ``waves`` in their order, ``pods`` in inventory order, then late ones."""

    machine_id: str
    kind: ShutdownKind = "unknown"
    outcome: EpisodeOutcome = "running"
    #: Its begin is lost: times count from the first record left, and pods may be missing.
    headless: bool = False
    configuration: ConfigurationRecord = ConfigurationRecord()
    grant_ns: int = 0
    budget_ns: int = 0
    deadline_ns: int = 0
    release_by_ns: int = 0
    lock_held: bool = True
    #: Since when logind had no lock to wait for: 0 from the signal on; None: it always had one.
    lock_lost_ns: int | None = None
    overtime: bool = False
    cancelled_ns: int | None = None
    cancel_reason: str = ""
    #: The last wave that began; -1 if none did.
    last_wave: int = -1
    #: From logind's schedule.
    asked_by_uid: int | None = None
    asked_tty: str = ""
    wall_message: str = ""
    pods_ended_ns: int | None = None
    statuses_settled_ns: int | None = None
    #: Pod statuses not delivered in time.
    undelivered: int = 0
    by: NodeRecord = msgspec.field(default_factory=NodeRecord)
    #: None: not read.
    holders: tuple[HolderRecord, ...] | None = None
    failed_parts: list[FailedPart] = []
    #: Why the boot ended, from a later boot; empty: not known.
    boot_end_why: BootEndReason = ""
    #: The file whose limit logind uses in place of ours; empty: none is known.
    grant_overridden_by: str = ""
    waves: tuple[WaveRecord, ...] = ()
    pods: tuple[PodRecord, ...] = ()
    beside: tuple[OrderRecord, ...] = ()
    processes: tuple[ProcessRecord, ...] = ()
    notices: tuple[Notice, ...] = ()
    #: How many events this version does not know, by type tag.
    unknown_types: dict[str, int] = {}
    events: int = 0

    def count(self, outcome: Fate) -> int:
        return self.summary.count(outcome)

    @property
    def summary(self) -> Summary:
        pods: Counter[str] = Counter(pod.fate for pod in self.pods)
        gone = sum(pod.gone for pod in self.pods)
        cut = any(hook.result == "timed-out" for pod in self.pods for hook in pod.hooks)
        return Summary(self.outcome, pods, gone, self.lock_lost_ns is not None, self.headless, cut)

    @property
    def longest_holder(self) -> HolderRecord | None:
        """The program that held the machine longest, if for `HELD_LONGER_NS_MIN` after the release."""
        last = max(self.holders or (), key=lambda each: each.held_until_ns, default=None)
        if last is None or self.ended_ns is None or self.outcome != "complete":
            return None
        return last if last.held_until_ns - self.ended_ns >= HELD_LONGER_NS_MIN else None

    @property
    def own_processes(self) -> tuple[ProcessRecord, ...]:
        """The daemons of its boot, without a later one that only closed it."""
        return tuple(each for each in self.processes if each.boot_id == self.boot_id and not each.came_after)

    @property
    def severity(self) -> Severity:
        return severity_of(self.summary)


#: The daemon reads logind's list once a second, and a machine goes on within one.
HELD_LONGER_NS_MIN = 2 * NS_PER_SECOND

RecordT = TypeVar("RecordT", bound=EpisodePart)


#: How an unreadable record ends.
DAMAGED_ENDS: dict[State, str] = {
    "torn": "damaged",
    "corrupt": "damaged",
    "incompatible": "another version wrote on",
}


def damage_of(verdict: Verdict, *, here: bool) -> DamageRecord | None:
    """``here``: no other shutdown follows before the damage. None: the journal is intact."""
    if verdict.state == "intact":
        return None
    return DamageRecord(state=verdict.state, banner=verdict.banner, here=here)


def with_verdict(shutdown: RecordT, verdict: Verdict) -> RecordT:
    """For a record that was made before the reader knew the journal's end."""
    if shutdown.damage is not None:
        return shutdown
    return replace(shutdown, damage=damage_of(verdict, here=False))


# --- what a pod's stop is made of

#: ``killed``: by our SIGKILL, or it did not end in spite of that.
StopPartKind = Literal["hook", "stop", "killed"]


class StopPart(NamedTuple):
    """``seen`` False: no observed end; ``ended_ns`` is then its pod's."""

    what: StopPartKind
    container: str
    began_ns: int
    ended_ns: int
    seen: bool
    text: str

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def stop_parts(pod: PodRecord, shutdown: ShutdownRecord) -> Iterator[StopPart]:
    """A pod's hooks, and each container's time from stop signal to exit, by their begin."""
    until_ns = pod_end_ns(pod, shutdown)
    found = []
    for hook in pod.hooks:
        ended_ns = max(hook.began_ns, until_ns) if hook.ended_ns is None else hook.ended_ns
        detail = f" {hook.detail}" if hook.detail else ""
        result = hook.result or "not ended"
        early = ", early" if hook.early and result == "done" else ""
        reason = f": {hook.reason}" if hook.reason and result != "done" else ""
        text, seen = f"hook {hook.kind}{detail}: {result}{early}{reason}", hook.ended_ns is not None
        found.append(StopPart("hook", hook.container, hook.began_ns, ended_ns, seen, text))
    found += [_stop_part(each, until_ns, pod) for each in pod.containers if stop_began_ns(each) is not None]
    yield from sorted(found, key=lambda part: part.began_ns)


def pod_end_ns(pod: PodRecord, shutdown: ShutdownRecord) -> int:
    """Without an observed end, the end of the wait for it."""
    if pod.ended_ns is not None:
        return pod.ended_ns
    given_up_ns = shutdown.pods_ended_ns if shutdown.pods_ended_ns is not None else shutdown.last_ns
    return max(given_up_ns, pod.began_ns or 0)


def wave_end_ns(wave: WaveRecord, shutdown: ShutdownRecord) -> int:
    """If its end is not on record, the begin of the next wave or the end of the wait."""
    if wave.ended_ns is not None:
        return wave.ended_ns
    later = [each.began_ns for each in shutdown.waves[wave.index + 1 :] if each.began_ns is not None]
    ends = (*later[:1], shutdown.pods_ended_ns, shutdown.ended_ns)
    return next((end_ns for end_ns in ends if end_ns is not None), shutdown.last_ns)


def wave_outcome_text(wave: WaveRecord, shutdown: ShutdownRecord) -> str:
    """A wave can wait only in a running shutdown."""
    if wave.outcome != "waiting" or shutdown.outcome == "running":
        return wave.outcome
    return "not begun" if wave.pods else "no pods"


def took_ns(part: Any) -> int | None:
    return None if part.began_ns is None or part.ended_ns is None else part.ended_ns - part.began_ns


def stop_began_ns(container: ContainerRecord) -> int | None:
    return container.signalled_ns if container.asked_ns is None else container.asked_ns


#: For pods that the kubelet ends, by termination mode.
BY_KUBELET_TEXTS = {"api": "deleted", "observe": "by the kubelet"}


def _stop_part(container: ContainerRecord, until_ns: int, pod: PodRecord) -> StopPart:
    began_ns = stop_began_ns(container) or 0
    seen = container.exited_ns is not None
    ended_ns = max(began_ns, until_ns if container.exited_ns is None else container.exited_ns)
    killed = was_killed(container)
    text = container.stop_signal
    if container.stop_refused:
        text += f" not sent ({container.stop_refusal})" if container.stop_refusal else " not sent"
    if container.asked_ns is not None:
        text = BY_KUBELET_TEXTS.get(pod.means, "deleted")
        if container.signalled_ns is not None:
            text += f", {container.stop_signal} after {span(container.signalled_ns - began_ns)}"
    if killed and container.killed_ns is not None:
        text += f", SIGKILL after {span(container.killed_ns - began_ns)}"
    how = "ended" if container.exit_code is None else f"exit code {container.exit_code}"
    if container.exit_signal:
        how = f"ended by {container.exit_signal}"
    text += f", {how if seen else 'not seen to end'}"
    return StopPart("killed" if killed else "stop", container.name, began_ns, ended_ns, seen, text)


def was_killed(container: ContainerRecord) -> bool:
    # The kubelet's SIGKILL leaves no order: only the container's end shows it. An adopted process has no exit
    # code, so only another kind of end contradicts our SIGKILL.
    if container.killed_ns is None:
        by_kubelet = container.asked_ns is not None and container.signalled_ns is None
        return by_kubelet and (container.exit_code == 137 or container.exit_signal == "SIGKILL")
    by_itself = container.exit_code not in (None, 137) or container.exit_signal not in ("", "SIGKILL")
    return not (container.exited_ns is not None and by_itself)


# --- its notices

#: By code. Codes are stable.
NOTICE_TEXTS: dict[str, str] = {
    # --- the time that there was
    "grant-too-small": "logind granted {grant} of the {requested} that the waves ask for{override}",
    "reserve-not-granted": "logind granted {grant}, enough for the waves, not for the reserve{override}",
    "lock-not-held": "the shutdown began without the delay lock: the machine did not have to wait for a pod",
    "lock-lost": "LOCK LOST: the daemon was started again without the delay lock, and the machine did not "
    "have to wait for a pod any more",
    "overtime": "the service manager was stopping the daemon, logind's timer or its lock no longer counted",
    "deadline-moved": "the shutdown's deadline moved to {deadline} after the signal",
    "another-holder": "{who} (process {pid}, uid {user}) held the machine for {took} after Ebbtide had "
    "released it: {why}; logind waits for every delay lock, up to InhibitDelayMaxSec",
    # --- pods and hooks
    "pod-killed": "{pod} was killed: {reason}",
    "pod-failed": "{pod} could not be ended: {reason}",
    "pod-unknown": "what became of {pod} is not known: {reason}",
    "pod-late": "{pod} joined wave {wave} after the plan was made",
    "hook-failed": "the preStop hook ({kind}) of {pod}, container {container}, failed: {reason}",
    "hook-timed-out": "the preStop hook ({kind}) of {pod}, container {container}, was cut after {took}: "
    "{reason}",
    "hook-not-run": "the preStop hook ({kind}) of {pod}, container {container}, did not run: {reason}",
    "hook-unknown": "how the preStop hook ({kind}) of {pod}, container {container}, ended is not known: "
    "{reason}",
    "wave-overran": "wave {wave} (priority {priority}) ended after its {period} with {count} still running",
    "pods-unfinished": "{count} outlived the budget: {pods}",
    "volumes-mounted": "wave {wave} ended with volumes of {count} still mounted: {pods}",
    # --- a Kubernetes node
    "api-lost": "the API server did not answer: {error}",
    "runtime-lost": "the container runtime did not answer: {error}",
    "delete-refused": "{count} not taken by the API server in time ({reason})",
    "handed-over": "the shutdown was handed over to the container runtime: {reason}",
    "kubelet-failed": "the kubelet could not be stopped ({result}): {reason}; it may have started pods again",
    "kubelet-start-failed": "the kubelet could not be started again ({result}): {reason}; start it",
    "kubelet-left-running": "the kubelet had not ended {count} at the release: {pods}",
    "final-statuses-missing": "{count} without a final status in the API server at the release: {pods}",
    "withdraw-failed": "pods could not be taken out of their Services ({result}): {reason}",
    "await-failed": "the final statuses were not all seen in time ({result}): {reason}",
    "mounts-failed": "the mounts could not be read ({result}): {reason}",
    "certificate-failed": "the certificate could not be published ({result}): {reason}",
    "not-safe-to-detach": "volumes are not safe to detach: {why}",
    # --- people
    "hurried": "uid {asker} asked not to wait for {pod} any longer",
    "release-requested": "uid {asked_by} asked to release the machine",
    "cancelled": "the shutdown was withdrawn ({reason})",
    # --- the daemon
    "restarted": "the daemon was started again, none had run for at most {away} ({action})",
    "cut-short": "the machine went down before the release, at wave {wave}, at least {last} "
    "after the signal{why}",
    "never-begun": "the machine went down before any wave began, at least {last} after the signal{why}",
    "actor-failed": "{actor} failed ({error}): the fallback took its part",
    "fallback": "the fallback took over {count} ({reason})",
    "effect-panicked": "the order {key} ended in an unexpected error: {error}",
    "settings-rejected": "a configuration could not be used: {error}",
    "manifest-rejected": "a pod manifest could not be used: {path}: {error}",
    "inventory-failed": "the pods could not be listed ({result}): {reason}",
    "announce-failed": "the node could not be shown as going down ({result}): {reason}",
    "statuses-failed": "pod statuses could not be delivered ({result}): {reason}",
    "statuses-undelivered": "{count} not delivered in time: {pods}",
    "traces-failed": "the trace could not be sent before the release ({result}): {reason}",
    "release-failed": "the lock could not be released ({result}): {reason}",
    # --- the machine
    "durability-late": "{count} began before the disk had answered, after {waited} at the longest",
    "storage-failed": "the journal could not be written in {location}: {error}",
    "storage-moved": "the journal went on in {location}, from record {first_seq}",
    "bus-lost": "the connection to logind was lost: {error}",
    "signal-rejected": "{count} from another sender than logind, or with a wrong body ({reason})",
    "clock-stepped": "the wall clock was moved by {delta}; no deadline moved with it",
    # --- the record itself
    "begin-lost": "the record of its begin is lost: what became of its pods is not known",
    "record-damaged": "the record ends here, in damage: what happened after it is not known",
    "unreadable": "{count} could not be read and is left out: the journal was edited, or miswritten",
    "unknown-events": "{count} of types that this version does not know ({types}): use a newer ebbtide",
}

#: Codes with one notice for all, and what it counts.
TALLIED_NOTICES: dict[str, str] = {
    "durability-late": "effect",
    "signal-rejected": "signal",
    "delete-refused": "delete",
    "unreadable": "record",
}


def notice_text(code: str, **values: object) -> str:
    """Raises KeyError on a code that is not in the table."""
    return NOTICE_TEXTS[code].format(**values)
