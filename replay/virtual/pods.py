"""Pods as the node has them: containers that take their time, ignore signals, or cannot even be killed.

They live and die whether or not a daemon watches. Each container is a small state machine: waiting, running,
exited; what moves it is drawn before (`Manner`) or comes from outside (a signal, SIGKILL).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from replay.virtual.manner import Manner, PodPlan
from replay.virtual.trail import Timer, Trail

#: The daemon in whose life a process was started can read its exit code; a later one cannot.
Parent = int

#: How a hook's end stands in the trail.
HOOK_ENDS = {True: "succeeded", False: "failed", None: "stopped"}


class HookProcess:
    """An exec hook that runs; it outlives the daemon that started it."""

    def __init__(self) -> None:
        self.ended = False
        self.succeeded: bool | None = None
        #: Whoever follows it; called once, at its end.
        self.followers: list[Callable[[], object]] = []
        self.take_back: Callable[[], object] | None = None


class Box:
    """One container on one boot."""

    def __init__(self, uid: str, name: str, manner: Manner) -> None:
        self.uid, self.name, self.manner = uid, name, manner
        self.phase: Literal["waiting", "running", "exited"] = "waiting"
        self.parent: Parent = 0
        self.exit_code: int | None = None
        self.exit_signal = ""
        self.killed = False
        self.hooks: dict[str, HookProcess] = {}


class Pods:
    """All containers of one boot. ``timer`` ends with the boot."""

    def __init__(self, trail: Trail, timer: Timer) -> None:
        self._trail = trail
        self._timer = timer
        self.plans: dict[str, PodPlan] = {}
        self.boxes: dict[tuple[str, str], Box] = {}
        self._of: dict[str, list[Box]] = {}
        #: Pods that somebody asked to start.
        self.begun: dict[str, str] = {}
        self.watchers: list[Callable[[Box], None]] = []

    # --- what the world does -------------------------------------------------------------------

    def add(self, plan: PodPlan) -> None:
        """A manifest lies in the folder. Nothing runs yet."""
        self.plans[plan.pod.uid] = plan
        for container in plan.pod.containers:
            manner = plan.manners[container.name]
            box = self.boxes[plan.pod.uid, container.name] = Box(plan.pod.uid, container.name, manner)
            self._of.setdefault(plan.pod.uid, []).append(box)

    def of(self, uid: str) -> list[Box]:
        return self._of.get(uid, [])

    def over(self, uid: str) -> bool:
        return uid in self.begun and all(box.phase == "exited" for box in self.of(uid))

    # --- what a runtime does -------------------------------------------------------------------

    def begin(self, uid: str, order: str) -> None:
        """Somebody asked to start this pod; from now on it is an active one."""
        self.begun.setdefault(uid, order)

    def start(self, box: Box, parent: Parent) -> None:
        """Start a container, unless somebody stopped it before it was started."""
        if box.phase == "waiting":
            box.phase, box.parent = "running", parent
            self._trail.note("start", box.uid, box.name, life=parent)
            if box.manner.lives_ns is not None:
                self._later(box.manner.lives_ns, box, "")

    def drop(self, box: Box) -> None:
        """A container that was not started yet never will be."""
        if box.phase == "waiting":
            self._trail.note("dropped", box.uid, box.name)
            self._gone(box)

    def signal(self, box: Box, life: int, late: bool) -> None:
        """The stop signal. A container that is not running takes no notice; a waiting one is not started."""
        self.drop(box)
        running = box.phase == "running"
        self._trail.note("signal", box.uid, box.name, "" if running else "not running", life=life, late=late)
        if running and box.manner.stop_ns is not None:
            self._later(box.manner.stop_ns, box, "SIGTERM" if box.manner.by_signal else "")

    def kill(self, box: Box, life: int, late: bool) -> None:
        """SIGKILL to the whole tree."""
        self.drop(box)
        running = box.phase == "running"
        self._trail.note("kill", box.uid, box.name, "" if running else "not running", life=life, late=late)
        if running and not box.killed:
            box.killed = True
            if box.manner.reap_ns is not None:
                self._later(box.manner.reap_ns, box, "SIGKILL")

    def run_hook(self, box: Box, order: str, life: int, late: bool) -> HookProcess:
        """Start a hook; it goes on by itself."""
        self._trail.note("hook", box.uid, box.name, order, life=life, late=late)
        hook = box.hooks[order] = HookProcess()
        plan = box.manner.hook
        if plan.takes_ns is not None:
            end = partial(self._end_hook, box, hook, plan.succeeds)
            hook.take_back = self._timer.later(plan.takes_ns, end)
        return hook

    def stop_hook(self, box: Box, hook: HookProcess) -> None:
        """Its process is killed, or its connection closed; of one that has ended nothing is left to stop."""
        if not hook.ended:
            if hook.take_back is not None:
                hook.take_back()
            self._end_hook(box, hook, None)

    # --- what goes on by itself ------------------------------------------------------------------

    def _end_hook(self, box: Box, hook: HookProcess, succeeded: bool | None) -> None:
        hook.ended, hook.succeeded = True, succeeded
        self._trail.note("hook-end", box.uid, box.name, HOOK_ENDS[succeeded])
        for follower in hook.followers:
            follower()

    def _later(self, after_ns: int, box: Box, signal: str) -> None:
        if after_ns <= 0:
            self._exit(box, signal)
        else:
            self._timer.later(after_ns, partial(self._exit, box, signal))

    def _exit(self, box: Box, signal: str) -> None:
        if box.phase == "exited" or (box.killed and signal != "SIGKILL"):
            return
        box.exit_signal = signal
        box.exit_code = None if signal else box.manner.exit_code
        self._trail.note("exit", box.uid, box.name, signal or f"code {box.exit_code}")
        self._gone(box)

    def _gone(self, box: Box) -> None:
        box.phase = "exited"
        for watcher in list(self.watchers):
            watcher(box)
