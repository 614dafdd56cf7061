"""Facts: what edges report. Grouped by edge; an edge decides nothing, it says what it saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ebbtide.events.base import Fact
from ebbtide.events.model import (
    CrashRecord,
    JournalEnd,
    Pod,
    ProcessReport,
    Settings,
    ShutdownKind,
    WtmpEnd,
)

Result = Literal["done", "failed", "timed-out", "cancelled", "unknown"]

# --- the daemon itself -------------------------------------------------------------------------


class DaemonStarted(Fact):
    """A process began to write. ``preparing`` is logind's property, None when it could not be read."""

    version: str
    pid: int
    mode: str
    node: str
    boot_id: str
    #: Changes at a soft reboot, which keeps the boot id.
    userspace_id: str
    preparing: bool | None = None
    lock_inherited: bool = False
    kind: ShutdownKind = "unknown"
    grant_ns: int = 0
    #: Starts of this journal that failed at the same sequence number, counted beside it.
    failed_starts: int = 0


class StopRequested(Fact):
    """SIGTERM or SIGINT. ``system_stopping``: the service manager itself is going down."""

    system_stopping: bool
    #: How long the unit may go on after SIGTERM.
    stop_time_ns: int = 0


class SettingsLoaded(Fact):
    """A valid configuration; ``sources`` says for each field where its value came from."""

    settings: Settings
    sources: dict[str, str] = {}


class SettingsRejected(Fact):
    """A reload that could not be used; the old configuration stays."""

    error: str


class Tick(Fact):
    """The earliest deadline is due. Who is due follows from the actors' state."""


class ClockStepped(Fact):
    """The wall clock moved against the monotonic one. Moves no deadline."""

    delta_ns: int


class OrderEnded(Fact):
    """The one outcome of an order. ``reason`` is empty for ``done``; ``elapsed_ns`` of its effect."""

    key: str
    result: Result
    reason: str = ""
    elapsed_ns: int = 0
    exit_code: int | None = None


class EffectPanicked(Fact):
    """An effect raised what its edge does not know. Its order ends failed; this names the bug."""

    key: str
    error: str


class LastBootRead(Fact):
    """What this machine has of the end of the boot that the journal was last written in, read once after it.

    Foreign words stand in none of it. ``alive_wall_ns``: the last sign of life of that boot, 0: none is left.
    """

    boot_id: str
    crash: CrashRecord = "none"
    wtmp: WtmpEnd = "absent"
    journal: JournalEnd = "absent"
    #: Near its end the kernel wrote of a panic or of a processor that hangs; somebody pressed the power key.
    kernel_emergency: bool = False
    power_key: bool = False
    #: The hardware's watchdog has reset the machine; this boot was begun by kexec.
    watchdog: bool = False
    kexec: bool = False
    alive_wall_ns: int = 0


# --- storage -----------------------------------------------------------------------------------


class DurabilityLate(Fact):
    """An effect started before its order was written or synced, because the disk did not answer."""

    key: str
    barrier: str
    waited_ns: int


class StorageFailed(Fact):
    """A write or sync failed: final for that file."""

    location: str
    error: str


class StorageMoved(Fact):
    """The journal goes on at another location; records from ``first_seq`` were written again there."""

    location: str
    first_seq: int


# --- logind and the bus ------------------------------------------------------------------------


class LogindRead(Fact):
    """Manager properties, read while arming or after a change. ``owner`` is the unique bus name."""

    owner: str
    grant_ns: int
    preparing: bool
    kind: ShutdownKind = "unknown"
    #: Another program called ``kubelet`` holds a delay lock on shutdown.
    kubelet_lock: bool = False


class PrepareForShutdown(Fact):
    """logind's signal, its sender checked. ``grant_ns`` is the limit in force at that moment."""

    active: bool
    kind: ShutdownKind = "unknown"
    grant_ns: int = 0
    lock_held: bool = False
    owner: str = ""
    #: As last seen: another program called ``kubelet`` holds a delay lock on shutdown.
    kubelet_lock: bool = False


class SignalRejected(Fact):
    """A signal from a foreign sender or with a wrong body (kubernetes#97951)."""

    member: str
    reason: str
    sender: str = ""


class PreparingRead(Fact):
    """The property ``PreparingForShutdown`` changed between two reads, or logind changed its owner."""

    preparing: bool
    owner: str = ""


class ScheduleRead(Fact):
    """A scheduled shutdown appeared, moved or went. ``at_wall_ns`` 0: none."""

    at_wall_ns: int = 0
    kind: ShutdownKind = "unknown"
    uid: int | None = None
    tty: str = ""
    wall_message: str = ""


class BusLost(Fact):
    """The bus connection, or logind's name on it, went away."""

    error: str


class DropInsRead(Fact):
    """What logind's configuration files ask for. ``others_ns`` is the largest value of any other file."""

    others_ns: int = 0
    others_path: str = ""
    ours_ns: int | None = None
    #: Does a file that is not ours sort after ours and set the same key?
    overridden_by: str = ""


# --- pods and their containers -----------------------------------------------------------------


class InventoryTaken(Fact):
    """The pods on the node, in parts of at most `INVENTORY_PODS_MAX`, in an order that later ties use.
    ``source``: who was asked for them, or `FROM_TABLE`.

    ``untold``: some of them have no priority, and the API server has told nothing since the daemon's start:
    why not.
    """

    key: str
    as_of_ns: int
    source: str
    part: int = 1
    parts: int = 1
    pods: tuple[Pod, ...] = ()
    untold: str = ""

    @classmethod
    def in_parts(
        cls, key: str, as_of_ns: int, source: str, pods: Sequence[Pod], untold: str = ""
    ) -> list[InventoryTaken]:
        """All of these pods; one part at least, because somebody waits for it."""
        parts, size = -(-len(pods) // INVENTORY_PODS_MAX) or 1, INVENTORY_PODS_MAX
        cut = (tuple(pods[start : start + size]) for start in range(0, parts * size, size))
        return [
            cls(
                key=key,
                as_of_ns=as_of_ns,
                source=source,
                part=part,
                parts=parts,
                pods=some,
                untold=untold,
            )
            for part, some in enumerate(cut, 1)
        ]


class PodAppeared(Fact):
    """A pod asks to be started here."""

    pod: Pod


class ManifestRejected(Fact):
    """A pod manifest that cannot be used."""

    path: str
    error: str


class ContainerStarted(Fact):
    uid: str
    container: str
    pid: int = 0


class ContainerExited(Fact):
    """Observed, whoever caused it. ``exit_code`` None: not ours to wait for (an adopted process).

    ``gone``: nobody saw it end, nor can say how; when it was looked for it was no longer there.
    """

    uid: str
    container: str
    exit_code: int | None = None
    signal: str = ""
    gone: bool = False


class AutopsyTaken(Fact):
    """What a straggler was doing just before SIGKILL."""

    uid: str
    container: str
    processes: tuple[ProcessReport, ...] = ()
    last_lines: tuple[str, ...] = ()


# --- a Kubernetes node -------------------------------------------------------------------------


class KubeletRead(Fact):
    """The kubelet's unit, at the start and when it has changed. ``active`` None: it cannot be told.

    ``stoppable`` False: the container runtime is in the same unit (k3s, rke2). ``healthy``: what its health
    endpoint says while the unit works; False: it says no, or nothing at all; None: nobody listens there.
    """

    unit: str
    active: bool | None = None
    stoppable: bool = True
    healthy: bool | None = None


class RuntimeRead(Fact):
    """The container runtime began to answer, or no longer does. ``away_ns``: it answers again after a break
    so short that nobody was told of it; whoever had asked it for something by then may have got nothing.
    """

    reachable: bool
    error: str = ""
    away_ns: int = 0


class ApiRead(Fact):
    """The API server began to answer, or has not answered for a while. ``taint``: we may taint the node."""

    reachable: bool
    error: str = ""
    taint: bool = True


class PodJoined(Fact):
    """A pod runs here that no inventory of this shutdown had; or one that it had, and of which the ends of
    containers are on record, has some of these started again by its kubelet: ``pod`` is as it is now.
    """

    pod: Pod


class VolumesUnmounted(Fact):
    """Nothing of this pod's volumes is mounted any more."""

    uid: str


class MountsRead(Fact):
    """What is still mounted for pods, as (UID, volume), and for volume drivers ("", path). Before the
    outcome of the order ``key``.
    """

    key: str
    mounted: tuple[tuple[str, str], ...] = ()


class StatusesSeen(Fact):
    """Of the pods that were asked for, those of which the API server has no final status, by UID. Before the
    outcome of the order ``key``.
    """

    key: str
    missing: tuple[str, ...] = ()


# --- people ------------------------------------------------------------------------------------


class HurryRequested(Fact):
    """``ebbtide hurry POD``: stop waiting for a pod. ``pod`` is ``namespace/name``, a name, or a UID."""

    pod: str
    asked_by: int


class ReleaseRequested(Fact):
    """``ebbtide release``: let the machine go now."""

    asked_by: int


#: Pods in one `InventoryTaken`: keeps a frame under 1 MiB even with long names and many containers.
INVENTORY_PODS_MAX = 256

#: The source of a refreshed `InventoryTaken` if the runtime is away and was not asked: the last look, however
#: old.
FROM_TABLE = "table"
