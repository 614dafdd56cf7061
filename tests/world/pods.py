"""Pods as the node has them: containers that take their time, ignore signals, or cannot even be killed.

They live and die whether or not a daemon watches. Each container is a small state machine: waiting, running,
exited; what moves it is drawn before (`Manner`) or comes from outside (a signal, SIGKILL).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import trio

from events.model import Pod
from tests.world.trail import Trail, sleep_ns

#: The daemon in whose life a process was started can read its exit code; a later one cannot.
Parent = int


class HookPlan(NamedTuple):
    """A hook with a process of its own (exec) or a request (httpGet). ``takes_ns`` None: it hangs."""

    takes_ns: int | None = 0
    succeeds: bool = True


class Manner(NamedTuple):
    """How a container behaves. None means never."""

    #: From the stop signal to the exit.
    stop_ns: int | None = 0
    #: Exits so long after its start, by itself.
    lives_ns: int | None = None
    #: From SIGKILL to being gone; more than a moment is a process in an uninterruptible sleep.
    reap_ns: int | None = 0
    exit_code: int = 0
    #: Ended by the stop signal itself, having no handler for it.
    by_signal: bool = False
    hook: HookPlan = HookPlan()


class PodPlan(NamedTuple):
    """A pod manifest and what its containers are like. ``appears_ns`` after the boot."""

    pod: Pod
    manners: dict[str, Manner]
    appears_ns: int = 0


class HookProcess:
    """An exec hook that runs; it outlives the daemon that started it."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.succeeded: bool | None = None


class Box:
    """One container on one boot."""

    def __init__(self, uid: str, name: str, manner: Manner) -> None:
        self.uid, self.name, self.manner = uid, name, manner
        self.phase: Literal["waiting", "running", "exited"] = "waiting"
        self.parent: Parent = 0
        self.exit_code: int | None = None
        self.exit_signal = ""
        self.gone = trio.Event()
        self.killed = False
        self.hooks: dict[str, HookProcess] = {}


class Pods:
    """All containers of one boot. ``nursery`` ends with the boot."""

    def __init__(self, trail: Trail, nursery: trio.Nursery) -> None:
        self._trail = trail
        self._nursery = nursery
        self.plans: dict[str, PodPlan] = {}
        self.boxes: dict[tuple[str, str], Box] = {}
        #: Pods that somebody asked to start.
        self.begun: dict[str, str] = {}
        self.watchers: list[Callable[[Box], None]] = []

    # --- what the world does -------------------------------------------------------------------

    def add(self, plan: PodPlan) -> None:
        """A manifest lies in the folder. Nothing runs yet."""
        self.plans[plan.pod.uid] = plan
        for container in plan.pod.containers:
            manner = plan.manners[container.name]
            self.boxes[plan.pod.uid, container.name] = Box(plan.pod.uid, container.name, manner)

    def of(self, uid: str) -> list[Box]:
        return [box for (each, _), box in self.boxes.items() if each == uid]

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
        self._nursery.start_soon(self._hook, box, hook)
        return hook

    # --- what goes on by itself ------------------------------------------------------------------

    async def _hook(self, box: Box, hook: HookProcess) -> None:
        plan = box.manner.hook
        with hook.scope:
            if plan.takes_ns is None:
                await trio.sleep_forever()
            await sleep_ns(plan.takes_ns or 0)
            hook.succeeded = plan.succeeds
        word = {True: "succeeded", False: "failed", None: "stopped"}[hook.succeeded]
        self._trail.note("hook-end", box.uid, box.name, word)
        hook.ended.set()

    def _later(self, after_ns: int, box: Box, signal: str) -> None:
        if after_ns <= 0:
            self._exit(box, signal)
        else:
            self._nursery.start_soon(self._exit_after, after_ns, box, signal)

    async def _exit_after(self, after_ns: int, box: Box, signal: str) -> None:
        await sleep_ns(after_ns)
        self._exit(box, signal)

    def _exit(self, box: Box, signal: str) -> None:
        if box.phase == "exited" or (box.killed and signal != "SIGKILL"):
            return
        box.exit_signal = signal
        box.exit_code = None if signal else box.manner.exit_code
        self._trail.note("exit", box.uid, box.name, signal or f"code {box.exit_code}")
        self._gone(box)

    def _gone(self, box: Box) -> None:
        box.phase = "exited"
        box.gone.set()
        for watcher in list(self.watchers):
            watcher(box)
