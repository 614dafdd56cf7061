"""The modelled kubelet of one boot: what becomes of deleted pods, and of pods that ended without its order.

Also of volumes and of final statuses; or of all pods, where it carries its own graceful shutdown out. What it
does stands in the world log under a life of its own, `KUBELET`. Stopping it cancels its running stops without
SIGKILL, as the real one does; a hook that it has started goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.actors.policy.plan import planned_waves
from ebbtide.actors.simulated_logind import (
    BusSignal,
    InProgress,
    ShutdownSignal,
    SimulatedLogind,
    Timer,
    Unreachable,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.model import PlannedWave, Pod, Settings
from ebbtide.replay.sim.pods import SimulatedContainer, SimulatedPods
from ebbtide.replay.sim.scenario import Faults
from ebbtide.replay.sim.world_log import MS, WorldLog

#: Its life in the world log, and its number among the holders of locks.
KUBELET = -1

KUBELET_FLOOR_NS = 2 * NS_PER_SECOND
#: A watch event on its way; noticing that a container is gone; a status on its way.
HEARS_NS, NOTICES_NS, WRITES_NS = 20 * MS, 1000 * MS, 200 * MS


class Kubelet:
    """``reaches``: whether the API server answers it. ``changed`` is told when it begins or ceases to run."""

    def __init__(
        self,
        pods: SimulatedPods,
        timer: Timer,
        log: WorldLog,
        logind: SimulatedLogind,
        faults: Faults,
        settings: Settings,
        reaches: Callable[[], bool],
    ) -> None:
        self._pods, self._timer, self._log, self._logind = pods, timer, log, logind
        self._faults, self._settings, self._reaches = faults, settings, reaches
        self.running = False
        self.changed: list[Callable[[], object]] = []
        #: When each pod has to be gone, by UID: deleted, or in its own shutdown.
        self._until_ns: dict[str, int] = {}
        self._asked: dict[str, None] = {}
        #: UIDs whose final status is in the API server, and whose volumes are mounted.
        self.final: dict[str, None] = {}
        self.mounted: dict[str, None] = {}
        #: Of its lives, and of its own shutdowns: what an earlier one meant to do is not done.
        self._generation = self._own = 0
        self._signalled_ns: dict[tuple[str, str], int] = {}
        pods.watchers.append(self._gone)

    # --- its own life --------------------------------------------------------------------------

    def start(self) -> None:
        if self.running:
            return
        self.running = True
        self._log.note("kubelet-start", life=KUBELET)
        self._take_lock()
        for uid in self._asked:
            self._end(uid)
        for uid in list(self.mounted):
            self._tidy(uid)
        self._notify()

    def stop(self) -> None:
        """Its own stops are cancelled; nothing is killed."""
        if not self.running:
            return
        self.running = False
        self._generation += 1
        self._log.note("kubelet-stop", life=KUBELET)
        self._logind.subscribers.pop(KUBELET, None)
        self._logind.close(KUBELET)
        self._notify()

    def _notify(self) -> None:
        for listener in list(self.changed):
            listener()

    def _later(self, after_ns: int, do: Callable[[], object]) -> None:
        """Unless it is stopped meanwhile."""
        self._timer.later(after_ns, partial(self._if_same, self._generation, do))

    def _if_same(self, generation: int, do: Callable[[], object]) -> None:
        if self.running and generation == self._generation:
            do()

    # --- what the API server asks --------------------------------------------------------------

    def delete(self, uid: str, grace_ns: int) -> None:
        """A later delete only ever shortens the grace."""
        until_ns = self._timer.now_ns + grace_ns
        first = uid not in self._asked
        self._asked[uid] = None
        self._until_ns[uid] = min(until_ns, self._until_ns.get(uid, until_ns))
        if self.running:
            self._later(HEARS_NS, partial(self._end if first else self._hurry, uid))

    def _end(self, uid: str) -> None:
        """Hooks, the stop signal, and SIGKILL when the grace is over, 2 s after the signal at the least."""
        hooks = {each.name: each.hook for each in self._pods.plans[uid].pod.containers}
        for box in self._pods.of(uid):
            left_ns = max(0, self._until_ns[uid] - self._timer.now_ns)
            hook = hooks[box.name] if box.phase == "running" else None
            if box.phase == "exited":
                continue
            if (uid, box.name) in self._signalled_ns:
                self._kill_later(box)
            # The kubelet carries out no tcpSocket in preStop: such a hook fails at once.
            elif hook is None or not left_ns or hook.kind == "tcpSocket":
                self._signal(box)
            elif hook.kind == "sleep":
                self._later(min(hook.sleep_seconds * NS_PER_SECOND, left_ns), partial(self._signal, box))
            else:
                process = self._pods.run_hook(box, "kubelet", KUBELET, False)
                process.followers.append(partial(self._later, 0, partial(self._signal, box)))
                self._later(left_ns, partial(self._pods.stop_hook, box, process))
        if self._pods.over(uid):
            self._tidy(uid)

    def _signal(self, box: SimulatedContainer) -> None:
        if (box.uid, box.name) in self._signalled_ns or box.phase == "exited":
            return
        self._signalled_ns[box.uid, box.name] = self._timer.now_ns
        self._pods.signal(box, KUBELET, False)
        self._kill_later(box)

    def _kill_later(self, box: SimulatedContainer) -> None:
        now_ns, since_ns = self._timer.now_ns, self._signalled_ns[box.uid, box.name]
        by_ns = max(self._until_ns[box.uid], since_ns + KUBELET_FLOOR_NS)
        self._later(max(0, by_ns - now_ns), partial(self._kill, box, by_ns))

    def _kill(self, box: SimulatedContainer, by_ns: int) -> None:
        if box.phase == "running" and not box.killed and by_ns <= self._timer.now_ns:
            self._pods.kill(box, KUBELET, False)

    def _hurry(self, uid: str) -> None:
        for box in self._pods.of(uid):
            if (box.uid, box.name) in self._signalled_ns:
                self._kill_later(box)

    # --- what it sees --------------------------------------------------------------------------

    def _gone(self, box: SimulatedContainer) -> None:
        ours = box.uid in self._asked
        if self.running and not ours:
            self._later(NOTICES_NS, partial(self._start_again, box))
        if self._pods.over(box.uid) and self.running and ours:
            self._tidy(box.uid)

    def _start_again(self, box: SimulatedContainer) -> None:
        """Not modelled beyond this: whoever stops a pod under a running kubelet has it again."""
        at = (box.uid, box.name)
        signalled = any((seen.uid, seen.container) == at for seen in self._log.of("signal"))
        if signalled and box.uid not in self._asked:
            self._log.note("restart", box.uid, box.name, life=KUBELET)

    def _tidy(self, uid: str) -> None:
        """Volumes and the final status of a pod that is over."""
        if self._pods.over(uid):
            self._later(self._faults.unmount_takes_ns, partial(self._unmount, uid))
            self._later(WRITES_NS, partial(self._write, uid))

    def _unmount(self, uid: str) -> None:
        if uid in self.mounted:
            del self.mounted[uid]
            self._log.note("unmounted", uid, life=KUBELET)

    def _write(self, uid: str) -> None:
        if self._reaches() and uid in self._asked:
            self.final[uid] = None
        elif uid in self._asked:
            self._later(NOTICES_NS, partial(self._write, uid))

    # --- its own graceful shutdown -------------------------------------------------------------

    def _take_lock(self) -> None:
        if not self._faults.kubelet_lock:
            return
        self._logind.subscribers[KUBELET] = self._hear
        try:
            self._logind.inhibit(KUBELET)
        except (InProgress, Unreachable):
            return

    def _hear(self, signal: BusSignal) -> None:
        if isinstance(signal, ShutdownSignal) and self.running:
            self._own += 1
            self._later(HEARS_NS, self._begin_own if signal.active else self._take_lock)

    def _begin_own(self) -> None:
        periods = effective_periods(self._settings)
        pods = [self._pods.plans[uid].pod for uid in self._pods.begun if not self._pods.over(uid)]
        waves = planned_waves(periods, self._logind.grant_ns, pods)
        self._wave([each for each in waves if each.pods], self._own)

    def _wave(self, waves: Sequence[PlannedWave], own: int) -> None:
        if own != self._own:
            return
        if not waves:
            self._logind.close(KUBELET)
            return
        now_ns = self._timer.now_ns
        for pod in waves[0].pods:
            until_ns = now_ns + pod.grace_seconds * NS_PER_SECOND
            first = pod.uid not in self._asked
            self._asked[pod.uid] = None
            self._until_ns[pod.uid] = min(until_ns, self._until_ns.get(pod.uid, until_ns))
            (self._end if first else self._hurry)(pod.uid)
        self._watch_wave(now_ns + waves[0].period_seconds * NS_PER_SECOND, waves, own)

    def _watch_wave(self, until_ns: int, waves: Sequence[PlannedWave], own: int) -> None:
        left_ns = until_ns - self._timer.now_ns
        if left_ns <= 0 or all(self._pods.over(pod.uid) for pod in waves[0].pods):
            self._wave(waves[1:], own)
        else:
            self._later(min(100 * MS, left_ns), partial(self._watch_wave, until_ns, waves, own))

    def admit(self, pod: Pod) -> None:
        """A pod was assigned to this node, and nobody keeps it away."""
        self._pods.begin(pod.uid, "kubelet")
        if pod.volumes:
            self.mounted[pod.uid] = None
        for box in self._pods.of(pod.uid):
            self._pods.start(box, KUBELET)
