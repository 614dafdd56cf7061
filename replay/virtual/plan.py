"""What is simulated: everything that one run is a function of.

The same plan gives the same journal, byte for byte. Times are nanoseconds after the shutdown's signal unless
their name says otherwise; None means never.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from events.model import Settings, ShutdownKind
from replay.virtual.manner import PodPlan
from replay.virtual.trail import MS, NS_PER_SECOND

#: How the API server behaves.
Api = Literal["works", "fails", "hangs"]

#: Which orders the container runtime refuses: none, stop signals, or SIGKILL too.
Refuses = Literal["nothing", "stops", "everything"]


#: The daemon's mode on a Kubernetes node.
Mode = Literal["", "auto", "api", "cri", "observe"]

#: Of the kubelet: it runs, it does not, or no order stops it.
KubeletIs = Literal["runs", "away", "stays"]


class Faults(NamedTuple):
    """What the node is like, and what happens to it."""

    kind: ShutdownKind = "poweroff"
    #: logind's limit, which no drop-in of ours moves; None: the drop-in is obeyed.
    grant_ns: int | None = None
    #: How long logind takes to obey the drop-in.
    late_grant_ns: int = 0
    cancel_after_ns: int | None = None
    #: logind is restarted, and the shutdown asked for once more.
    second_signal_after_ns: int | None = None
    bus_lost_after_ns: int | None = None
    api: Api = "works"
    api_takes_ns: int = 8 * MS
    runtime_refuses: Refuses = "nothing"
    runtime_takes_ns: int = 0
    #: The daemon dies, and its service manager starts it again.
    crash_after_ns: int | None = None
    restart_takes_ns: int = 500 * MS
    power_cut_after_ns: int | None = None
    #: The shutdown is asked for once more: after a cancel another one, else the same.
    again_after_ns: int | None = None
    # A Kubernetes node; ``mode`` empty: there is none, and pods are started by the daemon.
    mode: Mode = ""
    api_lost_after_ns: int | None = None
    api_back_after_ns: int | None = None
    #: Our identity may taint the node.
    taints: bool = True
    kubelet: KubeletIs = "runs"
    #: It carries its own graceful shutdown out.
    kubelet_lock: bool = False
    unmount_takes_ns: int = 300 * MS

    def afterwards(self) -> Faults:
        """What is left of it in the next boot: logind's limit, and what node it is."""
        return Faults(
            kind=self.kind,
            grant_ns=self.grant_ns,
            mode=self.mode,
            taints=self.taints,
            kubelet_lock=self.kubelet_lock,
        )


class Plan(NamedTuple):
    """One run. ``seed`` gives ids and latencies; ``pods`` and ``faults`` are drawn or given before."""

    settings: Settings
    pods: tuple[PodPlan, ...]
    faults: Faults = Faults()
    seed: int = 0
    sources: dict[str, str] = {}
    version: str = "0"
    node: str = "simulated"


#: The machine has been up for so long when its daemon starts; the second time for less.
UPTIME_NS = 20 * NS_PER_SECOND
NEXT_UPTIME_NS = 12 * NS_PER_SECOND

#: From the daemon's start to the signal: it has armed, unless logind is slow to raise its limit.
SIGNAL_AFTER_NS = 10 * NS_PER_SECOND

#: What the node is watched for after its shutdown's own end: until a cancelled one is armed again.
AFTERMATH_NS = 45 * NS_PER_SECOND

#: Between two boots, as far as the wall clock can tell.
OFF_NS = 20 * NS_PER_SECOND

#: What the next boot is watched for: its daemon looks back and arms.
NEXT_BOOT_NS = 3 * NS_PER_SECOND

#: The wall clock when the first daemon starts: any fixed moment, here 2026-01-01T00:00:00Z.
WALL_NS = 1_767_225_600 * NS_PER_SECOND
