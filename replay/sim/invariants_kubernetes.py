"""A Kubernetes node: who ends the pods, and what the cluster may believe of it afterwards."""

from __future__ import annotations

from ebbtide.actors.actor import NEVER_NS
from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, Event, Record
from ebbtide.events.facts import ApiRead, DaemonStarted, OrderEnded
from ebbtide.events.units import span
from ebbtide.replay.sim.world_view import BootView, BreachSentences, container_label

#: After these kinds the same pods do not start here again.
GOING_FOR_GOOD = ("poweroff", "halt")

#: A failed start is tried again; a dead daemon has to restart first.
KUBELET_BACK_NS = 25 * NS_PER_SECOND

#: Orders that touch pods or their kubelet.
TOUCHES: tuple[type[Event], ...] = (
    decisions.DeletePod,
    decisions.RunHook,
    decisions.SendSignal,
    decisions.KillContainer,
    decisions.StopKubelet,
)

#: The release waits for these, within their bounds.
AWAITED: tuple[type[Event], ...] = (decisions.AwaitStatuses, decisions.CheckMounts, decisions.DeliverStatuses)

#: The release's wait for a server that is known to be silent.
SILENT_FLUSH_NS = NS_PER_SECOND

#: Until the fallback's own release; the rest of the time is for the lock.
RELEASE_AHEAD_NS = NS_PER_SECOND


#: After these the time of the last status is unknown.
DELIVERY_DISTURBANCES = (
    "api-lost",
    "crash",
    "logind-gone",
    "withdraw",
    "limit",
    "bus-lost",
    "stopping",
)


def the_kubelet_is_back(view: BootView) -> BreachSentences:
    """After a shutdown on a machine that stays up, a kubelet that we have stopped runs again."""
    turns = view.of("kubelet-stop", "kubelet-start")
    if (
        not turns
        or turns[-1].what == "kubelet-start"
        or view.hurt
        or any(seen.detail != "no longer watched" for seen in view.of("down"))
    ):
        return
    stopped_ns = turns[-1].at_ns
    over = [record for record, event in view.events(decisions.EpisodeClosed) if not event.followed]
    closed_ns = max((view.at_ns(record) for record in over), default=0)
    asked_again = any(event.at_ns > closed_ns - MS for event in view.of("shutdown"))
    # Its start is still open or repeated, or no daemon ran for long enough.
    done = {event.key: None for _, event in view.events(OrderEnded) if event.result == "done"}
    starts = [
        event for record, event in view.events(decisions.StartKubelet) if view.at_ns(record) >= closed_ns
    ]
    tried = view.ended_ns < closed_ns + KUBELET_BACK_NS and any(event.key not in done for event in starts)
    is_coming = tried or not view.served_through(closed_ns, view.ended_ns)
    if closed_ns > stopped_ns and not asked_again and not is_coming:
        yield f"the kubelet was stopped at {span(stopped_ns)} and is not running again"


def no_pod_is_started_again(view: BootView) -> BreachSentences:
    """During a shutdown no pod that we have stopped starts again, unless the kubelet could not be stopped.
    After a cancel it shall start: the machine stays up. So does a pod that ended then, for which its kubelet
    takes until the next shutdown.
    """
    if view.boot.kubelet_stays or view.hurt:
        return
    turns = view.of("shutdown", "withdraw", "stopping")
    for seen in view.of("restart"):
        exits = [view.exit_ns(box) for box in view.boxes(seen.uid) if box.name == seen.container]
        last = [[turn.what for turn in turns if turn.at_ns <= at_ns][-1:] for at_ns in (*exits, seen.at_ns)]
        # A pod of an API shutdown that is finished over the runtime has no delete: it is stopped again.
        planned = [(view.at_ns(each), event) for each, event in view.plans(seen.uid)]
        before = [event.means for at_ns, event in planned if at_ns <= seen.at_ns]
        again = any(event.again and at_ns > seen.at_ns for at_ns, event in planned)
        if again and "api" in before and "cri" in before:
            continue
        if ["withdraw"] not in last and view.served_through(seen.at_ns - 3 * NS_PER_SECOND, seen.at_ns):
            yield (f"{seen.uid}/{seen.container} was started again by the kubelet at {span(seen.at_ns)}")


def no_terminal_status_before_a_reboot(view: BootView) -> BreachSentences:
    """After a reboot the same pods start here again, so none gets a terminal phase."""
    if not view.boot.mode:
        return
    kinds = [event.kind for _, event in view.events(decisions.ShutdownBegan)]
    if any(kind in GOING_FOR_GOOD for kind in kinds):
        return
    deleted = {seen.uid: None for seen in view.of("delete")}
    for seen in view.of("status"):
        if seen.uid not in deleted:
            yield f"{seen.uid} got the status {seen.detail} at {span(seen.at_ns)}, and comes back"


def a_handover_is_final(view: BootView) -> BreachSentences:
    """After a hand-over no pod is deleted, and it is recorded once."""
    for episode, records in view.episodes().items():
        over = [record for record in records if isinstance(record.event, decisions.HandedOver)]
        if len(over) > 1:
            yield f"episode {episode}: handed over {len(over)} times"
        for record in records:
            if over and record.seq > over[0].seq and isinstance(record.event, decisions.DeletePod):
                yield f"episode {episode}: record {record.seq} deletes {record.event.uid} after the hand-over"


def observing_touches_no_pod(view: BootView) -> BreachSentences:
    """Where the kubelet shuts its pods down itself, no order touches them."""
    for episode, records in view.episodes().items():
        means = [record.event.means for record in records if isinstance(record.event, decisions.MeansChosen)]
        fallback = any(isinstance(record.event, decisions.FallbackEngaged) for record in records)
        if means != ["observe"] or fallback:
            continue
        # Pods of an earlier shutdown of this boot may still be stopping.
        plans = view.events(decisions.PodPlanned)
        carried = {event.pod.uid: None for record, event in plans if record.seq < records[0].seq}
        for record in records:
            if isinstance(record.event, TOUCHES) and getattr(record.event, "uid", "") not in carried:
                yield f"episode {episode}: record {record.seq} is {type(record.event).__name__}"


def a_certificate_is_true(view: BootView) -> BreachSentences:
    """Safe to detach: no pod of the plan runs, and no volume is mounted."""
    for record, event in view.events(decisions.DetachCertified):
        at_ns = view.at_ns(record)
        planned = {
            each.pod.uid: each.pod
            for other, each in view.events(decisions.PodPlanned)
            if other.seq < record.seq
        }
        running = [
            container_label(box)
            for box in view.boxes()
            if box.uid in planned and view.started_ns(box) <= at_ns < view.exit_ns(box)
        ]
        unmounted = {seen.uid: None for seen in view.of("unmounted") if seen.at_ns <= at_ns}
        mounted = [uid for uid, pod in planned.items() if pod.volumes and uid not in unmounted]
        if event.safe and (running or mounted):
            yield f"record {record.seq}: safe to detach, with {', '.join(running + mounted)} still there"


def the_release_waits_for_final_statuses(view: BootView) -> BreachSentences:
    """The lock is held while a status, or a look at the mounts, is waited for, up to its bound."""
    if not view.boot.mode or view.hurt:
        return
    # A lost API server is waited for no longer than the flush.
    lost = bool(view.of("api-lost", "crash", "logind-gone")) or not view.boot.api_answers
    for records in view.episodes().values():
        waiting: dict[str, Record] = {}
        bound_ns = 0
        for record in records:
            if isinstance(record.event, decisions.ShutdownBegan):
                bound_ns = record.event.release_by_ns
            elif isinstance(record.event, AWAITED):
                waiting[getattr(record.event, "key", "")] = record
            elif isinstance(record.event, OrderEnded):
                waiting.pop(record.event.key, None)
            elif isinstance(record.event, decisions.ReleaseLock) and waiting:
                at_ns = view.at_ns(record)
                # At the very end of its time it is not waited for.
                waiting = {
                    key: each
                    for key, each in waiting.items()
                    if each.mono_ns + getattr(each.event, "timeout_ns", NEVER_NS) > record.mono_ns
                }
                asked = any(seen.at_ns <= at_ns for seen in view.of("release-asked", "stopping"))
                if waiting and not (asked or lost or record.mono_ns >= bound_ns - RELEASE_AHEAD_NS):
                    keys = ", ".join(waiting)
                    yield f"record {record.seq}: released at {span(at_ns)} while {keys} was open"


def a_silent_server_holds_no_lock(view: BootView) -> BreachSentences:
    """The last reports wait for a silent API server for a second at most."""
    if not view.boot.mode or view.hurt:
        return
    # The traces have their own server and time.
    flush_ns = max(SILENT_FLUSH_NS, *(each.trace_flush_ns for each in view.boot.settings))
    ended_ns: int | None = None
    silent_ns: int | None = None
    for record in view.records:
        event, at_ns = record.event, view.at_ns(record)
        if isinstance(event, decisions.ShutdownBegan):
            ended_ns = None
        elif isinstance(event, decisions.PodsEnded):
            ended_ns = at_ns
        elif isinstance(event, DaemonStarted):
            silent_ns = None
        elif isinstance(event, ApiRead):
            silent_ns = None if event.reachable else silent_ns or at_ns
        elif isinstance(event, decisions.ReleaseLock) and ended_ns is not None and silent_ns is not None:
            since_ns = max(ended_ns, silent_ns)
            if at_ns > since_ns + flush_ns + view.slack_ns and view.served_through(ended_ns, at_ns):
                yield (
                    f"record {record.seq}: released at {span(at_ns)}; all pods gone, and the API"
                    f" server known to be silent, by {span(since_ns)}"
                )


def no_wait_for_a_stopped_kubelet(view: BootView) -> BreachSentences:
    """The release does not wait for statuses of a kubelet that was stopped."""
    # A silent server leaves the order open until it is known to be away.
    if view.boot.kubelet_stays or view.hurt or not view.boot.api_answers:
        return
    ended = {event.key: record for record, event in view.events(OrderEnded)}
    stopped = [seen.at_ns for seen in view.of("kubelet-stop")]
    for record, event in view.events(decisions.AwaitStatuses):
        over = ended.get(event.key)
        end_ns = view.at_ns(over) if over is not None else view.ended_ns
        since_ns = max([at_ns for at_ns in stopped if at_ns < end_ns], default=None)
        if since_ns is not None and end_ns > max(since_ns, view.at_ns(record)) + view.slack_ns:
            yield (f"record {record.seq}: final statuses awaited until {span(end_ns)}, without a kubelet")


def each_status_is_delivered_in_time(view: BootView) -> BreachSentences:
    """While the API server answers, every ended pod's final status is there at the release of a power-off."""
    if not view.boot.mode or not view.boot.api_answers or view.hurt:
        return
    # These take the time or the answers away; at the bound the lock is released in any case.
    disturbances = view.of(*DELIVERY_DISTURBANCES)
    for release in view.of("release"):
        disturbed = any(seen.at_ns < release.at_ns for seen in disturbances)
        if release.detail != decisions.ReleaseLock.__name__ or disturbed:
            continue
        bound_ns = view.events(decisions.ShutdownBegan)[-1][1].release_by_ns - RELEASE_AHEAD_NS
        if release.at_ns >= view.mono_at_ns(bound_ns):
            continue
        for record, event in view.events(decisions.DeliverStatuses):
            if view.at_ns(record) < release.at_ns - 100 * MS:
                missing = [
                    uid
                    for uid, *_ in event.statuses
                    if not any(seen.uid == uid and seen.at_ns <= release.at_ns for seen in view.of("status"))
                ]
                if missing:
                    yield (f"released at {span(release.at_ns)} without the status of {', '.join(missing)}")


OF_NODES = (
    the_kubelet_is_back,
    no_pod_is_started_again,
    no_terminal_status_before_a_reboot,
    a_handover_is_final,
    observing_touches_no_pod,
    a_certificate_is_true,
    the_release_waits_for_final_statuses,
    a_silent_server_holds_no_lock,
    no_wait_for_a_stopped_kubelet,
    each_status_is_delivered_in_time,
)
