"""The comparisons that no golden journal holds to what they say, and why; a test keeps the lists true."""

from __future__ import annotations

#: The same on both sides of the border: a wave's own seconds give a pod the grace that it has already; a
#: deadline that never comes is never taken; of a proof that ends now a tick has said so.
EQUIVALENT = (
    "episode._wave_started: seconds > planned.period_seconds -> seconds >= planned.period_seconds",
    "system.watch: deadline_ns < NEVER_NS -> deadline_ns <= NEVER_NS",
    "outage._consider: state.proof_until_ns <= now -> state.proof_until_ns < now",
)

#: Nothing that a replay compares: marks are compared with the number of decisions, not with
#: `System.step`'s; when a tick is due is asked before there is one, and a replay is given it; the field of a
#: digest is only told; a table's list of rows is for readers, and tables are held to their handlers in tests
#: (tests/actors); without a grant, and with negative periods, there is a plan to show and no shutdown; a
#: second actor of a kind that there is one of is in no checkpoint that was not made up, and is refused.
NOT_REPLAYED = (
    "checkpoint.restore: kind in system.actors.singletons -> kind not in system.actors.singletons",
    "outage_proof._pause_ns: state.readings >= count -> state.readings > count",
    "actor.targets: EVERY in to -> EVERY not in to",
    "actor.targets: name in region -> name not in region",
    "actor.targets: name != part -> name == part",
    "actor.targets: SAME in to -> SAME not in to",
    "actor.targets: part in to -> part not in to",
    "actor.check: new not in targets -> new in targets",
    "actor.check: made not in declared -> made in declared",
    "system.differing_field: kept.get(field_tag(name)) != made.get(field_tag(name))"
    " -> kept.get(field_tag(name)) == made.get(field_tag(name))",
    "system.step: seq == final -> seq != final",
    "system.next_deadline_ns: due_ns is None -> due_ns is not None",
    "policy.grace_periods.migrate_two_values: critical_ns < 0 -> critical_ns <= 0",
    "policy.grace_periods.migrate_two_values: critical_ns < 0 -> critical_ns >= 0",
    "policy.grace_periods.migrate_two_values: total_ns < critical_ns -> total_ns <= critical_ns",
    "policy.grace_periods.migrate_two_values: total_ns < critical_ns -> total_ns >= critical_ns",
    "policy.planning.make_plan: grant_ns < needed_ns -> grant_ns <= needed_ns",
    "policy.planning.make_plan: grant_ns < needed_ns -> grant_ns >= needed_ns",
    "policy.planning.usable_budget_ns: grant_ns is None -> grant_ns is not None",
    "policy.planning.make_plan: grant_ns is None -> grant_ns is not None",
    "policy.planning.make_plan: grant_ns is not None -> grant_ns is None",
)

#: What an actor's failure leads to, or a bug that makes no progress: `tests/actors` and `tests/scripts` make
#: them fail, and a journal in which they fail would want a bug of then to be replayed.
NEEDS_A_FAILURE = (
    "fallback._go_on: now >= _last_begin_ns(state) -> now > _last_begin_ns(state)",
    "fallback._order_ended: key.part in pod.left -> key.part not in pod.left",
    "fallback._open: signal is None -> signal is not None",
    "fallback._open: event.actor != 'EpisodeActor' -> event.actor == 'EpisodeActor'",
    "fallback._failed: state.start.preparing is False -> state.start.preparing is not False",
    "fallback._failed: state.phase == 'ended' -> state.phase != 'ended'",
    "kubelet._fallback_engaged_early: state.mode == 'observe' -> state.mode != 'observe'",
    "system._fail: slot.kind in rescue.go_on -> slot.kind not in rescue.go_on",
    "system._fail: rescue is None -> rescue is not None",
    "system.trace: slot is not self._fallback -> slot is self._fallback",
    "system.trace: kind is actors.closes -> kind is not actors.closes",
    "outage._actor_failed: event.actor not in (STUCK_POD.name, DETACH.name)"
    " -> event.actor in (STUCK_POD.name, DETACH.name)",
    "outage._failed_before: event.actor != PROOF.name -> event.actor == PROOF.name",
    "outage._failed_before: state.phase == 'switching' -> state.phase != 'switching'",
    "outage._afresh: start is None -> start is not None",
    "outage._engage: event.actor != NAME -> event.actor == NAME",
    "outage_proof._afresh: start is None -> start is not None",
    "system._handle: kind is not facts.Tick -> kind is facts.Tick",
    "system._handle: self.on_failure is not None -> self.on_failure is None",
    "system._handle: now_ns >= deadline_ns == slot.kind.deadline(before)"
    " -> now_ns > deadline_ns == slot.kind.deadline(before)",
    "system._handle: now_ns >= deadline_ns == slot.kind.deadline(before)"
    " -> now_ns < deadline_ns == slot.kind.deadline(before)",
    "system._handle: now_ns >= deadline_ns == slot.kind.deadline(before)"
    " -> now_ns >= deadline_ns != slot.kind.deadline(before)",
    "system._handle: now_ns >= deadline_ns == slot.kind.deadline(before)"
    " -> now_ns > deadline_ns == slot.kind.deadline(before)",
    "system._handle: now_ns >= deadline_ns == slot.kind.deadline(before)"
    " -> now_ns < deadline_ns == slot.kind.deadline(before)",
    "system._handle: now_ns >= deadline_ns == slot.kind.deadline(before)"
    " -> now_ns >= deadline_ns != slot.kind.deadline(before)",
    "system._handle: self.on_failure is not None -> self.on_failure is None",
)

#: Told by no golden journal: lost outcomes, arming that is refused twice, inventories that come too late; of
#: a Kubernetes node a delete that is given again, a pod that joins late or after the certificate, a kubelet
#: that dies in mode api, one that comes back a fourth time, or whose lock goes in between, and a cancel while
#: the kubelet is stopped or the mounts are read. Scripts (`tests/scripts`) hold them to what they do. One
#: that a journal comes to tell of is taken off this list.
UNTOLD = (
    "container._kill_order_ended: down.phase == 'killed' -> down.phase != 'killed'",
    "logind._arming_ended: event.reason == OPERATION_IN_PROGRESS -> event.reason != OPERATION_IN_PROGRESS",
    "config_reconciler._started: event.preparing is None -> event.preparing is not None",
    "config_reconciler._drop_in_ended: event.result == 'done' -> event.result != 'done'",
    "system.next_ns: self._heap[0][2].deadline_ns != self._heap[0][0]"
    " -> self._heap[0][2].deadline_ns == self._heap[0][0]",
    "hook._shorten_delete: state.means != 'api' -> state.means == 'api'",
    "hook._shorten_delete: until_ns > state.delete_until_ns - NS_PER_SECOND"
    " -> until_ns >= state.delete_until_ns - NS_PER_SECOND",
    "episode._mark_ended: uid != event.uid -> uid == event.uid",
    "episode._mark_ended: event.uid not in state.carried -> event.uid in state.carried",
    "kubelet._stop_ended: state.retry_at_ns == NEVER_NS -> state.retry_at_ns != NEVER_NS",
    "episode._late_pods: (index := _wave_of(state, pod)) > state.wave"
    " -> (index := _wave_of(state, pod)) <= state.wave",
    "episode._late_pods: (index := _wave_of(state, pod)) > state.wave"
    " -> (index := _wave_of(state, pod)) >= state.wave",
    "episode._listing_ended: event.result == 'unknown' -> event.result != 'unknown'",
    "episode._listing_ended: event.result == 'done' -> event.result != 'done'",
    "episode._listing_ended: event.key != state.listing_key -> event.key == state.listing_key",
    "node_status._call_back: key not in open_keys -> key in open_keys",
    "hook._killed_text: rest >= 100000000 -> rest > 100000000",
    "episode._list_for_plan: by_ns >= now + d.FIRST_WORD_NS -> by_ns > now + d.FIRST_WORD_NS",
    "hook._container_due: down.hook_since_ns < daemon_ns > now - steps.FOLLOWED_NS"
    " -> down.hook_since_ns >= daemon_ns > now - steps.FOLLOWED_NS",
    "hook._container_due: down.hook_since_ns < daemon_ns > now - steps.FOLLOWED_NS"
    " -> down.hook_since_ns <= daemon_ns > now - steps.FOLLOWED_NS",
    "hook._container_due: down.hook_since_ns < daemon_ns > now - steps.FOLLOWED_NS"
    " -> down.hook_since_ns < daemon_ns >= now - steps.FOLLOWED_NS",
    "hook._adopted: down.since_ns == max(now, 1) -> down.since_ns != max(now, 1)",
    "outage_proof._missed: state.reading == 'pausing' -> state.reading != 'pausing'",
    "policy.planning.first_names: len(names) > NAMES_MAX -> len(names) <= NAMES_MAX",
    "policy.planning.first_names: len(names) > NAMES_MAX -> len(names) >= NAMES_MAX",
)

#: Of a Kubernetes node, which no golden journal among these tells of: scripts hold them to what they do.
OF_A_NODE = (
    "container.stood_still: down.kill_at_ns <= due_ns -> down.kill_at_ns < due_ns",
    "container.stood_still: down.kill_at_ns <= due_ns -> down.kill_at_ns > due_ns",
    "container.stood_still: down.phase == 'hook' -> down.phase != 'hook'",
    "container.stood_still: down.phase == 'stopping' -> down.phase != 'stopping'",
    "container.stood_still: down.stop_by_ns <= due_ns -> down.stop_by_ns < due_ns",
    "container.stood_still: down.stop_by_ns <= due_ns -> down.stop_by_ns > due_ns",
    "episode._move_deadline_listing: state.release_by_ns <= before_ns -> state.release_by_ns < before_ns",
    "episode._late_pods: uid not in found -> uid in found",
    "episode._refresh_listed: event.key not in state.overtaken -> event.key in state.overtaken",
    "episode._joined: now > state.kill_by_ns - FLOOR_NS -> now >= state.kill_by_ns - FLOOR_NS",
    "hook._tick: down.due_ns() <= due_ns -> down.due_ns() < due_ns",
    "hook._tick: down.due_ns() <= due_ns -> down.due_ns() > due_ns",
    "hook._tick: waited_ns > steps.STANDSTILL_NS -> waited_ns <= steps.STANDSTILL_NS",
    "hook._tick: waited_ns > steps.STANDSTILL_NS -> waited_ns >= steps.STANDSTILL_NS",
    "container.exited: down.error != '' -> down.error == ''",
    "hook._adopted: state.means == 'api' -> state.means != 'api'",
    "hook._container_due: down.hook_since_ns < daemon_ns > now - steps.FOLLOWED_NS"
    " -> down.hook_since_ns < daemon_ns <= now - steps.FOLLOWED_NS",
    "hook._tick: down.limit_ns > now >= down.kill_at_ns -> down.limit_ns >= now >= down.kill_at_ns",
    "kubelet._pod_deleted: state.plain.get(event.uid, 0) <= less_ns"
    " -> state.plain.get(event.uid, 0) < less_ns",
    "kubelet._sign_due_ns: due_ns > 0 -> due_ns >= 0",
    "kubelet._sign_due_ns: due_ns > 0 -> due_ns <= 0",
    "node_status._certified_safe: state.mounted == () -> state.mounted != ()",
    "node_status._certify_again: before.all_ended == state.all_ended -> before.all_ended != state.all_ended",
    "node_status._certify_again: state.mounted is None -> state.mounted is not None",
    "node_status._delete_ended: key.what != 'delete' -> key.what == 'delete'",
    "node_status._not_ended: each != uid -> each == uid",
    "node_status._delete_ended: state.means == 'cri' -> state.means != 'cri'",
    "node_status._delete_ended: each != uid -> each == uid",
    "node_status._delete_ended: each[0] == uid -> each[0] != uid",
    "episode._last_boot_read: ended is None -> ended is not None",
    "episode._last_boot_read: ended.boot_id != event.boot_id -> ended.boot_id == event.boot_id",
    "episode._last_boot_read: ended.last in ('open', 'released') -> ended.last not in ('open', 'released')",
    "episode._last_boot_read: ending == 'cut-short' -> ending != 'cut-short'",
    "node_status._publish_last_boot: state.api is not True -> state.api is True",
    "node_status._last_boot_published: event.result == 'done' -> event.result != 'done'",
    "node_status._last_boot_published: event.result == 'unknown' -> event.result != 'unknown'",
    "node_status._pods_ended_in_shutdown: state.means == 'cri' -> state.means != 'cri'",
    "kubelet._kubelet_read_ours: state.stops < STOPS_MAX -> state.stops <= STOPS_MAX",
    "policy.last_boot.boot_end: 'shutdown' in (read.wtmp, read.journal)"
    " -> 'shutdown' not in (read.wtmp, read.journal)",
    "policy.last_boot.boot_end: ended.last == 'released' -> ended.last != 'released'",
    "policy.last_boot.boot_end: ended.last == 'open' -> ended.last != 'open'",
    "policy.last_boot.boot_end: 'no-shutdown' in (read.wtmp, read.journal)"
    " -> 'no-shutdown' not in (read.wtmp, read.journal)",
    "policy.last_boot._unprotected: ended.enabled is False -> ended.enabled is not False",
    "policy.last_boot.boot_end: read.journal == 'stopped' -> read.journal != 'stopped'",
    "policy.last_boot.boot_end: read.crash in ('shutdown', 'emergency')"
    " -> read.crash not in ('shutdown', 'emergency')",
    "policy.last_boot.boot_end: ended.armed is not None -> ended.armed is None",
    "policy.last_boot._crashed: read.crash == 'panic' -> read.crash != 'panic'",
    "kubelet.unit_phase: state.retry_at_ns != NEVER_NS -> state.retry_at_ns == NEVER_NS",
    "node_status._order_ended: event.key == state.last_boot_key != ''"
    " -> event.key == state.last_boot_key == ''",
    "node_status._order_ended: event.key == state.last_boot_key != ''"
    " -> event.key != state.last_boot_key != ''",
    "node_status._order_ended_flushing: after is not state -> after is state",
    "policy.last_boot._unprotected: ended.armed is False -> ended.armed is not False",
    "policy.last_boot.boot_end: ended.wave >= 0 -> ended.wave > 0",
    "policy.last_boot.boot_end: ended.wave >= 0 -> ended.wave < 0",
    "policy.last_boot._crashed: read.crash == 'oops' -> read.crash != 'oops'",
)

#: Of an outage: `tests/outage/test_brake.py` and `tests/cli/outage/test_reasons.py` catch each.
OF_AN_OUTAGE = (
    "brake.refusal: out + counted.ahead >= places -> out + counted.ahead > places",
    "hang.detach_hang: seconds >= ATTACHER_SECONDS -> seconds > ATTACHER_SECONDS",
    "hang.detach_hang: seconds >= ATTACHER_SECONDS -> seconds < ATTACHER_SECONDS",
)

SURVIVORS = (*EQUIVALENT, *NOT_REPLAYED, *NEEDS_A_FAILURE, *UNTOLD, *OF_A_NODE, *OF_AN_OUTAGE)
