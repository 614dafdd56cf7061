"""What holds in every simulation, checked after the run: the tables at the end list the invariants.

An invariant excuses only what made its promise impossible: no daemon ran, no disk took a write, no daemon
received the signal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.policy.grace_periods import (
    FALLBACK_MARGIN_NS,
    GRACE_NS_MIN,
    LATE_NS,
    shutdown_enabled,
)
from ebbtide.actors.system import FAILED_STARTS_MAX, LAST_STARTS_FAILED, LOOK_NS
from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Event, Fact, Order, Record, parse_order_key
from ebbtide.events.facts import ApiRead, DaemonStarted, EffectPanicked, OrderEnded, PrepareForShutdown
from ebbtide.events.units import span
from ebbtide.events.values import Settings
from ebbtide.replay.sim.sim_node import KUBELET, Happening, SimulatedContainer

EventT = TypeVar("EventT", bound=Event)

#: A step, its barrier, the edge's latency, the way back.
SLACK_NS = 300 * MS


class Served(NamedTuple):
    """From a daemon's readiness to its end."""

    life: int
    from_ns: int
    to_ns: int


class Boot(NamedTuple):
    """One boot that is over: of the real daemon on the mock clock, or of the loop in virtual time."""

    number: int
    #: In world time.
    seen: Sequence[Happening]
    #: Each daemon's, as far as the next daemon found them; all of the last daemon's.
    records: Sequence[Record]
    #: As a reader finds it after the boot.
    journal: Sequence[Record]
    boxes: Sequence[SimulatedContainer]
    #: World time minus the monotonic clock.
    offset_ns: int
    #: Every configuration that may be in force, the last one last.
    settings: tuple[Settings, ...]
    #: logind's property, the cluster's view of the node, and whether its API server answers.
    preparing: bool
    shown_ready: bool
    api_answers: bool
    #: The runtime's extra time for an order.
    slow_ns: int = 0
    #: The daemon's mode on a Kubernetes node; whether the kubelet ignores stop orders or has a lock.
    mode: str = ""
    kubelet_stays: bool = False
    kubelet_lock: bool = False
    #: UIDs of pods without a process on the node.
    hidden: Mapping[str, None] = {}


#: A daemon misses restarts between its look at the runtime and that look's report.
AGAIN_SEEN_NS = 600 * MS


class BootView:
    #: From a daemon's readiness until it knows what happened before.
    CATCH_UP_NS = 50 * MS
    #: Exits are reported one by one, each some milliseconds late.
    REPORT_NS = 30 * MS

    def __init__(self, boot: Boot) -> None:
        self.boot, self.number, self.seen, self.records = boot, boot.number, boot.seen, boot.records
        self.slack_ns = SLACK_NS + boot.slow_ns
        self._by_what: dict[tuple[str, ...], list[Happening]] = {}
        self._by_box: dict[tuple[str, str], list[Happening]] = {}
        self._by_type: dict[type[Event], list[tuple[Record, Any]]] = {}
        for seen in boot.seen:
            self._by_what.setdefault((seen.what,), []).append(seen)
            self._by_box.setdefault((seen.uid, seen.container), []).append(seen)
        self.episodes: dict[int, list[Record]] = {}
        for record in boot.records:
            self._by_type.setdefault(type(record.event), []).append((record, record.event))
            if record.episode:
                self.episodes.setdefault(record.episode, []).append(record)
        self.ended_ns = self.of("down")[0].at_ns
        self.stopping_ns = self.of("stopping", "down")[0].at_ns
        self.served: list[Served] = []
        ready: dict[int, int] = {}
        for seen in self.of("ready", "crash", "left"):
            if seen.what == "ready":
                ready[seen.life] = seen.at_ns
            elif seen.life in ready:
                self.served.append(Served(seen.life, ready.pop(seen.life), seen.at_ns))
        self.served += [Served(life, since_ns, self.ended_ns) for life, since_ns in ready.items()]
        turns = self.of("runtime-hangs", "runtime-wakes")
        turns_ns = [seen.at_ns for seen in turns]
        if not turns or turns[0].what == "runtime-hangs":
            turns_ns.insert(0, 0)
        turns_ns.append(self.ended_ns)
        #: When a daemon ran and the runtime answered.
        self._looking = [
            (max(from_ns, served.from_ns), min(to_ns, served.to_ns))
            for served in self.served
            for from_ns, to_ns in zip(turns_ns[::2], turns_ns[1::2], strict=False)
        ]
        self._boxes: dict[str, list[SimulatedContainer]] = {}
        self._exit_ns: dict[tuple[str, str, int], int] = {}
        for box in boot.boxes:
            exits = self.of_box(box, "exit", "dropped")
            self._boxes.setdefault(box.uid, []).append(box)
            self._exit_ns[box.uid, box.name, box.attempt] = exits[0].at_ns if exits else self.ended_ns + 1
        self.stop_begins = self._by_uid(decisions.PodStopBegan)
        self.ends = self._by_uid(decisions.PodEnded)
        self.kills = self._by_uid(decisions.KillContainer)
        self.plans = defaultdict[str, list[tuple[Record, decisions.PodPlanned]]](list)
        for record, event in self.events(decisions.PodPlanned):
            self.plans[event.pod.uid].append((record, event))
        #: The journal left the disk in this boot: the next boot may know less.
        self.fled = any(what[0].startswith("journal-") for what in self._by_what)
        #: The journal had no place or was unreadable: even this boot's daemons know less.
        self.hurt = bool(self.of("journal-lost", "error"))

    def _by_uid(self, kind: type[EventT]) -> defaultdict[str, list[tuple[int, Any]]]:
        found = defaultdict[str, list[tuple[int, Any]]](list)
        for record, event in self.events(kind):
            found[event.uid].append((self.at_ns(record), event))  # type: ignore[attr-defined]
        return found

    def of(self, *whats: str) -> list[Happening]:
        if whats not in self._by_what:
            if len(whats) == 1:
                return []
            self._by_what[whats] = [seen for seen in self.seen if seen.what in whats]
        return self._by_what[whats]

    def events(self, kind: type[EventT]) -> Sequence[tuple[Record, EventT]]:
        return self._by_type.get(kind, ())

    def at_ns(self, record: Record) -> int:
        """In world time."""
        return self.boot.offset_ns + record.mono_ns

    def mono_at_ns(self, mono_ns: int) -> int:
        """In world time."""
        return self.boot.offset_ns + mono_ns

    def forgotten(self, uid: str) -> bool:
        """A daemon changed this pod on a hung disk and died: later daemons do not know it."""
        died = [seen.life for seen in self.of("crash")]
        return any(
            seen.late and seen.life in died
            for box in self.boxes(uid)
            for seen in self.of_box(box, "hook", "signal", "kill")
        )

    def after_look_ns(self, at_ns: int) -> int:
        """When a due action is done: a daemon looks first after it starts."""
        looks = (each.from_ns for each in self.served if each.from_ns <= at_ns < each.from_ns + LOOK_NS)
        return max([at_ns, *(from_ns + LOOK_NS for from_ns in looks)])

    def served_through(self, from_ns: int, to_ns: int) -> bool:
        """One daemon ran all the time."""
        return any(each.from_ns <= from_ns and to_ns <= each.to_ns for each in self.served)

    def boxes(self, uid: str | None = None) -> Sequence[SimulatedContainer]:
        """One pod's containers, or all."""
        return self.boot.boxes if uid is None else self._boxes.get(uid, ())

    def of_box(self, box: SimulatedContainer, *whats: str) -> list[Happening]:
        """Only of this attempt, not of others with its name."""
        found, attempt = [], -1
        for seen in self._by_box.get((box.uid, box.name), ()):
            attempt += seen.what == "start"
            if max(attempt, 0) == box.attempt and seen.what in whats:
                found.append(seen)
        return found

    def exit_ns(self, box: SimulatedContainer) -> int:
        """After the boot's end if it never exited."""
        return self._exit_ns[box.uid, box.name, box.attempt]

    def started_ns(self, box: SimulatedContainer) -> int:
        """After the boot's end if it never started."""
        return next((seen.at_ns for seen in self.of_box(box, "start")), self.ended_ns + 1)

    def known_ns(self, box: SimulatedContainer) -> int:
        """When a daemon can know that it runs: a restarted one at the next look at an answering runtime."""
        since_ns = self.started_ns(box)
        if not box.attempt:
            return since_ns
        for from_ns, to_ns in self._looking:
            known_ns = max(from_ns, since_ns) + AGAIN_SEEN_NS
            if known_ns <= to_ns:
                return known_ns
        return self.ended_ns + 1

    def exit_signal(self, box: SimulatedContainer) -> str:
        return next((seen.detail for seen in self.of_box(box, "exit")), "")

    def gone_was_known_ns(self, box: SimulatedContainer) -> int:
        """When a daemon can know its end, at the latest after that daemon's start."""
        exit_ns = self.exit_ns(box)
        starts = [each.from_ns for each in self.served if each.to_ns > exit_ns]
        return max(exit_ns + self.REPORT_NS, min(starts, default=self.ended_ns) + self.CATCH_UP_NS)

    def fate(self, uid: str, from_ns: int, to_ns: int) -> str:
        """Its last recorded outcome in this time, or an empty text."""
        outcomes = [end.outcome for at_ns, end in self.ends[uid] if from_ns <= at_ns <= to_ns]
        return outcomes[-1] if outcomes else ""

    def by_kubelet(self, uid: str) -> str:
        """How the kubelet was to end the pod; empty: Ebbtide ends it."""
        plans = self.plans[uid]
        return plans[-1][1].means if plans and plans[-1][1].means in ("api", "observe") else ""

    def out_of_reach(self, box: SimulatedContainer, from_ns: int, to_ns: int) -> bool:
        """At some time only a hung runtime could have reached it."""
        if box.uid not in self.boot.hidden:
            return False
        hung_ns = None
        for seen in self.of("runtime-hangs", "runtime-wakes"):
            if seen.what == "runtime-hangs":
                hung_ns = seen.at_ns
            elif hung_ns is not None:
                if hung_ns <= to_ns and from_ns <= seen.at_ns + self.REPORT_NS:
                    return True
                hung_ns = None
        return hung_ns is not None and hung_ns <= to_ns


#: An invariant yields one sentence for each breach.
BreachSentences = Iterator[str]


def container_label(box: SimulatedContainer) -> str:
    return f"{box.uid}/{box.name}"


class Breach(NamedTuple):
    invariant: str
    sentence: str


def breaches(views: Sequence[BootView]) -> Iterator[Breach]:
    for of_run in OF_RUNS:
        yield from (Breach(of_run.__name__, each) for each in of_run(views))
    for view in views:
        for of_boot in OF_BOOTS:
            yield from (Breach(of_boot.__name__, f"boot {view.number}: {each}") for each in of_boot(view))


# --- the lock

#: A daemon that has run this long has certainly caught up.
CATCH_UP_NS_MAX = NS_PER_SECOND

#: Above the longest pause between two attempts to arm.
REARM_NS = 35 * NS_PER_SECOND

#: These change a shutdown's course or configuration.
CHANGES = ("withdraw", "reload", "logind-gone", "stopping", "appeared", "unit-stop")

#: These may keep a node from being armed for a while.
DISTURBANCES = (
    *("shutdown", "withdraw", "reload", "logind-gone", "logind-back", "bus-lost"),
    *("crash", "left", "stopping", "disk-fault"),
)


def the_lock_waits_for_the_pods(view: BootView) -> BreachSentences:
    """The lock is held while pods run, until the time is over or a person releases it."""
    for release in _orderly_releases(view):
        running = [container_label(box) for box in _still_planned(view, release)]
        if running and release.at_ns < _release_by_ns(view, release) - NS_PER_SECOND:
            yield f"the lock was released at {span(release.at_ns)} while {', '.join(running)} ran"


def the_lock_is_released_at_once(view: BootView) -> BreachSentences:
    """When the last pod is gone, only the statuses may take their time (KEP-2000)."""
    for episode, records in view.episodes.items():
        planned = [each.event.pod.uid for each in records if isinstance(each.event, decisions.PodPlanned)]
        plan_ns = next(
            (view.at_ns(each) for each in records if isinstance(each.event, decisions.PlanMade)), None
        )
        if plan_ns is None:
            continue
        gone_ns = [view.exit_ns(box) for uid in planned for box in view.boxes(uid)]
        since_ns = view.after_look_ns(max([plan_ns, *gone_ns, *_kubelets_ends(view, records)]))
        # The longest of this boot's configurations: any may be in force.
        flushes = ((each.status_flush_seconds, each.trace_flush_ns) for each in view.boot.settings)
        flush_ns = max(max(seconds * NS_PER_SECOND, trace_ns) for seconds, trace_ns in flushes)
        by_ns = since_ns + flush_ns + view.slack_ns
        if not view.of("release") and _undisturbed(view, plan_ns, by_ns):
            yield f"episode {episode}: no release by {span(by_ns)}, all pods gone at {span(since_ns)}"
        for release in view.of("release"):
            if release.at_ns > by_ns and _undisturbed(view, plan_ns, release.at_ns):
                at = span(release.at_ns)
                yield f"episode {episode}: released at {at}, all pods gone at {span(since_ns)}"


def _kubelets_ends(view: BootView, records: Sequence[Record]) -> list[int]:
    """When the kubelet had stopped or unmounted the volumes, or the waits' bounds."""
    found: dict[str, int] = {}
    for record in records:
        at_ns = view.at_ns(record)
        match record.event:
            case decisions.AwaitUnmounts(key=key, timeout_ns=timeout_ns):
                found[key] = at_ns + timeout_ns
            case decisions.StopKubelet(key=key):
                found[key] = at_ns
            case OrderEnded(key=key) if key in found:
                found[key] = at_ns
    return list(found.values())


def _undisturbed(view: BootView, from_ns: int, to_ns: int) -> bool:
    changed = any(from_ns <= seen.at_ns < to_ns for seen in view.of(*CHANGES))
    return view.served_through(from_ns, to_ns) and not changed


def _orderly_releases(view: BootView) -> list[Happening]:
    """Releases without a person's request."""
    asked_ns = min((seen.at_ns for seen in view.of("release-asked")), default=view.ended_ns + 1)
    releases = [] if view.hurt else view.of("release")
    lock = decisions.ReleaseLock.__name__
    return [seen for seen in releases if seen.detail == lock and seen.at_ns < asked_ns]


def _still_planned(view: BootView, release: Happening) -> list[SimulatedContainer]:
    """Containers of planned pods that run at the release, without restarts after a pod was given up."""
    at_ns = release.at_ns
    return [
        box
        for box in view.boxes()
        if any(view.at_ns(record) <= at_ns for record, _ in view.plans[box.uid])
        and view.known_ns(box) <= at_ns < view.exit_ns(box)
        and not (box.attempt and view.fate(box.uid, view.started_ns(box), at_ns) in ("unknown", "failed"))
    ]


def no_ended_pod_runs(view: BootView) -> BreachSentences:
    for release in _orderly_releases(view):
        for box in view.boxes():
            if view.known_ns(box) <= release.at_ns < view.exit_ns(box) and not view.forgotten(box.uid):
                fate = view.fate(box.uid, 0, release.at_ns)
                if fate in ("graceful", "killed"):
                    at = span(release.at_ns)
                    yield f"{container_label(box)} runs at the release at {at}, and is {fate} on record"


def _release_by_ns(view: BootView, release: Happening) -> int:
    """The last ``release_by_ns`` before the pods were given up, in world time."""
    found, given_up = 0, False
    for record in view.records:
        if view.at_ns(record) > release.at_ns:
            break
        match record.event:
            case decisions.ShutdownBegan(release_by_ns=by_ns):
                found, given_up = view.mono_at_ns(by_ns), False
            case decisions.DeadlineMoved(release_by_ns=by_ns) if not given_up:
                found = view.mono_at_ns(by_ns)
            case decisions.PodsEnded():
                given_up = True
    return found


def _had_time(view: BootView, release: Happening) -> bool:
    """The daemon ran long enough before the end, or in all of a short shutdown."""
    began = [view.at_ns(record) for record, _ in view.events(decisions.ShutdownBegan)]
    began_ns = max((at_ns for at_ns in began if at_ns <= release.at_ns), default=0)
    end_ns = min(release.at_ns, _release_by_ns(view, release) - NS_PER_SECOND)
    if end_ns - CATCH_UP_NS_MAX < began_ns:
        return view.served_through(began_ns, release.at_ns)
    return view.served_through(end_ns - CATCH_UP_NS_MAX, end_ns)


def the_grant_is_enough(view: BootView) -> BreachSentences:
    """logind's timer never ends a shutdown that a daemon has seen from its signal on."""
    for limit in [] if view.hurt else view.of("limit"):
        held = any(limit.detail.split(","))
        alive = view.served_through(limit.at_ns - CATCH_UP_NS_MAX, limit.at_ns)
        if limit.at_ns >= view.stopping_ns or not alive or not held:
            continue
        signal_ns = max(seen.at_ns for seen in view.of("shutdown") if seen.at_ns <= limit.at_ns)
        # While the limit is raised, the daemon may read either value.
        raising = any(signal_ns - 100 * MS <= seen.at_ns <= signal_ns for seen in view.of("drop-in"))
        heard = any(
            event.active and signal_ns <= view.at_ns(record) <= signal_ns + 100 * MS
            for record, event in view.events(PrepareForShutdown)
        )
        if heard and not raising:
            at = span(limit.at_ns)
            yield f"logind's limit came at {at} with the lock still held by {limit.detail}"


def a_node_that_stays_is_armed(view: BootView) -> BreachSentences:
    """After enough quiet time an enabled daemon holds the lock, and its node is shown as before."""
    quiet_ns = view.ended_ns - REARM_NS
    calm = not any(seen.at_ns > quiet_ns for seen in view.of(*DISTURBANCES))
    if not calm or view.boot.preparing or not view.served_through(quiet_ns, view.ended_ns):
        return
    # The boot's end closes every lock.
    turns = [seen.what for seen in view.of("lock", "unlock") if seen.at_ns < view.ended_ns]
    held = bool(view.of("lock")) and turns[-1:] != ["unlock"]
    # A mode that ends pods itself is not armed beside a kubelet with a lock of its own.
    beside = view.boot.kubelet_lock and view.boot.mode in ("api", "cri")
    if not beside and shutdown_enabled(view.boot.settings[-1]) != held:
        yield f"the lock is {'held' if held else 'not held'} at the end of a boot that went on quietly"
    if not view.boot.shown_ready and view.boot.api_answers:
        yield "the node is still shown as going down"


# --- waves


def waves_keep_their_order(view: BootView) -> BreachSentences:
    """No pod is touched before the waves below it have ended or had their time."""
    for episode, records in view.episodes.items():
        waves = {event.wave: (at_ns, event) for at_ns, event in _waves_begun(view, records)}
        members = _stop_begins_of(records)
        # A restarted pod joins the present wave, or an earlier one.
        again = _planned_again(records)
        lasting = _last_exits(view, {uid: began for uid, began in members.items() if uid not in again})
        for seen in view.of("hook", "signal"):
            began = members.get(seen.uid)
            if began is None or began.wave not in waves or seen.at_ns < waves[began.wave][0]:
                continue
            for wave, (_, lower) in waves.items():
                if wave >= began.wave or wave not in lasting or view.by_kubelet(seen.uid) == "observe":
                    continue
                over_ns, (exit_ns, last) = view.mono_at_ns(lower.deadline_ns), lasting[wave]
                if seen.at_ns < over_ns and exit_ns > seen.at_ns:
                    yield (
                        f"episode {episode}: {seen.what} for {seen.uid} at {span(seen.at_ns)}, while"
                        f" {container_label(last)} of wave {wave} runs and has until {span(over_ns)}"
                    )


def _waves_begun(view: BootView, records: Sequence[Record]) -> list[tuple[int, decisions.WaveStarted]]:
    return [
        (view.at_ns(each), each.event) for each in records if isinstance(each.event, decisions.WaveStarted)
    ]


def _stop_begins_of(records: Sequence[Record]) -> dict[str, decisions.PodStopBegan]:
    """By UID: the last one."""
    return {each.event.uid: each.event for each in records if isinstance(each.event, decisions.PodStopBegan)}


def _planned_again(records: Sequence[Record]) -> list[str]:
    planned = (each.event for each in records if isinstance(each.event, decisions.PodPlanned))
    return [event.pod.uid for event in planned if event.again]


def _last_exits(
    view: BootView, members: dict[str, decisions.PodStopBegan], *, again: bool = False
) -> dict[int, tuple[int, SimulatedContainer]]:
    """The last container of each wave, with its end. ``again`` includes restarted containers."""
    lasting: dict[int, tuple[int, SimulatedContainer]] = {}
    for uid, began in members.items():
        began_ns = max(at_ns for at_ns, event in view.stop_begins[uid] if event is began)
        for box in view.boxes(uid):
            if box.attempt and view.started_ns(box) > began_ns and not again:
                continue
            exit_ns = view.exit_ns(box)
            if began.wave not in lasting or exit_ns > lasting[began.wave][0]:
                lasting[began.wave] = (exit_ns, box)
    return lasting


def waves_begin_at_once(view: BootView) -> BreachSentences:
    """A wave begins when the one before it has ended."""
    unmounted_ns = {seen.uid: seen.at_ns for seen in view.of("unmounted")}
    for episode, records in view.episodes.items():
        if _planned_again(records):
            continue  # Another wave waits for a restarted pod.
        lasting = _last_exits(view, _stop_begins_of(records), again=True)
        planned = ((view.at_ns(each), each.event) for each in records)
        late_ns = {
            event.pod.uid: at_ns
            for at_ns, event in planned
            if isinstance(event, decisions.PodPlanned) and event.late
        }
        for (began_ns, before), (next_ns, after) in pairwise(_waves_begun(view, records)):
            # The wave waits for its unmounts until its deadline.
            until_ns = view.mono_at_ns(before.deadline_ns)
            volumes = [pod.uid for pod in before.pods if pod.volumes]
            unmounts = [min(until_ns, unmounted_ns.get(uid, until_ns)) for uid in volumes]
            exit_ns, _ = lasting.get(before.wave, (0, None))
            # An empty wave begins with the first pod that joins it.
            joined_ns = min((late_ns.get(pod.uid, 0) for pod in after.pods), default=0)
            gone_ns = view.after_look_ns(max(began_ns, exit_ns, joined_ns, *unmounts))
            # A daemon began it in time and died on a hung disk; its successor began it again.
            begun = any(view.forgotten(pod.uid) for pod in after.pods)
            served = view.served_through(gone_ns, gone_ns + view.slack_ns)
            if next_ns > gone_ns + view.slack_ns and served and not begun:
                yield (
                    f"episode {episode}: wave {after.wave} began at {span(next_ns)}; "
                    f"those before it were gone by {span(gone_ns)}"
                )


def every_pod_is_signalled(view: BootView) -> BreachSentences:
    """A container that runs at the release has had a stop signal."""
    for release in _orderly_releases(view):
        for box in _still_planned(view, release):
            signalled = any(seen.at_ns <= release.at_ns for seen in view.of_box(box, "signal"))
            # A slow runtime may still have the order.
            ordered = any(at_ns + view.boot.slow_ns > release.at_ns for at_ns, _ in view.stop_begins[box.uid])
            excused = view.by_kubelet(box.uid) == "observe" or view.out_of_reach(box, 0, release.at_ns)
            if not (signalled or ordered or excused) and _had_time(view, release):
                yield f"{container_label(box)} ran at the release at {span(release.at_ns)}, without a signal"


# --- pods and cancels

GRACE_FLOOR_NS = 2 * NS_PER_SECOND

#: A delete's least grace is 1 s. A kubelet that has not ended the pod 4 s later has failed.
KUBELET_ASKS_NS = 5000 * MS


def no_hook_twice(view: BootView) -> BreachSentences:
    """A container's hook runs at most once in a shutdown, with any number of daemons."""
    for box in () if view.hurt else view.boxes():
        for hooks in _by_shutdown(view, box, view.of_box(box, "hook")):
            if len(hooks) > 1 and not any(hook.late for hook in hooks[:-1]):
                times = ", ".join(span(hook.at_ns) for hook in hooks)
                yield f"{container_label(box)} ran its hook {len(hooks)} times, at {times}"


def no_stop_twice(view: BootView) -> BreachSentences:
    """Only another daemon or shutdown repeats a stop signal. Ebbtide repeats the kubelet's only after a
    hand-over.
    """
    woken_ns = {seen.at_ns: None for seen in view.of("runtime-wakes")}
    for box in view.boxes():
        for signals in _by_shutdown(view, box, view.of_box(box, "signal")):
            lives = [seen.life for seen in signals if not seen.detail]
            # A runtime that wakes up carries out the orders of every shutdown in which it hung.
            late = any(seen.at_ns in woken_ns for seen in signals) or _stop_outlives_end(view, box)
            shutdowns = max(1, len(view.stop_begins[box.uid])) if late else 1
            if any(lives.count(life) > shutdowns for life in dict.fromkeys(lives)):
                yield f"{container_label(box)} got its stop signal from daemons {lives}"
            since_ns = min((seen.at_ns for seen in signals if seen.life == KUBELET), default=view.ended_ns)
            ours = [seen.at_ns for seen in signals if seen.life != KUBELET and seen.at_ns >= since_ns]
            # We may signal from the first plan over the runtime, or from the hand-over, on.
            owned = [view.at_ns(record) for record, event in view.plans[box.uid] if event.means == "cri"]
            owned += [view.at_ns(record) for record, _, _ in _handovers(view, box.uid)]
            if ours and ours[0] < min(owned, default=view.ended_ns) and not view.forgotten(box.uid):
                yield f"{container_label(box)} got its stop signal again at {span(ours[0])}, from us"


def _handovers(view: BootView, uid: str) -> Iterator[tuple[Record, decisions.HandedOver, int]]:
    """Of shutdowns that planned this pod over the API, each with the pod's wave."""
    for record, event in view.events(decisions.HandedOver):
        plans = [
            plan
            for planned, plan in view.plans[uid]
            if planned.episode == record.episode and planned.seq < record.seq and not plan.again
        ]
        if plans and plans[-1].means == "api":
            yield record, event, plans[-1].wave


def _stop_outlives_end(view: BootView, box: SimulatedContainer) -> bool:
    """A stop signal was still to be sent when its pod's end was recorded."""
    ordered = {
        event.key: record.seq
        for record, event in view.events(decisions.SendSignal)
        if (event.uid, event.container) == (box.uid, box.name)
    }
    ends = [record.seq for record, event in view.events(decisions.PodEnded) if event.uid == box.uid]
    return any(
        ordered[event.key] < end < record.seq
        for record, event in view.events(OrderEnded)
        if event.key in ordered
        for end in ends
    )


def what_is_done_was_done(view: BootView) -> BreachSentences:
    """Signals that are recorded as done were sent."""
    for record, event in () if view.hurt else view.events(OrderEnded):
        _, what, container, uid, _ = parse_order_key(event.key)
        sent = {"stop": "signal", "kill": "kill"}.get(what)
        if sent is None or event.result != "done" or not uid:
            continue
        boxes = (box for box in view.boxes(uid) if box.name == container)
        happened = (seen.at_ns for box in boxes for seen in view.of_box(box, sent))
        if min(happened, default=view.ended_ns + 1) > view.at_ns(record):
            yield f"record {record.seq}: {event.key} is done, and no signal was sent"


def _by_shutdown(view: BootView, box: SimulatedContainer, seen: list[Happening]) -> list[list[Happening]]:
    """Splits where a pod's stop begins again after its recorded end: the runtime may be late with the earlier
    orders.
    """
    if len(seen) < 2:
        return [seen]
    ends = [at_ns for at_ns, _ in view.ends[box.uid]]
    begins = [at_ns for at_ns, _ in view.stop_begins[box.uid]]
    anew = {begin: None for end in ends for begin in [at_ns for at_ns in begins if at_ns >= end][:1]}
    parts: dict[int, list[Happening]] = {}
    for each in seen:
        parts.setdefault(sum(begin <= each.at_ns for begin in anew), []).append(each)
    return list(parts.values())


def no_pod_is_touched_without_a_shutdown(view: BootView) -> BreachSentences:
    """No pod is harmed before its shutdown begins."""
    first_ns = min((seen.at_ns for seen in view.of("shutdown", "stopping")), default=view.ended_ns + 1)
    drained = {seen.uid: None for seen in view.of("drained")}
    for seen in view.of("hook", "signal", "kill"):
        if seen.at_ns < first_ns and seen.uid not in drained:
            yield f"{seen.what} for {seen.uid}/{seen.container} at {span(seen.at_ns)} without any shutdown"


def grace_is_kept(view: BootView) -> BreachSentences:
    """No SIGKILL comes before the end of the grace and of the floor. A hand-over may begin the grace again,
    and the shutdown's limit may shorten the floor. A hook has the grace.
    """
    for box in view.boxes():
        for kill in [kill for kill in view.of_box(box, "kill") if kill.life != KUBELET][:1]:
            if kill.detail == "not running" or view.forgotten(box.uid):
                continue
            begins = _stop_begins(view, box)
            if not begins:
                yield f"{container_label(box)} was killed at {span(kill.at_ns)} without a stop"
            elif not _may_kill(view, box, kill, *begins[0]) and not view.out_of_reach(
                box, begins[0][0], kill.at_ns
            ):
                yield f"{container_label(box)} was killed too early, at {span(kill.at_ns)}"
    for record, hook in view.events(decisions.HookEnded):
        at_ns, cut = view.at_ns(record), hook.result in ("timed-out", "not-run")
        begins = [each for each in view.stop_begins[hook.uid] if each[0] <= at_ns - hook.elapsed_ns]
        for began_ns, began in begins[-1:] if cut else ():
            # The last SIGKILL may leave less than the least grace.
            if began.grace_ns <= GRACE_NS_MIN:
                continue
            moved = _moved_by(view, hook.uid, began, at_ns + GRACE_FLOOR_NS)
            if at_ns < began_ns + began.grace_ns - LATE_NS and not moved and not view.of("hurry"):
                yield f"the hook of {hook.uid}/{hook.container} was cut too early, at {span(at_ns)}"


def _may_kill(
    view: BootView, box: SimulatedContainer, kill: Happening, began_ns: int, event: decisions.PodStopBegan
) -> bool:
    """A later limit or a person's hurry allows it. The last SIGKILL named at the begin does not shorten the
    grace named there.
    """
    if _moved_by(view, box.uid, event, kill.at_ns):
        return True
    hurried = any(seen.uid == box.uid for seen in view.of("hurry"))
    if not hurried and kill.at_ns < _grace_anew_ns(view, event, before_ns=kill.at_ns) - MS:
        return False
    # The kubelet counts from the delete's receipt, we from its order.
    if view.by_kubelet(box.uid) and kill.at_ns >= began_ns + event.grace_ns + GRACE_FLOOR_NS - MS:
        return True
    signals = view.of_box(box, "signal")
    last = view.mono_at_ns(event.kill_by_ns) <= kill.at_ns + MS
    signal_ns = signals[0].at_ns if signals else _stop_ordered_ns(view, box, kill.at_ns)
    if not last and (signal_ns is None or kill.at_ns < signal_ns + GRACE_FLOOR_NS - view.slack_ns):
        return False
    return hurried or kill.at_ns >= began_ns + event.grace_ns - MS


def _moved_by(view: BootView, uid: str, began: decisions.PodStopBegan, at_ns: int) -> bool:
    """A later signal, or a shutdown that adopted the pod, moved its last SIGKILL before ``at_ns``."""
    adopted = (event.kill_by_ns for _, event in view.stop_begins[uid] if event is not began)
    moved = (event.kill_by_ns for _, event in view.events(decisions.DeadlineMoved))
    return any(view.mono_at_ns(limit_ns) <= at_ns + MS for limit_ns in chain(adopted, moved))


def _grace_anew_ns(view: BootView, began: decisions.PodStopBegan, *, before_ns: int = 0) -> int:
    """When a grace ends that began again at a hand-over of the pod's wave; 0: none did.

    With ``before_ns`` the least: only this shutdown's hand-overs before it. Otherwise the most: later
    shutdowns count too, and the kubelet's extra time.
    """
    begun = next(record for record, event in view.events(decisions.PodStopBegan) if event is began)
    found_ns = 0
    for over, event, wave in _handovers(view, began.uid):
        counts = over.episode >= begun.episode
        if before_ns:
            counts = over.episode == begun.episode and over.seq > begun.seq and view.at_ns(over) < before_ns
        if counts and wave == event.wave:
            grace_ns = began.grace_ns + (0 if before_ns else KUBELET_ASKS_NS)
            found_ns = max(found_ns, view.at_ns(over) + min(grace_ns, event.until_ns - over.mono_ns))
    return found_ns


def a_stop_signal_precedes_sigkill(view: BootView) -> BreachSentences:
    """A stop signal precedes our SIGKILL. A slow runtime may still have it; a daemon that restarts at the end
    has no time for it.
    """
    for box in () if view.hurt else view.boxes():
        kills = [kill for kill in view.of_box(box, "kill") if kill.life != KUBELET and not kill.detail]
        if not kills:
            continue
        kill_ns = kills[0].at_ns
        begins = view.stop_begins[box.uid]
        began_ns = min((at_ns for at_ns, _ in begins), default=0)
        back_ns = max((each.from_ns for each in view.served if each.from_ns <= kill_ns), default=0)
        signalled = any(seen.at_ns <= kill_ns for seen in view.of_box(box, "signal"))
        signalled = signalled or _stop_ordered_ns(view, box, kill_ns, back_ns) is not None
        # SIGKILL must be on record before the release.
        soonest_ns = view.after_look_ns(back_ns) + GRACE_FLOOR_NS if back_ns else 0
        no_time = soonest_ns > _release_by_ns(view, kills[0]) - FALLBACK_MARGIN_NS and back_ns
        no_time = no_time or any(
            at_ns <= kill_ns and view.mono_at_ns(event.kill_by_ns) <= max(at_ns, soonest_ns)
            for at_ns, event in begins
        )
        if not signalled and not no_time and not view.out_of_reach(box, began_ns, kill_ns):
            yield f"{container_label(box)} was killed at {span(kill_ns)}, without a stop signal"


def _stop_ordered_ns(view: BootView, box: SimulatedContainer, kill_ns: int, back_ns: int = 0) -> int | None:
    """When the stop signal was ordered that a slow runtime may still have. A restarted daemon repeats it."""
    ordered = (
        view.at_ns(record)
        for record, event in view.events(decisions.SendSignal)
        if (event.uid, event.container) == (box.uid, box.name)
    )
    pending = (at_ns for at_ns in ordered if at_ns <= kill_ns <= max(at_ns, back_ns) + view.slack_ns)
    return next(pending, None) if view.boot.slow_ns else None


def _stop_begins(view: BootView, box: SimulatedContainer) -> list[tuple[int, decisions.PodStopBegan]]:
    """When its stop began, also in shutdowns that adopted it. A stop does not count if the pod was spared
    then, or was only observed and adopted later.
    """
    observed = view.by_kubelet(box.uid) == "observe"
    begins = view.stop_begins[box.uid]
    if box.attempt:
        # A restarted container has the times of its pod's running stop, or of the next one.
        first_ns = min([seen.at_ns for seen in view.of_box(box, "signal", "kill")], default=view.exit_ns(box))
        over_ns = max((at_ns for at_ns, _ in view.ends[box.uid] if at_ns <= first_ns), default=0)
        begins = [each for each in begins if each[0] <= first_ns]
        begins = [each for each in begins if each[0] >= over_ns] or begins[-1:]
        since_ns = view.started_ns(box)
        begins = [each for each in begins if each[0] >= since_ns] or begins
    found = []
    for at_ns, began in begins:
        means = [event.means for record, event in view.plans[box.uid] if view.at_ns(record) <= at_ns][-1:]
        outcomes = [end.outcome for end_ns, end in view.ends[box.uid] if end_ns >= at_ns]
        if (observed or means != ["observe"]) and outcomes[:1] != ["spared"]:
            found.append((at_ns, began))
    return found


def no_container_outlives_its_grace(view: BootView) -> BreachSentences:
    """At the end of its grace a container gets its stop signal, and after the floor SIGKILL."""
    for box in () if view.hurt else view.boxes():
        # A restarted container belongs to the last shutdown that adopted its pod.
        begins = _stop_begins(view, box)
        if not begins or view.by_kubelet(box.uid) == "observe":
            continue
        began_ns, began = begins[-1 if box.attempt else 0]
        # A kubelet's extra time: whole seconds of grace, a delete on its way, or a refused one.
        grace_by_ns = max(began_ns + began.grace_ns, _grace_anew_ns(view, began))
        stop_by_ns = grace_by_ns + view.slack_ns + (KUBELET_ASKS_NS if view.by_kubelet(box.uid) else 0)
        if box.attempt:
            stop_by_ns = max(stop_by_ns, view.known_ns(box) + view.slack_ns)
        stops = view.of_box(box, "signal")
        if stops:
            # The kubelet may have signalled a pod that was being deleted already.
            kill_by_ns = max(stop_by_ns, max(stops[-1].at_ns, began_ns) + GRACE_FLOOR_NS + view.slack_ns)
            kills = view.of_box(box, "kill")
            if (not kills or kills[0].at_ns > kill_by_ns) and _answerable(view, box, began_ns, kill_by_ns):
                yield f"{container_label(box)} was not killed by {span(kill_by_ns)}"
        # A restart after a cancel, or too late, need not be stopped.
        elif not (box.attempt and began_ns < view.started_ns(box)) and _answerable(
            view, box, began_ns, stop_by_ns
        ):
            yield f"{container_label(box)} had no stop signal by {span(stop_by_ns)}, when its grace was over"


def _answerable(view: BootView, box: SimulatedContainer, began_ns: int, at_ns: int) -> bool:
    """The container still ran, and a daemon was responsible for it."""
    since_ns = max(began_ns, at_ns - view.slack_ns - CATCH_UP_NS_MAX)
    # Until the end of the budget, or of the machine.
    ends = (view.at_ns(record) for record, _ in view.events(decisions.PodsEnded))
    given_up_ns = min([end for end in ends if end >= began_ns] + [view.stopping_ns])
    leaving = any(began_ns <= seen.at_ns <= at_ns for seen in view.of("unit-stop"))
    return (
        view.exit_ns(box) > at_ns
        and at_ns < given_up_ns
        and view.served_through(since_ns, at_ns)
        and not leaving
        and not view.out_of_reach(box, began_ns, at_ns)
    )


def a_cancel_spares_waiting_pods(view: BootView) -> BreachSentences:
    """After a cancel no other pod's stop begins, unless the machine goes down without logind."""
    turns = view.of("withdraw", "shutdown", "stopping")
    for record, event in view.events(decisions.PodStopBegan):
        at_ns = view.at_ns(record)
        if at_ns >= view.stopping_ns:
            continue
        last = [seen for seen in turns if seen.at_ns <= at_ns - view.slack_ns]
        later = any(at_ns - view.slack_ns < seen.at_ns <= at_ns for seen in turns)
        if not last or last[-1].what != "withdraw" or later:
            continue
        # Only a daemon on the bus can have received the cancel.
        off_ns = last[-1].at_ns
        breaks = view.of("bus-lost", "logind-gone", "logind-back")
        on_bus = not any(off_ns - 2 * NS_PER_SECOND <= seen.at_ns <= at_ns for seen in breaks)
        if on_bus and view.served_through(off_ns, at_ns):
            yield f"the stop of {event.uid} began at {span(at_ns)}, cancelled at {span(off_ns)}"


def late_pods_are_rejected(view: BootView) -> BreachSentences:
    """No pod starts in a shutdown that is on record."""
    down = False
    for record in () if view.hurt else view.records:
        match record.event:
            case decisions.ShutdownBegan():
                down = True
            case decisions.Resumed(action="begin"):
                down = False  # Its records were lost with a disk.
            case decisions.ShutdownCancelled() | decisions.EpisodeClosed():
                down = False
            case decisions.StartPod(uid=uid) if down:
                yield f"record {record.seq}: {uid} is started in a shutdown"


# --- the journal


def each_order_ends_once(views: Sequence[BootView]) -> BreachSentences:
    """Each order has one outcome, with any number of daemons."""
    opened: dict[str, Record] = {}
    for record in views[-1].boot.journal:
        if isinstance(record.event, Checkpoint):
            # Removed segments left these open.
            keys = [msgspec.msgpack.decode(each.order)["key"] for each in record.event.open_orders]
            opened = {key: opened.get(key, record) for key in keys}
        elif isinstance(record.event, Order):
            if record.event.key in opened:
                yield f"record {record.seq}: {record.event.key} is ordered again while it is open"
            opened[record.event.key] = record
        elif isinstance(record.event, OrderEnded) and opened.pop(record.event.key, None) is None:
            yield f"record {record.seq}: {record.event.key} ends, but is not open"
    view = views[-1]
    # A place of the journal that failed may have lost an outcome.
    lost = any(each.fled for each in views)
    if lost or not view.served_through(view.ended_ns - 2 * NS_PER_SECOND, view.ended_ns):
        return
    first = view.records[0].seq if view.records else 0
    for key, record in opened.items():
        if record.seq < first:
            yield f"record {record.seq}: {key} of an earlier boot never ended"


def fates_are_true(view: BootView) -> BreachSentences:
    """Each pod's recorded fate is true, as far as a daemon could know it."""
    ended_ns: dict[str, int] = {}
    for record, event in view.events(decisions.PodEnded):
        at_ns, since_ns = view.at_ns(record), ended_ns.get(event.uid, 0)
        since_ns = max([since_ns, *(at for at, _ in view.stop_begins[event.uid] if at <= at_ns)])
        ended_ns[event.uid] = at_ns
        # A fate is of one life: the kubelet may have started the containers again.
        boxes = [box for box in view.boxes(event.uid) if view.started_ns(box) <= at_ns]
        last = {box.name: box.attempt for box in sorted(boxes, key=lambda box: box.attempt)}
        lives = (
            [box for box in boxes if box.attempt == min(attempt, last[box.name])]
            for attempt in range(max(last.values(), default=0) + 1)
        )
        fits = any(_fits(view, event.outcome, life, at_ns, since_ns) for life in lives)
        if not fits and not view.forgotten(event.uid):
            yield f"record {record.seq}: {event.uid} {event.outcome} ({event.reason}) is not what happened"


def _fits(
    view: BootView, outcome: str, boxes: Sequence[SimulatedContainer], at_ns: int, since_ns: int
) -> bool:
    running = any(view.exit_ns(box) > at_ns for box in boxes)
    unseen = [box for box in boxes if view.gone_was_known_ns(box) > at_ns]
    # A daemon that restarts after the end orders SIGKILL and gives up at once.
    rushed = not view.served_through(at_ns - view.CATCH_UP_NS, at_ns)
    match outcome:
        case "graceful":
            # An earlier shutdown's SIGKILL may have come late.
            killed = any(
                view.exit_signal(box) == "SIGKILL"
                and any(kill.at_ns >= since_ns for kill in view.of_box(box, "kill"))
                for box in boxes
            )
            return not running and not killed
        case "killed":
            return not running and (not boxes or any(_died_of_kill(view, box) for box in boxes))
        case "failed":
            return rushed or any(view.of_box(box, "kill") for box in unseen)
        case "unknown":
            return rushed or bool(unseen) or not boxes or any(_died_unseen(view, box) for box in boxes)
        case "spared":
            # Or the kubelet started a container again after the cancel.
            return any(box.attempt and view.exit_ns(box) > at_ns for box in boxes) or not any(
                seen.life != KUBELET and since_ns < seen.at_ns < at_ns
                for box in boxes
                for seen in view.of_box(box, "hook", "signal", "kill")
            )
    return not boxes  # rejected


def _died_of_kill(view: BootView, box: SimulatedContainer) -> bool:
    """SIGKILL ended it, or may have: a daemon knows only how its children ended."""
    exit_ns = view.exit_ns(box)
    watched = any(each.from_ns <= exit_ns <= each.to_ns for each in view.served)
    return view.exit_signal(box) == "SIGKILL" or (watched and _died_unseen(view, box))


def _died_unseen(view: BootView, box: SimulatedContainer) -> bool:
    """SIGKILL was ordered, and its effect was not reported."""
    exit_ns = view.exit_ns(box)
    seen = any(each.life == box.parent and each.to_ns > exit_ns + 10 * MS for each in view.served)
    return box.uid in view.kills and not seen


def each_pod_ends_once(view: BootView) -> BreachSentences:
    """In each shutdown every planned pod ends once, not later than the release."""
    for episode, records in {} if view.hurt else view.episodes.items():
        ended, planned = dict[str, None](), dict[str, None]()
        released = False
        for record in records:
            match record.event:
                case decisions.PodEnded(uid=uid, again=again):
                    if uid in ended and not again:
                        yield f"episode {episode}: {uid} ended twice (record {record.seq})"
                    ended[uid] = None
                case decisions.PodPlanned(pod=pod, again=again):
                    planned[pod.uid] = None
                    if again:
                        ended.pop(pod.uid, None)
                case decisions.ReleaseLock():
                    released = True
            if released and record.last:
                left = [uid for uid in planned if uid not in ended]
                if left:
                    yield f"episode {episode}: released without an end for {', '.join(left)}"
                break


LAST_OUTCOMES = ("nothing", "never-begun", "truncated", "complete", "cancelled")

#: The last shutdown's outcome after each event. Other events keep it.
OUTCOME_CHANGES: dict[type[Event], dict[str, str]] = {
    decisions.ShutdownBegan: dict.fromkeys(LAST_OUTCOMES, "never-begun"),
    decisions.WaveStarted: {"never-begun": "truncated"},
    decisions.ReleaseLock: dict.fromkeys(("never-begun", "truncated"), "complete"),
    decisions.ShutdownCancelled: dict.fromkeys(LAST_OUTCOMES, "cancelled"),
    decisions.EpisodeClosed: dict.fromkeys(LAST_OUTCOMES, "nothing"),
}


def the_next_boot_reports(views: Sequence[BootView]) -> BreachSentences:
    """The next start reports complete if the release is on record, else how far the shutdown came."""
    for before, view in pairwise(views):
        recorded = _last_outcome(before.boot.journal)
        start = next((record for record, _ in view.events(decisions.Resumed)), None)
        if start is None or view.hurt:
            continue
        mine = [event for record, event in view.events(decisions.EpisodeClosed) if record.seq <= start.seq]
        reported = mine[0].outcome if mine else "nothing"
        if reported != recorded:
            yield f"boot {view.number} reports {reported}, the journal has {recorded}"


def _last_outcome(records: Sequence[Record]) -> str:
    recorded = "nothing"
    for record in records:
        recorded = OUTCOME_CHANGES.get(type(record.event), {}).get(recorded, recorded)
    return recorded


def a_release_is_remembered(views: Sequence[BootView]) -> BreachSentences:
    """The next boot finds an orderly release on record."""
    for view in views[:-1]:
        last = view.of("release", "withdraw", "shutdown")
        done = bool(last) and last[-1].what == "release" and last[-1].detail == decisions.ReleaseLock.__name__
        recorded = _last_outcome(view.boot.journal)
        # "nothing": the same boot closed it.
        if done and not last[-1].late and not view.fled and recorded not in ("complete", "nothing"):
            yield f"boot {view.number} released its lock, the journal has {recorded}"


def no_failed_actor(view: BootView) -> BreachSentences:
    """No actor raises and no effect panics. An actor is given up only after starts that ended alike."""
    for record, event in [*view.events(decisions.ActorFailed), *view.events(EffectPanicked)]:
        if not (isinstance(event, decisions.ActorFailed) and event.error == LAST_STARTS_FAILED):
            yield f"record {record.seq}: {event}"
            continue
        # The last fact of each earlier process.
        ends: list[str] = []
        for each in view.records:
            fact = each.event
            if each.seq == record.cause:
                break
            if isinstance(fact, DaemonStarted):
                ends.append("")
            if isinstance(fact, Fact) and ends:
                ends[-1] = " ".join([type(fact).__name__, getattr(fact, "key", "").rpartition("/")[0]])
        ends = ends[-FAILED_STARTS_MAX:]
        if len(ends) < FAILED_STARTS_MAX or len(dict.fromkeys(ends)) > 1:
            yield f"record {record.seq}: {event.actor} was given up after starts that ended at {ends}"


# --- a Kubernetes node

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

#: The release's wait for a silent server.
SILENT_FLUSH_NS = NS_PER_SECOND

#: So shortly before ``release_by_ns`` the release need not wait.
RELEASE_AHEAD_NS = NS_PER_SECOND

#: After these the time of the last status is unknown.
DELIVERY_DISTURBANCES = ("api-lost", "crash", "logind-gone", "withdraw", "limit", "bus-lost", "stopping")


def the_kubelet_is_back(view: BootView) -> BreachSentences:
    """After a shutdown on a machine that stays up, the kubelet that we stopped runs again."""
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
    done = {event.key: None for _, event in view.events(OrderEnded) if event.result == "done"}
    starts = [
        event for record, event in view.events(decisions.StartKubelet) if view.at_ns(record) >= closed_ns
    ]
    tried = view.ended_ns < closed_ns + KUBELET_BACK_NS and any(event.key not in done for event in starts)
    is_coming = tried or not view.served_through(closed_ns, view.ended_ns)
    if closed_ns > stopped_ns and not asked_again and not is_coming:
        yield f"the kubelet was stopped at {span(stopped_ns)} and is not running again"


def no_pod_is_started_again(view: BootView) -> BreachSentences:
    """During a shutdown no pod that we stopped starts again. After a cancel it shall: the machine stays up.
    A kubelet that could not be stopped may start it.
    """
    if view.boot.kubelet_stays or view.hurt:
        return
    turns = view.of("shutdown", "withdraw", "stopping")
    for seen in view.of("restart"):
        exits = [view.exit_ns(box) for box in view.boxes(seen.uid) if box.name == seen.container]
        last = [[turn.what for turn in turns if turn.at_ns <= at_ns][-1:] for at_ns in (*exits, seen.at_ns)]
        # A pod that is handed over from the API to the runtime has no delete: it is stopped again.
        planned = [(view.at_ns(each), event) for each, event in view.plans[seen.uid]]
        before = [event.means for at_ns, event in planned if at_ns <= seen.at_ns]
        again = any(event.again and at_ns > seen.at_ns for at_ns, event in planned)
        if again and "api" in before and "cri" in before:
            continue
        if ["withdraw"] not in last and view.served_through(seen.at_ns - 3 * NS_PER_SECOND, seen.at_ns):
            yield (f"{seen.uid}/{seen.container} was started again by the kubelet at {span(seen.at_ns)}")


def no_terminal_status_before_a_reboot(view: BootView) -> BreachSentences:
    """No pod gets a terminal phase before a reboot: it starts here again."""
    if not view.boot.mode:
        return
    kinds = [event.kind for _, event in view.events(decisions.ShutdownBegan)]
    if any(kind in GOING_FOR_GOOD for kind in kinds):
        return
    deleted = {seen.uid: None for seen in view.of("delete", "drained")}
    for seen in view.of("status"):
        if seen.uid not in deleted:
            yield f"{seen.uid} got the status {seen.detail} at {span(seen.at_ns)}, and comes back"


def a_handover_is_final(view: BootView) -> BreachSentences:
    """A hand-over is recorded once, and no pod is deleted after it."""
    for episode, records in view.episodes.items():
        over = [record for record in records if isinstance(record.event, decisions.HandedOver)]
        if len(over) > 1:
            yield f"episode {episode}: handed over {len(over)} times"
        for record in records:
            if over and record.seq > over[0].seq and isinstance(record.event, decisions.DeletePod):
                yield f"episode {episode}: record {record.seq} deletes {record.event.uid} after the hand-over"


def observing_touches_no_pod(view: BootView) -> BreachSentences:
    """No order touches pods that the kubelet shuts down itself."""
    for episode, records in view.episodes.items():
        means = [record.event.means for record in records if isinstance(record.event, decisions.MeansChosen)]
        fallback = any(isinstance(record.event, decisions.FallbackEngaged) for record in records)
        if means != ["observe"] or fallback:
            continue
        # This boot's earlier shutdown may still stop its pods.
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
    """The lock is held while a status, or a look at the mounts, is open, up to its bound."""
    if not view.boot.mode or view.hurt:
        return
    lost = bool(view.of("api-lost", "crash", "logind-gone")) or not view.boot.api_answers
    flush_ns = min(each.status_flush_seconds for each in view.boot.settings) * NS_PER_SECOND
    for records in view.episodes.values():
        waiting: dict[str, Record] = {}
        bound_ns = 0
        for record in records:
            if isinstance(record.event, decisions.ShutdownBegan):
                bound_ns = record.event.release_by_ns - RELEASE_AHEAD_NS
            elif isinstance(record.event, decisions.PodsEnded):
                bound_ns = min(bound_ns, record.mono_ns + flush_ns)
            elif isinstance(record.event, AWAITED):
                waiting[getattr(record.event, "key", "")] = record
            elif isinstance(record.event, OrderEnded):
                waiting.pop(record.event.key, None)
            elif isinstance(record.event, decisions.ReleaseLock) and waiting:
                at_ns = view.at_ns(record)
                # An order at its time-out does not count.
                waiting = {
                    key: each
                    for key, each in waiting.items()
                    if each.mono_ns + getattr(each.event, "timeout_ns", NEVER_NS) > record.mono_ns
                }
                asked = any(seen.at_ns <= at_ns for seen in view.of("release-asked", "stopping"))
                if waiting and not (asked or lost or record.mono_ns >= bound_ns):
                    keys = ", ".join(waiting)
                    yield f"record {record.seq}: released at {span(at_ns)} while {keys} was open"


def no_server_holds_the_lock(view: BootView) -> BreachSentences:
    """The last reports wait at most for `statusFlush`, with a silent API server at most a second."""
    if not view.boot.mode or view.hurt:
        return
    # The traces have their own server and time.
    traces_ns = max(each.trace_flush_ns for each in view.boot.settings)
    longest_ns = max(each.status_flush_seconds for each in view.boot.settings) * NS_PER_SECOND
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
        elif isinstance(event, decisions.ReleaseLock) and ended_ns is not None:
            by_ns = ended_ns + longest_ns
            if silent_ns is not None:
                by_ns = min(by_ns, max(ended_ns, silent_ns) + SILENT_FLUSH_NS)
            by_ns = max(by_ns, ended_ns + traces_ns) + view.slack_ns
            if at_ns > by_ns and view.served_through(ended_ns, at_ns):
                yield f"record {record.seq}: released at {span(at_ns)}; all pods gone by {span(ended_ns)}"


def no_wait_for_a_stopped_kubelet(view: BootView) -> BreachSentences:
    """The release does not wait for statuses of a stopped kubelet."""
    # A silent server keeps the order open until the daemon notices.
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


def each_status_is_delivered_or_named(view: BootView) -> BreachSentences:
    """After the wait each final status is in the API server, or on record as missing. While the server
    answers, the wait uses its time.
    """
    if not view.boot.mode or view.hurt:
        return
    flush_ns = min(each.status_flush_seconds for each in view.boot.settings) * NS_PER_SECOND
    for records in view.episodes.values():
        ordered, since_ns, bound_ns = dict[str, None](), 0, 0
        for record in records:
            event, at_ns = record.event, view.at_ns(record)
            if isinstance(event, decisions.ShutdownBegan):
                bound_ns = event.release_by_ns - RELEASE_AHEAD_NS
            elif isinstance(event, decisions.PodsEnded):
                since_ns = record.mono_ns
            elif isinstance(event, decisions.DeliverStatuses):
                ordered |= {uid: None for uid, *_ in event.statuses}
            elif isinstance(event, decisions.PodEnded) and event.again:
                ordered.pop(event.uid, None)
            elif isinstance(event, decisions.StatusesSettled):
                there = {seen.uid: None for seen in view.of("status") if seen.at_ns <= at_ns}
                if unnamed := [uid for uid in ordered if uid not in there and uid not in event.missing]:
                    yield f"record {record.seq}: without the status of {', '.join(unnamed)}, not on record"
                disturbed = any(seen.at_ns < at_ns for seen in view.of(*DELIVERY_DISTURBANCES))
                early = record.mono_ns < min(bound_ns, since_ns + flush_ns - 100 * MS)
                if event.missing and early and view.boot.api_answers and not disturbed:
                    yield f"record {record.seq}: given up early: {', '.join(event.missing)}"


OF_RUNS: tuple[Callable[[Sequence[BootView]], BreachSentences], ...] = (
    each_order_ends_once,
    the_next_boot_reports,
    a_release_is_remembered,
)

OF_BOOTS: tuple[Callable[[BootView], BreachSentences], ...] = (
    no_failed_actor,
    no_hook_twice,
    no_stop_twice,
    what_is_done_was_done,
    no_pod_is_touched_without_a_shutdown,
    grace_is_kept,
    a_stop_signal_precedes_sigkill,
    no_container_outlives_its_grace,
    waves_keep_their_order,
    waves_begin_at_once,
    every_pod_is_signalled,
    no_ended_pod_runs,
    the_lock_waits_for_the_pods,
    the_lock_is_released_at_once,
    the_grant_is_enough,
    a_node_that_stays_is_armed,
    a_cancel_spares_waiting_pods,
    late_pods_are_rejected,
    fates_are_true,
    each_pod_ends_once,
    the_kubelet_is_back,
    no_pod_is_started_again,
    no_terminal_status_before_a_reboot,
    a_handover_is_final,
    observing_touches_no_pod,
    a_certificate_is_true,
    the_release_waits_for_final_statuses,
    no_server_holds_the_lock,
    no_wait_for_a_stopped_kubelet,
    each_status_is_delivered_or_named,
)
