"""A modelled node: one boot of the machine, with its clock, its pods, its logind and its service manager."""

from __future__ import annotations

from collections.abc import Callable

from events.model import Pod, Settings, ShutdownKind
from replay.virtual.api import Shown
from replay.virtual.cluster import Api
from replay.virtual.kubelet import Kubelet
from replay.virtual.logind import Logind
from replay.virtual.loop import Agenda
from replay.virtual.plan import Faults
from replay.virtual.pods import Pods
from replay.virtual.trail import MS, NS_PER_SECOND, Trail

#: Between the final unit's start and the daemon's SIGTERM, and between the last unit's stop and the end.
HALT_NS = 50 * MS

#: How long the daemon's unit may take to stop, and what it is given on top of what it asks for.
STOP_TIME_NS = 10 * NS_PER_SECOND
LEAVING_NS = 2 * NS_PER_SECOND


class Node:
    """One boot. ``stops`` is told when the service manager stops units, ``down`` when the machine is off."""

    def __init__(
        self,
        trail: Trail,
        agenda: Agenda,
        faults: Faults,
        ids: tuple[str, str],
        settings: Settings,
        stops: Callable[[], object],
        down: Callable[[], object],
    ) -> None:
        self.trail, self.agenda, self.faults = trail, agenda, faults
        self.boot_id, self.userspace_id = ids
        self.pods = Pods(trail, agenda)
        obeys = faults.grant_ns is None
        self.logind = Logind(trail, agenda, self.stop, faults.grant_ns, obeys_drop_in=obeys)
        self.shown = Shown()
        self.api = Api(agenda, trail, faults)
        self.kubelet = Kubelet(
            self.pods, agenda, trail, self.logind, faults, settings, lambda: self.api.reachable
        )
        self.kind: ShutdownKind = "unknown"
        self.stopping = self.is_down = self.powered_off = False
        #: Containers whose exit stands in the journal.
        self.exits_told: dict[tuple[str, str], None] = {}
        self._stops, self._down = stops, down
        self._stop_by_ns = 0

    def come_up(self, pod: Pod) -> None:
        """A pod that runs since before the daemon; of its containers some may have ended already."""
        self.pods.begin(pod.uid, "boot")
        for container, box in zip(pod.containers, self.pods.of(pod.uid), strict=True):
            if container.running:
                self.pods.start(box, 0)
            else:
                self.pods.drop(box)
                self.exits_told[box.uid, box.name] = None

    def come_up_as_node(self) -> None:
        """The kubelet starts before the daemon, and runs the pods that are there."""
        for uid in self.pods.begun:
            if self.pods.plans[uid].pod.volumes:
                self.kubelet.mounted[uid] = None
        if self.faults.kubelet != "away":
            self.kubelet.start()

    def admit(self, pod: Pod) -> bool:
        """A pod is assigned to this node; a taint keeps it away, and so does a kubelet that is not there."""
        if not self.kubelet.running or not self.shown.ready or self.is_down:
            return False
        self.trail.note("appeared", pod.uid)
        self.kubelet.admit(pod)
        return True

    def stop(self, kind: ShutdownKind) -> None:
        """The service manager stops all units."""
        if self.stopping or self.is_down:
            return
        self.stopping, self.kind = True, kind
        self._stop_by_ns = self.agenda.now_ns + STOP_TIME_NS
        self.trail.note("stopping", detail=kind)
        self.agenda.later(HALT_NS, self._stops)

    def extend_stop(self, needed_ns: int) -> None:
        """The daemon's unit asked for more time to stop (EXTEND_TIMEOUT_USEC)."""
        self._stop_by_ns = max(self._stop_by_ns, self.agenda.now_ns + needed_ns + LEAVING_NS)

    def stop_time_left_ns(self) -> int:
        return self._stop_by_ns - self.agenda.now_ns

    def halt(self) -> None:
        """The last unit has stopped."""
        self.agenda.later(HALT_NS, lambda: self._off(self.kind))

    def cut_power(self) -> None:
        """Now, and without a word."""
        self.powered_off = True
        self._off("power cut")

    def _off(self, how: str) -> None:
        if not self.is_down:
            self.is_down = True
            self.trail.note("down", detail=how)
            self._down()
