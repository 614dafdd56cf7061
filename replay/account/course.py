"""What the events of a shutdown's course mean for its account: begin, waves, deadlines, cancel, release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from events.base import NS_PER_SECOND, Order
from events.decisions import (
    AnnounceNode,
    DeadlineMoved,
    DeliverStatuses,
    EpisodeClosed,
    FlushTraces,
    PlanMade,
    PodsEnded,
    ReleaseLock,
    ShutdownBegan,
    ShutdownCancelled,
    ShutdownDetected,
    ShutdownWithdrawn,
    StatusesSettled,
    TakeInventory,
    WaveEnded,
    WaveStarted,
)
from events.facts import OrderEnded, ReleaseRequested
from replay.account.model import SpanTold, WaveTold
from replay.account.node_told import Beside
from replay.account.tale import Tale
from replay.account.words import plural, span


def _began(tale: Tale, event: ShutdownBegan) -> None:
    tale.kind = event.kind
    tale.fields |= {
        "grant_ns": event.grant_ns,
        "budget_ns": event.budget_ns,
        "deadline_ns": tale.since(event.deadline_ns),
        "release_by_ns": tale.since(event.release_by_ns),
        "lock_held": event.lock_held,
    }
    if not event.lock_held:
        tale.note("lock-not-held")
    _judge_grant(tale, event.grant_ns)


def _judge_grant(tale: Tale, grant_ns: int) -> None:
    asked = tale.configuration
    needed_ns = asked.requested_ns + asked.reserve_ns
    if grant_ns >= needed_ns:
        return
    overridden = "" if tale.assessed is None else tale.assessed.overridden_by
    tale.note(
        "grant-too-small" if grant_ns < asked.requested_ns else "reserve-not-granted",
        grant=span(grant_ns),
        requested=span(asked.requested_ns),
        needed=span(-(-needed_ns // NS_PER_SECOND) * NS_PER_SECOND),
        override=f" ({overridden} overrides it)" if overridden else "",
    )


def _detected(tale: Tale, event: ShutdownDetected) -> None:
    if event.overtime:
        tale.fields["overtime"] = True
        tale.note("overtime")


def _moved(tale: Tale, event: DeadlineMoved) -> None:
    deadline_ns, kill_by_ns = tale.since(event.deadline_ns), tale.since(event.kill_by_ns)
    tale.fields |= {"deadline_ns": deadline_ns, "release_by_ns": tale.since(event.release_by_ns)}
    for pod in list(tale.pods.values()):
        if pod.began_ns is not None and pod.outcome is None:
            tale.change_pod(pod.uid, kill_by_ns=kill_by_ns)
    for wave in list(tale.waves):
        if wave.outcome == "open" and wave.deadline_ns is not None:
            tale.change_wave(wave.index, deadline_ns=min(wave.deadline_ns, deadline_ns))
    tale.note("deadline-moved", deadline=span(deadline_ns))


def _plan(tale: Tale, event: PlanMade) -> None:
    tale.waves = [
        WaveTold(
            index=index,
            priority=wave.priority,
            planned_ns=wave.period_seconds * NS_PER_SECOND,
            pods=tuple(pod.uid for pod in wave.pods),
            handover=wave.handover,
        )
        for index, wave in enumerate(event.waves)
    ]


def _wave_began(tale: Tale, event: WaveStarted) -> None:
    tale.change_wave(
        event.wave,
        priority=event.priority,
        period_ns=event.period_ns,
        began_ns=tale.place.at_ns,
        deadline_ns=tale.since(event.deadline_ns),
        outcome="open",
    )
    tale.fields["last_wave"] = event.wave


def _wave_ended(tale: Tale, event: WaveEnded) -> None:
    """One that has not begun here is an earlier shutdown's."""
    if event.wave >= len(tale.waves) or tale.waves[event.wave].began_ns is None:
        return
    wave = tale.change_wave(
        event.wave,
        ended_ns=tale.place.at_ns,
        outcome=event.outcome,
        unused_ns=event.unused_ns,
        stragglers=event.stragglers,
        mounted=event.mounted,
    )
    if event.mounted:
        pods = ", ".join(tale.pod(uid).label for uid in event.mounted)
        tale.note("volumes-mounted", wave=event.wave, count=plural(len(event.mounted), "pod"), pods=pods)
    if event.outcome == "overran" and event.stragglers:
        count, period = plural(len(event.stragglers), "pod"), span(wave.period_ns or 0)
        tale.note("wave-overran", wave=event.wave, priority=wave.priority, period=period, count=count)


def _pods_ended(tale: Tale, event: PodsEnded) -> None:
    tale.fields.setdefault("pods_ended_ns", tale.place.at_ns)
    if event.unfinished:
        pods = ", ".join(tale.pod(uid).label for uid in event.unfinished)
        tale.note("pods-unfinished", count=plural(len(event.unfinished), "pod"), pods=pods)


def _cancelled(tale: Tale, event: ShutdownCancelled) -> None:
    tale.fields.setdefault("cancelled_ns", tale.place.at_ns)
    tale.fields["cancel_reason"] = event.reason
    tale.note("cancelled", reason=event.reason)


def _settled(tale: Tale, event: StatusesSettled) -> None:
    if tale.place.same_boot and tale.closed is None:
        tale.fields["statuses_settled_ns"] = tale.place.at_ns
    if event.undelivered:
        tale.fields["undelivered"] = event.undelivered
        statuses = "pod status" if event.undelivered == 1 else "pod statuses"
        tale.note("statuses-undelivered", count=f"{event.undelivered} {statuses}")


def _closed(tale: Tale, event: EpisodeClosed) -> None:
    tale.closed, tale.closed_ns = event.outcome, tale.place.at_ns


def _withdrawn(tale: Tale, event: ShutdownWithdrawn) -> None:
    """A release after which the machine stayed is none."""
    tale.released_ns = None


def _released(tale: Tale, event: ReleaseLock) -> None:
    tale.released_ns = tale.place.at_ns
    order("release")(tale, event)


def _asked_release(tale: Tale, event: ReleaseRequested) -> None:
    tale.note("release-requested", asker=event.asked_by)


# --- orders that stand beside the waves --------------------------------------------------------


def order(what: Beside) -> Callable[[Tale, Order], None]:
    def begin(tale: Tale, event: Order) -> None:
        seq, at_ns, _ = tale.place
        tale.beside[event.key] = SpanTold(what=what, seq=seq, began_ns=at_ns)

    return begin


def _stop_refused(tale: Tale, key: str) -> None:
    """A pod whose stop signal was not sent has not been asked to end."""
    what, _, container = key.split("/")[1].partition(":")
    uid = key.split("/")[2]
    if what == "stop" and uid in tale.pods:
        tale.change_container(uid, container, stop_refused=True)


def _order_ended(tale: Tale, event: OrderEnded) -> None:
    beside = tale.beside.get(event.key)
    if beside is None and event.result == "failed":
        _stop_refused(tale, event.key)
    if beside is None or beside.ended_ns is not None:
        return
    ended = replace(beside, ended_ns=tale.place.at_ns, result=event.result, reason=event.reason)
    tale.beside[event.key] = ended
    if event.result in ("failed", "timed-out"):
        tale.note(f"{beside.what}-failed", result=event.result, reason=event.reason or "no reason given")


COURSE: dict[type, Callable[[Tale, Any], None]] = {
    ShutdownDetected: _detected,
    ShutdownBegan: _began,
    DeadlineMoved: _moved,
    PlanMade: _plan,
    WaveStarted: _wave_began,
    WaveEnded: _wave_ended,
    PodsEnded: _pods_ended,
    ShutdownCancelled: _cancelled,
    ShutdownWithdrawn: _withdrawn,
    StatusesSettled: _settled,
    EpisodeClosed: _closed,
    TakeInventory: order("inventory"),
    AnnounceNode: order("announce"),
    DeliverStatuses: order("statuses"),
    FlushTraces: order("traces"),
    ReleaseLock: _released,
    OrderEnded: _order_ended,
    ReleaseRequested: _asked_release,
}
