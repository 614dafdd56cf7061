"""A modelled node: one boot of the machine, with its clock, its pods, its logind and its service manager.

`simulate` and the tests' world share it; the first drives it by its agenda, the second by Trio's tasks.
"""

from __future__ import annotations

from collections.abc import Callable

from ebbtide.actors.simulated_logind import SimulatedLogind, Timer
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.model import Pod, Settings, ShutdownKind
from ebbtide.replay.sim.kubelet import Kubelet
from ebbtide.replay.sim.pods import SimulatedPods
from ebbtide.replay.sim.scenario import Faults
from ebbtide.replay.sim.world_log import MS, WorldLog

#: Between the final unit's start and the daemon's SIGTERM, and between the last unit's stop and the end.
HALT_NS = 50 * MS

#: What the daemon's unit is given on top of what it asks for.
LEAVING_NS = 2 * NS_PER_SECOND


class ApiServer:
    """The API server and what the cluster believes of the node, over all processes of a boot.

    ``listeners`` are told when it is lost, or back.
    """

    def __init__(self, log: WorldLog, faults: Faults) -> None:
        self._log, self._faults = log, faults
        self.reachable = faults.api != "hangs"
        self.shown_ready = True
        self.listeners: list[Callable[[], object]] = []

    def set_reachable(self, reachable: bool) -> None:
        self.reachable = reachable
        self._log.note("api-back" if reachable else "api-lost")
        for listener in list(self.listeners):
            listener()

    @property
    def accepts(self) -> bool:
        return self.reachable and self._faults.api == "works"


class SimulatedNode:
    """One boot. ``stops`` is called when units are to stop, ``down`` when the machine is off."""

    def __init__(
        self,
        log: WorldLog,
        timer: Timer,
        faults: Faults,
        ids: tuple[str, str],
        settings: Settings,
        stops: Callable[[], object],
        down: Callable[[], object],
    ) -> None:
        self.log, self.timer, self.faults = log, timer, faults
        self.boot_id, self.userspace_id = ids
        self.pods = SimulatedPods(log, timer)
        obeys = faults.grant_ns is None
        self.logind = SimulatedLogind(
            log.note, timer, self._start_final_unit, faults.grant_ns, obeys_drop_in=obeys
        )
        self.api = ApiServer(log, faults)
        self.kubelet = Kubelet(
            self.pods, timer, log, self.logind, faults, settings, lambda: self.api.reachable
        )
        self.kind: ShutdownKind = "unknown"
        self.stopping = self.is_down = self.powered_off = False
        #: The next final unit fails so long after it was started.
        self.final_fails_ns: int | None = None
        #: Containers whose exit stands in the journal.
        self.exits_recorded: dict[tuple[str, str], None] = {}
        self._stops, self._down = stops, down
        self._stop_by_ns = 0

    # --- pods ----------------------------------------------------------------------------------

    def come_up(self, pod: Pod) -> None:
        """A pod that runs since before the daemon; of its containers some may have ended already."""
        self.pods.begin(pod.uid, "boot")
        for container, box in zip(pod.containers, self.pods.of(pod.uid), strict=True):
            if container.running:
                self.pods.start(box, 0)
            else:
                self.pods.drop(box)
                self.exits_recorded[box.uid, box.name] = None

    def come_up_as_node(self) -> None:
        """The kubelet starts before the daemon, and runs the pods that are there."""
        for uid in self.pods.begun:
            if self.pods.plans[uid].pod.volumes:
                self.kubelet.mounted[uid] = None
        if self.faults.kubelet != "away":
            self.kubelet.start()

    def admit(self, pod: Pod) -> bool:
        """A pod is assigned to this node; a taint keeps it away, and so does a kubelet that is not there."""
        if not self.kubelet.running or not self.api.shown_ready or self.is_down:
            return False
        self.log.note("appeared", pod.uid)
        self.kubelet.admit(pod)
        return True

    # --- the daemon ----------------------------------------------------------------------------

    def daemon_started(
        self, number: int, version: str, mode: str, name: str, failed_starts: int = 0
    ) -> DaemonStarted:
        """What a daemon's process learns of the node before it has armed."""
        logind = self.logind
        return DaemonStarted(
            version=version,
            pid=1000 + number,
            mode=mode,
            node=name,
            boot_id=self.boot_id,
            userspace_id=self.userspace_id,
            preparing=logind.preparing if logind.up else None,
            kind=logind.kind if logind.up and logind.preparing else "unknown",
            grant_ns=logind.grant_ns if logind.up else 0,
            lock_inherited=number in logind.holders,
            failed_starts=failed_starts,
        )

    # --- the end of the boot -------------------------------------------------------------------

    def _start_final_unit(self, kind: ShutdownKind) -> None:
        """logind lets the machine go."""
        fails_ns, self.final_fails_ns = self.final_fails_ns, None
        if fails_ns is None:
            self.stop(kind)
        else:
            self.timer.later(fails_ns, lambda: self.logind.withdraw("the final unit failed"))

    def stop(self, kind: ShutdownKind) -> None:
        """The service manager stops all units: also without logind (``systemctl --force``)."""
        if self.stopping or self.is_down:
            return
        self.stopping, self.kind = True, kind
        self._stop_by_ns = self.timer.now_ns + self.faults.stop_time_ns
        self.log.note("stopping", detail=kind)
        self.timer.later(HALT_NS, self._stops)

    def extend_stop(self, needed_ns: int) -> None:
        """The daemon's unit asked for more time to stop (EXTEND_TIMEOUT_USEC)."""
        self._stop_by_ns = max(self._stop_by_ns, self.timer.now_ns + needed_ns + LEAVING_NS)

    def stop_time_left_ns(self) -> int:
        return self._stop_by_ns - self.timer.now_ns

    def halt(self) -> None:
        """The last unit has stopped."""
        self.timer.later(HALT_NS, lambda: self._off(self.kind))

    def cut_power(self) -> None:
        """Now, and without a word."""
        if not self.is_down:
            self.powered_off = True
            self._off("power cut")

    def _off(self, how: str) -> None:
        if not self.is_down:
            self.is_down = True
            self.log.note("down", detail=how)
            self._down()
