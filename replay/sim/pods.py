"""Pods as a node has them: containers that take their time, ignore signals, or cannot even be killed.

They live and die whether or not a daemon watches. Each container is a small state machine: waiting, running,
exited; what moves it was drawn before (`ContainerPlan`) or comes from outside (a signal, SIGKILL).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from ebbtide.actors.simulated_logind import Timer
from ebbtide.replay.sim.scenario import ContainerPlan, PodPlan
from ebbtide.replay.sim.world_log import WorldLog

#: The daemon in whose life a process was started can read its exit code; a later one cannot.
StartedBy = int

#: How a hook's end stands in the world log.
HOOK_ENDS = {True: "succeeded", False: "failed", None: "stopped"}


class HookProcess:
    """An exec hook that runs; it outlives the daemon that started it."""

    def __init__(self) -> None:
        self.ended = False
        self.succeeded: bool | None = None
        #: Whoever follows it; called once, at its end.
        self.followers: list[Callable[[], object]] = []
        self.take_back: Callable[[], object] | None = None


class SimulatedContainer:
    """One container on one boot."""

    def __init__(self, uid: str, name: str, plan: ContainerPlan) -> None:
        self.uid, self.name, self.plan = uid, name, plan
        self.phase: Literal["waiting", "running", "exited"] = "waiting"
        self.parent: StartedBy = 0
        self.exit_code: int | None = None
        self.exit_signal = ""
        self.killed = False
        self.hooks: dict[str, HookProcess] = {}


class SimulatedPods:
    """All containers of one boot. ``timer`` ends with the boot."""

    def __init__(self, log: WorldLog, timer: Timer) -> None:
        self._log = log
        self._timer = timer
        self.plans: dict[str, PodPlan] = {}
        self.boxes: dict[tuple[str, str], SimulatedContainer] = {}
        self._of: dict[str, list[SimulatedContainer]] = {}
        #: Pods that somebody asked to start.
        self.begun: dict[str, str] = {}
        self.watchers: list[Callable[[SimulatedContainer], None]] = []

    # --- what the world does -------------------------------------------------------------------

    def add(self, plan: PodPlan) -> None:
        """A manifest lies in the folder. Nothing runs yet."""
        self.plans[plan.pod.uid] = plan
        for container in plan.pod.containers:
            box = SimulatedContainer(plan.pod.uid, container.name, plan.containers[container.name])
            self.boxes[box.uid, box.name] = box
            self._of.setdefault(box.uid, []).append(box)

    def of(self, uid: str) -> list[SimulatedContainer]:
        return self._of.get(uid, [])

    def over(self, uid: str) -> bool:
        return uid in self.begun and all(box.phase == "exited" for box in self.of(uid))

    # --- what a runtime does -------------------------------------------------------------------

    def begin(self, uid: str, order: str) -> None:
        """Somebody asked to start this pod; from now on it is an active one."""
        self.begun.setdefault(uid, order)

    def start(self, box: SimulatedContainer, parent: StartedBy) -> bool:
        """Start a container, unless it was stopped before. Whether it runs now: it may have ended at once."""
        if box.phase == "waiting":
            box.phase, box.parent = "running", parent
            self._log.note("start", box.uid, box.name, life=parent)
            if box.plan.lives_ns is not None:
                self._later(box.plan.lives_ns, box, "")
        return box.phase == "running"

    def drop(self, box: SimulatedContainer) -> None:
        """A container that was not started yet never will be."""
        if box.phase == "waiting":
            self._log.note("dropped", box.uid, box.name)
            self._gone(box)

    def signal(self, box: SimulatedContainer, life: int, late: bool) -> None:
        """The stop signal. A container that is not running takes no notice; a waiting one is not started."""
        self.drop(box)
        running = box.phase == "running"
        self._log.note("signal", box.uid, box.name, "" if running else "not running", life=life, late=late)
        if running and box.plan.stop_ns is not None:
            self._later(box.plan.stop_ns, box, "SIGTERM" if box.plan.by_signal else "")

    def kill(self, box: SimulatedContainer, life: int, late: bool) -> None:
        """SIGKILL to the whole tree."""
        self.drop(box)
        running = box.phase == "running"
        self._log.note("kill", box.uid, box.name, "" if running else "not running", life=life, late=late)
        if running and not box.killed:
            box.killed = True
            if box.plan.reap_ns is not None:
                self._later(box.plan.reap_ns, box, "SIGKILL")

    def run_hook(self, box: SimulatedContainer, order: str, life: int, late: bool) -> HookProcess:
        """Start a hook; it goes on by itself."""
        self._log.note("hook", box.uid, box.name, order, life=life, late=late)
        hook = box.hooks[order] = HookProcess()
        plan = box.plan.hook
        if plan.takes_ns is not None:
            end = partial(self._end_hook, box, hook, plan.succeeds)
            hook.take_back = self._timer.later(plan.takes_ns, end)
        return hook

    def stop_hook(self, box: SimulatedContainer, hook: HookProcess) -> None:
        """Its process is killed, or its connection closed; of one that has ended nothing is left to stop."""
        if not hook.ended:
            if hook.take_back is not None:
                hook.take_back()
            self._end_hook(box, hook, None)

    # --- what goes on by itself ------------------------------------------------------------------

    def _end_hook(self, box: SimulatedContainer, hook: HookProcess, succeeded: bool | None) -> None:
        hook.ended, hook.succeeded = True, succeeded
        self._log.note("hook-end", box.uid, box.name, HOOK_ENDS[succeeded])
        for follower in hook.followers:
            follower()

    def _later(self, after_ns: int, box: SimulatedContainer, signal: str) -> None:
        if after_ns <= 0:
            self._exit(box, signal)
        else:
            self._timer.later(after_ns, partial(self._exit, box, signal))

    def _exit(self, box: SimulatedContainer, signal: str) -> None:
        if box.phase == "exited" or (box.killed and signal != "SIGKILL"):
            return
        box.exit_signal = signal
        box.exit_code = None if signal else box.plan.exit_code
        self._log.note("exit", box.uid, box.name, signal or f"code {box.exit_code}")
        self._gone(box)

    def _gone(self, box: SimulatedContainer) -> None:
        box.phase = "exited"
        for watcher in list(self.watchers):
            watcher(box)
