"""What is said of a shutdown: its waves, its pods, and who asked for what.

The pod itself is not named where the event has only one: whoever prints the sentence puts it in front.
"""

from __future__ import annotations

from events import decisions as d
from events import facts as f
from events.base import Event
from events.model import ProcessReport
from events.record import Stamp
from events.words.base import (
    DEBUG,
    INFO,
    NOTICE,
    WARNING,
    Names,
    Said,
    Teller,
    count,
    elapsed,
    ordered,
    seconds,
)


def _signal(names: Names, event: f.PrepareForShutdown, at: Stamp) -> Said:
    if not event.active:
        return Said(INFO, "logind's signal: no shutdown is being prepared any more")
    lock = "" if event.lock_held else ", no lock is held"
    lock += ", the kubelet holds one" if event.kubelet_lock else ""
    return Said(INFO, f"logind's signal: {event.kind}, {seconds(event.grant_ns)} s are granted{lock}")


def _detected(names: Names, event: d.ShutdownDetected, at: Stamp) -> Said:
    how = ", once more" if event.again else ", in overtime" if event.overtime else ""
    return Said(DEBUG, f"the machine is going down: {event.kind}{how}")


def _withdrawn(names: Names, event: d.ShutdownWithdrawn, at: Stamp) -> Said:
    return Said(DEBUG, f"the machine stays up: {event.reason.replace('-', ' ')}")


def _began(names: Names, event: d.ShutdownBegan, at: Stamp) -> Said:
    lock = "" if event.lock_held else ", without a lock"
    return Said(
        NOTICE,
        f"shutdown began: {event.kind}, budget {seconds(event.budget_ns)} s of"
        f" {seconds(event.requested_ns)} s asked for, logind grants {seconds(event.grant_ns)} s{lock}",
    )


def _moved(names: Names, event: d.DeadlineMoved, at: Stamp) -> Said:
    why = "in overtime" if event.overtime else "logind starts its delay anew"
    return Said(WARNING, f"deadline moved: {seconds(event.deadline_ns - at.mono_ns)} s left, {why}")


def _take_inventory(names: Names, event: d.TakeInventory, at: Stamp) -> Said:
    return Said(DEBUG, f"listing the pods {'anew' if event.refresh else 'from memory'}")


def _inventory(names: Names, event: f.InventoryTaken, at: Stamp) -> Said:
    part = f", part {event.part} of {event.parts}" if event.parts > 1 else ""
    return Said(INFO, f"{count(len(event.pods), 'pod')} listed by {event.source}{part}")


def _plan(names: Names, event: d.PlanMade, at: Stamp) -> Said:
    held = [len(wave.pods) for wave in event.waves if wave.pods]
    waves = f" ({' + '.join(map(str, held))})" if len(held) > 1 else ""
    return Said(INFO, f"plan: {count(event.pods, 'pod')} in {count(len(held), 'wave')}{waves}")


def _planned(names: Names, event: d.PodPlanned, at: Stamp) -> Said:
    late = ", late" if event.late else ""
    return Said(INFO, f"wave {event.wave}, {event.grace_seconds} s{late}")


def _wave_started(names: Names, event: d.WaveStarted, at: Stamp) -> Said:
    pods, period = count(len(event.pods), "pod"), seconds(event.deadline_ns - at.mono_ns)
    how = ", over the container runtime" if event.handover else ""
    return Said(NOTICE, f"wave {event.wave} (priority {event.priority}): {pods}, {period} s{how}")


def _wave_ended(names: Names, event: d.WaveEnded, at: Stamp) -> Said:
    late = f"; still running: {names.all_of(event.stragglers)}" if event.stragglers else ""
    late += f"; still mounted: volumes of {names.all_of(event.mounted)}" if event.mounted else ""
    return Said(WARNING if late else NOTICE, f"wave {event.wave} {event.outcome}{late}")


def _straggler(names: Names, event: d.StragglerEnded, at: Stamp) -> Said:
    return Said(INFO, f"ended {elapsed(event.late_ns)} s after the end of wave {event.wave}")


def _cancelled(names: Names, event: d.ShutdownCancelled, at: Stamp) -> Said:
    is_cancel = event.reason != "did-not-go-down"
    return Said(NOTICE, f"shutdown {event.reason}" if is_cancel else "the machine did not go down")


def _pods_ended(names: Names, event: d.PodsEnded, at: Stamp) -> Said:
    if not event.unfinished:
        return Said(NOTICE, "all pods ended")
    return Said(WARNING, f"given up on: {names.all_of(event.unfinished)}")


def _release(names: Names, event: d.ReleaseLock, at: Stamp) -> Said:
    return Said(NOTICE, "lock released" if names.lock_held else "nothing is held, the machine may go")


def _closed(names: Names, event: d.EpisodeClosed, at: Stamp) -> Said:
    return Said(NOTICE, f"shutdown closed: {event.outcome}")


def _stop_began(names: Names, event: d.PodStopBegan, at: Stamp) -> Said:
    return Said(INFO, f"stop began: {seconds(event.grace_ns)} s of grace")


def _hook_started(names: Names, event: d.HookStarted, at: Stamp) -> Said:
    return Said(INFO, f"{event.container}: preStop {event.kind} began")


def _hook_ordered(names: Names, event: d.RunHook, at: Stamp) -> Said:
    return Said(
        DEBUG, f"{event.container}: running the preStop hook, for {seconds(event.timeout_ns)} s at most"
    )


def _hook_ended(names: Names, event: d.HookEnded, at: Stamp) -> Said:
    if event.result != "done":
        return Said(WARNING, f"preStop of {event.container} {event.result}: {event.reason}")
    took = f"after {elapsed(event.elapsed_ns)} s"
    how = f"ended early {took}: {event.reason}" if event.early else f"done {took}"
    return Said(INFO, f"preStop of {event.container} {how}")


def _cancel_order(names: Names, event: d.CancelOrder, at: Stamp) -> Said:
    return Said(DEBUG, f"cancelling {ordered(names, event.target)}")


def _stop_signal(names: Names, event: d.SendSignal, at: Stamp) -> Said:
    return Said(INFO, f"{event.container}: {event.signal}")


def _kill(names: Names, event: d.KillContainer, at: Stamp) -> Said:
    return Said(WARNING, f"{event.container}: SIGKILL")


def _take_autopsy(names: Names, event: d.TakeAutopsy, at: Stamp) -> Said:
    return Said(DEBUG, f"{event.container}: looking at what still runs")


def _exited(names: Names, event: f.ContainerExited, at: Stamp) -> Said:
    how = f"exit code {event.exit_code}" if event.exit_code is not None else "exit code not known"
    return Said(
        INFO, f"{event.container}: ended by {event.signal}" if event.signal else f"{event.container}: {how}"
    )


def _container_started(names: Names, event: f.ContainerStarted, at: Stamp) -> Said:
    return Said(DEBUG, f"{event.container}: started")


def autopsied(process: ProcessReport) -> str:
    """One process of an autopsy."""
    ignored = f", ignores {' '.join(process.signals_ignored)}" if process.signals_ignored else ""
    where = f" in {process.wait_channel}" if process.wait_channel else ""
    open_ones = f", {count(process.connections, 'open connection')}" if process.connections else ""
    return f"{process.command} ({process.pid}) {process.state}{where}{ignored}{open_ones}"


def _autopsy(names: Names, event: f.AutopsyTaken, at: Stamp) -> Said:
    found = "; ".join(map(autopsied, event.processes)) or "no process is left"
    return Said(WARNING, f"autopsy of {event.container}: {found}")


def _pod_ended(names: Names, event: d.PodEnded, at: Stamp) -> Said:
    level = INFO if event.outcome in ("graceful", "spared") else WARNING
    return Said(level, f"{event.outcome} after {elapsed(event.elapsed_ns)} s: {event.reason}")


def _announce(names: Names, event: d.AnnounceNode, at: Stamp) -> Said:
    what = "the node is shown as it was" if event.ready else "the node is shown as going down"
    return Said(INFO, f"{what}: {event.message}" if event.message else what)


def _start(names: Names, event: d.StartPod, at: Stamp) -> Said:
    return Said(DEBUG, "being started")


def _appeared(names: Names, event: f.PodAppeared, at: Stamp) -> Said:
    return Said(DEBUG, "asks to be started")


def _rejected(names: Names, event: d.PodRejected, at: Stamp) -> Said:
    return Said(NOTICE, f"rejected: {event.message}")


def _hurry(names: Names, event: f.HurryRequested, at: Stamp) -> Said:
    return Said(NOTICE, f"uid {event.asked_by} says: hurry {names.of(event.pod)}")


def _release_asked(names: Names, event: f.ReleaseRequested, at: Stamp) -> Said:
    return Said(NOTICE, f"uid {event.asked_by} says: release")


TELL: dict[type[Event], Teller] = {
    f.PrepareForShutdown: _signal,
    f.InventoryTaken: _inventory,
    f.PodAppeared: _appeared,
    f.ContainerStarted: _container_started,
    f.ContainerExited: _exited,
    f.AutopsyTaken: _autopsy,
    f.HurryRequested: _hurry,
    f.ReleaseRequested: _release_asked,
    d.ShutdownDetected: _detected,
    d.ShutdownWithdrawn: _withdrawn,
    d.ShutdownBegan: _began,
    d.DeadlineMoved: _moved,
    d.TakeInventory: _take_inventory,
    d.PlanMade: _plan,
    d.PodPlanned: _planned,
    d.WaveStarted: _wave_started,
    d.WaveEnded: _wave_ended,
    d.StragglerEnded: _straggler,
    d.ShutdownCancelled: _cancelled,
    d.PodsEnded: _pods_ended,
    d.ReleaseLock: _release,
    d.EpisodeClosed: _closed,
    d.PodStopBegan: _stop_began,
    d.HookStarted: _hook_started,
    d.RunHook: _hook_ordered,
    d.HookEnded: _hook_ended,
    d.CancelOrder: _cancel_order,
    d.SendSignal: _stop_signal,
    d.KillContainer: _kill,
    d.TakeAutopsy: _take_autopsy,
    d.PodEnded: _pod_ended,
    d.AnnounceNode: _announce,
    d.StartPod: _start,
    d.PodRejected: _rejected,
}
