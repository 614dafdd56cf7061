"""How the node stands outside of a shutdown: for the daemon's status and for the metrics."""

from __future__ import annotations

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event, Record
from ebbtide.events.record.shutdown_record import RecordPart
from ebbtide.events.values import Period

#: Why it is not armed, before it has tried.
NOT_STARTED, STARTING = "not started", "starting"


class NodeState(RecordPart):
    """``armed``: lock held and signal trusted. Times are of the wall clock."""

    enabled: bool = False
    armed: bool = False
    #: As far as this process knows; 0: not armed.
    armed_wall_ns: int = 0
    why_not: str = NOT_STARTED
    retry_at_ns: int = 0
    lock_held: bool = False
    #: The service manager kept the lock for the latest process.
    lock_inherited: bool = False
    grant_ns: int = 0
    requested_ns: int = 0
    reserve_ns: int = 0
    #: The configuration's whole request, known before the first look at logind.
    needed_ns: int = 0
    periods: tuple[Period, ...] = ()
    sufficient: bool = True
    scheduled_wall_ns: int = 0
    starts_wall_ns: int = 0
    #: Which parts of a Kubernetes node answer; None: not known since the process began, as in mode process.
    kubelet: bool | None = None
    kubelet_healthy: bool = True
    runtime: bool | None = None
    api: bool | None = None
    runtime_error: str = ""
    api_error: str = ""
    #: Whether this identity may taint the node.
    may_taint: bool = True
    #: Another program called ``kubelet`` holds a delay lock on shutdown.
    kubelet_lock: bool = False
    #: None: not known how it ended.
    last_boot: d.LastBootEnded | None = None

    @property
    def answers(self) -> dict[str, bool]:
        """Only known answers: False would mean that the part is down."""
        kubelet = self.kubelet and self.kubelet_healthy
        known = {"kubelet": kubelet, "runtime": self.runtime, "api": self.api}
        return {part: answers for part, answers in known.items() if answers is not None}

    def see(self, record: Record) -> None:
        """Every type here is in `NODE_EVENTS`, by which a start filters (tests/daemon/test_status.py)."""
        match record.event:
            case f.DaemonStarted() as event:
                # A lock that was kept over the restart is not enough: this process must look at logind
                # before it trusts the signal. Likewise the node's parts must answer again.
                self.armed, self.armed_wall_ns, self.why_not = False, 0, STARTING
                self.lock_held = self.lock_inherited = event.lock_inherited
                self.starts_wall_ns = record.wall_ns
                self.kubelet = self.runtime = self.api = None
                self.runtime_error = self.api_error = ""
            case d.LastBootEnded() as event:
                self.last_boot = event
            case d.ConfigAdopted() as event:
                self.enabled, self.periods = event.enabled, event.periods
                self.requested_ns, self.reserve_ns = event.requested_ns, event.reserve_ns
                self.needed_ns = event.requested_ns + event.reserve_ns if event.enabled else 0
            case d.Armed():
                self.armed = self.lock_held = True
                self.armed_wall_ns, self.why_not, self.retry_at_ns = record.wall_ns, "", 0
            case d.Disarmed() as event:
                self._disarm(event.reason)
                self.retry_at_ns = event.retry_at_ns
            case d.ReleaseLock():
                self._disarm("the lock was released, the machine may go")
            case f.LogindRead() as event:
                self.grant_ns, self.kubelet_lock = event.grant_ns, event.kubelet_lock
            case f.PrepareForShutdown() as event:
                if event.active:  # the signal that ends a shutdown has no locks
                    self.kubelet_lock = event.kubelet_lock
            case d.GrantAssessed() as event:
                self.sufficient, self.grant_ns = event.sufficient, event.grant_ns
            case f.ScheduleRead() as event:
                self.scheduled_wall_ns = event.at_wall_ns
            case f.KubeletRead() as event:
                self.kubelet, self.kubelet_healthy = event.active, event.healthy is not False
            case f.RuntimeRead() as event:
                self.runtime, self.runtime_error = event.reachable, event.error
            case f.ApiRead() as event:
                self.api, self.api_error, self.may_taint = event.reachable, event.error, event.taint

    def _disarm(self, why: str) -> None:
        self.armed = self.lock_held = False
        self.armed_wall_ns, self.why_not = 0, why


#: The types that change a `NodeState`. A start need not decode others for it.
NODE_EVENTS: tuple[type[Event], ...] = (
    *(f.DaemonStarted, d.LastBootEnded, d.ConfigAdopted, d.Armed, d.Disarmed, d.ReleaseLock, d.GrantAssessed),
    *(f.LogindRead, f.PrepareForShutdown, f.ScheduleRead, f.KubeletRead, f.RuntimeRead, f.ApiRead),
)
