"""The comparisons that no golden journal holds to what they say, and why; a test keeps the lists true."""

from __future__ import annotations

#: The same on both sides of the border: a wave's own seconds give a pod the grace that it has already; a
#: deadline that never comes is never taken.
EQUIVALENT = (
    "logic.course: seconds > planned.period_seconds -> seconds >= planned.period_seconds",
    "logic.deadlines: deadline_ns < NEVER_NS -> deadline_ns <= NEVER_NS",
)

#: Nothing that a replay compares: marks are compared with the number of decisions, not with
#: `System.step`'s; the field of a digest is only told; without a grant, and with negative periods, there is
#: a plan to show and no shutdown.
NOT_REPLAYED = (
    "logic.digest: kept.get(tag_of(name)) != made.get(tag_of(name)) -> kept.get(tag_of(name)) ="
    "= made.get(tag_of(name))",
    "logic.system: seq == final -> seq != final",
    "policy.periods: critical_ns < 0 -> critical_ns <= 0",
    "policy.periods: critical_ns < 0 -> critical_ns >= 0",
    "policy.periods: total_ns < critical_ns -> total_ns <= critical_ns",
    "policy.periods: total_ns < critical_ns -> total_ns >= critical_ns",
    "policy.plan: grant_ns < needed_ns -> grant_ns <= needed_ns",
    "policy.plan: grant_ns < needed_ns -> grant_ns >= needed_ns",
    "policy.plan: grant_ns is None -> grant_ns is not None",
    "policy.plan: grant_ns is not None -> grant_ns is None",
)

#: What an actor's failure leads to, or a bug that makes no progress: `tests/logic` and `tests/scripts` make
#: them fail, and a journal in which they fail would want a bug of then to be replayed.
NEEDS_A_FAILURE = (
    "logic.episode: event.actor != WAVE_NAME -> event.actor == WAVE_NAME",
    "logic.episode: event.subject != str(state.wave) -> event.subject == str(state.wave)",
    "logic.episode: state.phase != 'waves' -> state.phase == 'waves'",
    "logic.lead: event.part > 1 -> event.part >= 1",
    "logic.lead: signal is None -> signal is not None",
    "logic.lead: state.moved_ns == now -> state.moved_ns != now",
    "logic.lead: state.release_by_ns == NEVER_NS -> state.release_by_ns != NEVER_NS",
    "logic.lead: state.stage != 'cancelled' -> state.stage == 'cancelled'",
    "logic.lead: state.start.preparing is False -> state.start.preparing is not False",
    "logic.let_go: state.stage == 'settled' -> state.stage != 'settled'",
    "logic.let_go: state.stage in ('pods-ended', 'settled') -> state.stage not in ('pods-ended', 'settled')",
    "logic.system: kind is EpisodeClosed -> kind is not EpisodeClosed",
    "logic.system: kind is not Tick -> kind is Tick",
    "logic.system: now_ns >= deadline_ns == slot.kind.deadline(slot.state) -> now_ns < deadline"
    "_ns == slot.kind.deadline(slot.state)",
    "logic.system: now_ns >= deadline_ns == slot.kind.deadline(slot.state) -> now_ns > deadline"
    "_ns == slot.kind.deadline(slot.state)",
    "logic.system: now_ns >= deadline_ns == slot.kind.deadline(slot.state) -> now_ns >= deadlin"
    "e_ns != slot.kind.deadline(slot.state)",
    "logic.system: type(fact) is DaemonStarted -> type(fact) is not DaemonStarted",
)

#: Told by no golden journal: lost outcomes, arming that is refused twice, inventories that come too late; of
#: a Kubernetes node a delete that is given again, a pod that joins late, a kubelet that dies in mode api, one
#: that comes back a fourth time, or whose lock goes in between, and a cancel while the kubelet is stopped or
#: the mounts are read. Scripts (`tests/scripts`) hold them to what they do. One that a journal comes to tell
#: of is taken off this list.
UNTOLD = (
    "logic.answers: down.phase == 'killed' -> down.phase != 'killed'",
    "logic.answers: down.phase == 'stopping' -> down.phase != 'stopping'",
    "logic.answers: event.result == 'failed' -> event.result != 'failed'",
    "logic.arming: event.reason == OPERATION_IN_PROGRESS -> event.reason != OPERATION_IN_PROGRESS",
    "logic.care: care.wave <= state.wave -> care.wave < state.wave",
    "logic.care: event.pod in (care.pod.uid, care.pod.name, care.pod.label) -> event.pod not in"
    " (care.pod.uid, care.pod.name, care.pod.label)",
    "logic.config: event.preparing is None -> event.preparing is not None",
    "logic.config: event.result == 'done' -> event.result != 'done'",
    "logic.deadlines: self._heap[0][2].deadline_ns != self._heap[0][0] -> self._heap[0][2].dead"
    "line_ns == self._heap[0][0]",
    "logic.delegate: state.means != 'api' -> state.means == 'api'",
    "logic.delegate: until_ns > state.delete_until_ns - NS_PER_SECOND -> until_ns >= state.dele"
    "te_until_ns - NS_PER_SECOND",
    "logic.episode: each != uid -> each == uid",
    "logic.episode: uid not in state.carried -> uid in state.carried",
    "logic.fallback: care is None -> care is not None",
    "logic.kubelet: state.means == 'api' -> state.means != 'api'",
    "logic.kubelet: state.stops >= STOPS_MAX -> state.stops > STOPS_MAX",
    "logic.kubelet_unit: state.retry_at_ns == NEVER_NS -> state.retry_at_ns != NEVER_NS",
    "logic.listing: (wave := _wave_of(state, pod)) > state.wave -> (wave := _wave_of(state, pod"
    ")) <= state.wave",
    "logic.listing: (wave := _wave_of(state, pod)) > state.wave -> (wave := _wave_of(state, pod"
    ")) >= state.wave",
    "logic.listing: event.key == state.refreshing -> event.key != state.refreshing",
    "logic.listing: event.result not in ('done', 'unknown') -> event.result in ('done', 'unknown')",
    "logic.listing: state.phase in ('flushing', 'released') -> state.phase not in ('flushing', 'released')",
    "logic.listing: state.phase in STOPPING -> state.phase not in STOPPING",
    "logic.logind: state.phase == 'waiting' -> state.phase != 'waiting'",
    "logic.node_end: key not in open_keys -> key in open_keys",
    "logic.outcome: rest >= 100000000 -> rest > 100000000",
    "logic.pod: event.means != 'observe' -> event.means == 'observe'",
)

SURVIVORS = (*EQUIVALENT, *NOT_REPLAYED, *NEEDS_A_FAILURE, *UNTOLD)
