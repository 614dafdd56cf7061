"""The daemon's edges onto the modelled node: a script for each order reports the real edge's facts.

`simulate` runs the scripts in virtual time (`replay.sim.loop`), the tests' world as tasks of the real runner.
Scripts draw latencies in microseconds: an added or moved draw changes the run of a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Protocol

from msgspec.structs import replace

from ebbtide.actors import simulated_logind
from ebbtide.events import decisions, facts
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, Fact, Order
from ebbtide.events.values import Pod, ProcessReport
from ebbtide.replay.sim import sim_node
from ebbtide.replay.sim.loop import (
    FOREVER,
    TOUCH,
    Begin,
    EffectCancelled,
    Outcome,
    Script,
    Until,
    Watching,
)
from ebbtide.replay.sim.scenario import Draws


class DaemonProcess(Protocol):
    @property
    def number(self) -> int:
        """In all boots: the holder of its lock, and its life in the world log."""

    @property
    def alive(self) -> bool: ...

    def report(self, delay_ns: int, fact: Fact) -> object:
        """Report a fact without an order."""

    def watch(self, script: Watching) -> object:
        """Run a script while this process lives."""

    def end_order(self, key: str, outcome: Outcome) -> object:
        """End an order, even if its script waits."""


class SimulatedEdge:
    table: Mapping[type[Order], Begin]

    def __init__(self, daemon: DaemonProcess, node: sim_node.SimulatedNode, draws: Draws) -> None:
        self._daemon, self._node, self._draws = daemon, node, draws

    def adopt(self, order: Order, draws: Draws) -> Script | None:
        """Repeats an earlier process's order; None: it ends unknown."""
        return self.table[type(order)](order, False) if draws.chance(1, 2) else None

    def _draw_ns(self, low_us: int, high_us: int) -> int:
        return self._draws.between(low_us, high_us) * 1000

    def _note(
        self, what: str, uid: str = "", container: str = "", detail: str = "", late: bool = False
    ) -> None:
        self._node.log.note(what, uid, container, detail, life=self._daemon.number, late=late)


# --- logind
#
# Subscribe, lock, read, in this order: then the signal, the refused lock or the property shows a shutdown
# that begins in between.


#: It overrides our drop-in.
OTHERS_PATH = "/etc/systemd/logind.conf.d/zz-site.conf"

#: In one look, while signals come.
READS_MAX = 5


class LogindEdge(SimulatedEdge):
    """One process's connection. ``preparing``: as last seen."""

    def __init__(self, daemon: DaemonProcess, node: sim_node.SimulatedNode, draws: Draws) -> None:
        super().__init__(daemon, node, draws)
        self.preparing, self._owner, self._connected = False, "", False
        #: A signal waits, and makes a read obsolete.
        self.overtaken: Callable[[], bool] = lambda: False
        if simulated_logind.STORE in node.logind.holders:
            node.logind.duplicate(daemon.number)
        self.table = {
            decisions.Arm: self._arm,
            decisions.Disarm: self._give_back,
            decisions.ReleaseLock: self._give_back,
            decisions.WriteDropIn: lambda order, late: self._change(order.seconds * NS_PER_SECOND, late),
            decisions.RemoveDropIn: lambda _, late: self._change(None, late),
        }

    def adopt(self, order: Order, draws: Draws) -> Script | None:
        """Repeats no order: the lock itself shows its outcome."""
        return None

    def hear(self, signal: simulated_logind.BusSignal) -> Watching:
        """A new owner of the name may not know its predecessor's shutdown."""
        if isinstance(signal, simulated_logind.ShutdownSignal):
            yield self._draw_ns(100, 2000)
            self.preparing, self._owner = signal.active, signal.owner
            yield self._node.logind.signal_fact(signal, self._daemon.number, kubelet_lock=self._kubelet_lock)
        elif isinstance(signal, simulated_logind.Disconnected):
            self._connected = False
            yield facts.BusLost(error="the connection to the bus broke")
        elif signal == simulated_logind.OwnerChanged(""):
            yield facts.BusLost(error="logind left the bus")
        else:
            yield from self.look()

    def look(self) -> Watching:
        yield self._draw_ns(300, 3000)
        logind = self._node.logind
        found = (logind.preparing, logind.owner)
        known = (self.preparing, self._owner)
        if self._connected and logind.up and not self.overtaken() and found != known:
            self.preparing, self._owner = found
            yield facts.PreparingRead(preparing=found[0], owner=found[1])

    def _arm(self, order: decisions.Arm, late: bool) -> Script:
        logind, number = self._node.logind, self._daemon.number
        yield self._draw_ns(300, 5000)
        if not logind.up:
            return Outcome("failed", "logind left the bus")
        logind.subscribers[number] = lambda signal: self._daemon.watch(self.hear(signal))
        self._connected = True
        wanted, refused = order.lock and number not in logind.holders, ""
        yield self._draw_ns(200, 3000)
        try:
            if wanted:
                logind.inhibit(number)
                yield TOUCH
                if self._node.faults.fd_store:
                    logind.duplicate(simulated_logind.STORE)
        except (simulated_logind.InProgress, simulated_logind.Unreachable) as error:
            refused = str(error)
        yield self._draw_ns(200, 3000)
        try:
            yield from self._read()
        except simulated_logind.Unreachable as error:
            refused = str(error)
        if refused:
            return Outcome("failed", refused)
        yield self._draw_ns(100, 1000)
        return Outcome()

    def _read(self) -> Watching:
        """Properties, then files. Raises Unreachable."""
        logind = self._node.logind
        for _ in range(READS_MAX):
            logind.check()
            if not self.overtaken():
                break
            yield self._draw_ns(200, 3000)
        else:
            raise simulated_logind.Unreachable("logind keeps signalling")
        self.preparing, self._owner = logind.preparing, logind.owner
        yield from logind.facts(OTHERS_PATH, kubelet_lock=self._kubelet_lock)

    @property
    def _kubelet_lock(self) -> bool:
        return sim_node.KUBELET in self._node.logind.holders

    def _give_back(self, order: decisions.Disarm | decisions.ReleaseLock, late: bool) -> Script:
        """Close the store's copy first: the last close releases the lock."""
        yield self._draw_ns(100, 3000)
        self._node.logind.close(simulated_logind.STORE)
        yield TOUCH
        self._note("release", detail=type(order).__name__, late=late)
        self._node.logind.close(self._daemon.number)
        return Outcome()

    def _change(self, ours_ns: int | None, late: bool) -> Script:
        """None: remove our file. logind obeys late, also after this daemon's end."""
        logind, slow_ns = self._node.logind, self._node.faults.late_grant_ns
        yield self._draw_ns(300, 3000)
        try:
            logind.set_drop_in(ours_ns)
        except (simulated_logind.InProgress, simulated_logind.Unreachable) as error:
            return Outcome("failed", str(error))
        detail = "removed" if ours_ns is None else f"{ours_ns // NS_PER_SECOND}"
        self._note("drop-in", detail=detail, late=late)
        reload_ns = self._draw_ns(1000, 50_000) + (slow_ns if ours_ns is not None else 0)
        self._node.timer.later(reload_ns, logind.reload)
        yield reload_ns + self._draw_ns(200, 3000)
        try:
            yield from self._read()
        except simulated_logind.Unreachable as error:
            return Outcome("failed", str(error))
        if ours_ns is None or logind.grant_ns >= ours_ns:
            return Outcome()
        return Outcome("failed", "another file is read after ours")


# --- the container runtime

UNKNOWN_CONTAINER = "no such container is known here"

# The real edge's bounds for a hung runtime (`actors.edges.cri`): until it counts as away, the same at the
# signal, for a stop, for a refreshed list, for SIGKILL.
AWAY_NS, ASKED_NS, HEARD_NS, DOUBT_NS, KILL_NS = 3000 * MS, 1000 * MS, 2100 * MS, 2000 * MS, 2000 * MS


def away_at_ns(runtime: sim_node.SimulatedRuntime) -> int | None:
    """None: it answers."""
    since_ns, asked_ns = runtime.hung_since_ns, runtime.asked_ns
    if since_ns is None:
        return None
    return min(since_ns + AWAY_NS, asked_ns + ASKED_NS) if asked_ns >= since_ns else since_ns + AWAY_NS


HOOK_FAILURES: dict[str, Outcome] = {
    "exec": Outcome("failed", "exit code 1", 1),
    "httpGet": Outcome("failed", "the answer was 500 Internal Server Error"),
}


#: A slow kubelet's stop: meanwhile pods end and start again.
KUBELET_SLOW_NS = 3000 * MS
#: A look's slowest report of an exit.
LATEST_EXIT_NS = 4 * MS


class RuntimeEdge(SimulatedEdge):
    #: A runtime keeps the exit codes of all containers. A daemon that is the runtime has its children's only.
    KEEPS_EXITS: ClassVar[bool] = True

    def __init__(self, daemon: DaemonProcess, node: sim_node.SimulatedNode, draws: Draws) -> None:
        super().__init__(daemon, node, draws)
        self._pods = node.pods
        self._late_until_ns = 0
        self._reported: dict[str, None] = dict.fromkeys(node.pods.begun)
        node.pods.watchers.append(self._exited)
        node.pods.restarted.append(self._restarted)
        node.runtime.turned.append(self._look_again)
        self.table = {
            decisions.TakeInventory: self._take_inventory,
            decisions.StartPod: self._start_pod,
            decisions.RunHook: self._run_hook,
            decisions.SendSignal: self._send_signal,
            decisions.KillContainer: self._kill,
            decisions.TakeAutopsy: self._take_autopsy,
        }

    def _exited(self, box: sim_node.SimulatedContainer, *, unseen: bool = False) -> None:
        if self._daemon.alive:
            known = self.KEEPS_EXITS or box.parent == self._daemon.number
            exited = facts.ContainerExited(
                uid=box.uid,
                container=box.name,
                exit_code=box.exit_code if known else None,
                signal=box.exit_signal if known else "",
                gone=unseen and not known,
            )
            self._daemon.report(self._draw_ns(50, 3000), exited)

    def look(self, recorded: Mapping[tuple[str, str], int]) -> None:
        """Report unseen ends. ``recorded``: how many exits were reported before."""
        for box in self._pods.every:
            if box.phase == "exited" and recorded.get((box.uid, box.name), 0) <= box.attempt:
                self._exited(box, unseen=True)

    def _restarted(self, box: sim_node.SimulatedContainer) -> None:
        if self._daemon.alive and self._node.timer.now_ns < self._late_until_ns:
            self._daemon.watch(self._tell_restarted(box))

    def _look_again(self) -> None:
        for at in list(self._pods.meant):
            self._restarted(self._pods.boxes[at])

    def _tell_restarted(self, box: sim_node.SimulatedContainer) -> Watching:
        yield self._draw_ns(5000, 500_000)
        if not self._node.runtime.hung:
            yield from self._joined_again(box)

    def _joined_again(self, box: sim_node.SimulatedContainer) -> Iterator[facts.PodJoined]:
        """From now on orders mean all running containers of its pod."""
        if (box.uid, box.name) in self._pods.meant:
            for each in self._pods.of(box.uid):
                self._pods.meant.pop((each.uid, each.name), None)
            yield facts.PodJoined(pod=self._as_it_is(box.uid))

    def _as_it_is(self, uid: str, away: bool = False) -> Pod:
        pod = self._pods.plans[uid].pod
        boxes = self._shown(uid, away)
        exited = [box.name for box in boxes if box.phase == "exited"]
        # Most pods are never copied: a running pod is as its manifest says.
        if exited or pod.deletion is not None:
            over = [box.name for box in boxes if any(hook.ended for hook in box.hooks.values())]
            containers = [
                replace(each, running=each.name not in exited, hook_over=each.name in over)
                for each in pod.containers
            ]
            pod = replace(pod, containers=tuple(containers))
        return pod

    def _shown(self, uid: str, away: bool) -> list[sim_node.SimulatedContainer]:
        """If the runtime is ``away``, without restarts that came later."""
        boxes = self._pods.of(uid)
        return [self._pods.meant.get((box.uid, box.name), box) for box in boxes] if away else boxes

    def joined(self, pod: Pod) -> None:
        """Only a shutdown that asked for late pods gets the report."""
        if self._daemon.alive and self._node.timer.now_ns < self._late_until_ns:
            self._daemon.watch(self._tell_joined(pod.uid))

    def _tell_joined(self, uid: str) -> Watching:
        yield self._draw_ns(1000, 500_000)
        if not self._pods.over(uid):
            yield facts.PodJoined(pod=self._as_it_is(uid))

    def appeared(self, pod: Pod) -> None:
        if self._daemon.alive and pod.uid not in self._reported:
            self._reported[pod.uid] = None
            self._note("appeared", pod.uid)
            self._daemon.report(self._draw_ns(50, 3000), facts.PodAppeared(pod=pod))

    def _take_inventory(self, order: decisions.TakeInventory, late: bool) -> Script:
        self._late_until_ns = max(self._late_until_ns, order.late_until_ns)
        delay_ns = self._draw_ns(2000, 30_000) if order.refresh else 0
        word_ns = decisions.FIRST_WORD_NS
        if order.priorities_by_ns:
            word_ns = min(word_ns, order.priorities_by_ns - self._node.timer.now_ns)
        if not order.refresh and self._node.untold == sim_node.NOT_LISTED_YET and word_ns > 0:
            yield Until(self._node.told, word_ns)
        # The edge does not ask a runtime that is away: it reports its last list.
        away_ns = away_at_ns(self._node.runtime)
        away = order.refresh and away_ns is not None and self._node.timer.now_ns >= away_ns
        if order.refresh and self._node.runtime.hung and not away:
            yield Until(self._node.runtime.waiting, DOUBT_NS)
            if self._node.runtime.hung:
                return Outcome("failed", "the runtime does not answer")
        if not away:
            yield delay_ns + self._node.faults.runtime_takes_ns * order.refresh
        if not order.refresh:
            self._pods.meant.clear()
            runtime = self._node.runtime
            runtime.asked_ns = self._node.timer.now_ns
            for listener in [*runtime.turned] if runtime.hung else ():  # a hang shows sooner
                listener()
        elif self._pods.meant and not away:
            yield LATEST_EXIT_NS
            for at in list(self._pods.meant):
                if at in self._pods.meant:
                    yield from self._joined_again(self._pods.boxes[at])
        active = []
        for uid in self._pods.begun:
            if all(box.phase == "exited" for box in self._shown(uid, away)):
                continue
            pod = self._as_it_is(uid, away)
            active.append(self._as_labels_say(pod) if self._node.untold else pod)
        untold = self._node.untold if any(pod.priority is None for pod in active) else ""
        source = facts.FROM_TABLE if away else "simulated"
        yield from facts.InventoryTaken.in_parts(order.key, self._node.timer.now_ns, source, active, untold)
        yield self._draw_ns(5, 60)
        return Outcome()

    def _as_labels_say(self, pod: Pod) -> Pod:
        """The runtime's labels know less, except of a static pod, which has a manifest."""
        if pod.static:
            return pod
        made = tuple(replace(each, sidecar=False) for each in pod.containers)
        return replace(
            pod, priority=None, daemon=False, tolerates_all=False, volumes=False, owner="", containers=made
        )

    def _start_pod(self, order: decisions.StartPod, late: bool) -> Script:
        yield self._draw_ns(20_000, 400_000)
        if order.uid not in self._pods.plans:
            return Outcome("failed", "no manifest of this pod is known here")
        self._pods.begin(order.uid, order.key)
        for box in self._pods.of(order.uid):
            yield TOUCH
            if box.phase == "waiting" and self._pods.start(box, self._daemon.number):
                yield facts.ContainerStarted(uid=box.uid, container=box.name)
        return Outcome()

    def _find(self, uid: str, container: str) -> sim_node.SimulatedContainer | None:
        at = (uid, container)
        return (self._pods.meant.get(at) or self._pods.boxes.get(at)) if uid in self._pods.begun else None

    def _send_signal(self, order: decisions.SendSignal, late: bool) -> Script:
        yield self._draw_ns(20, 900) + self._node.faults.runtime_takes_ns
        box = self._find(order.uid, order.container)
        if box is None:
            return Outcome("failed", UNKNOWN_CONTAINER)
        if self._node.faults.runtime_refuses != "nothing":
            return self._refused("signal", box)
        if self._without_runtime(box):
            self._node.runtime.waiting.append(partial(self._signal_late, box, late))
            yield HEARD_NS
            return Outcome() if not self._node.runtime.hung else Outcome("timed-out", "no answer")
        self._pods.signal(box, self._daemon.number, late)
        return Outcome()

    def _without_runtime(self, box: sim_node.SimulatedContainer) -> bool:
        return self._node.runtime.hung and self._node.runtime.hides(box)

    def _signal_late(self, box: sim_node.SimulatedContainer, late: bool) -> None:
        """A runtime that wakes up reads the calls of living callers."""
        if self._daemon.alive:
            self._pods.signal(box, self._daemon.number, late)

    def _kill(self, order: decisions.KillContainer, late: bool) -> Script:
        box = self._find(order.uid, order.container)
        if box is None:
            return Outcome("failed", UNKNOWN_CONTAINER)
        if self._node.faults.runtime_refuses == "everything":
            return self._refused("kill", box)
        if self._without_runtime(box):
            yield Until(self._node.runtime.waiting, KILL_NS)
            if self._node.runtime.hung:
                return self._refused("kill", box)
        self._pods.kill(box, self._daemon.number, late)
        yield TOUCH
        return Outcome()

    def _refused(self, what: str, box: sim_node.SimulatedContainer) -> Outcome:
        self._note(what, box.uid, box.name, "refused")
        return Outcome("failed", "the runtime does not answer")

    def _take_autopsy(self, order: decisions.TakeAutopsy, late: bool) -> Script:
        yield self._draw_ns(2000, 60_000)
        box = self._find(order.uid, order.container)
        if box is None:
            return Outcome("failed", UNKNOWN_CONTAINER)
        self._note("look", box.uid, box.name)
        ignores = box.plan.stop_ns is None
        report = ProcessReport(
            pid=1000 + self._draws.below(30_000),
            parent_pid=1,
            command=box.name,
            state="sleeping",
            signals_ignored=("SIGTERM",) if ignores else (),
            signals_caught=() if ignores else ("SIGTERM",),
        )
        yield facts.AutopsyTaken(uid=order.uid, container=order.container, processes=(report,))
        return Outcome()

    def _run_hook(self, order: decisions.RunHook, late: bool) -> Script:
        box = self._find(order.uid, order.container)
        if box is None or box.phase != "running":
            return Outcome("failed", "the container does not run")
        away_ns = away_at_ns(self._node.runtime)
        if away_ns is not None and self._hook_kind(order) == "exec":
            # A hook that waits until the runtime counts as away is not begun.
            left_ns = max(0, away_ns - self._node.timer.now_ns)
            yield Until(self._node.runtime.waiting, min(left_ns, order.timeout_ns))
            if self._node.runtime.hung or box.phase != "running":
                return Outcome("failed", "it was not begun: the runtime does not answer")
        hook = self._pods.run_hook(box, order.key, self._daemon.number, late)
        return (yield from self._follow(order, box, hook))

    def adopt(self, order: Order, draws: Draws) -> Script | None:
        """Follows a running exec hook. A request, or an ended hook, ends unknown."""
        if not isinstance(order, decisions.RunHook):
            again = super().adopt(order, draws)
            # The core repeats a stop signal once.
            return None if self._node.faults.mode and isinstance(order, decisions.SendSignal) else again
        box = self._find(order.uid, order.container)
        hook = box.hooks.get(order.key) if box is not None else None
        if box is None or hook is None or hook.ended or self._hook_kind(order) == "httpGet":
            return None
        return self._follow(order, box, hook)

    def _follow(
        self, order: decisions.RunHook, box: sim_node.SimulatedContainer, hook: sim_node.HookProcess
    ) -> Script:
        """A cancel or a timeout kills its process. It outlives a daemon that dies."""
        try:
            yield Until(hook.followers, order.timeout_ns)
        except EffectCancelled:
            self._pods.stop_hook(box, hook)
            raise
        if not hook.ended:
            self._pods.stop_hook(box, hook)
            return Outcome("timed-out")
        if self._node.runtime.hung and self._hook_kind(order) == "exec":
            return Outcome("unknown", "the runtime does not answer: how it ended is not known")
        return Outcome() if hook.succeeded else HOOK_FAILURES[self._hook_kind(order)]

    def _hook_kind(self, order: decisions.RunHook) -> str:
        containers = self._pods.plans[order.uid].pod.containers
        return next(each.hook.kind for each in containers if each.name == order.container and each.hook)


# --- beyond the network

#: Longer than any boot.
WHILE_HUNG_NS = 3600 * NS_PER_SECOND


class ApiServerEdge(SimulatedEdge):
    """For a daemon outside Kubernetes."""

    def __init__(self, daemon: DaemonProcess, node: sim_node.SimulatedNode, draws: Draws) -> None:
        super().__init__(daemon, node, draws)
        self.table = {
            decisions.AnnounceNode: self._call,
            decisions.DeliverStatuses: self._call,
            decisions.FlushTraces: self._flush,
        }

    def _call(self, order: decisions.AnnounceNode | decisions.DeliverStatuses, late: bool) -> Script:
        """A call without an answer keeps its order open."""
        faults = self._node.faults
        if faults.api == "hangs":
            yield FOREVER
        while self._node.api.hung:
            yield Until(self._node.api.waiting, WHILE_HUNG_NS)
        yield faults.api_takes_ns + self._draws.between(0, 8 * MS)
        if faults.api == "fails":
            return Outcome("failed", "the API server refuses")
        self._take(order, late)
        return Outcome()

    def _take(self, order: Order, late: bool) -> None:
        if isinstance(order, decisions.AnnounceNode):
            self._node.api.shown_ready = order.ready
            self._note("announce", detail="ready" if order.ready else "going down", late=late)
        elif isinstance(order, decisions.DeliverStatuses):
            what = "late-status" if order.unchanged_only else "status"
            for uid, phase, *_ in order.statuses:
                self._note(what, uid, detail=phase, late=late)
                self._node.kubelet.final[uid] = None
        elif isinstance(order, decisions.DeletePod):
            self._note("delete", order.uid, detail=f"{order.grace_seconds} s", late=late)
            self._node.kubelet.delete(order.uid, order.grace_seconds * NS_PER_SECOND)
        elif isinstance(order, decisions.PublishCertificate):
            self._note("certificate", detail="safe" if order.safe else "not safe", late=late)
        elif isinstance(order, decisions.PublishLastBoot):
            self._note("last-boot", detail=order.ending, late=late)

    def _flush(self, order: decisions.FlushTraces, late: bool) -> Script:
        takes_ns = self._draws.between(20, 250) * MS
        if self._node.faults.api == "hangs" or takes_ns > order.timeout_ns:
            yield order.timeout_ns
            return Outcome("timed-out")
        yield takes_ns
        return Outcome()


# A lost API server answers no call, and the daemon notices it later. A refusing one (429, 500) takes no call.

KUBELET_UNIT = "kubelet.service"

#: The real edges' bounds of a call.
ORDER_BOUNDS_NS: dict[type[Order], int] = {
    decisions.AnnounceNode: 60 * NS_PER_SECOND,
    decisions.PostEvent: 10 * NS_PER_SECOND,
    decisions.DeliverStatuses: 10 * NS_PER_SECOND,
    decisions.DeletePod: 1500 * MS,
    decisions.PublishCertificate: 2 * NS_PER_SECOND,
    decisions.PublishLastBoot: 3600 * NS_PER_SECOND,
    decisions.WithdrawPods: NS_PER_SECOND,
}
#: Between two attempts of an unanswered call.
RETRY_NS = 500 * MS
STATUS_POLL_NS = 100 * MS
MOUNT_POLL_NS = 20 * MS
#: From the server's last answer to the report of its loss; the second if connections stay open.
MISSED_MS = (1500, 6000)
SILENT_MS = (4000, 14_000)
#: An unanswered call reports the loss sooner: its longest wait, the wait of the question after it, the least
#: time to the report.
TRY_NS, LIVENESS_NS, API_AWAY_NS = 5000 * MS, 2000 * MS, 3000 * MS
#: Between two attempts of the first list.
LIST_AGAIN_NS = NS_PER_SECOND
#: Between two questions for the kubelet's health; until its silence is reported; the wait of the unit's first
#: report for the first answer.
HEALTH_MS, HEALTH_SILENT_MS, HEALTH_FIRST_MS = 1000, 3000, 300
#: Before a hung kubelet is killed.
KUBELET_STOP_NS = 2000 * MS


class KubernetesEdge(ApiServerEdge):
    def __init__(self, daemon: DaemonProcess, node: sim_node.SimulatedNode, draws: Draws) -> None:
        super().__init__(daemon, node, draws)
        self._kubelet = node.kubelet
        self._announcing = ""
        node.api.turned.append(self._api_turned)
        self._runtime_away = False
        node.runtime.turned.append(self._runtime_turned)
        node.kubelet.changed.append(lambda: self._later(1, 30, self._report_kubelet))
        self._api_away = False
        #: None: not asked yet.
        self._kubelet_silent: bool | None = False
        node.kubelet.turned.append(self._kubelet_turned)
        self.table = {
            **dict.fromkeys(ORDER_BOUNDS_NS, self._call),
            decisions.AwaitStatuses: self._await_statuses,
            decisions.AwaitUnmounts: self._await_unmounts,
            decisions.CheckMounts: self._check_mounts,
            decisions.StopKubelet: self._stop_kubelet,
            decisions.StartKubelet: self._start_kubelet,
        }

    def look(self) -> None:
        """At the start."""
        if self._kubelet.hung:
            self._kubelet_silent = None
            self._later(HEALTH_FIRST_MS, HEALTH_FIRST_MS + 20, self._report_kubelet)
            self._kubelet_turned()
        else:
            self._later(1, 20, self._report_kubelet)
        if self._node.runtime.hung:
            self._runtime_turned()
        else:
            runtime = facts.RuntimeRead(reachable=self._node.faults.runtime_refuses != "everything")
            self._later(5, 60, lambda: self._daemon.report(0, runtime))
        if self._node.untold:
            self._node.untold = sim_node.NOT_LISTED_YET
            self._after(self._node.faults.first_list_takes_ns, self._list)
            self._after(API_AWAY_NS, self._give_list_up)
        else:
            self._later(10, 400, self._report_api)

    def _list(self) -> None:
        """The next daemon has this first list too."""
        if not self._node.api.accepts:
            self._after(LIST_AGAIN_NS, self._list)
            return
        self._node.untold = ""
        self._report_api()
        told, self._node.told = self._node.told, []
        for listener in told:
            listener()

    def _give_list_up(self) -> None:
        if self._node.untold and not self._node.api.accepts:
            self._node.untold = sim_node.NO_LIST
            self._report_api()

    def _later(self, low_ms: int, high_ms: int, do: Callable[[], object]) -> None:
        self._after(self._draws.between(low_ms, high_ms) * MS, do)

    def _after(self, delay_ns: int, do: Callable[[], object]) -> None:
        self._node.timer.later(delay_ns, lambda: do() if self._daemon.alive else None)

    def _api_turned(self) -> None:
        if self._node.untold:
            return  # `_list` reports it
        if self._node.api.hung:
            self._later(*SILENT_MS, self._report_silence)
        else:
            self._later(*((5, 500) if self._node.api.reachable else MISSED_MS), self._report_api)

    def _report_silence(self) -> None:
        if self._node.api.hung and not self._api_away:
            self._report_api()

    def _kubelet_turned(self) -> None:
        if self._node.faults.kubelet_health:
            again_ms = HEALTH_SILENT_MS if self._kubelet.hung else 5
            self._later(again_ms, again_ms + HEALTH_MS, self._report_health)

    def _report_health(self) -> None:
        since_ns = self._kubelet.hung_since_ns
        silent = since_ns is not None and self._node.timer.now_ns - since_ns >= HEALTH_SILENT_MS * MS
        if self._kubelet.running and silent is not self._kubelet_silent and silent is self._kubelet.hung:
            self._kubelet_silent = silent
            self._report_kubelet()

    def _runtime_turned(self) -> None:
        away_ns = away_at_ns(self._node.runtime)
        left_ms = 5 if away_ns is None else max(0, away_ns - self._node.timer.now_ns) // MS
        self._later(left_ms, 500 if away_ns is None else left_ms + 60, self._report_runtime)

    def _report_runtime(self) -> None:
        away = self._node.runtime.hung
        if away is not self._runtime_away:
            self._runtime_away = away
            error = "Version: no answer" if away else ""
            self._daemon.report(0, facts.RuntimeRead(reachable=not away, error=error))

    def _report_api(self) -> None:
        reachable, taint = self._node.api.reachable, self._node.faults.taints
        error = "" if reachable else "no answer"
        self._api_away = not reachable
        self._daemon.report(0, facts.ApiRead(reachable=reachable, error=error, taint=taint))

    def _report_kubelet(self) -> None:
        running = self._kubelet.running
        if not running:
            self._kubelet_silent = False  # the next one
        heard = running and self._node.faults.kubelet_health and self._kubelet_silent is not None
        healthy = not self._kubelet_silent if heard else None
        self._daemon.report(0, facts.KubeletRead(unit=KUBELET_UNIT, active=running, healthy=healthy))

    def _call(self, order: Order, late: bool) -> Script:
        """Try until the call's time is over. A later announcement ends an earlier one."""
        if isinstance(order, decisions.AnnounceNode):
            overtaken = Outcome("cancelled", "a later announcement has overtaken it")
            self._daemon.end_order(self._announcing, overtaken)
            self._announcing = order.key
        api, takes_ns = self._node.api, self._node.faults.api_takes_ns
        left_ns, sent_ns = ORDER_BOUNDS_NS[type(order)], takes_ns + self._draws.between(0, 8 * MS)
        try_ns = min(left_ns, TRY_NS)
        if api.hung:
            self._doubt(try_ns)
        heard = api.reachable
        if api.accepts and sent_ns < left_ns:
            left_ns -= sent_ns
            yield sent_ns
            if api.accepts:
                self._take(order, late)
                return Outcome()
            if api.hung:  # since it was sent
                self._doubt(try_ns - sent_ns)
            heard = True
        # Repeat an unanswered call, but not a delete, which the server may have taken.
        refused = api.reachable and self._node.faults.api == "fails"
        if isinstance(order, decisions.DeletePod) and not refused and not self._draws.chance(1, 2):
            if heard and self._draws.chance(1, 2):
                self._take(order, late)
            elif api.hung:
                # A server that wakes up reads it if its caller is still there.
                yield Until(api.waiting, left_ns)
                if api.accepts:
                    self._take(order, late)
                    return Outcome()
                if self._draws.chance(1, 2):
                    api.waiting.append(partial(self._take, order, late))
                return Outcome("timed-out", "sent")
            yield left_ns
            return Outcome("timed-out", "sent")
        while left_ns > 0:
            wait_ns = min(RETRY_NS, left_ns)
            left_ns -= wait_ns
            yield wait_ns
            if api.accepts and takes_ns < left_ns:
                self._take(order, late)
                return Outcome()
        return Outcome("failed", f"{facts.API_ANSWERED} 429" if api.reachable else "no answer in time")

    def _doubt(self, tried_ns: int) -> None:
        """After an unanswered call the edge asks whether the server answers."""
        self._after(max(tried_ns + LIVENESS_NS, API_AWAY_NS), self._report_silence)

    def _await_statuses(self, order: decisions.AwaitStatuses, late: bool) -> Script:
        until_ns = self._node.timer.now_ns + order.timeout_ns
        while True:
            accepts, final = self._node.api.accepts, self._kubelet.final
            missing = tuple(uid for uid in order.uids if not accepts or uid not in final)
            left_ns = until_ns - self._node.timer.now_ns
            if not missing or left_ns <= 0:
                break
            yield min(STATUS_POLL_NS, left_ns)
        yield facts.StatusesSeen(key=order.key, missing=missing)
        return Outcome("timed-out" if missing else "done")

    def _await_unmounts(self, order: decisions.AwaitUnmounts, late: bool) -> Script:
        until_ns, waiting = self._node.timer.now_ns + order.timeout_ns, list(order.uids)
        while True:
            gone = [uid for uid in waiting if uid not in self._kubelet.mounted]
            waiting = [uid for uid in waiting if uid in self._kubelet.mounted]
            for uid in gone:
                yield facts.VolumesUnmounted(uid=uid)
            left_ns = until_ns - self._node.timer.now_ns
            if not waiting:
                return Outcome()
            if left_ns <= 0:
                return Outcome("timed-out")
            yield min(MOUNT_POLL_NS, left_ns)

    def _check_mounts(self, order: decisions.CheckMounts, late: bool) -> Script:
        yield self._draws.between(1, 15) * MS
        yield facts.MountsRead(key=order.key, mounted=tuple((uid, "data") for uid in self._kubelet.mounted))
        return Outcome()

    def _stop_kubelet(self, order: decisions.StopKubelet, late: bool) -> Script:
        if self._node.faults.kubelet == "stays":
            yield 2 * NS_PER_SECOND
            return Outcome("failed", "the unit did not stop")
        if self._node.faults.kubelet == "slow":
            yield KUBELET_SLOW_NS
        if self._kubelet.hung:
            # A kubelet that wakes up receives the signal first.
            self._kubelet.waiting.insert(0, self._kubelet.stop)
            yield Until(self._kubelet.waiting, KUBELET_STOP_NS)
        yield self._draws.between(10, 90) * MS
        self._kubelet.stop()
        return Outcome()

    def _start_kubelet(self, order: decisions.StartKubelet, late: bool) -> Script:
        yield self._draws.between(10, 400) * MS
        self._kubelet.start()
        return Outcome()
