"""One boot of a modelled machine: clock, pods, kubelet, logind and service manager.

`simulate` drives it by its agenda, the tests' world by Trio tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol

from ebbtide.actors import simulated_logind
from ebbtide.actors.policy.grace_periods import effective_periods, planned_waves
from ebbtide.actors.simulated_logind import Timer
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.values import PlannedWave, Pod, Settings, ShutdownKind
from ebbtide.replay.sim.scenario import ContainerPlan, Faults, HookPlan, PodPlan, mix, name_bits

# --- the world log

# World time runs on over crashes and boots. The invariants compare this log with the daemon's records.


class Happening(NamedTuple):
    """``late``: the effect began before its order was as durable as required."""

    at_ns: int
    boot: int
    life: int
    what: str
    uid: str = ""
    container: str = ""
    detail: str = ""
    late: bool = False


class WorldLog:
    """``life``: the daemon that caused a happening, 0: the world."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.seen: list[Happening] = []
        self.boot = 0
        self.listeners: list[Callable[[Happening], object]] = []

    def note(
        self,
        what: str,
        uid: str = "",
        container: str = "",
        detail: str = "",
        *,
        life: int = 0,
        late: bool = False,
    ) -> None:
        seen = Happening(self.now_ns(), self.boot, life, what, uid, container, detail, late)
        self.seen.append(seen)
        for listen in self.listeners:
            listen(seen)

    def of(self, *whats: str) -> Iterator[Happening]:
        return (seen for seen in self.seen if seen.what in whats)


# --- its pods

#: Only the daemon that started a process can read its exit code.
StartedBy = int

HOOK_ENDS = {True: "succeeded", False: "failed", None: "stopped"}


class HookProcess:
    """It outlives its daemon."""

    def __init__(self) -> None:
        self.ended = False
        self.succeeded: bool | None = None
        self.followers: list[Callable[[], object]] = []
        self.take_back: Callable[[], object] | None = None


class ContainerTimes(Protocol):
    """Drawn (`scenario.ContainerPlan`), or from a record (`whatif.world.RecordedTimes`). None: for ever."""

    def after_start_ns(self) -> int | None: ...
    def after_signal_ns(self) -> int | None: ...
    def after_kill_ns(self) -> int | None: ...


class SimulatedContainer:
    """``attempt``: how many ran before it in this boot."""

    def __init__(
        self,
        uid: str,
        name: str,
        plan: ContainerPlan,
        attempt: int = 0,
        times: ContainerTimes | None = None,
    ) -> None:
        self.uid, self.name, self.plan, self.attempt = uid, name, plan, attempt
        self.times = times or plan
        #: Its first stop signal.
        self.signalled_ns: int | None = None
        self.phase: Literal["waiting", "running", "exited"] = "waiting"
        self.parent: StartedBy = 0
        self.exit_code: int | None = None
        self.exit_signal = ""
        self.killed = False
        self.hooks: dict[str, HookProcess] = {}


class SimulatedPods:
    """One boot's containers. ``timer`` ends with the boot."""

    def __init__(self, log: WorldLog, timer: Timer) -> None:
        self._log = log
        self._timer = timer
        self.plans: dict[str, PodPlan] = {}
        self.boxes: dict[tuple[str, str], SimulatedContainer] = {}
        self._of: dict[str, list[SimulatedContainer]] = {}
        #: Replaced by others.
        self.former: list[SimulatedContainer] = []
        #: The containers that a shutdown's orders mean until the daemon learns of the running ones.
        self.meant: dict[tuple[str, str], SimulatedContainer] = {}
        self.restarted: list[Callable[[SimulatedContainer], None]] = []
        #: Pods that were asked to start.
        self.begun: dict[str, str] = {}
        self.watchers: list[Callable[[SimulatedContainer], None]] = []

    def add(self, plan: PodPlan) -> None:
        """Its containers do not run yet."""
        self.plans[plan.pod.uid] = plan
        for container in plan.pod.containers:
            box = SimulatedContainer(plan.pod.uid, container.name, plan.containers[container.name])
            self.boxes[box.uid, box.name] = box
            self._of.setdefault(box.uid, []).append(box)

    def of(self, uid: str) -> list[SimulatedContainer]:
        return self._of.get(uid, [])

    def over(self, uid: str) -> bool:
        return uid in self.begun and all(box.phase == "exited" for box in self.of(uid))

    def begin(self, uid: str, order: str) -> None:
        """The pod is active from now on."""
        self.begun.setdefault(uid, order)

    def start(self, box: SimulatedContainer, parent: StartedBy) -> bool:
        """A stopped container does not start. Returns whether it runs: it may end at once."""
        if box.phase == "waiting":
            box.phase, box.parent = "running", parent
            self._log.note("start", box.uid, box.name, life=parent)
            if not box.attempt:
                self.exit_after(box, box.times.after_start_ns())
        return box.phase == "running"

    def start_again(self, box: SimulatedContainer, parent: StartedBy) -> None:
        again = SimulatedContainer(box.uid, box.name, box.plan, box.attempt + 1)
        self.former.append(box)
        self.meant.setdefault((box.uid, box.name), box)
        self.boxes[box.uid, box.name] = again
        made = self._of[box.uid]
        made[made.index(box)] = again
        self.start(again, parent)
        for listener in list(self.restarted):
            listener(again)

    @property
    def every(self) -> list[SimulatedContainer]:
        return [*self.former, *self.boxes.values()]

    def drop(self, box: SimulatedContainer) -> None:
        """The container never starts."""
        if box.phase == "waiting":
            self._log.note("dropped", box.uid, box.name)
            self._gone(box)

    def signal(self, box: SimulatedContainer, life: int, late: bool) -> None:
        """The stop signal. A waiting container never starts."""
        self.drop(box)
        running = box.phase == "running"
        self._log.note("signal", box.uid, box.name, "" if running else "not running", life=life, late=late)
        if running and box.signalled_ns is None:
            box.signalled_ns = self._timer.now_ns
            self.exit_after(box, box.times.after_signal_ns(), "SIGTERM" if box.plan.by_signal else "")

    def kill(self, box: SimulatedContainer, life: int, late: bool) -> None:
        self.drop(box)
        running = box.phase == "running"
        self._log.note("kill", box.uid, box.name, "" if running else "not running", life=life, late=late)
        if running and not box.killed:
            box.killed = True
            self.exit_after(box, box.times.after_kill_ns(), "SIGKILL")

    def run_hook(
        self, box: SimulatedContainer, order: str, life: int, late: bool, plan: HookPlan | None = None
    ) -> HookProcess:
        self._log.note("hook", box.uid, box.name, order, life=life, late=late)
        hook = box.hooks[order] = HookProcess()
        plan = plan or box.plan.hook
        if plan.takes_ns is not None:
            end = partial(self._end_hook, box, hook, plan.succeeds)
            hook.take_back = self._timer.later(plan.takes_ns, end)
        return hook

    def stop_hook(self, box: SimulatedContainer, hook: HookProcess) -> None:
        """Kill its process, or close its connection."""
        if not hook.ended:
            if hook.take_back is not None:
                hook.take_back()
            self._end_hook(box, hook, None)

    def _end_hook(self, box: SimulatedContainer, hook: HookProcess, succeeded: bool | None) -> None:
        hook.ended, hook.succeeded = True, succeeded
        self._log.note("hook-end", box.uid, box.name, HOOK_ENDS[succeeded])
        for follower in hook.followers:
            follower()

    def exit_after(self, box: SimulatedContainer, after_ns: int | None, signal: str = "") -> None:
        """None: never."""
        if after_ns is not None and after_ns <= 0:
            self._exit(box, signal)
        elif after_ns is not None:
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


# --- its runtime

#: One of so many pods is a virtual machine, without a process here: only the runtime can signal it.
HIDDEN_PODS = 8


class Hanging:
    """A component that may hang. ``waiting``: calls that it answers when it wakes up. ``turned``: called when
    it hangs or wakes up.
    """

    def __init__(self, log: WorldLog, timer: Timer, hangs: str, wakes: str, life: int = 0) -> None:
        self._log, self._timer, self._life = log, timer, life
        self._hangs, self._wakes = hangs, wakes
        #: None: it answers.
        self.hung_since_ns: int | None = None
        self.waiting: list[Callable[[], object]] = []
        self.turned: list[Callable[[], object]] = []

    @property
    def hung(self) -> bool:
        return self.hung_since_ns is not None

    def hang(self) -> None:
        if not self.hung:
            self.hung_since_ns = self._timer.now_ns
            self._turn(self._hangs)

    def wake(self) -> None:
        if self.hung:
            self.hung_since_ns = None
            self._turn(self._wakes)
            waiting, self.waiting = self.waiting, []
            for do in waiting:
                do()

    def _turn(self, what: str) -> None:
        self._log.note(what, life=self._life)
        for listener in list(self.turned):
            listener()


class SimulatedRuntime(Hanging):
    def __init__(self, log: WorldLog, timer: Timer) -> None:
        super().__init__(log, timer, "runtime-hangs", "runtime-wakes")
        #: When a daemon asked it at a signal.
        self.asked_ns = -1

    def hides(self, box: SimulatedContainer) -> bool:
        """No process of this container is on the node."""
        return mix(name_bits(box.uid)) % HIDDEN_PODS == 0

    def ask(self, do: Callable[[], object]) -> None:
        """Now, or when it wakes up."""
        if self.hung:
            self.waiting.append(do)
        else:
            do()


# --- its kubelet

# Its stop cancels the stops of pods without SIGKILL, as the real kubelet's does. A hung kubelet catches up
# when it wakes up. Meanwhile the runtime carries out its calls: SIGKILL after the grace, a hook's timeout.

#: Its life in the world log, and its number as a holder of locks.
KUBELET = -1

KUBELET_FLOOR_NS = 2 * NS_PER_SECOND
#: Delays of a watch event, of noticing an exit, and of a status.
HEARS_NS, NOTICES_NS, WRITES_NS = 20 * MS, 1000 * MS, 200 * MS
#: Before the second start of a container; it doubles each time.
AGAIN_NS = 10 * NS_PER_SECOND


class Kubelet(Hanging):
    """``reaches``: the API server answers it. ``changed``: called when it starts or stops."""

    def __init__(
        self,
        pods: SimulatedPods,
        timer: Timer,
        log: WorldLog,
        logind: simulated_logind.SimulatedLogind,
        faults: Faults,
        settings: Settings,
        reaches: Callable[[], bool],
        runtime: SimulatedRuntime,
    ) -> None:
        super().__init__(log, timer, "kubelet-hangs", "kubelet-wakes", KUBELET)
        self._pods, self._logind, self._runtime = pods, logind, runtime
        self._faults, self._settings, self._reaches = faults, settings, reaches
        self.running = False
        self.changed: list[Callable[[], object]] = []
        #: By UID: when each pod must be gone, after a delete or in its own shutdown.
        self._until_ns: dict[str, int] = {}
        self._asked: dict[str, None] = {}
        #: UIDs with a final status in the API server, and with mounted volumes.
        self.final: dict[str, None] = {}
        self.mounted: dict[str, None] = {}
        #: Numbers of its lives and of its shutdowns: each drops the last one's plans.
        self._generation = self._own = 0
        self._signalled_ns: dict[tuple[str, str], int] = {}
        pods.watchers.append(self._gone)

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
        if not self.running:
            return
        self.running, self.hung_since_ns, self.waiting = False, None, []
        self._generation += 1
        self._log.note("kubelet-stop", life=KUBELET)
        self._logind.subscribers.pop(KUBELET, None)
        self._logind.close(KUBELET)
        self._notify()

    def hang(self) -> None:
        if self.running:
            super().hang()

    def _notify(self) -> None:
        for listener in list(self.changed):
            listener()

    def _later(self, after_ns: int, do: Callable[[], object]) -> None:
        self._timer.later(after_ns, partial(self._if_same, self._generation, do))

    def _if_same(self, generation: int, do: Callable[[], object]) -> None:
        if self.hung and generation == self._generation:
            self.waiting.append(partial(self._if_same, generation, do))
        else:
            self._if_there(generation, do)

    def _if_there(self, generation: int, do: Callable[[], object]) -> None:
        """The runtime does it even if the kubelet hangs. A stopped kubelet's calls are cancelled."""
        if self.running and generation == self._generation:
            do()

    def _asked_of_runtime(self, do: Callable[[], object]) -> Callable[[], object]:
        return partial(self._if_there, self._generation, do)

    def delete(self, uid: str, grace_ns: int) -> None:
        """A later delete only shortens the grace."""
        until_ns = self._timer.now_ns + grace_ns
        first = uid not in self._asked
        self._asked[uid] = None
        self._until_ns[uid] = min(until_ns, self._until_ns.get(uid, until_ns))
        if self.running:
            self._later(HEARS_NS, partial(self._end if first else self._hurry, uid))

    def _end(self, uid: str) -> None:
        """Hooks, the stop signal, and SIGKILL at the end of the grace, at least 2 s after the signal."""
        hooks = {each.name: each.hook for each in self._pods.plans[uid].pod.containers}
        for box in self._pods.of(uid):
            left_ns = max(0, self._until_ns[uid] - self._timer.now_ns)
            hook = hooks[box.name] if box.phase == "running" else None
            if box.phase == "exited":
                continue
            if (uid, box.name) in self._signalled_ns:
                self._kill_later(box)
            # The kubelet does not run tcpSocket in preStop: the hook fails at once.
            elif hook is None or not left_ns or hook.kind == "tcpSocket":
                self._signal(box)
            elif hook.kind == "sleep":
                self._later(min(hook.sleep_seconds * NS_PER_SECOND, left_ns), partial(self._signal, box))
            else:
                self._runtime.ask(self._asked_of_runtime(partial(self._run_hook, box)))
        if self._pods.over(uid):
            self._tidy(uid)

    def _run_hook(self, box: SimulatedContainer) -> None:
        left_ns = max(0, self._until_ns[box.uid] - self._timer.now_ns)
        process = self._pods.run_hook(box, "kubelet", KUBELET, False)
        process.followers.append(partial(self._later, 0, partial(self._signal, box)))
        self._timer.later(left_ns, self._asked_of_runtime(partial(self._pods.stop_hook, box, process)))

    def _signal(self, box: SimulatedContainer) -> None:
        self._runtime.ask(self._asked_of_runtime(partial(self._signal_now, box)))

    def _signal_now(self, box: SimulatedContainer) -> None:
        if (box.uid, box.name) in self._signalled_ns or box.phase == "exited":
            return
        self._signalled_ns[box.uid, box.name] = self._timer.now_ns
        self._pods.signal(box, KUBELET, False)
        self._kill_later(box)

    def _kill_later(self, box: SimulatedContainer) -> None:
        now_ns, since_ns = self._timer.now_ns, self._signalled_ns[box.uid, box.name]
        by_ns = max(self._until_ns[box.uid], since_ns + KUBELET_FLOOR_NS)
        kill = self._asked_of_runtime(partial(self._kill, box, by_ns))
        self._timer.later(max(0, by_ns - now_ns), kill)

    def _kill(self, box: SimulatedContainer, by_ns: int) -> None:
        if self._runtime.hung:
            self._runtime.ask(self._asked_of_runtime(partial(self._kill, box, by_ns)))
        elif box.phase == "running" and not box.killed and by_ns <= self._timer.now_ns:
            self._pods.kill(box, KUBELET, False)

    def _hurry(self, uid: str) -> None:
        for box in self._pods.of(uid):
            if (box.uid, box.name) in self._signalled_ns:
                self._kill_later(box)

    def _gone(self, box: SimulatedContainer) -> None:
        ours = box.uid in self._asked
        if self.running and not ours:
            again_ns = AGAIN_NS << (box.attempt - 1) if box.attempt else NOTICES_NS
            start = self._asked_of_runtime(partial(self._start_again, box))
            self._later(again_ns, partial(self._runtime.ask, start))
        if self._pods.over(box.uid) and self.running and ours:
            self._tidy(box.uid)

    def _start_again(self, box: SimulatedContainer) -> None:
        at = (box.uid, box.name)
        signalled = any((seen.uid, seen.container) == at for seen in self._log.of("signal"))
        if signalled and box.uid not in self._asked:
            self._log.note("restart", box.uid, box.name, life=KUBELET)
            if box.exit_signal or box.exit_code is not None:  # else it has never run
                self._pods.start_again(box, KUBELET)

    def _tidy(self, uid: str) -> None:
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

    # --- its own graceful shutdown

    def _take_lock(self) -> None:
        if not self._faults.kubelet_lock:
            return
        self._logind.subscribers[KUBELET] = self._hear
        try:
            self._logind.inhibit(KUBELET)
        except (simulated_logind.InProgress, simulated_logind.Unreachable):
            return

    def _hear(self, signal: simulated_logind.BusSignal) -> None:
        if isinstance(signal, simulated_logind.ShutdownSignal) and self.running:
            self._own += 1
            self._later(HEARS_NS, self._begin_own if signal.active else self._take_lock)

    def _begin_own(self) -> None:
        periods = effective_periods(self._settings)
        pods = [self._pods.plans[uid].pod for uid in self._pods.begun if not self._pods.over(uid)]
        waves = planned_waves(periods, self._logind.grant_ns, pods, self._timer.now_ns)
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
        self._pods.begin(pod.uid, "kubelet")
        if pod.volumes:
            self.mounted[pod.uid] = None
        for box in self._pods.of(pod.uid):
            self._pods.start(box, KUBELET)


# --- the machine

#: From the final unit's start to the daemon's SIGTERM, and from the last unit's stop to the end.
HALT_NS = 50 * MS

#: The daemon's unit has this stop time beyond what it asks for.
LEAVING_NS = 2 * NS_PER_SECOND


NOT_LISTED_YET = "the API server has not listed this node's pods yet"
NO_LIST = "the API server gives no list of this node's pods"


class ApiServer(Hanging):
    """A hung server accepts requests and answers none; a lost server accepts none."""

    def __init__(self, log: WorldLog, timer: Timer, faults: Faults) -> None:
        super().__init__(log, timer, "api-lost", "api-back")
        self._faults, self._lost = faults, faults.api == "hangs"
        self.shown_ready = True

    @property
    def reachable(self) -> bool:
        return not (self._lost or self.hung)

    def hang(self) -> None:
        if self.reachable:
            super().hang()

    def set_reachable(self, reachable: bool) -> None:
        self._lost = not reachable
        self._turn("api-back" if reachable else "api-lost")

    @property
    def accepts(self) -> bool:
        return self.reachable and self._faults.api == "works"


class SimulatedNode:
    """One boot. ``stops``: called when units stop, ``down``: when the machine is off."""

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
        self.logind = simulated_logind.SimulatedLogind(
            log.note, timer, self._start_final_unit, faults.grant_ns, obeys_drop_in=obeys
        )
        self.api = ApiServer(log, timer, faults)
        self.runtime = SimulatedRuntime(log, timer)
        self.kubelet = Kubelet(
            self.pods, timer, log, self.logind, faults, settings, lambda: self.api.reachable, self.runtime
        )
        self.kind: ShutdownKind = "unknown"
        self.stopping = self.is_down = self.powered_off = False
        #: The next final unit fails so long after its start.
        self.final_fails_ns: int | None = None
        #: How many exits are in the journal.
        self.exits_recorded: dict[tuple[str, str], int] = {}
        #: Why no daemon has the API server's list of pods yet; empty: one has.
        self.untold = "" if faults.first_start_after_ns is None else NOT_LISTED_YET
        #: Called when the list comes.
        self.told: list[Callable[[], object]] = []
        self._stops, self._down = stops, down
        self._stop_by_ns = 0

    # --- pods

    def come_up(self, pod: Pod) -> None:
        """A pod runs before the daemon; some of its containers may have ended."""
        self.pods.begin(pod.uid, "boot")
        for container, box in zip(pod.containers, self.pods.of(pod.uid), strict=True):
            if container.running:
                self.pods.start(box, 0)
            else:
                self.pods.drop(box)
                self.exits_recorded[box.uid, box.name] = 1

    def note_exit(self, uid: str, container: str) -> None:
        """The journal has an exit, perhaps for the second time."""
        at = (uid, container)
        runs = self.pods.boxes.get(at)
        ended = runs.attempt + (runs.phase == "exited") if runs is not None else 1
        self.exits_recorded[at] = min(self.exits_recorded.get(at, 0) + 1, ended)

    def come_up_as_node(self) -> None:
        for uid in self.pods.begun:
            if self.pods.plans[uid].pod.volumes:
                self.kubelet.mounted[uid] = None
        if self.faults.kubelet != "away":
            self.kubelet.start()

    def admit(self, pod: Pod) -> bool:
        """A taint or a stopped kubelet refuses the pod."""
        if not self.kubelet.running or not self.api.shown_ready or self.is_down:
            return False
        self.log.note("appeared", pod.uid)
        self.kubelet.admit(pod)
        return True

    def daemon_started(
        self, number: int, version: str, mode: str, name: str, failed_starts: int = 0
    ) -> DaemonStarted:
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

    def _start_final_unit(self, kind: ShutdownKind) -> None:
        fails_ns, self.final_fails_ns = self.final_fails_ns, None
        if fails_ns is None:
            self.stop(kind)
        else:
            self.timer.later(fails_ns, lambda: self.logind.withdraw("the final unit failed"))

    def stop(self, kind: ShutdownKind) -> None:
        """The service manager stops all units, also without logind (``systemctl --force``)."""
        if self.stopping or self.is_down:
            return
        self.stopping, self.kind = True, kind
        self._stop_by_ns = self.timer.now_ns + self.faults.stop_time_ns
        self.log.note("stopping", detail=kind)
        self.timer.later(HALT_NS, self._stops)

    def extend_stop(self, needed_ns: int) -> None:
        """The daemon's unit asks for more stop time (EXTEND_TIMEOUT_USEC)."""
        self._stop_by_ns = max(self._stop_by_ns, self.timer.now_ns + needed_ns + LEAVING_NS)

    def stop_time_left_ns(self) -> int:
        return self._stop_by_ns - self.timer.now_ns

    def halt(self) -> None:
        """The last unit has stopped."""
        self.timer.later(HALT_NS, lambda: self._off(self.kind))

    def cut_power(self) -> None:
        """Without a shutdown."""
        if not self.is_down:
            self.powered_off = True
            self._off("power cut")

    def _off(self, how: str) -> None:
        if not self.is_down:
            self.is_down = True
            self.log.note("down", detail=how)
            self._down()
