"""One row an event: its text for people, how severe it is, its form in the log, and what it names.

`ROWS` is that table, complete for every type that a journal can hold; a test fails for a type without a row,
and for a text in it of which nobody has said what it names. The daemon's log, the timeline, the exported log
records and the redacted journal all read it, so the same event reads alike everywhere.

A text says what happened, never when and to whom: a log, a timeline and a report put their own columns or
prefixes around it. The pod itself is not named where the event has only one: whoever prints the text puts it
in front. Where it is about many pods it names a few; the journal has them all.

A type that is not in the table was written by another version; whoever prints it shows its tag and its data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import outage as o
from ebbtide.events.base import Checkpoint, Event, Stamp, StatesDigest, parse_order_key
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, decode_event
from ebbtide.events.model import Container, Hook, PlannedPod, Pod, ProcessReport, Settings
from ebbtide.events.units import offset, span, span_s

#: How severe, as sd-daemon(3) counts: smaller is worse. `INFO` may be left out, `DEBUG` is bookkeeping.
ERROR, WARNING, NOTICE, INFO, DEBUG = 3, 4, 5, 6, 7


class Message(NamedTuple):
    """A text, and how severe what it says is."""

    level: int
    text: str


# --- the columns -------------------------------------------------------------------------------

#: What a text names, and so what kind of pseudonym it gets in a redacted journal (`replay.redact`). ``kept``
#: has no text of anybody's. Words, versions, signals, bus names, hashes, and what the kernel calls a place in
#: it name nobody, and are kept as far as they are ones: what a field may hold is not what it always holds.
TextKind = Literal[
    "kept",
    "word",
    "field",
    "version",
    "signal",
    "bus name",
    "revision",
    "hash",
    "kernel symbol",
    "unit",
    "workload kind",
    "uid",
    "namespace",
    "pod",
    "container",
    "node",
    "boot",
    "boot pair",
    "path",
    "file position",
    "command",
    "hook",
    "tty",
    "message",
    "key",
    "source",
    "outage waits",
    "pod reference",
    "status",
    "mount",
    "owner",
    "namespaced owner",
    "event subject",
    "person",
    "dropped",
]

TextFunction = Callable[["Names", Any, Stamp], str]
LogFunction = Callable[["Names", Any, Message], Iterator[Message]]


class Row(NamedTuple):
    """All that a reader of a journal must know of one type of event, beside its fields.

    The first four columns have no default: whoever adds an event decides about each.
    """

    #: A template over ``event``, or a function of the names known so far, the event, and its record's time.
    text: str | TextFunction
    #: One of the levels above, or a function of the event.
    level: int | Callable[[Any], int]
    #: A template over ``text``, ``since`` (seconds since the shutdown began) and ``pod`` (its name), the
    #: messages of a function, or `UNLOGGED`.
    log: str | LogFunction
    #: By field: what its text names. Of an event that is `DERIVED` nothing is replaced.
    names: Mapping[str, TextKind]
    #: Logged only at this level or a worse one.
    log_level_max: int = DEBUG
    #: Also on the machine's console: what someone in front of the machine must know within a second.
    console: bool = False
    #: Written to the kernel's log where no disk takes the journal any more.
    last_resort: bool = False
    #: What later texts need of it.
    learn: Callable[[Names, Any], None] | None = None
    #: Whether this event says what another one says better: bookkeeping in a timeline.
    repeats: Callable[[Any], bool] | None = None


UNLOGGED = ""
PLAIN, TIMED = "{text}", "{since} {text}"
OF_POD, TIMED_OF_POD = "pod {pod} {text}", "{since} pod {pod} {text}"

#: A redacted journal's logic decides it anew from redacted facts, so that nothing in it needs replacing.
DERIVED: Mapping[str, TextKind] = {}

#: Fields that name the same in every event that has them; a row says only where they do not.
COMMON_NAMES: Mapping[str, TextKind] = {"key": "key", "uid": "uid", "uids": "uid", "container": "container"}

#: The values that events are made of (`events.model`), by field as in a row.
VALUE_NAMES: dict[type, Mapping[str, TextKind]] = {
    Settings: {"gates": "word", "means": "word", "resource": "message"},
    Pod: {"namespace": "namespace", "name": "pod", "owner": "owner"},
    Container: {"name": "container", "stop_signal": "signal"},
    Hook: {"detail": "hook"},
    PlannedPod: {},
    ProcessReport: {
        "command": "command",
        "state": "word",
        "wait_channel": "kernel symbol",
        "signals_caught": "signal",
        "signals_ignored": "signal",
    },
    o.OutageSettings: {"resource": "message"},
    o.LostPod: {
        "namespace": "namespace",
        "name": "pod",
        "owner_uid": "uid",
        "owner": "owner",
        "finalizers": "message",
        "volumes": "message",
    },
    # An attachment is a subject, as a pod is.
    o.Attachment: {
        "name": "uid",
        "volume": "message",
        "driver": "message",
        "error": "message",
        "unique_name": "message",
    },
}


# --- names, numbers, lists ---------------------------------------------------------------------


class Names:
    """A directory: by which name, and as of which wave, a text calls the pod of a UID.

    No fold of a shutdown: it says nothing of how far one is or how it ended. It goes over the whole journal,
    since pods are named outside of a shutdown as well and before they are planned, and it is all that a
    daemon's log keeps from one event to the next. What a shutdown *was* stands in `events.record`, which
    knows a pod's name only while it builds that one shutdown.
    """

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        #: UID to ``namespace/name``.
        self.labels = dict(labels or {})
        #: UID to the wave that the pod was last planned into: a timeline's column, for events that name none.
        self.waves: dict[str, int] = {}
        #: As the last `ShutdownBegan` said it: a release that gave nothing back must not read as if it had.
        self.lock_held = True

    def of(self, uid: str) -> str:
        return self.labels.get(uid, uid)

    def all_of(self, uids: Iterable[str]) -> str:
        return ", ".join(map(self.of, uids))

    def some_of(self, uids: Sequence[str]) -> str:
        return shortened_list([self.of(uid) for uid in uids])

    def learn(self, event: Event) -> None:
        """To be called with every event, also with one that is not shown."""
        row = ROWS.get(type(event))
        if row is not None and row.learn is not None:
            row.learn(self, event)

    def learn_record(self, raw: RawRecord) -> None:
        """The same of a record that is still encoded; one that cannot be read introduces nobody."""
        if raw.tag in NAMING_EVENTS:
            with suppress(BadPayload, UnknownType):
                self.learn(decode_event(raw.tag, raw.payload))


def _learn_pod(names: Names, event: f.PodAppeared | f.PodJoined) -> None:
    names.labels[event.pod.uid] = event.pod.label


def _learn_listed(names: Names, event: f.InventoryTaken) -> None:
    # Named on and on, never forgotten: an order, an autopsy or a late outcome may come long after the pod has
    # gone, and a node sees a few thousand UIDs between two boots.
    names.labels.update((pod.uid, pod.label) for pod in event.pods)


def _learn_lost(names: Names, event: Any) -> None:
    names.labels[event.pod.uid] = event.pod.label


def _learn_work(names: Names, event: o.WorkListed) -> None:
    names.labels.update((pod.uid, pod.label) for pod in event.pods)


def _learn_elsewhere(names: Names, event: o.ElsewhereRead) -> None:
    names.labels[event.uid] = f"{event.namespace}/{event.name}"


def _learn_planned(names: Names, event: d.PodPlanned) -> None:
    names.labels[event.pod.uid] = event.pod.label
    names.waves[event.pod.uid] = event.wave


def _learn_rejected(names: Names, event: d.PodRejected) -> None:
    names.labels[event.uid] = event.label


def _learn_began(names: Names, event: d.ShutdownBegan) -> None:
    # A wave of the shutdown before would put a pod that is named by nothing else into the wrong column.
    names.lock_held = event.lock_held
    names.waves.clear()


def count_text(number: int, what: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


#: So many pods or volumes are named in one text, the rest is counted: a log's line has room for a few.
NAMES_MAX = 8


def shortened_list(texts: Sequence[str]) -> str:
    """A few of them, and how many more there are."""
    more = len(texts) - NAMES_MAX
    return ", ".join(texts[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def mounts_text(names: Names, mounted: Sequence[tuple[str, str]]) -> str:
    """``shop/web-0 data``: pod and volume; the path alone of what belongs to a driver and no pod."""
    return shortened_list([f"{names.of(uid)} {volume}" if uid else volume for uid, volume in mounted])


# --- orders, by the word in their key ----------------------------------------------------------

#: What is ordered, by the word in the order's key; ``{pod}`` is its subject, ``{part}`` is behind the colon.
ORDER_TEXTS = {
    "arm": "taking the delay lock",
    "disarm": "giving the delay lock back",
    "drop-in": "changing the drop-in for logind",
    "inventory": "listing the pods",
    "announce": "announcing the node's state",
    "start": "starting pod {pod}",
    "deliver": "delivering pod statuses",
    "traces": "sending the traces",
    "release": "releasing the delay lock",
    "hook": "the preStop hook of {pod}/{part}",
    "stop": "the stop signal for {pod}/{part}",
    "kill": "SIGKILL for {pod}/{part}",
    "autopsy": "the autopsy of {pod}/{part}",
    "delete": "the delete of {pod}",
    "event": "posting an Event",
    "owner": "an Event for the owner of {pod}",
    "withdraw": "taking pods out of their Services",
    "await": "waiting for final statuses",
    "unmount": "waiting for volumes",
    "mounts": "looking at what is mounted",
    "certificate": "publishing the certificate",
    "last-boot": "showing on the Node how the last boot ended",
    "kubelet-stop": "stopping the kubelet",
    "stop-kubelet": "stopping the kubelet",
    "kubelet-start": "starting the kubelet again",
    "read": "reading the Node",
    "permit": "asking the storm brake",
    "return-permit": "giving the storm brake's permit back",
    "taint": "putting the node out of service",
    "power-off": "switching the machine off",
    "untaint": "taking our taint away",
    "quarantine": "the quarantine of the node",
    "list": "listing what hangs on the node",
    "sources": "reading the sources of proof",
}

#: Where one actor uses a word for something of its own.
ORDER_TEXTS_BY_ACTOR = {("KubeletActor", "stop"): "kubelet-stop", ("KubeletActor", "start"): "kubelet-start"}

#: How the key of an order to start a pod begins, and of the one to start the kubelet.
START_POD_KEY, START_KUBELET_KEY = "NodeStatusActor/start/", "KubeletActor/start/"
#: What the controller writes to a Node, and what it asks of a machine and of the storm brake.
OF_OUTAGES = "OutageActor/"

#: Results of an order that are somebody's fault; ``unknown`` is what a restart leaves.
FAILED_RESULTS = ("failed", "timed-out")


def order_text(names: Names, key: str) -> str:
    """What the order with this key is about; the key where that is not known."""
    parts = parse_order_key(key)
    template = ORDER_TEXTS.get(ORDER_TEXTS_BY_ACTOR.get(parts[:2], parts.what))
    return key if template is None else template.format(pod=names.of(parts.subject), part=parts.part)


# --- texts that take more than a template -------------------------------------------------------


def _started_text(names: Names, event: f.DaemonStarted, at: Stamp) -> str:
    lock = ", the lock inherited" if event.lock_inherited else ""
    return f"ebbtide {event.version} started on {event.node}, mode {event.mode}{lock}"


def _stop_requested_text(names: Names, event: f.StopRequested, at: Stamp) -> str:
    if not event.system_stopping:
        return "stop requested"
    return f"stop requested while the system stops, {span(event.stop_time_ns)} are left"


def _clock_text(names: Names, event: f.ClockStepped, at: Stamp) -> str:
    return f"the wall clock was stepped by {offset(event.delta_ns)}"


def _order_ended_text(names: Names, event: f.OrderEnded, at: Stamp) -> str:
    order = order_text(names, event.key)
    if event.result in FAILED_RESULTS:
        return f"{order} failed: {event.reason or event.result}"
    why = f": {event.reason}" if event.reason else ""
    return f"{order} {'is done' if event.result == 'done' else f'ended {event.result}'}{why}"


def _order_ended_level(event: f.OrderEnded) -> int:
    return WARNING if event.result in FAILED_RESULTS else DEBUG if event.result == "done" else INFO


def _order_ended_log(names: Names, event: f.OrderEnded, message: Message) -> Iterator[Message]:
    # A failed stop stands in its pod's reason, a failed arming in `Disarmed`: twice in the log they would
    # read like two failures. A failed start stands in no other event.
    if message.level <= WARNING and event.key.startswith((START_POD_KEY, START_KUBELET_KEY)):
        yield message._replace(level=ERROR)
    # Whoever has to mend rights, or a management controller, reads here what it said. That the Node changed
    # meanwhile is no failure: it is decided anew.
    elif message.level <= WARNING and event.key.startswith(OF_OUTAGES) and event.reason != o.CHANGED:
        yield message


def _late_text(names: Names, event: f.DurabilityLate, at: Stamp) -> str:
    order, waited = order_text(names, event.key), span(event.waited_ns)
    return f"the disk did not answer within {waited}: {order} started before its record was durable"


def _logind_text(names: Names, event: f.LogindRead, at: Stamp) -> str:
    preparing = ", a shutdown is being prepared" if event.preparing else ""
    return f"logind grants {span(event.grant_ns)}{preparing}"


def _scheduled_text(names: Names, event: f.ScheduleRead, at: Stamp) -> str:
    if not event.at_wall_ns:
        return "no shutdown is scheduled any more"
    who = f" by uid {event.uid}" if event.uid is not None else ""
    where = f" on {event.tty}" if event.tty else ""
    why = f': "{event.wall_message}"' if event.wall_message else ""
    left = span(max(0, event.at_wall_ns - at.wall_ns))
    return f"{event.kind} scheduled in {left}{who}{where}{why}"


def _drop_ins_text(names: Names, event: f.DropInsRead, at: Stamp) -> str:
    ours = "none" if event.ours_ns is None else span(event.ours_ns)
    return f"logind's drop-ins ask for {span(event.others_ns)}, ours: {ours}"


def _adopted_text(names: Names, event: d.ConfigAdopted, at: Stamp) -> str:
    if not event.enabled:
        return "configuration adopted: graceful shutdown is off"
    periods = ", ".join(f"{span_s(each.seconds)} from priority {each.priority}" for each in event.periods)
    return f"configuration adopted: {periods}, {event.budget} budget"


def _assessed_text(names: Names, event: d.GrantAssessed, at: Stamp) -> str:
    grant, needed = span(event.grant_ns), span(event.needed_ns)
    if event.sufficient:
        return f"logind grants {grant}, {needed} needed"
    who = f"; {event.overridden_by} overrides ours" if event.overridden_by else ""
    return f"logind grants {grant} of the {needed} needed{who}; the highest priorities are served first"


def _disarmed_text(names: Names, event: d.Disarmed, at: Stamp) -> str:
    again = f"; next try in {span(event.retry_at_ns - at.mono_ns)}" if event.retry_at_ns else ""
    return f"not armed: {event.reason}{again}"


def _resumed_text(names: Names, event: d.Resumed, at: Stamp) -> str:
    # What the last boot left comes first: that is the news of a start.
    previous = f"last shutdown: {event.previous}; " if event.previous else ""
    return f"{previous}start: {event.action.replace('-', ' ')}"


def _resumed_level(event: d.Resumed) -> int:
    return NOTICE if not event.previous or "complete" in event.previous else WARNING


def _resumed_log(names: Names, event: d.Resumed, message: Message) -> Iterator[Message]:
    # What the last boot left, and what is done about it, are two lines; a plain start is none.
    left, _, start = message.text.rpartition("; ")
    if left:
        yield message._replace(text=left)
    if event.action not in ("fresh", "begin"):
        yield Message(NOTICE, start)


#: What each source says of a boot's end; of what is not here nothing is said.
CRASH_TEXTS = {
    "panic": "the kernel panicked",
    "oops": "the kernel had an oops",
    "emergency": "the kernel was restarted in an emergency",
    "shutdown": "the kernel was told to go down",
    "unread": "the kernel's crash records cannot be read",
}
WTMP_TEXTS = {
    "shutdown": "wtmp has a shutdown",
    "no-shutdown": "wtmp has no shutdown",
    "unread": "wtmp cannot be read",
}
JOURNAL_TEXTS = {
    "shutdown": "the system journal reached the shutdown",
    "stopped": "the system journal was stopped without a shutdown",
    "no-shutdown": "the system journal has no shutdown",
    "unread": "the system journal cannot be read",
}


def _last_boot_text(names: Names, event: f.LastBootRead, at: Stamp) -> str:
    said = (
        CRASH_TEXTS.get(event.crash),
        "the kernel wrote of a panic or a hang" if event.kernel_emergency else "",
        "the watchdog reset the machine" if event.watchdog else "",
        WTMP_TEXTS.get(event.wtmp),
        JOURNAL_TEXTS.get(event.journal),
        "the power key was pressed" if event.power_key else "",
        "this boot was begun by kexec" if event.kexec else "",
    )
    return f"the last boot's end: {'; '.join(filter(None, said)) or 'nobody has written of it'}"


#: How a boot ended, as a report for people begins; ``{wave}`` is the one that it was cut short in.
ENDING_TEXTS = {
    "graceful": "graceful",
    "cut-short": "cut short at wave {wave}",
    "never-begun": "never begun",
    "abrupt": "without a shutdown",
    "unknown": "no shutdown was seen, and nobody has written of its end",
}
END_REASON_TEXTS = {
    "bypassed": "inhibitor bypassed",
    "not-configured": "periods not configured",
    "not-armed": "the daemon was not armed",
    "not-running": "the daemon did not run any more",
    "time-over": "the time for it was over",
    "panic": "kernel panic or hang",
    "watchdog": "reset by the watchdog",
    "unrecorded": "power cut, reset, or a restart that was forced past everybody",
}


def boot_end_text(ending: str, why: str, wave: int) -> str:
    """``cut short at wave 2: kernel panic or hang``."""
    text, reason = ENDING_TEXTS.get(ending, ending).format(wave=wave), END_REASON_TEXTS.get(why, why)
    if ending == "graceful" and reason:
        return f"{text}, though: {reason}"
    return f"{text}: {reason}" if reason else text


def _last_boot_ended_text(names: Names, event: d.LastBootEnded, at: Stamp) -> str:
    return f"last boot: {boot_end_text(event.ending, event.why, event.wave)}"


def _failed_text(names: Names, event: d.ActorFailed, at: Stamp) -> str:
    who = f"{event.actor} {names.of(event.subject)}".rstrip()
    return f"{who} failed ({event.error}); the fallback takes over"


def _engaged_text(names: Names, event: d.FallbackEngaged, at: Stamp) -> str:
    pods = f" {names.all_of(event.pods)}" if event.pods else ""
    return f"the fallback took over{pods}{f': {event.reason}' if event.reason else ''}"


def _checkpoint_text(names: Names, event: Checkpoint, at: Stamp) -> str:
    open_orders = count_text(len(event.open_orders), "open order")
    return f"checkpoint of {count_text(len(event.actors), 'actor')}, {open_orders}"


def _signal_text(names: Names, event: f.PrepareForShutdown, at: Stamp) -> str:
    if not event.active:
        return "logind's signal: no shutdown is being prepared any more"
    lock = "" if event.lock_held else ", no lock is held"
    lock += ", the kubelet holds one" if event.kubelet_lock else ""
    return f"logind's signal: {event.kind}, {span(event.grant_ns)} are granted{lock}"


def _detected_text(names: Names, event: d.ShutdownDetected, at: Stamp) -> str:
    how = ", once more" if event.again else ", in overtime" if event.overtime else ""
    return f"the machine is going down: {event.kind}{how}"


def _began_text(names: Names, event: d.ShutdownBegan, at: Stamp) -> str:
    lock = "" if event.lock_held else ", without a lock"
    return (
        f"shutdown began: {event.kind}, budget {span(event.budget_ns)} of"
        f" {span(event.requested_ns)} asked for,"
        f" logind grants {span(event.grant_ns)}{lock}"
    )


def _moved_text(names: Names, event: d.DeadlineMoved, at: Stamp) -> str:
    why = "in overtime" if event.overtime else "logind starts its delay anew"
    return f"deadline moved: {span(event.deadline_ns - at.mono_ns)} left, {why}"


def _inventory_text(names: Names, event: f.InventoryTaken, at: Stamp) -> str:
    part = f", part {event.part} of {event.parts}" if event.parts > 1 else ""
    lacking = f", some without a priority: {event.untold}" if event.untold else ""
    return f"{count_text(len(event.pods), 'pod')} listed by {event.source}{part}{lacking}"


def _plan_text(names: Names, event: d.PlanMade, at: Stamp) -> str:
    held = [len(wave.pods) for wave in event.waves if wave.pods]
    waves = f" ({' + '.join(map(str, held))})" if len(held) > 1 else ""
    return f"plan: {count_text(event.pods, 'pod')} in {count_text(len(held), 'wave')}{waves}"


def _planned_text(names: Names, event: d.PodPlanned, at: Stamp) -> str:
    # Who asks why a pod had so little reads here that its wave had no more, not that it asked for no more.
    asked_seconds = event.pod.grace_seconds
    short = asked_seconds is not None and asked_seconds > event.grace_seconds
    asked = f" of the {span_s(asked_seconds)} that it asks for: its wave has no more" if short else ""
    late = ", started again by its kubelet" if event.again else ", joined late" if event.late else ""
    return f"wave {event.wave}, {span_s(event.grace_seconds)}{asked}{late}"


def _wave_started_text(names: Names, event: d.WaveStarted, at: Stamp) -> str:
    pods, period = count_text(len(event.pods), "pod"), span(event.deadline_ns - at.mono_ns)
    how = ", over the container runtime" if event.handover else ""
    return f"wave {event.wave} (priority {event.priority}): {pods}, {period}{how}"


def _wave_ended_text(names: Names, event: d.WaveEnded, at: Stamp) -> str:
    late = f"; still running: {names.all_of(event.stragglers)}" if event.stragglers else ""
    late += f"; still mounted: volumes of {names.all_of(event.mounted)}" if event.mounted else ""
    return f"wave {event.wave} {event.outcome}{late}"


def _cancelled_text(names: Names, event: d.ShutdownCancelled, at: Stamp) -> str:
    went_down = event.reason != "did-not-go-down"
    return f"shutdown {event.reason}" if went_down else "the machine did not go down"


def _pods_ended_text(names: Names, event: d.PodsEnded, at: Stamp) -> str:
    return f"not ended in time: {names.all_of(event.unfinished)}" if event.unfinished else "all pods ended"


def _hook_ended_text(names: Names, event: d.HookEnded, at: Stamp) -> str:
    if event.result != "done":
        return f"preStop of {event.container} {event.result}: {event.reason}"
    took = f"after {span(event.elapsed_ns)}"
    how = f"ended early {took}: {event.reason}" if event.early else f"done {took}"
    return f"preStop of {event.container} {how}"


def _exited_text(names: Names, event: f.ContainerExited, at: Stamp) -> str:
    unknown = "gone, and nobody saw it end" if event.gone else "exit code not known"
    how = f"exit code {event.exit_code}" if event.exit_code is not None else unknown
    return f"{event.container}: {f'ended by {event.signal}' if event.signal else how}"


def process_text(process: ProcessReport) -> str:
    """One process of an autopsy."""
    ignored = f", ignores {' '.join(process.signals_ignored)}" if process.signals_ignored else ""
    where = f" in {process.wait_channel}" if process.wait_channel else ""
    open_ones = f", {count_text(process.connections, 'open connection')}" if process.connections else ""
    return f"{process.command} ({process.pid}) {process.state}{where}{ignored}{open_ones}"


def _autopsy_text(names: Names, event: f.AutopsyTaken, at: Stamp) -> str:
    found = "; ".join(map(process_text, event.processes)) or "no process is left"
    return f"autopsy of {event.container}: {found}"


def _autopsy_log(names: Names, event: f.AutopsyTaken, message: Message) -> Iterator[Message]:
    # A line a process: each may be long, and a log cuts long lines.
    name = names.of(event.uid)
    for process in event.processes:
        yield Message(message.level, f"autopsy of {name}/{event.container}: {process_text(process)}")


def _announced_text(names: Names, event: d.AnnounceNode, at: Stamp) -> str:
    what = "the node is shown as it was" if event.ready else "the node is shown as going down"
    return f"{what}: {event.message}" if event.message else what


def _kubelet_text(names: Names, event: f.KubeletRead, at: Stamp) -> str:
    unit = event.unit or "the kubelet"
    if event.active is None:
        return f"{unit}: whether it runs cannot be read"
    ill = ", but its health endpoint does not answer, or not with yes" if event.healthy is False else ""
    return f"{unit} {'runs' if event.active else 'does not run'}{ill}"


def _reachable_text(who: str, event: f.RuntimeRead | f.ApiRead) -> str:
    if event.reachable:
        return f"{who} answers"
    return f"{who} does not answer{f': {event.error}' if event.error else ''}"


def _runtime_text(names: Names, event: f.RuntimeRead, at: Stamp) -> str:
    again = f" again after {span(event.away_ns)}" if event.away_ns else ""
    return f"{_reachable_text('the container runtime', event)}{again}"


def _api_text(names: Names, event: f.ApiRead, at: Stamp) -> str:
    untainted = ", but this identity may not taint the node" if event.reachable and not event.taint else ""
    return f"{_reachable_text('the API server', event)}{untainted}"


#: What each termination mode means; the empty one is mode process, which chooses nothing.
TERMINATION_MODES = {
    "": "our own processes",
    "api": "api, the pods are deleted and the kubelet ends them",
    "cri": "cri, over the container runtime, without the kubelet",
    "observe": "observe, the kubelet ends the pods itself",
}


def _termination_mode_text(names: Names, event: d.MeansChosen, at: Stamp) -> str:
    return f"termination mode: {TERMINATION_MODES.get(event.means, event.means)} ({event.reason})"


def _kubelet_stopped_text(names: Names, event: d.KubeletStopped, at: Stamp) -> str:
    if event.result == "done":
        return "the kubelet is stopped"
    return f"the kubelet may still run, its stop ended {event.result}; nothing waits for it"


def _delete_text(names: Names, event: d.DeletePod, at: Stamp) -> str:
    after = ", once the node is tainted" if event.after_taint else ""
    return f"delete: {span_s(event.grace_seconds)} of grace{after}"


def _withdraw_text(names: Names, event: d.WithdrawPods, at: Stamp) -> str:
    return f"taking {count_text(len(event.uids), 'pod')} out of the Services: {names.some_of(event.uids)}"


def _event_text(names: Names, event: d.PostEvent, at: Stamp) -> str:
    where = f"{event.namespace}/{event.name}" if event.namespace else event.name
    return f"Event {event.reason} on {event.kind} {where}: {event.message}"


def _settled_text(names: Names, event: d.StatusesSettled, at: Stamp) -> str:
    if event.undelivered:
        return f"{event.undelivered} pod statuses could not be delivered in time"
    return "all pod statuses delivered"


def _statuses_text(names: Names, event: f.StatusesSeen, at: Stamp) -> str:
    if event.missing:
        return f"the API server has no final status of: {names.some_of(event.missing)}"
    return "the API server has every final status"


def _left_undone_text(names: Names, event: d.LeftUndone, at: Stamp) -> str:
    running = f"still running: {names.some_of(event.running)}" if event.running else ""
    without = f"without a final status: {names.some_of(event.without_status)}" if event.without_status else ""
    left = "; ".join(each for each in (running, without) if each)
    return f"the kubelet did not finish: {left}" if left else "the kubelet finished everything"


def _mounts_text(names: Names, event: f.MountsRead, at: Stamp) -> str:
    if not event.mounted:
        return "no volume is mounted"
    return f"{count_text(len(event.mounted), 'volume')} mounted: {mounts_text(names, event.mounted)}"


def _certified_text(names: Names, event: d.DetachCertified, at: Stamp) -> str:
    if event.safe:
        return f"safe to detach: {count_text(event.ended, 'pod')} ended, no volume is mounted"
    running = f"not seen to end: {names.some_of(event.running)}" if event.running else ""
    mounted = f"mounted: {mounts_text(names, event.mounted)}" if event.mounted else ""
    again = "the kubelet may have started pods again" if event.restarts else ""
    why = "; ".join(each for each in (running, again, mounted) if each) or "what is mounted is not known"
    return f"not safe to detach: {why}"


# --- outages of nodes ----------------------------------------------------------------------------


def _who(event: Any) -> str:
    return f"{event.source} {event.name}".strip()


def _node_read_text(names: Names, event: o.NodeRead, at: Stamp) -> str:
    taint = {"none": "", "ours": ", our out-of-service taint", "other": ", another's out-of-service taint"}
    ready = f"Ready is {event.ready}" if event.ready else "no Ready condition"
    return f"the Node: {ready}, boot {event.boot_id}{taint[event.taint]}"


def _evidence_text(names: Names, event: o.EvidenceRead, at: Stamp) -> str:
    error = f": {event.error}" if event.error else ""
    return f"{_who(event)} says {event.verdict}{error}"


def _work_text(names: Names, event: o.WorkListed, at: Stamp) -> str:
    return f"{count_text(len(event.pods), 'pod')} and {count_text(len(event.attachments), 'attachment')} here"


def _elsewhere_text(names: Names, event: o.ElsewhereRead, at: Stamp) -> str:
    where = f" on {event.node}" if event.node else ""
    waiting = f": {event.waiting}" if event.waiting else ""
    return f"{'Ready' if event.ready else 'not Ready'} elsewhere{where}{waiting}"


def _attachment_text(names: Names, event: o.AttachmentRead | o.AttachmentLeft, at: Stamp) -> str:
    attachment = event.attachment
    error = f": {attachment.error}" if attachment.error else ""
    state = "is being detached" if attachment.deleting else "is attached"
    return f"volume {attachment.volume or attachment.name} {state}{error}"


def _recovered_text(names: Names, event: Any, at: Stamp) -> str:
    took = span(event.elapsed_ns)
    if not event.by:
        return f"gone after {took}; nobody makes it again"
    if event.by == event.uid:
        return f"runs on here after {took}"
    return f"Ready again as {names.of(event.by)} on {event.node} after {took}"


def _detached_text(names: Names, event: o.Detached, at: Stamp) -> str:
    if event.kept:
        return f"attachment {event.name} stays: the node is back"
    before = ", before the node was out of service" if event.before_taint else ""
    if event.forced:
        before = ", by the six-minute timer"
    return f"attachment {event.name} is gone after {span(event.elapsed_ns)}{before}"


def _returned_text(names: Names, event: o.NodeReturned, at: Stamp) -> str:
    return f"the node is back, {BACK_UNDER[None if event.doubt else event.same_boot]}"


#: By `OutageRecord.same_boot`.
BACK_UNDER = {
    True: "under the same boot id",
    False: "under another boot id",
    None: "and nothing says whether under the boot id that was proved off",
}


def _closed_text(names: Names, event: o.OutageClosed, at: Stamp) -> str:
    left = f"; left: {shortened_list(event.unrecovered)}" if event.unrecovered else ""
    return f"outage closed: {event.outcome}{left}"


def _work_recovered_text(names: Names, event: o.WorkRecovered, at: Stamp) -> str:
    left = f"; unknown of {shortened_list(event.unrecovered)}" if event.unrecovered else ""
    return f"nothing hangs on the node any more{left}"


# --- the table ---------------------------------------------------------------------------------

ROWS: dict[type[Event], Row] = {
    # The daemon itself.
    f.DaemonStarted: Row(
        _started_text,
        INFO,
        UNLOGGED,
        {"version": "version", "mode": "word", "node": "node", "boot_id": "boot", "userspace_id": "boot"},
    ),
    f.LastBootRead: Row(_last_boot_text, INFO, UNLOGGED, {"boot_id": "boot"}),
    d.LastBootEnded: Row(
        _last_boot_ended_text,
        lambda e: NOTICE if e.ending == "graceful" and not e.why else WARNING,
        PLAIN,
        # The state of who shows it on the Node keeps it whole, so a redacted checkpoint replaces in it.
        {"boot_id": "boot"},
    ),
    f.StopRequested: Row(
        _stop_requested_text, lambda e: WARNING if e.system_stopping else INFO, UNLOGGED, {}
    ),
    f.SettingsLoaded: Row("configuration loaded", INFO, UNLOGGED, {"sources": "file position"}),
    f.SettingsRejected: Row(
        "configuration not reloaded, the old one stays: {event.error}", ERROR, PLAIN, {"error": "message"}
    ),
    f.Tick: Row("a deadline is due", DEBUG, UNLOGGED, {}),
    f.ClockStepped: Row(_clock_text, INFO, UNLOGGED, {}),
    f.OrderEnded: Row(
        _order_ended_text,
        _order_ended_level,
        _order_ended_log,
        {"reason": "message"},
        repeats=lambda e: parse_order_key(e.key).what == "hook",  # `HookEnded` says it
    ),
    f.EffectPanicked: Row(
        lambda n, e, at: f"{order_text(n, e.key)} failed unexpectedly: {e.error}",
        ERROR,
        PLAIN,
        {"error": "message"},
    ),
    f.DurabilityLate: Row(_late_text, WARNING, PLAIN, {"barrier": "word"}),
    f.StorageFailed: Row(
        "journal at {event.location} failed: {event.error}",
        ERROR,
        PLAIN,
        {"location": "path", "error": "message"},
    ),
    f.StorageMoved: Row(
        "journal continues at {event.location} from record {event.first_seq}",
        WARNING,
        PLAIN,
        {"location": "path"},
    ),
    d.Leave: Row("exiting: {event.reason}", NOTICE, PLAIN, DERIVED),
    d.Resumed: Row(_resumed_text, _resumed_level, _resumed_log, DERIVED),
    d.ActorFailed: Row(_failed_text, ERROR, PLAIN, DERIVED, last_resort=True),
    d.FallbackEngaged: Row(_engaged_text, WARNING, UNLOGGED, DERIVED, last_resort=True),
    d.FlushTraces: Row(
        lambda n, e, at: f"sending the traces, for {span(e.timeout_ns)} at most",
        DEBUG,
        UNLOGGED,
        {},
    ),
    Checkpoint: Row(_checkpoint_text, DEBUG, UNLOGGED, DERIVED),
    StatesDigest: Row(
        lambda n, e, at: f"digest of the states of {count_text(len(e.actors), 'actor')}",
        DEBUG,
        UNLOGGED,
        DERIVED,
    ),
    # logind and what it grants. Unique bus names (``:1.7``) are numbers, and of logind's.
    f.LogindRead: Row(_logind_text, DEBUG, UNLOGGED, {"owner": "bus name"}),
    f.SignalRejected: Row(
        lambda n, e, at: f"signal {e.member} from {e.sender or 'an unknown sender'} ignored: {e.reason}",
        WARNING,
        PLAIN,
        {"member": "word", "reason": "message", "sender": "bus name"},
    ),
    f.PreparingRead: Row(
        lambda n, e, at: f"logind reports: {'a' if e.preparing else 'no'} shutdown is being prepared",
        INFO,
        UNLOGGED,
        {"owner": "bus name"},
    ),
    f.ScheduleRead: Row(
        _scheduled_text, NOTICE, PLAIN, {"uid": "person", "tty": "tty", "wall_message": "message"}
    ),
    f.BusLost: Row("connection to logind lost: {event.error}", WARNING, UNLOGGED, {"error": "message"}),
    f.DropInsRead: Row(_drop_ins_text, DEBUG, UNLOGGED, {"others_path": "path", "overridden_by": "path"}),
    d.ConfigAdopted: Row(_adopted_text, INFO, UNLOGGED, DERIVED),
    d.ConfigDeferred: Row(
        "configuration read; it waits for the end of this shutdown", NOTICE, PLAIN, DERIVED
    ),
    # The configuration's state keeps it whole, so a redacted checkpoint replaces in it.
    d.GrantAssessed: Row(
        _assessed_text, lambda e: NOTICE if e.sufficient else WARNING, PLAIN, {"overridden_by": "path"}
    ),
    d.WriteDropIn: Row("drop-in: asking logind for InhibitDelayMaxSec={event.seconds}", NOTICE, PLAIN, {}),
    d.RemoveDropIn: Row("drop-in: removing ours, it is no longer needed", NOTICE, PLAIN, {}),
    d.Arm: Row(
        lambda n, e, at: "taking the delay lock" if e.lock else "listening to logind without a lock",
        DEBUG,
        UNLOGGED,
        {},
    ),
    d.Disarm: Row("giving the delay lock back", DEBUG, UNLOGGED, {}),
    d.Armed: Row(
        lambda n, e, at: f"armed: delay lock taken, logind grants {span(e.grant_ns)}",
        NOTICE,
        PLAIN,
        DERIVED,
    ),
    d.Disarmed: Row(_disarmed_text, lambda e: WARNING if e.retry_at_ns else NOTICE, PLAIN, DERIVED),
    # A shutdown from its signal to its end.
    f.PrepareForShutdown: Row(_signal_text, INFO, UNLOGGED, {"owner": "bus name"}),
    d.ShutdownDetected: Row(_detected_text, DEBUG, UNLOGGED, DERIVED),
    d.ShutdownWithdrawn: Row(
        lambda n, e, at: f"the machine stays up: {e.reason.replace('-', ' ')}",
        DEBUG,
        UNLOGGED,
        DERIVED,
        last_resort=True,
    ),
    d.ShutdownBegan: Row(
        _began_text, NOTICE, PLAIN, DERIVED, console=True, last_resort=True, learn=_learn_began
    ),
    d.DeadlineMoved: Row(_moved_text, WARNING, PLAIN, DERIVED),
    d.TakeInventory: Row(
        lambda n, e, at: f"listing the pods {'anew' if e.refresh else 'from memory'}", DEBUG, UNLOGGED, {}
    ),
    f.InventoryTaken: Row(
        _inventory_text,
        lambda e: WARNING if e.untold else INFO,
        PLAIN,
        {"source": "word", "untold": "message"},
        log_level_max=WARNING,
        learn=_learn_listed,
    ),
    d.PlanMade: Row(_plan_text, INFO, TIMED, DERIVED, console=True),
    d.PodPlanned: Row(
        _planned_text,
        INFO,
        "pod {pod}: {text}",
        DERIVED,
        learn=_learn_planned,
        repeats=lambda e: not e.late,  # `PlanMade` says it
    ),
    d.WaveStarted: Row(_wave_started_text, NOTICE, TIMED, DERIVED, last_resort=True),
    d.WaveEnded: Row(
        _wave_ended_text,
        lambda e: WARNING if e.stragglers or e.mounted else NOTICE,
        TIMED,
        DERIVED,
        last_resort=True,
    ),
    d.StragglerEnded: Row(
        lambda n, e, at: f"ended {span(e.late_ns)} after the end of wave {e.wave}",
        INFO,
        UNLOGGED,
        DERIVED,
    ),
    d.ShutdownCancelled: Row(_cancelled_text, NOTICE, TIMED, DERIVED, console=True, last_resort=True),
    d.PodsEnded: Row(
        _pods_ended_text, lambda e: WARNING if e.unfinished else NOTICE, TIMED, DERIVED, last_resort=True
    ),
    d.ReleaseLock: Row(
        lambda n, e, at: "lock released" if n.lock_held else "no lock was held, nothing to release",
        NOTICE,
        TIMED,
        {},
        last_resort=True,
    ),
    d.EpisodeClosed: Row("shutdown closed: {event.outcome}", NOTICE, PLAIN, DERIVED, last_resort=True),
    f.HurryRequested: Row(
        lambda n, e, at: f"uid {e.asked_by} asked to hurry {n.of(e.pod)}",
        NOTICE,
        PLAIN,
        {"pod": "pod reference", "asked_by": "person"},
    ),
    f.ReleaseRequested: Row(
        "uid {event.asked_by} asked to release the lock", NOTICE, PLAIN, {"asked_by": "person"}
    ),
    # Pods and their containers.
    f.PodAppeared: Row("is to be started", DEBUG, UNLOGGED, {}, learn=_learn_pod),
    d.StartPod: Row("being started", DEBUG, UNLOGGED, {}),
    d.PodRejected: Row("rejected: {event.message}", NOTICE, OF_POD, DERIVED, learn=_learn_rejected),
    f.ManifestRejected: Row(
        "manifest {event.path}: {event.error}", ERROR, PLAIN, {"path": "path", "error": "message"}
    ),
    f.ContainerStarted: Row("{event.container}: started", DEBUG, UNLOGGED, {}),
    d.PodStopBegan: Row(lambda n, e, at: f"stop began: {span(e.grace_ns)} of grace", INFO, UNLOGGED, DERIVED),
    d.HookStarted: Row("{event.container}: preStop {event.kind} began", INFO, UNLOGGED, DERIVED),
    d.RunHook: Row(
        lambda n, e, at: f"{e.container}: running the preStop hook, for {span(e.timeout_ns)} at most",
        DEBUG,
        UNLOGGED,
        {},
    ),
    d.HookEnded: Row(
        _hook_ended_text,
        lambda e: INFO if e.result == "done" else WARNING,
        "{since} pod {pod}: {text}",
        DERIVED,
        log_level_max=WARNING,
    ),
    d.CancelOrder: Row(
        lambda n, e, at: f"cancelling {order_text(n, e.target)}", DEBUG, UNLOGGED, {"target": "key"}
    ),
    d.SendSignal: Row("{event.container}: {event.signal}", INFO, UNLOGGED, {"signal": "signal"}),
    d.KillContainer: Row("{event.container}: SIGKILL", WARNING, UNLOGGED, {}),
    d.TakeAutopsy: Row("{event.container}: looking at what still runs", DEBUG, UNLOGGED, {}),
    f.AutopsyTaken: Row(_autopsy_text, WARNING, _autopsy_log, {"last_lines": "dropped"}),
    f.ContainerExited: Row(_exited_text, INFO, UNLOGGED, {"signal": "signal"}),
    d.PodEnded: Row(
        lambda n, e, at: f"{e.outcome} after {span(e.elapsed_ns)}: {e.reason}",
        lambda e: INFO if e.outcome in ("graceful", "spared") else WARNING,
        TIMED_OF_POD,
        DERIVED,
        last_resort=True,
    ),
    # A Kubernetes node: who ends the pods, and who answers.
    f.KubeletRead: Row(
        _kubelet_text,
        lambda e: WARNING if e.active is None or e.healthy is False else NOTICE,
        PLAIN,
        {"unit": "unit"},
    ),
    f.RuntimeRead: Row(
        _runtime_text,
        lambda e: NOTICE if e.reachable else WARNING,
        PLAIN,
        {"error": "message"},
    ),
    f.ApiRead: Row(_api_text, lambda e: NOTICE if e.reachable else WARNING, PLAIN, {"error": "message"}),
    d.MeansChosen: Row(_termination_mode_text, NOTICE, TIMED, DERIVED),
    d.HandedOver: Row("handed over to the container runtime: {event.reason}", NOTICE, TIMED, DERIVED),
    d.StopKubelet: Row("stopping the kubelet", INFO, UNLOGGED, {}),
    d.KubeletStopped: Row(
        _kubelet_stopped_text, lambda e: NOTICE if e.result == "done" else WARNING, TIMED, DERIVED
    ),
    d.StartKubelet: Row("starting the kubelet again, which we have stopped", NOTICE, TIMED, {}),
    # Its pods.
    d.DeletePod: Row(_delete_text, INFO, UNLOGGED, {"namespace": "namespace", "name": "pod"}),
    d.DeleteRefused: Row(
        "the API server did not accept its delete: {event.reason}",
        WARNING,
        "{since} pod {pod}: {text}",
        DERIVED,
    ),
    f.PodJoined: Row(
        "runs here, and was in no inventory of this shutdown, or had ended",
        NOTICE,
        TIMED_OF_POD,
        {},
        learn=_learn_pod,
    ),
    f.VolumesUnmounted: Row("its volumes are unmounted", INFO, UNLOGGED, {}),
    d.AwaitUnmounts: Row(
        lambda n, e, at: (
            f"waiting for the volumes of {count_text(len(e.uids), 'pod')}, for {span(e.timeout_ns)} at most"
        ),
        DEBUG,
        UNLOGGED,
        {},
    ),
    d.WithdrawPods: Row(_withdraw_text, INFO, UNLOGGED, {}),
    # What others see of the node.
    d.AnnounceNode: Row(
        _announced_text,
        INFO,
        UNLOGGED,
        {"reason": "word", "message": "message", "conditions": "word"},
    ),
    d.PostEvent: Row(
        _event_text,
        DEBUG,
        UNLOGGED,
        {
            "kind": "workload kind",
            "namespace": "namespace",
            "name": "event subject",
            "reason": "word",
            "message": "message",
        },
    ),
    d.DeliverStatuses: Row(
        lambda n, e, at: f"delivering the status of {count_text(len(e.statuses), 'pod')}",
        DEBUG,
        UNLOGGED,
        {"statuses": "status"},
    ),
    d.StatusesSettled: Row(_settled_text, lambda e: WARNING if e.undelivered else INFO, UNLOGGED, DERIVED),
    d.AwaitStatuses: Row(
        lambda n, e, at: (
            f"waiting for the final status of {count_text(len(e.uids), 'pod')},"
            f" for {span(e.timeout_ns)} at most"
        ),
        INFO,
        UNLOGGED,
        {},
    ),
    f.StatusesSeen: Row(
        _statuses_text, lambda e: WARNING if e.missing else INFO, UNLOGGED, {"missing": "uid"}
    ),
    d.LeftUndone: Row(
        _left_undone_text, lambda e: WARNING if e.running or e.without_status else INFO, TIMED, DERIVED
    ),
    # Whether its volumes may be attached elsewhere.
    d.CheckMounts: Row("looking at what is still mounted", DEBUG, UNLOGGED, {}),
    f.MountsRead: Row(_mounts_text, INFO, UNLOGGED, {"mounted": "mount"}),
    d.DetachCertified: Row(_certified_text, lambda e: NOTICE if e.safe else WARNING, TIMED, DERIVED),
    d.PublishCertificate: Row(
        lambda n, e, at: f"publishing that it is {'' if e.safe else 'not '}safe to detach",
        DEBUG,
        UNLOGGED,
        {"running": "uid", "mounted": "mount"},
    ),
    d.PublishLastBoot: Row(
        "showing on the Node how its last boot ended", DEBUG, UNLOGGED, {"boot_id": "boot"}
    ),
    # The controller in the cluster: what it sees of a node.
    o.LeaderStarted: Row(
        "ebbtide {event.version}: {event.replica} leads, for {event.node}",
        INFO,
        PLAIN,
        {"version": "version", "replica": "message", "node": "node", "node_uid": "uid"},
    ),
    o.NodeRead: Row(
        _node_read_text,
        INFO,
        UNLOGGED,
        {
            "boot_id": "boot",
            "resource_version": "revision",
            "system_uuid": "uid",
            "provider_id": "uid",
            "volumes_in_use": "message",
            "lease_mark": "message",
            "status_mark": "message",
            "taint_boot": "boot",
        },
    ),
    o.NodeDeleted: Row("the Node object is gone", NOTICE, PLAIN, {}),
    o.LastBootStated: Row(
        lambda n, e, at: f"the node says of its boot {e.boot_id}: {boot_end_text(e.ending, e.why, e.wave)}",
        INFO,
        PLAIN,
        {"boot_id": "boot", "said_by": "boot", "journal_id": "hash", "trace_id": "hash"},
    ),
    o.HeartbeatSeen: Row("the node's {event.source} was renewed", INFO, UNLOGGED, {"mark": "message"}),
    o.HeartbeatMissed: Row(
        lambda n, e, at: f"no renewal of the node's lease for {span(e.silent_ns)}",
        NOTICE,
        PLAIN,
        {"mark": "message"},
    ),
    o.EvidenceRead: Row(
        _evidence_text,
        INFO,
        UNLOGGED,
        {
            "name": "message",
            "identity": "uid",
            "boot_id": "boot",
            "mark": "message",
            "at": "message",
            "error": "message",
        },
    ),
    o.WorkListed: Row(_work_text, INFO, UNLOGGED, {"elsewhere": "uid"}, learn=_learn_work),
    o.LostPodRead: Row(
        lambda n, e, at: "Terminating" if e.pod.terminating else "bound to the node",
        INFO,
        UNLOGGED,
        {},
        learn=_learn_lost,
    ),
    o.LostPodGone: Row("its object is gone", INFO, UNLOGGED, {}),
    o.ElsewhereRead: Row(
        _elsewhere_text,
        INFO,
        UNLOGGED,
        {"namespace": "namespace", "name": "pod", "owner_uid": "uid", "node": "node", "waiting": "message"},
        learn=_learn_elsewhere,
    ),
    o.AttachmentRead: Row(_attachment_text, INFO, UNLOGGED, {}),
    o.AttachmentGone: Row("attachment {event.name} is gone", INFO, UNLOGGED, {"name": "uid"}),
    # What it decides.
    o.OutageBegan: Row("node {event.node} is suspected: {event.reason}", WARNING, PLAIN, DERIVED),
    o.OutageWaits: Row("the outage waits: {event.reason}", NOTICE, TIMED, DERIVED),
    o.ReadNode: Row("reading the Node and its lease", DEBUG, UNLOGGED, {}),
    o.RequestPermit: Row("asking the storm brake for a permit", DEBUG, UNLOGGED, {"node": "node"}),
    o.ReturnPermit: Row("giving the storm brake's permit back", DEBUG, UNLOGGED, {"node": "node"}),
    o.SetTaint: Row(
        "putting {event.node} out of service, effect {event.effect}",
        NOTICE,
        TIMED,
        {
            "node": "node",
            "node_uid": "uid",
            "boot_id": "boot",
            "resource_version": "revision",
            "lease_mark": "message",
            "status_mark": "message",
        },
    ),
    o.PowerOff: Row(
        "switching the machine of {event.node} off",
        WARNING,
        TIMED,
        {
            "node": "node",
            "node_uid": "uid",
            "boot_id": "boot",
            "system_uuid": "uid",
            "lease_mark": "message",
            "status_mark": "message",
        },
    ),
    o.PowerOffGivenUp: Row(
        lambda n, e, at: (
            f"it is not switched off any more, after {count_text(e.ordered, 'order')}: {e.reason}"
        ),
        ERROR,
        TIMED,
        DERIVED,
    ),
    o.RemoveTaint: Row(
        "taking our taints away from {event.node}",
        NOTICE,
        TIMED,
        {"node": "node", "node_uid": "uid"},
    ),
    o.SetQuarantine: Row(
        "setting the quarantine of {event.node}",
        NOTICE,
        TIMED,
        {"node": "node", "node_uid": "uid"},
    ),
    o.ListWork: Row("listing what hangs on {event.node}", DEBUG, UNLOGGED, {"node": "node"}),
    o.OutOfService: Row(
        lambda n, e, at: (
            f"out of service{', as found' if e.found else ''}, "
            + (f"on the word of {e.proof}" if e.proof else "and no record says on whose word")
        ),
        WARNING,
        TIMED,
        DERIVED,
    ),
    o.PodLost: Row("hangs on the node", INFO, UNLOGGED, DERIVED, learn=_learn_lost),
    o.AttachmentLeft: Row(_attachment_text, INFO, UNLOGGED, DERIVED),
    o.WorkRecovered: Row(
        _work_recovered_text, lambda e: WARNING if e.unrecovered else NOTICE, TIMED, DERIVED
    ),
    o.NodeReturned: Row(
        _returned_text, lambda e: ERROR if e.same_boot else WARNING if e.doubt else NOTICE, TIMED, DERIVED
    ),
    o.ProofWasWrong: Row(
        "it was not off, though {event.proof} said so: {event.what}; two nodes may have written its data",
        ERROR,
        TIMED,
        DERIVED,
    ),
    o.StoodAside: Row("another's out-of-service taint: standing aside", NOTICE, TIMED, DERIVED),
    o.OutageReminded: Row("still open: {event.reason}", WARNING, TIMED, DERIVED),
    o.OutageClosed: Row(
        _closed_text,
        lambda e: WARNING if e.unrecovered or e.outcome == "proof-wrong" else NOTICE,
        PLAIN,
        DERIVED,
    ),
    o.OutageAbandoned: Row(
        lambda n, e, at: (
            "nothing is decided until another leader starts; our taint"
            f" {'stands: take it away by hand if the node is back' if e.tainted else 'does not stand'}"
        ),
        ERROR,
        TIMED,
        DERIVED,
    ),
    o.ReadSources: Row("reading the sources of proof", DEBUG, UNLOGGED, {"node": "node"}),
    o.ProofAccepted: Row(
        lambda n, e, at: f"proved off by {_who(e)}",
        NOTICE,
        TIMED,
        DERIVED,
    ),
    o.ProofRefused: Row(lambda n, e, at: f"{_who(e)} is no proof: {e.reason}", NOTICE, TIMED, DERIVED),
    o.ProofVoided: Row("no longer proved off: {event.reason}", NOTICE, TIMED, DERIVED),
    o.Contradicted: Row(lambda n, e, at: f"{_who(e)} contradicts: {e.what}", WARNING, TIMED, DERIVED),
    o.ContradictionEnded: Row(
        lambda n, e, at: f"{_who(e)} contradicts no longer: {e.reason}", NOTICE, TIMED, DERIVED
    ),
    o.PodWaits: Row("waits: {event.reason}", INFO, UNLOGGED, DERIVED),
    o.PodRecovered: Row(_recovered_text, INFO, TIMED_OF_POD, DERIVED),
    o.DetachWaits: Row("attachment {event.name} waits: {event.reason}", INFO, UNLOGGED, DERIVED),
    o.DetachForced: Row(
        lambda n, e, at: (
            f"attachment {e.name}: detached by the attach-detach controller's timer,"
            f" {span(e.waited_ns)} after its last pod, before NodeUnstage. The node is not out of"
            f" service: if it still writes, the data of volume {e.volume} may be damaged"
        ),
        WARNING,
        TIMED,
        DERIVED,
    ),
    o.Detached: Row(_detached_text, INFO, TIMED, DERIVED),
}

#: Type tags of the events that names are learned from.
NAMING_EVENTS: tuple[str, ...] = tuple(kind.__name__ for kind, row in ROWS.items() if row.learn is not None)


def message_of(names: Names, event: Event, at: Stamp) -> Message | None:
    """What happened; None for a type that has no row."""
    row = ROWS.get(type(event))
    if row is None:
        return None
    text = row.text.format(event=event) if isinstance(row.text, str) else row.text(names, event, at)
    return Message(row.level if isinstance(row.level, int) else row.level(event), text)


def describe(names: Names, event: Event, at: Stamp) -> Message | None:
    """The same, after ``names`` has learned from the event."""
    names.learn(event)
    return message_of(names, event, at)
