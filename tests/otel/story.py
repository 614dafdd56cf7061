"""Everything that can happen to a shutdown, told once: three shutdowns of one node, each worse than the last.

Its export is golden, so that a change of any span or attribute is seen in review, the rare ones too.
"""

from __future__ import annotations

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Pod, ProcessReport
from ebbtide.otel.traces.trace import EVENTS_MAX
from tests.journals import pod
from tests.otel.records import MS, TICK, Teller, another, began, exited, signal, start, wave

WEB, STUCK, LATE, SPARED = pod("web-0"), pod("stuck-0"), pod("late-0"), pod("db-0")
LIST = "EpisodeActor/inventory//0"
ANNOUNCE = "NodeStatusActor/announce//1"


def everything() -> Teller:
    """The last one ends with a power cut; the next boot has found it."""
    teller = Teller()
    _a_bad_one(teller)
    _a_cancelled_one(teller)
    _one_cut_short(teller)
    return teller


def _stop(of: Pod, ordinal: int = 0) -> d.SendSignal:
    key = f"HookActor/stop:main/{of.uid}/{ordinal}"
    return d.SendSignal(key=key, uid=of.uid, container="main", signal="SIGTERM")


def _hook(of: Pod) -> tuple[d.HookStarted, d.RunHook]:
    key = f"HookActor/hook:main/{of.uid}/0"
    until_ns = 60 * NS_PER_SECOND
    started = d.HookStarted(uid=of.uid, container="main", kind="exec", until_ns=until_ns)
    return started, d.RunHook(key=key, uid=of.uid, container="main", timeout_ns=until_ns)


def _ended(of: Pod, outcome: str, reason: str) -> d.PodEnded:
    return d.PodEnded(uid=of.uid, wave=0, outcome=outcome, reason=reason)  # type: ignore[arg-type]


def _a_bad_one(teller: Teller) -> None:
    """A hook, the daemon, an actor and the disk fail; a pod is killed, and a status stays behind."""
    listing, announce = d.TakeInventory(key=LIST), d.AnnounceNode(key=ANNOUNCE, ready=False)
    teller.tell(signal(), began(), listing, announce)
    pods = (WEB, STUCK)
    found = f.InventoryTaken(key=LIST, as_of_ns=1, source="process", pods=pods)
    planned = [d.PodPlanned(wave=0, grace_seconds=10, pod=each) for each in pods]
    teller.tell(found, d.PlanMade(waves=(), pods=2), *planned, *wave(0, *pods), after_ms=1)
    teller.tell(TICK, *_hook(WEB), _stop(STUCK))
    teller.tell(f.OrderEnded(key=LIST, result="done"), after_ms=2)
    result = f.OrderEnded(key=_hook(WEB)[1].key, result="failed", reason="exit code 3", exit_code=3)
    failed = d.HookEnded(uid=WEB.uid, container="main", result="failed", reason="exit code 3")
    teller.tell(result, failed, _stop(WEB), after_ms=700)
    teller.tell(start("boot-1"), d.Resumed(action="resume"), after_ms=1500)
    again = d.AnnounceNode(key="NodeStatusActor/announce//2", ready=False)
    teller.tell(f.OrderEnded(key=ANNOUNCE, result="unknown"), again)
    teller.tell(f.OrderEnded(key=again.key, result="timed-out", reason="no answer in 2 s"), after_ms=2000)
    teller.tell(TICK, d.PodPlanned(wave=0, grace_seconds=5, pod=LATE, late=True), *wave(1, LATE))
    rejected = d.PodRejected(uid="uid-new-0", label="shop/new-0", reason="NodeShutdown", message="no")
    teller.tell(f.PodAppeared(pod=pod("new-0")), rejected)
    _misfortunes(teller)
    teller.tell(TICK, d.ActorFailed(actor="WaveActor", subject="1", error="KeyError"))
    teller.tell(TICK, d.FallbackEngaged(pods=(LATE.uid,), reason="WaveActor failed"))
    sleep = d.HookStarted(uid=LATE.uid, container="main", kind="sleep", until_ns=60 * NS_PER_SECOND)
    teller.tell(TICK, sleep)
    early = d.HookEnded(uid=LATE.uid, container="main", result="done", reason="it has exited", early=True)
    teller.tell(exited(LATE), early, _ended(LATE, "graceful", "exit code 0"), after_ms=200)
    _a_killed_pod(teller)
    teller.tell(exited(WEB), _ended(WEB, "graceful", "exit code 0; preStop failed"), after_ms=1)
    _the_end(teller)


def _misfortunes(teller: Teller) -> None:
    teller.tell(f.HurryRequested(pod="stuck-0", asked_by=1000))
    teller.tell(f.DurabilityLate(key=LIST, barrier="synced", waited_ns=20 * MS))
    teller.tell(f.StorageFailed(location="/var/lib/ebbtide/journal", error="Input/output error"))
    teller.tell(f.StorageMoved(location="/run/ebbtide/journal", first_seq=3))
    teller.tell(f.ClockStepped(delta_ns=-1500 * MS))
    moved = d.DeadlineMoved(deadline_ns=teller.mono_ns + NS_PER_SECOND, release_by_ns=0, kill_by_ns=0)
    teller.tell(signal(), moved)


def _a_killed_pod(teller: Teller) -> None:
    process = ProcessReport(
        pid=70,
        parent_pid=7,
        command="stuck",
        state="sleeping",
        wait_channel="pipe_read",
        signals_caught=("SIGHUP",),
        signals_ignored=("SIGTERM",),
        connections=2,
    )
    teller.tell(f.AutopsyTaken(uid=STUCK.uid, container="main", processes=(process,)), after_ms=5000)
    kill = d.KillContainer(key=f"HookActor/kill:main/{STUCK.uid}/0", uid=STUCK.uid, container="main")
    overran = d.WaveEnded(wave=0, outcome="overran", stragglers=(STUCK.uid,))
    teller.tell(TICK, kill, overran, after_ms=250)
    gone = exited(STUCK, exit_code=None, signal="SIGKILL")
    teller.tell(gone, _ended(STUCK, "killed", "SIGKILL for main: had 10 s"), after_ms=4)


def _the_end(teller: Teller) -> None:
    deliver = d.DeliverStatuses(key="NodeStatusActor/deliver//3", statuses=((WEB.uid, "Succeeded", "", ""),))
    export = d.FlushTraces(key="NodeStatusActor/traces//4", timeout_ns=NS_PER_SECOND)
    teller.tell(TICK, d.PodsEnded(), deliver, export)
    teller.tell(f.OrderEnded(key=export.key, result="failed", reason="no exporter runs"), after_ms=1)
    release = d.ReleaseLock(key="LogindActor/release//5")
    teller.tell(TICK, d.StatusesSettled(undelivered=1), release, after_ms=2000)
    teller.tell(f.OrderEnded(key=release.key, result="done"), after_ms=1)
    teller.tell(TICK, d.EpisodeClosed(outcome="complete"), after_ms=1)


def _a_cancelled_one(teller: Teller) -> None:
    """Called off in the middle, and another one begins before it is over."""
    teller.tell(signal(), began(), after_ms=60_000)
    planned = [d.PodPlanned(wave=at, grace_seconds=10, pod=each) for at, each in enumerate((WEB, SPARED))]
    teller.tell(TICK, *planned, *wave(0, WEB), _stop(WEB, 1), after_ms=1)
    for _ in range(EVENTS_MAX + 1):
        teller.tell(f.HurryRequested(pod="nobody", asked_by=0))
    spared = _ended(SPARED, "spared", "the shutdown was cancelled")
    cancelled = d.ShutdownCancelled(reason="cancelled")
    teller.tell(signal(), cancelled, spared, d.WaveEnded(wave=0, outcome="cancelled"), after_ms=100)


def _one_cut_short(teller: Teller) -> None:
    teller.tell(signal(), *another(kind="reboot"), after_ms=500)
    teller.tell(TICK, d.PodPlanned(wave=0, grace_seconds=10, pod=WEB), *wave(0, WEB), after_ms=1)
    teller.tell(f.ReleaseRequested(asked_by=1000), after_ms=100)
    teller.boot("boot-2", wall_ns=teller.wall_ns + 90 * NS_PER_SECOND)
    teller.mono_ns = NS_PER_SECOND
    lost = _ended(WEB, "unknown", "the machine went down before its end was seen")
    cut = d.EpisodeClosed(outcome="truncated", last_wave=0)
    teller.tell(start("boot-2"), lost, cut, d.Resumed(action="close-truncated"))
