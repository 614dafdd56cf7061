"""The modelled container runtime: lists, starts, stops and kills pods, runs their hooks, and sees them go.

Latencies are drawn in microseconds; what the runtime refuses, or how long it takes on top, is the plan's.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from msgspec.structs import replace

from events.base import Order
from events.decisions import KillContainer, RunHook, SendSignal, StartPod, TakeAutopsy, TakeInventory
from events.facts import (
    INVENTORY_PODS_MAX,
    AutopsyTaken,
    ContainerExited,
    ContainerStarted,
    InventoryTaken,
    PodAppeared,
    PodJoined,
)
from events.model import Pod, ProcessReport
from replay.virtual.draws import Draws
from replay.virtual.effects import Carry, Effects, Work
from replay.virtual.loop import Agenda
from replay.virtual.plan import Faults
from replay.virtual.pods import Box, HookProcess, Pods
from replay.virtual.trail import Trail

UNKNOWN = "no such container is known here"
REFUSED = "the runtime does not answer"

#: How a failed hook is told, by its kind; exec ones have an exit code.
HOOK_FAILURES: dict[str, tuple[str, int | None]] = {
    "exec": ("exit code 1", 1),
    "httpGet": ("the answer was 500 Internal Server Error", None),
}


class Runtime:
    """One process's view of the runtime."""

    def __init__(
        self, pods: Pods, agenda: Agenda, draws: Draws, faults: Faults, trail: Trail, life: int
    ) -> None:
        self.effects: Effects
        self._pods, self._agenda, self._draws = pods, agenda, draws
        self._faults, self._trail, self._life = faults, trail, life
        self.alive = True
        self._late_until_ns = 0
        self._told: dict[str, None] = dict.fromkeys(pods.begun)
        pods.watchers.append(self._watch)
        self.table: dict[type[Order], Carry] = {
            TakeInventory: self._take_inventory,
            StartPod: self._start_pod,
            RunHook: self._run_hook,
            SendSignal: self._send_signal,
            KillContainer: self._kill,
            TakeAutopsy: self._take_autopsy,
        }

    def _soon_ns(self, low_us: int, high_us: int) -> int:
        return self._draws.between(low_us, high_us) * 1000

    # --- watching ------------------------------------------------------------------------------

    def _watch(self, box: Box) -> None:
        if self.alive:
            self._agenda.after(self._soon_ns(50, 3000), _exit_fact(box))

    def look(self, seen: dict[tuple[str, str], None]) -> None:
        """Say what ended while nobody looked: what is in ``seen`` was said before."""
        for at, box in self._pods.boxes.items():
            if box.phase == "exited" and at not in seen:
                self._agenda.after(self._soon_ns(50, 3000), _exit_fact(box))

    def joined(self, pod: Pod) -> None:
        """The kubelet has started a pod; in a shutdown that asked for it, it is reported."""
        if self.alive and self._agenda.now_ns < self._late_until_ns:
            self._agenda.after(self._soon_ns(1000, 500_000), PodJoined(pod=pod))

    def appeared(self, pod: Pod) -> None:
        """A pod was assigned to this node."""
        if self.alive and pod.uid not in self._told:
            self._told[pod.uid] = None
            self._trail.note("appeared", pod.uid, life=self._life)
            self._agenda.after(self._soon_ns(50, 3000), PodAppeared(pod=pod))

    # --- effects -------------------------------------------------------------------------------

    def _take_inventory(self, work: Work) -> None:
        order = cast(TakeInventory, work.order)
        self._late_until_ns = max(self._late_until_ns, order.late_until_ns)
        delay_ns = self._soon_ns(2000, 30_000) if order.refresh else 0
        self.effects.then(
            work, delay_ns + self._faults.runtime_takes_ns * order.refresh, partial(self._list, work)
        )

    def _list(self, work: Work) -> None:
        active = [self._view(uid) for uid in self._pods.begun if not self._pods.over(uid)]
        parts = -(-len(active) // INVENTORY_PODS_MAX) or 1
        for part in range(parts):
            pods = tuple(active[part * INVENTORY_PODS_MAX : (part + 1) * INVENTORY_PODS_MAX])
            taken = InventoryTaken(
                key=work.order.key,
                as_of_ns=self._agenda.now_ns,
                source="simulated",
                part=part + 1,
                parts=parts,
                pods=pods,
            )
            self._agenda.after(0, taken)
        self.effects.then(work, self._soon_ns(5, 60), partial(self.effects.end, work))

    def _view(self, uid: str) -> Pod:
        """A pod as it is now; it is the manifest itself while all of it runs."""
        pod = self._pods.plans[uid].pod
        if all(box.phase != "exited" for box in self._pods.of(uid)):
            return pod
        boxes = self._pods.boxes
        containers = tuple(
            replace(each, running=boxes[uid, each.name].phase != "exited") for each in pod.containers
        )
        return replace(pod, containers=containers)

    def _start_pod(self, work: Work) -> None:
        self.effects.then(work, self._soon_ns(20_000, 400_000), partial(self._started, work))

    def _started(self, work: Work) -> None:
        uid = cast(StartPod, work.order).uid
        self._pods.begin(uid, work.order.key)
        for box in self._pods.of(uid):
            if box.phase == "waiting":
                self._pods.start(box, self._life)
                self._agenda.after(0, ContainerStarted(uid=uid, container=box.name))
        self.effects.end(work)

    def _find(self, uid: str, container: str) -> Box | None:
        return self._pods.boxes.get((uid, container)) if uid in self._pods.begun else None

    def _send_signal(self, work: Work) -> None:
        self.effects.then(
            work, self._soon_ns(20, 900) + self._faults.runtime_takes_ns, partial(self._signal, work)
        )

    def _signal(self, work: Work) -> None:
        order = cast(SendSignal, work.order)
        self._touch(work, self._find(order.uid, order.container), "signal")

    def _kill(self, work: Work) -> None:
        order = cast(KillContainer, work.order)
        self._touch(work, self._find(order.uid, order.container), "kill")

    def _touch(self, work: Work, box: Box | None, what: str) -> None:
        """Signal or kill, unless the runtime refuses."""
        if box is None:
            self.effects.end(work, "failed", UNKNOWN)
        elif self._faults.runtime_refuses in ("everything", "stops" if what == "signal" else "everything"):
            self._trail.note(what, box.uid, box.name, "refused", life=self._life)
            self.effects.end(work, "failed", REFUSED)
        else:
            act = self._pods.signal if what == "signal" else self._pods.kill
            act(box, self._life, False)
            self.effects.end(work)

    def _take_autopsy(self, work: Work) -> None:
        self.effects.then(work, self._soon_ns(2000, 60_000), partial(self._autopsy, work))

    def _autopsy(self, work: Work) -> None:
        order = cast(TakeAutopsy, work.order)
        box = self._find(order.uid, order.container)
        if box is None:
            self.effects.end(work, "failed", UNKNOWN)
            return
        deaf = box.manner.stop_ns is None
        report = ProcessReport(
            pid=1000 + self._draws.below(30_000),
            parent_pid=1,
            command=box.name,
            state="S",
            signals_ignored=("SIGTERM",) if deaf else (),
            signals_caught=() if deaf else ("SIGTERM",),
        )
        self._agenda.after(0, AutopsyTaken(uid=order.uid, container=order.container, processes=(report,)))
        self.effects.end(work)

    # --- hooks ---------------------------------------------------------------------------------

    def _run_hook(self, work: Work) -> None:
        order = cast(RunHook, work.order)
        box = self._find(order.uid, order.container)
        if box is None or box.phase != "running":
            self.effects.end(work, "failed", "the container does not run")
            return
        self._follow(work, box, self._pods.run_hook(box, order.key, self._life, False))

    def adopt_hook(self, work: Work) -> bool:
        """An exec hook that still runs is followed; of a request nothing is left, of an end nobody knows."""
        order = cast(RunHook, work.order)
        box = self._find(order.uid, order.container)
        hook = box.hooks.get(order.key) if box is not None else None
        if box is None or hook is None or hook.ended or self._kind(order) == "httpGet":
            return False
        self._follow(work, box, hook)
        return True

    def _follow(self, work: Work, box: Box, hook: HookProcess) -> None:
        timeout_ns = cast(RunHook, work.order).timeout_ns
        hook.followers.append(partial(self._hook_ended, work, hook))
        work.stop = partial(self._pods.stop_hook, box, hook)
        self.effects.then(work, timeout_ns, partial(self._time_out, work, box, hook))

    def _time_out(self, work: Work, box: Box, hook: HookProcess) -> None:
        self.effects.end(work, "timed-out")
        self._pods.stop_hook(box, hook)

    def _hook_ended(self, work: Work, hook: HookProcess) -> None:
        if not self.alive or hook.succeeded is None:
            return
        self._agenda.drop(work.entry)
        if hook.succeeded:
            self.effects.end(work)
        else:
            reason, exit_code = HOOK_FAILURES[self._kind(cast(RunHook, work.order))]
            self.effects.end(work, "failed", reason, exit_code)

    def _kind(self, order: RunHook) -> str:
        containers = self._pods.plans[order.uid].pod.containers
        return next(each.hook.kind for each in containers if each.name == order.container and each.hook)


def _exit_fact(box: Box) -> ContainerExited:
    """A runtime keeps how its containers ended, whichever daemon asks."""
    return ContainerExited(uid=box.uid, container=box.name, exit_code=box.exit_code, signal=box.exit_signal)
