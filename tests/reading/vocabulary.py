"""One event of every type, and more where a sentence has several forms: what the words are tried on."""

from __future__ import annotations

from events import decisions as d
from events import facts as f
from events.base import NS_PER_SECOND, Event
from events.marks import Checkpoint, StatesDigest
from events.model import Container, Period, PlannedPod, PlannedWave, Pod, ProcessReport, Settings

S = NS_PER_SECOND
POD = Pod(uid="u1", namespace="shop", name="web-0", containers=(Container(name="main"),))
STOP, HOOK = "HookActor/stop:main/u1/0", "HookActor/hook:main/u1/0"
PROCESS = ProcessReport(
    pid=7, parent_pid=1, command="java", state="sleeping", wait_channel="futex", signals_ignored=("SIGTERM",)
)
PERIODS = (Period(priority=0, seconds=20), Period(priority=1000, seconds=10))
WAVES = (
    PlannedWave(priority=0, period_seconds=20, pods=(PlannedPod(uid="u1", grace_seconds=20),)),
    PlannedWave(priority=1000, period_seconds=10, pods=(PlannedPod(uid="u2", grace_seconds=10),) * 2),
)

NODE: tuple[Event, ...] = (
    f.DaemonStarted(version="1.0", pid=7, mode="auto", node="node-1", boot_id="b", userspace_id="b"),
    f.DaemonStarted(
        version="1.0", pid=7, mode="auto", node="node-1", boot_id="b", userspace_id="b", lock_inherited=True
    ),
    f.StopRequested(system_stopping=False),
    f.StopRequested(system_stopping=True, stop_time_ns=90 * S),
    f.SettingsLoaded(settings=Settings()),
    f.SettingsRejected(error="config.yaml:3: unknown field"),
    f.Tick(),
    f.ClockStepped(delta_ns=-3_600_500_000_000),
    f.ClockStepped(delta_ns=1_500_000),
    f.OrderEnded(key=STOP, result="done"),
    f.OrderEnded(key=STOP, result="failed", reason="no such process"),
    f.OrderEnded(key=HOOK, result="timed-out"),
    f.OrderEnded(key="EpisodeActor/inventory//1", result="unknown"),
    f.EffectPanicked(key=HOOK, error="KeyError: 'x'"),
    f.DurabilityLate(key=STOP, barrier="written", waited_ns=21_000_000),
    f.StorageFailed(location="/var/lib/ebbtide/journal", error="Input/output error"),
    f.StorageMoved(location="/run/ebbtide/journal", first_seq=17),
    f.LogindRead(owner=":1.4", grant_ns=5 * S, preparing=False),
    f.LogindRead(owner=":1.4", grant_ns=5 * S, preparing=True),
    f.SignalRejected(member="PrepareForShutdown", reason="a foreign sender", sender=":1.99"),
    f.SignalRejected(member="PrepareForShutdown", reason="a wrong body"),
    f.PreparingRead(preparing=True),
    f.PreparingRead(preparing=False),
    f.ScheduleRead(),
    f.ScheduleRead(at_wall_ns=60 * S, kind="reboot"),
    f.ScheduleRead(at_wall_ns=60 * S, kind="reboot", uid=1000, tty="pts/0", wall_message="new kernel"),
    f.BusLost(error="logind left the bus"),
    f.DropInsRead(others_ns=5 * S),
    f.DropInsRead(others_ns=5 * S, ours_ns=35 * S),
    f.ManifestRejected(path="pods/web.yaml", error="no containers"),
    d.ConfigAdopted(enabled=False),
    d.ConfigAdopted(enabled=True, periods=PERIODS),
    d.ConfigDeferred(),
    d.GrantAssessed(needed_ns=35 * S, grant_ns=35 * S, sufficient=True),
    d.GrantAssessed(needed_ns=35 * S, grant_ns=5 * S, sufficient=False),
    d.GrantAssessed(needed_ns=35 * S, grant_ns=5 * S, sufficient=False, overridden_by="zz.conf"),
    d.WriteDropIn(key="k", seconds=35),
    d.RemoveDropIn(key="k"),
    d.Arm(key="k"),
    d.Arm(key="k", lock=False),
    d.Disarm(key="k"),
    d.Armed(grant_ns=35 * S),
    d.Disarmed(reason="switched off"),
    d.Disarmed(reason="logind left the bus", retry_at_ns=S),
    d.FlushTraces(key="k", timeout_ns=S),
    d.Leave(reason="stopped by the service manager"),
    d.Resumed(action="fresh"),
    d.Resumed(action="close-complete", previous="complete"),
    d.Resumed(action="close-truncated", previous="cut short at wave 1"),
    d.ActorFailed(actor="LogindActor", subject="", error="KeyError"),
    d.ActorFailed(actor="HookActor", subject="u1", error="KeyError"),
    d.FallbackEngaged(),
    d.FallbackEngaged(pods=("u1",), reason="HookActor failed"),
    Checkpoint(episode=0),
    StatesDigest(actors={"LogindActor": b"12345678"}),
)

SHUTDOWN: tuple[Event, ...] = (
    f.PrepareForShutdown(active=True, kind="reboot", grant_ns=35 * S, lock_held=True),
    f.PrepareForShutdown(active=True, kind="reboot", grant_ns=35 * S),
    f.PrepareForShutdown(active=False),
    f.InventoryTaken(key="k", as_of_ns=0, source="api", pods=(POD,)),
    f.InventoryTaken(key="k", as_of_ns=0, source="api", part=2, parts=3),
    f.PodAppeared(pod=POD),
    f.ContainerStarted(uid="u1", container="main"),
    f.ContainerExited(uid="u1", container="main", exit_code=3),
    f.ContainerExited(uid="u1", container="main", signal="SIGTERM"),
    f.ContainerExited(uid="u1", container="main"),
    f.AutopsyTaken(uid="u1", container="main"),
    f.AutopsyTaken(uid="u1", container="main", processes=(PROCESS, PROCESS)),
    f.HurryRequested(pod="u1", asked_by=0),
    f.ReleaseRequested(asked_by=1000),
    d.ShutdownDetected(kind="reboot", grant_ns=35 * S, lock_held=True),
    d.ShutdownDetected(kind="reboot", grant_ns=35 * S, lock_held=True, again=True),
    d.ShutdownDetected(kind="reboot", grant_ns=35 * S, lock_held=True, overtime=True),
    d.ShutdownWithdrawn(reason="did-not-go-down"),
    d.ShutdownBegan(
        kind="reboot",
        grant_ns=35 * S,
        requested_ns=30 * S,
        budget_ns=30 * S,
        deadline_ns=30 * S,
        release_by_ns=34 * S,
        lock_held=True,
    ),
    d.DeadlineMoved(deadline_ns=30 * S, release_by_ns=0, kill_by_ns=0),
    d.DeadlineMoved(deadline_ns=30 * S, release_by_ns=0, kill_by_ns=0, overtime=True),
    d.TakeInventory(key="k"),
    d.TakeInventory(key="k", refresh=True),
    d.PlanMade(waves=WAVES, pods=3),
    d.PlanMade(waves=WAVES[:1], pods=1),
    d.PodPlanned(wave=0, grace_seconds=20, pod=POD),
    d.PodPlanned(wave=0, grace_seconds=20, pod=POD, late=True),
    d.WaveStarted(wave=0, priority=0, period_ns=20 * S, deadline_ns=20 * S, kill_by_ns=32 * S),
    d.WaveEnded(wave=0, outcome="complete"),
    d.WaveEnded(wave=0, outcome="overran", stragglers=("u1", "u2")),
    d.StragglerEnded(wave=0, uid="u1", late_ns=S // 2),
    d.ShutdownCancelled(reason="did-not-go-down"),
    d.PodsEnded(),
    d.PodsEnded(unfinished=("u1",)),
    d.ReleaseLock(key="k"),
    d.EpisodeClosed(outcome="complete"),
    d.PodStopBegan(uid="u1", wave=0, grace_ns=20 * S, kill_by_ns=32 * S),
    d.HookStarted(uid="u1", container="main", kind="sleep", until_ns=4 * S),
    d.RunHook(key=HOOK, uid="u1", container="main", timeout_ns=20 * S),
    d.HookEnded(uid="u1", container="main", result="done", elapsed_ns=S),
    d.HookEnded(
        uid="u1", container="main", result="done", elapsed_ns=S, early=True, reason="its grace is over"
    ),
    d.HookEnded(uid="u1", container="main", result="failed", reason="exit code 3"),
    d.CancelOrder(key="k", target=HOOK),
    d.SendSignal(key=STOP, uid="u1", container="main", signal="SIGQUIT"),
    d.KillContainer(key="k", uid="u1", container="main"),
    d.TakeAutopsy(key="k", uid="u1", container="main"),
    d.PodEnded(uid="u1", wave=0, outcome="graceful", reason="exit code 0", elapsed_ns=S),
    d.PodEnded(uid="u1", wave=0, outcome="killed", reason="SIGKILL for main", elapsed_ns=20 * S),
    d.AnnounceNode(key="k", ready=False, message="node is shutting down"),
    d.AnnounceNode(key="k", ready=True),
    d.StartPod(key="k", uid="u1"),
    d.PodRejected(uid="u1", label="shop/web-0", reason="NodeShutdown", message="the node is shutting down"),
    d.DeliverStatuses(key="k", statuses=(("u1", "Succeeded", "Terminated", ""),)),
    d.StatusesSettled(),
    d.StatusesSettled(undelivered=2),
)

EVERY: tuple[Event, ...] = (*NODE, *SHUTDOWN)
