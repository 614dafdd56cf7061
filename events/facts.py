"""Facts, grouped by the edge that reports them. An edge reports and never decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from ebbtide.events import kinds, values
from ebbtide.events.base import (
    NS_PER_SECOND,
    OUTCOMES,
    URGENT,
    BoundedDict,
    BoundedTuple,
    Fact,
    Stamp,
    parse_order_key,
)
from ebbtide.events.messages import (
    DEBUG,
    ERROR,
    INFO,
    NOTICE,
    TIMED_OF_POD,
    UNLOGGED,
    WARNING,
    Message,
    Names,
    mounts_text,
    plural,
)
from ebbtide.events.units import offset, span

Result = Literal["done", "failed", "timed-out", "cancelled", "unknown"]

#: By the word in an order's key. ``{part}``: after the colon.
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

#: Where one actor gives a word another meaning.
ORDER_TEXTS_BY_ACTOR = {("KubeletActor", "stop"): "kubelet-stop", ("KubeletActor", "start"): "kubelet-start"}

#: Begins of order keys: to start a pod, to start the kubelet.
START_POD_KEY, START_KUBELET_KEY = "NodeStatusActor/start/", "KubeletActor/start/"
#: The controller's orders to a Node, a machine and the storm brake.
OF_OUTAGES = "OutageActor/"

#: The Node differs from the order, so the edge did not write. The actor decides again.
NODE_CHANGED = "the node has changed"
#: The begin of the reason of a refused call: the server works.
API_ANSWERED = "the API server answered"

#: Results of failed orders; a restart leaves ``unknown``.
FAILED_RESULTS = ("failed", "timed-out")


def order_text(names: Names, key: str) -> str:
    parts = parse_order_key(key)
    template = ORDER_TEXTS.get(ORDER_TEXTS_BY_ACTOR.get(parts[:2], parts.what))
    return key if template is None else template.format(pod=names.of(parts.subject), part=parts.part)


def _reachable_text(who: str, event: RuntimeRead | ApiRead) -> str:
    if event.reachable:
        return f"{who} answers"
    return f"{who} does not answer{f': {event.error}' if event.error else ''}"


def process_text(process: values.ProcessReport) -> str:
    ignored = f", ignores {' '.join(process.signals_ignored)}" if process.signals_ignored else ""
    where = f" in {process.wait_channel}" if process.wait_channel else ""
    open_ones = f", {plural(process.connections, 'open connection')}" if process.connections else ""
    return f"{process.command} ({process.pid}) {process.state}{where}{ignored}{open_ones}"


def holder_text(holder: values.LockHolder) -> str:
    return f"{holder.who} (process {holder.pid}, uid {holder.uid}: {holder.why})"


#: Texts about a boot's end; other values have none.
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


# --- the daemon itself


class DaemonStarted(Fact):
    """A process began to write. ``preparing``: logind's property; None: unreadable."""

    version: kinds.Version
    pid: int
    mode: kinds.Word
    node: str
    boot_id: str
    #: Changes at a soft reboot, which keeps the boot id.
    userspace_id: str
    preparing: bool | None = None
    lock_inherited: bool = False
    kind: values.ShutdownKind = "unknown"
    grant_ns: int = 0
    #: Earlier starts that failed at the same record number of this journal.
    failed_starts: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        lock = ", the lock inherited" if self.lock_inherited else ""
        return f"ebbtide {self.version} started on {self.node}, mode {self.mode}{lock}"


class StopRequested(Fact):
    """SIGTERM or SIGINT. ``system_stopping``: the service manager is going down."""

    level_by = ("system_stopping", WARNING, INFO)
    lane = URGENT
    log = UNLOGGED

    system_stopping: bool
    #: How long the unit may run after SIGTERM.
    stop_time_ns: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        if not self.system_stopping:
            return "stop requested"
        return f"stop requested while the system stops, {span(self.stop_time_ns)} are left"


class SettingsLoaded(Fact):
    """``sources``: by field, the origin of its value."""

    template = "configuration loaded"

    settings: values.Settings
    sources: BoundedDict[kinds.Field, kinds.FilePosition] = {}


class SettingsRejected(Fact):
    notice = "settings-rejected"
    template = "configuration not reloaded, the old one stays: {self.error}"
    level = ERROR

    error: str


class Tick(Fact):
    """The earliest deadline of all actors is due."""

    template = "a deadline is due"
    level = DEBUG


class Heartbeat(Fact):
    """In a shutdown, a second passed without another record. It bounds the time of a power cut."""

    template = "the shutdown goes on"
    level = DEBUG
    repeats = True


class ClockStepped(Fact):
    """It moves no deadline."""

    delta_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        return f"the wall clock was stepped by {offset(self.delta_ns)}"


#: A stop takes up to `bounds.Bounds.stop_heard_seconds` if the call waits for its container. More is slow.
SLOW_STOP_NS = 5 * NS_PER_SECOND // 2


class OrderEnded(Fact):
    """The one outcome of an order. ``reason``: empty for ``done``."""

    lane = OUTCOMES

    key: str
    result: Result
    reason: str = ""
    elapsed_ns: int = 0
    exit_code: int | None = None

    def text(self, names: Names, at: Stamp) -> str:
        order = order_text(names, self.key)
        if self.result in FAILED_RESULTS:
            return f"{order} failed: {self.reason or self.result}"
        if self.result == "done" and self.slow_stop:
            return f"{order} took {span(self.elapsed_ns)}"
        why = f": {self.reason}" if self.reason else ""
        return f"{order} {'is done' if self.result == 'done' else f'ended, outcome {self.result}'}{why}"

    @property
    def slow_stop(self) -> bool:
        """The stop signal was late, so its pod had less time."""
        return self.elapsed_ns >= SLOW_STOP_NS and parse_order_key(self.key).what == "stop"

    @property
    def level(self) -> int:
        quiet = self.result == "done" and not self.slow_stop
        return WARNING if self.result in FAILED_RESULTS else DEBUG if quiet else INFO

    def log_messages(self, names: Names, message: Message, since: str) -> Iterator[Message]:
        # Log a failure once: a pod's reason repeats a failed stop, and `Disarmed` a failed arming. No other
        # event repeats a failed start.
        if message.level <= WARNING and self.key.startswith((START_POD_KEY, START_KUBELET_KEY)):
            yield message._replace(level=ERROR)
        # After `NODE_CHANGED` the actor decides again.
        elif message.level <= WARNING and self.key.startswith(OF_OUTAGES) and self.reason != NODE_CHANGED:
            yield message

    @property
    def repeats(self) -> bool:
        return parse_order_key(self.key).what == "hook"


class EffectPanicked(Fact):
    """An effect raised an unexpected error. Its order ends failed; this names the bug."""

    lane = OUTCOMES
    notice = "effect-panicked"
    level = ERROR

    key: str
    error: str

    def text(self, names: Names, at: Stamp) -> str:
        return f"{order_text(names, self.key)} failed unexpectedly: {self.error}"


class LastBootRead(Fact):
    """The logs about the end of the boot that last wrote the journal; read once, without foreign texts.

    ``alive_wall_ns``: the last sign of life of that boot, 0: none.
    """

    boot_id: str
    crash: values.CrashRecord = "none"
    wtmp: values.WtmpEnd = "absent"
    journal: values.JournalEnd = "absent"
    #: Near its end the kernel reported a panic or a hung processor.
    kernel_emergency: bool = False
    power_key: bool = False
    #: The hardware's watchdog reset the machine.
    watchdog: bool = False
    #: kexec began this boot.
    kexec: bool = False
    alive_wall_ns: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        said = (
            CRASH_TEXTS.get(self.crash),
            "the kernel logged a panic or a hang" if self.kernel_emergency else "",
            "the watchdog reset the machine" if self.watchdog else "",
            WTMP_TEXTS.get(self.wtmp),
            JOURNAL_TEXTS.get(self.journal),
            "the power key was pressed" if self.power_key else "",
            "this boot was begun by kexec" if self.kexec else "",
        )
        return f"the last boot's end: {'; '.join(filter(None, said)) or 'no log shows it'}"


# --- storage


class DurabilityLate(Fact):
    level = WARNING

    key: str
    barrier: kinds.Word
    waited_ns: int

    def text(self, names: Names, at: Stamp) -> str:
        order, waited = order_text(names, self.key), span(self.waited_ns)
        return f"the disk did not answer within {waited}: {order} started before its record was durable"


class StorageFailed(Fact):
    """A write or sync failed. No record goes to that file any more."""

    notice = "storage-failed"
    template = "journal at {self.location} failed: {self.error}"
    level = ERROR

    location: kinds.Path
    error: str


class StorageMoved(Fact):
    """Records from ``first_seq`` were written again at the new location."""

    notice = "storage-moved"
    template = "journal continues at {self.location} from record {self.first_seq}"
    level = WARNING

    location: kinds.Path
    first_seq: int


# --- logind and the bus


class LogindRead(Fact):
    """Read while arming or after a change. ``owner``: the unique bus name."""

    lane = URGENT
    level = DEBUG

    owner: kinds.BusName
    grant_ns: int
    preparing: bool
    kind: values.ShutdownKind = "unknown"
    #: Another program called ``kubelet`` holds a delay lock on shutdown.
    kubelet_lock: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        preparing = ", a shutdown is being prepared" if self.preparing else ""
        return f"logind grants {span(self.grant_ns)}{preparing}"


class PrepareForShutdown(Fact):
    """logind's signal. ``grant_ns``: the limit at that moment."""

    lane = URGENT

    active: bool
    kind: values.ShutdownKind = "unknown"
    grant_ns: int = 0
    lock_held: bool = False
    owner: kinds.BusName = ""
    #: As in `LogindRead`, as last seen.
    kubelet_lock: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        if not self.active:
            return "logind's signal: no shutdown is being prepared any more"
        lock = "" if self.lock_held else ", no lock is held"
        lock += ", the kubelet holds one" if self.kubelet_lock else ""
        return f"logind's signal: {self.kind}, {span(self.grant_ns)} are granted{lock}"


class SignalRejected(Fact):
    """A signal from another sender or with a wrong body (kubernetes#97951)."""

    lane = URGENT
    level = WARNING

    member: kinds.Word
    reason: str
    sender: kinds.BusName = ""

    def text(self, names: Names, at: Stamp) -> str:
        return f"signal {self.member} from {self.sender or 'an unknown sender'} ignored: {self.reason}"


class PreparingRead(Fact):
    """``PreparingForShutdown`` or logind's owner changed between two reads."""

    lane = URGENT

    preparing: bool
    owner: kinds.BusName = ""

    def text(self, names: Names, at: Stamp) -> str:
        return f"logind reports: {'a' if self.preparing else 'no'} shutdown is being prepared"


class LockHoldersRead(Fact):
    """Other programs with a delay lock, at the signal and after each change. logind waits for all of them, up
    to the limit that Ebbtide raised.
    """

    level_by = ("holders", INFO, DEBUG)
    log_level_max = INFO

    holders: BoundedTuple[values.LockHolder] = ()

    def text(self, names: Names, at: Stamp) -> str:
        if not self.holders:
            return "no other program holds a delay lock"
        return f"the machine also waits for {', '.join(map(holder_text, self.holders))}"


class ScheduleRead(Fact):
    """``at_wall_ns`` 0: no shutdown is scheduled any more."""

    lane = URGENT
    level = NOTICE

    at_wall_ns: int = 0
    kind: values.ShutdownKind = "unknown"
    uid: kinds.Person | None = None
    tty: kinds.Tty = ""
    wall_message: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        if not self.at_wall_ns:
            return "no shutdown is scheduled any more"
        who = f" by uid {self.uid}" if self.uid is not None else ""
        where = f" on {self.tty}" if self.tty else ""
        why = f': "{self.wall_message}"' if self.wall_message else ""
        left = span(max(0, self.at_wall_ns - at.wall_ns))
        return f"{self.kind} scheduled in {left}{who}{where}{why}"


class BusLost(Fact):
    """The bus connection or logind's name on it is lost."""

    lane = URGENT
    notice = "bus-lost"
    template = "connection to logind lost: {self.error}"
    level = WARNING
    log = UNLOGGED

    error: str


class DropInsRead(Fact):
    """``others_ns``: the largest value in other configuration files of logind."""

    lane = URGENT
    level = DEBUG

    others_ns: int = 0
    others_path: kinds.Path = ""
    ours_ns: int | None = None
    #: A file that sorts after ours and sets the same key.
    overridden_by: kinds.Path = ""

    def text(self, names: Names, at: Stamp) -> str:
        ours = "none" if self.ours_ns is None else span(self.ours_ns)
        return f"logind's drop-ins ask for {span(self.others_ns)}, ours: {ours}"


# --- pods and their containers


class InventoryTaken(Fact):
    """A part of the node's pods; their order decides later ties.

    ``untold``: why some have no priority yet: the API server has not answered since the daemon's start.
    """

    level_by = ("untold", WARNING, INFO)
    log_level_max = WARNING

    key: str
    as_of_ns: int
    source: kinds.Word
    part: int = 1
    parts: int = 1
    pods: BoundedTuple[values.Pod] = ()
    untold: str = ""

    @classmethod
    def in_parts(
        cls, key: str, as_of_ns: int, source: str, pods: Sequence[values.Pod], untold: str = ""
    ) -> list[InventoryTaken]:
        """At least one part, because an actor waits for it."""
        cut, room = [list[values.Pod]()], INVENTORY_BYTES_MAX
        for pod in pods:
            size = len(msgspec.msgpack.encode(pod))
            if cut[-1] and (size > room or len(cut[-1]) >= INVENTORY_PODS_MAX):
                cut, room = [*cut, []], INVENTORY_BYTES_MAX
            cut[-1].append(pod)
            room -= size
        return [
            cls(
                key=key,
                as_of_ns=as_of_ns,
                source=source,
                part=part,
                parts=len(cut),
                pods=tuple(some),
                untold=untold,
            )
            for part, some in enumerate(cut, 1)
        ]

    def text(self, names: Names, at: Stamp) -> str:
        part = f", part {self.part} of {self.parts}" if self.parts > 1 else ""
        lacking = f", some without a priority: {self.untold}" if self.untold else ""
        return f"{plural(len(self.pods), 'pod')} listed by {self.source}{part}{lacking}"

    def introduce(self, names: Names) -> None:
        # Keep every name: an order's outcome may come long after its pod. A node sees only a few thousand
        # UIDs between two boots.
        names.labels.update((pod.uid, pod.label) for pod in self.pods)


class PodAppeared(Fact):
    template = "is to be started"
    level = DEBUG
    pod: values.Pod

    def introduce(self, names: Names) -> None:
        names.labels[self.pod.uid] = self.pod.label


class ManifestRejected(Fact):
    notice = "manifest-rejected"
    template = "manifest {self.path}: {self.error}"
    level = ERROR

    path: kinds.Path
    error: str


class ContainerStarted(Fact):
    template = "{self.container}: started"
    level = DEBUG
    uid: str
    container: str
    pid: int = 0


class ContainerExited(Fact):
    """``exit_code`` None: unknown, as for an adopted process.

    ``gone``: it had vanished before a look. ``never_ran``: expected to start, and not seen to run. ``lost``:
    the runtime lost it, as with its shim, and the exit code is the runtime's own.
    """

    lane = OUTCOMES

    uid: str
    container: str
    exit_code: int | None = None
    signal: kinds.Signal = ""
    gone: bool = False
    never_ran: bool = False
    lost: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        unknown = "gone, end not seen" if self.gone else "exit code not known"
        unknown = "did not run" if self.never_ran else unknown
        lost = ", by the runtime, which lost the end" if self.lost else ""
        how = f"exit code {self.exit_code}{lost}" if self.exit_code is not None else unknown
        return f"{self.container}: {f'ended by {self.signal}' if self.signal else how}"

    def sentence(self, text: str, wave: int | None) -> str:
        how = "was gone, end not seen" if self.gone else "ended, its exit code is not known"
        how = "did not run" if self.never_ran else how
        if self.signal:
            how = f"was ended by {self.signal}"
        elif self.exit_code is not None:
            how = f"ended with exit code {self.exit_code}"
        return f"container {self.container} {how}"


class AutopsyTaken(Fact):
    level = WARNING

    uid: str
    container: str
    processes: BoundedTuple[values.ProcessReport] = ()
    last_lines: kinds.LastLines = ()

    def text(self, names: Names, at: Stamp) -> str:
        found = "; ".join(map(process_text, self.processes)) or "no process is left"
        return f"autopsy of {self.container}: {found}"

    def log_messages(self, names: Names, message: Message, since: str) -> Iterator[Message]:
        # A line for each process, because a log cuts long lines.
        name = names.of(self.uid)
        for process in self.processes:
            yield Message(message.level, f"autopsy of {name}/{self.container}: {process_text(process)}")

    def sentence(self, text: str, wave: int | None) -> str:
        wrote = "".join(f"; it last wrote: {each}" for each in self.last_lines)
        return f"just before SIGKILL, what ran in {self.container} was {text.partition(': ')[2]}{wrote}"


# --- a Kubernetes node


class KubeletRead(Fact):
    """The kubelet's unit. ``active`` None: unknown.

    ``stoppable`` False: the container runtime is in the same unit (k3s, rke2). ``healthy``: of its health
    endpoint; False: bad or no answer; None: no such endpoint.
    """

    unit: kinds.Unit
    active: bool | None = None
    stoppable: bool = True
    healthy: bool | None = None

    def text(self, names: Names, at: Stamp) -> str:
        unit = self.unit or "the kubelet"
        if self.active is None:
            return f"cannot read whether {unit} runs"
        ill = ", but its health endpoint does not answer, or reports a fault" if self.healthy is False else ""
        return f"{unit} {'runs' if self.active else 'does not run'}{ill}"

    @property
    def level(self) -> int:
        return WARNING if self.active is None or self.healthy is False else NOTICE


class RuntimeRead(Fact):
    level_by = ("reachable", NOTICE, WARNING)

    reachable: bool
    error: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        return _reachable_text("the container runtime", self)


class ApiRead(Fact):
    """``taint``: we may taint the node."""

    level_by = ("reachable", NOTICE, WARNING)

    reachable: bool
    error: str = ""
    taint: bool = True

    def text(self, names: Names, at: Stamp) -> str:
        untainted = ", but this identity may not taint the node" if self.reachable and not self.taint else ""
        return f"{_reachable_text('the API server', self)}{untainted}"


class PodJoined(Fact):
    """No inventory of this shutdown had this running pod; or its kubelet started ended containers again."""

    # Before the exit of a new container.
    lane = OUTCOMES
    template = "runs here, but no inventory of this shutdown has it, or it had ended"
    level = NOTICE
    log = TIMED_OF_POD

    pod: values.Pod

    def introduce(self, names: Names) -> None:
        names.labels[self.pod.uid] = self.pod.label


class VolumesUnmounted(Fact):
    lane = OUTCOMES
    story = "its volumes were unmounted"
    template = "its volumes are unmounted"

    uid: str


class MountsRead(Fact):
    """Mounts that are left: of pods as (UID, volume), of volume drivers ("", path)."""

    # Before the outcome of the order ``key``.
    lane = OUTCOMES

    key: str
    mounted: BoundedTuple[kinds.Mount] = ()

    def text(self, names: Names, at: Stamp) -> str:
        if not self.mounted:
            return "no volume is mounted"
        return f"{plural(len(self.mounted), 'volume')} mounted: {mounts_text(names, self.mounted)}"


class StatusesSeen(Fact):
    """``missing``: pods of the order ``key`` without a final status in the API server.

    It comes before the order's outcome. A slow delivery also reports it meanwhile.
    """

    level_by = ("missing", WARNING, INFO)
    lane = OUTCOMES
    log = UNLOGGED

    key: str
    missing: BoundedTuple[kinds.Uid] = ()

    def text(self, names: Names, at: Stamp) -> str:
        if self.missing:
            return f"the API server has no final status of: {names.some_of(self.missing)}"
        return "the API server has every final status"


# --- people


class HurryRequested(Fact):
    """``ebbtide hurry POD``. ``pod``: ``namespace/name``, a name, or a UID."""

    lane = URGENT
    level = NOTICE

    pod: kinds.PodReference
    asked_by: kinds.Person

    def text(self, names: Names, at: Stamp) -> str:
        return f"uid {self.asked_by} asked to hurry {names.of(self.pod)}"


class ReleaseRequested(Fact):
    """``ebbtide release``."""

    lane = URGENT
    notice = "release-requested"
    template = "uid {self.asked_by} asked to release the lock"
    level = NOTICE

    asked_by: kinds.Person


#: Of one `InventoryTaken`. A pod may have thousands of containers.
INVENTORY_PODS_MAX, INVENTORY_BYTES_MAX = 256, 1024 * 1024

#: The source of a refreshed `InventoryTaken` while the runtime does not answer: its last answer.
FROM_TABLE = "table"
