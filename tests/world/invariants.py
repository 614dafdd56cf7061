"""What must hold in every world, whatever happened in it: checked from outside, after the run.

Each invariant is a function that yields one sentence for each breach. The table at the end is the only list of
them. Where the outside itself makes a promise impossible (no daemon was there, no disk took a write, the
signal was never heard) the function says so; nothing else excuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from actors.policy.periods import enabled
from events.base import NS_PER_SECOND, Order
from events.decisions import (
    ActorFailed,
    DeadlineMoved,
    EpisodeClosed,
    PodEnded,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ReleaseLock,
    Resumed,
    ShutdownBegan,
    ShutdownCancelled,
    StartPod,
    WaveStarted,
)
from events.facts import EffectPanicked, OrderEnded, PrepareForShutdown
from events.history import History
from events.marks import Checkpoint
from events.record import Record
from replay.engine import Replayer
from tests.world.pods import Box
from tests.world.trail import MS, Seen
from tests.world.view import SLACK_NS, BootView
from tests.world.world import World

FLOOR_NS = 2 * NS_PER_SECOND

#: Between a daemon's start and its having caught up with what it missed.
CATCH_UP_NS = NS_PER_SECOND

#: The longest pause between two attempts to arm, and then some.
REARM_NS = 35 * NS_PER_SECOND

Breaches = Iterator[str]


# --- the daemon itself -------------------------------------------------------------------------


def no_exceptions(world: World) -> Breaches:
    """No exception of ours ends the daemon, an actor or an effect, and nobody runs in circles."""
    if world.ran_away:
        yield f"still busy after {world.steps} steps"
    for life in world.lives:
        if life.failure:
            yield f"daemon {life.number} fell over:\n{life.failure}"
        if life.divergence is not None:
            yield f"daemon {life.number} found its journal decided otherwise: {life.divergence}"


def no_failed_actor(view: BootView) -> Breaches:
    """No actor raises and no effect panics."""
    for record, event in [*view.events(ActorFailed), *view.events(EffectPanicked)]:
        yield f"record {record.seq}: {event}"


def barriers_hold(world: World) -> Breaches:
    """No effect begins before its order is written, or synced, or has waited for 20 ms (rule 5)."""
    for life in world.lives:
        for key, waited_ns in life.impatient:
            yield f"daemon {life.number}: {key} began after {waited_ns / MS:g} ms without its barrier"


# --- pods: never twice, never too early, never too late --------------------------------------------


def no_hook_twice(view: BootView) -> Breaches:
    """A container's hook runs at most once in a shutdown, over all daemons (rule 4)."""
    for box in view.boxes():
        for hooks in _by_shutdown(view, box, view.of_box(box, "hook")):
            if len(hooks) > 1 and not any(hook.late for hook in hooks[:-1]):
                yield f"{_name(box)} ran its hook {len(hooks)} times, at {_times(hooks)}"


def no_stop_twice(view: BootView) -> Breaches:
    """The stop signal is repeated only by another daemon."""
    for box in view.boxes():
        for signals in _by_shutdown(view, box, view.of_box(box, "signal")):
            lives = [seen.life for seen in signals if not seen.detail]
            if len(lives) != len(set(lives)):
                yield f"{_name(box)} got its stop signal from daemons {lives}"


def _by_shutdown(view: BootView, box: Box, seen: list[Seen]) -> list[list[Seen]]:
    """Parted where the pod's case was closed while it ran: the next shutdown begins with it anew."""
    ends = [view.at_ns(record) for record, event in view.events(PodEnded) if event.uid == box.uid]
    parts: dict[int, list[Seen]] = {}
    for each in seen:
        parts.setdefault(sum(end <= each.at_ns for end in ends), []).append(each)
    return list(parts.values())


def nobody_is_touched_without_a_shutdown(view: BootView) -> Breaches:
    """Before the first word of a shutdown no pod is harmed."""
    first_ns = min((seen.at_ns for seen in view.of("shutdown", "stopping")), default=view.ended_ns + 1)
    for seen in view.of("hook", "signal", "kill"):
        if seen.at_ns < first_ns:
            yield f"{seen.what} for {seen.uid}/{seen.container} at {_s(seen.at_ns)} without any shutdown"


def grace_is_kept(view: BootView) -> Breaches:
    """No SIGKILL comes before the grace is over and the floor passed, but for the shutdown's own limit."""
    begins = view.begins()
    for box in view.boxes():
        for kill in view.of_box(box, "kill")[:1]:
            if kill.detail:
                continue
            if box.uid not in begins:
                yield f"{_name(box)} was killed at {_s(kill.at_ns)} without having been told to stop"
            elif not _may_kill(view, box, kill):
                yield f"{_name(box)} was killed too early, at {_s(kill.at_ns)}"


def _may_kill(view: BootView, box: Box, kill: Seen) -> bool:
    began_ns, event = view.begins()[box.uid]
    signals = view.of_box(box, "signal")
    if any(limit_ns <= kill.at_ns + MS for limit_ns in _limits(view, box.uid)):
        return True
    if not signals or kill.at_ns < signals[0].at_ns + FLOOR_NS - SLACK_NS:
        return False
    hurried = any(seen.uid == box.uid for seen in view.of("hurry"))
    return hurried or kill.at_ns >= began_ns + event.grace_ns - MS


def _limits(view: BootView, uid: str) -> Iterator[int]:
    """Every last moment for SIGKILL that was ever decided, in world time."""
    for record, began in view.events(PodStopBegan):
        if began.uid == uid:
            yield view.at_ns(record) - record.mono_ns + began.kill_by_ns
    for record, moved in view.events(DeadlineMoved):
        yield view.at_ns(record) - record.mono_ns + moved.kill_by_ns


def nobody_gets_more_than_the_grace(view: BootView) -> Breaches:
    """When the grace is over a container has its stop signal, and SIGKILL as soon as the floor allows."""
    for box in view.boxes():
        began = view.begins().get(box.uid)
        if began is None:
            continue
        stop_by_ns = began[0] + began[1].grace_ns + SLACK_NS
        stops = view.of_box(box, "signal")
        if not stops and _answerable(view, box, stop_by_ns):
            yield f"{_name(box)} had no stop signal by {_s(stop_by_ns)}, when its grace was over"
        if stops:
            kill_by_ns = max(stop_by_ns, stops[0].at_ns + FLOOR_NS + SLACK_NS)
            kills = view.of_box(box, "kill")
            if (not kills or kills[0].at_ns > kill_by_ns) and _answerable(view, box, kill_by_ns):
                yield f"{_name(box)} was not killed by {_s(kill_by_ns)}"


def _answerable(view: BootView, box: Box, at_ns: int) -> bool:
    """Whether the container still ran, and a daemon was there that had to do something about it."""
    began_ns = view.begins()[box.uid][0]
    since_ns = max(began_ns, at_ns - SLACK_NS - CATCH_UP_NS)
    runs = view.exit_ns(box) > at_ns
    return runs and view.served_through(since_ns, at_ns) and at_ns < _given_up_ns(view, began_ns)


def _given_up_ns(view: BootView, after_ns: int) -> int:
    """When pods were nobody's business any more: the end of the budget, or of the machine."""
    ends = (view.at_ns(record) for record, _ in view.events(PodsEnded))
    return min([end for end in ends if end >= after_ns] + [view.stopping_ns])


# --- waves -------------------------------------------------------------------------------------


def waves_keep_their_order(view: BootView) -> Breaches:
    """No pod is touched before the waves below its own have ended or had their time."""
    for episode, records in view.episodes().items():
        waves = {each.event.wave: each for each in records if isinstance(each.event, WaveStarted)}
        members = {each.event.uid: each.event for each in records if isinstance(each.event, PodStopBegan)}
        for seen in view.of("hook", "signal"):
            began = members.get(seen.uid)
            if began is None or began.wave not in waves or seen.at_ns < _at(view, waves[began.wave]):
                continue
            yield from _waits_for_lower(view, episode, seen, began.wave, waves, members)


def _waits_for_lower(
    view: BootView,
    episode: int,
    seen: Seen,
    wave: int,
    waves: dict[int, Record],
    members: dict[str, PodStopBegan],
) -> Breaches:
    for lower, record in waves.items():
        assert isinstance(record.event, WaveStarted)
        over_ns = view.at_ns(record) - record.mono_ns + record.event.deadline_ns
        if lower >= wave or seen.at_ns >= over_ns:
            continue
        for box in view.boxes():
            theirs = members.get(box.uid)
            if theirs is not None and theirs.wave == lower and view.exit_ns(box) > seen.at_ns:
                yield (
                    f"episode {episode}: {seen.what} for {seen.uid} of wave {wave} at {_s(seen.at_ns)} while "
                    f"{_name(box)} of wave {lower} runs and has until {_s(over_ns)}"
                )


def every_pod_is_signalled(view: BootView) -> Breaches:
    """Nobody is forgotten: what still runs when the lock goes has been told to stop."""
    for release in _orderly_releases(view):
        for box in _still_planned(view, release):
            told = any(seen.at_ns <= release.at_ns for seen in view.of_box(box, "signal"))
            if not told and _had_time(view, release):
                yield f"{_name(box)} still ran at the release at {_s(release.at_ns)} and was never told to stop"


def the_lock_waits_for_the_pods(view: BootView) -> Breaches:
    """The lock is not released while pods run, but at the end of the time (or because somebody said so)."""
    for release in _orderly_releases(view):
        running = [_name(box) for box in _still_planned(view, release)]
        if running and release.at_ns < _release_by_ns(view, release) - NS_PER_SECOND:
            yield f"the lock was released at {_s(release.at_ns)} while {', '.join(running)} ran"


def _orderly_releases(view: BootView) -> list[Seen]:
    """Releases that nobody asked for, of a shutdown that is on record."""
    asked = [seen.at_ns for seen in view.of("release-asked")]
    return [
        seen
        for seen in view.of("release")
        if seen.detail == ReleaseLock.__name__ and not any(at <= seen.at_ns for at in asked) and not view.hurt
    ]


def _still_planned(view: BootView, release: Seen) -> list[Box]:
    """Containers of planned pods that run at that moment."""
    planned = {
        event.pod.uid for record, event in view.events(PodPlanned) if view.at_ns(record) <= release.at_ns
    }
    return [
        box
        for box in view.boxes()
        if box.uid in planned and view.exit_ns(box) > release.at_ns and view.of_box(box, "start")
    ]


def _release_by_ns(view: BootView, release: Seen) -> int:
    """The last one decided before the release, in world time."""
    found = 0
    for record in view.records:
        if isinstance(record.event, ShutdownBegan | DeadlineMoved) and view.at_ns(record) <= release.at_ns:
            found = view.at_ns(record) - record.mono_ns + record.event.release_by_ns
    return found


def _had_time(view: BootView, release: Seen) -> bool:
    """Whether the releasing daemon was there well before the time was over."""
    end_ns = min(release.at_ns, _release_by_ns(view, release) - NS_PER_SECOND)
    return view.served_through(end_ns - CATCH_UP_NS, end_ns)


# --- the lock ----------------------------------------------------------------------------------


def the_grant_is_enough(view: BootView) -> Breaches:
    """logind's own timer never has to end a shutdown that a daemon has seen from its signal on."""
    for limit in view.of("limit"):
        held = {int(holder) for holder in limit.detail.split(",") if holder}
        alive = view.served_through(limit.at_ns - CATCH_UP_NS, limit.at_ns)
        if alive and held and _heard_at_once(view, limit):
            yield f"logind's limit came at {_s(limit.at_ns)} with the lock still held by {limit.detail}"


def _heard_at_once(view: BootView, limit: Seen) -> bool:
    """Not so where the limit was being raised at that moment: the property is read after the signal."""
    signal_ns = max(seen.at_ns for seen in view.of("shutdown") if seen.at_ns <= limit.at_ns)
    raising = any(signal_ns - 100 * MS <= seen.at_ns <= signal_ns for seen in view.of("drop-in"))
    return not raising and any(
        event.active and signal_ns <= view.at_ns(record) <= signal_ns + 100 * MS
        for record, event in view.events(PrepareForShutdown)
    )


def a_node_that_stays_is_armed(view: BootView) -> Breaches:
    """Left alone for long enough, an enabled daemon holds the lock, and its node is shown as it was."""
    quiet_ns = view.ended_ns - REARM_NS
    calm = not any(seen.at_ns > quiet_ns for seen in view.seen if seen.what in DISTURBANCES)
    logind = view.node.logind
    if not calm or logind.preparing or not view.served_through(quiet_ns, view.ended_ns):
        return
    held = any(seen.what == "lock" for seen in view.seen) and not _unlocked(view)
    if enabled(view.world.settings) != held:
        yield f"the lock is {'held' if held else 'not held'} at the end of a boot that went on quietly"
    api = view.booted.plan.status
    if not view.node.shown_ready and not api.fails and api.takes_ns is not None:
        yield "the node is still shown as going down"


#: What may keep a node from being armed for a while.
DISTURBANCES = (
    "shutdown",
    "withdraw",
    "reload",
    "logind-gone",
    "logind-back",
    "bus-lost",
    "crash",
    "left",
    "stopping",
    "disk-fault",
)


def _unlocked(view: BootView) -> bool:
    """Whether the last word on the lock was its loss; the boot's own end does not count."""
    words = [seen for seen in view.of("lock", "unlock") if seen.at_ns < view.ended_ns]
    return bool(words) and words[-1].what == "unlock"


# --- cancel ------------------------------------------------------------------------------------


def a_cancel_spares_who_has_not_begun(view: BootView) -> Breaches:
    """After a cancel nobody new is told to stop."""
    off = [seen for seen in view.of("withdraw", "shutdown", "stopping")]
    for record, event in view.events(PodStopBegan):
        at_ns = view.at_ns(record)
        last = [seen for seen in off if seen.at_ns <= at_ns - SLACK_NS]
        later = any(at_ns - SLACK_NS < seen.at_ns <= at_ns for seen in off)
        if last and last[-1].what == "withdraw" and not later and _heard(view, last[-1], at_ns):
            yield f"{event.uid} was told to stop at {_s(at_ns)}, cancelled at {_s(last[-1].at_ns)}"


def _heard(view: BootView, withdrawn: Seen, at_ns: int) -> bool:
    """Whether a daemon was there and on the bus to hear of the cancel."""
    broken = any(
        withdrawn.at_ns - 2 * NS_PER_SECOND <= seen.at_ns <= at_ns
        for seen in view.of("bus-lost", "logind-gone", "logind-back")
    )
    return not broken and view.served_through(withdrawn.at_ns, at_ns)


def late_pods_are_rejected(view: BootView) -> Breaches:
    """While the node goes down no pod is started."""
    if view.hurt:
        return
    down = False
    for record in view.records:
        if isinstance(record.event, ShutdownBegan):
            down = True
        elif isinstance(record.event, ShutdownCancelled | EpisodeClosed):
            down = False
        elif isinstance(record.event, StartPod) and down:
            yield f"record {record.seq}: {record.event.uid} is started in a shutdown"


# --- the journal -------------------------------------------------------------------------------


def the_journal_is_sound(world: World) -> Breaches:
    """No crash and no power cut leaves more than a tear; what is there was decided by these facts."""
    for number, booted in enumerate(world.boots, 1):
        if booted.state not in ("intact", "torn"):
            yield f"after boot {number} the journal is {booted.state}: {booted.banner}"
    for life in world.lives:
        if life.verdict not in ("", "intact", "torn"):
            yield f"daemon {life.number} found the journal {life.verdict}"


def the_journal_replays(world: World) -> Breaches:
    """Re-execution gives the same decisions, byte for byte, from the first record to the last."""
    replayer = Replayer()
    replayer.feed(History([place.source for place in world.disks.places]).raw())
    divergence = replayer.finish()
    if divergence is not None:
        yield f"record {divergence.seq}: {divergence.field}: {divergence.expected} / {divergence.produced}"


def each_order_ends_once(world: World) -> Breaches:
    """One order, one outcome, over all daemons; and in the end none is forgotten."""
    opened: dict[str, Record] = {}
    for record in world.boots[-1].records:
        if isinstance(record.event, Checkpoint):
            # Where old segments were removed, this says what they left open.
            keys = [msgspec.msgpack.decode(each.order)["key"] for each in record.event.open_orders]
            opened = {key: opened.get(key, record) for key in keys}
        elif isinstance(record.event, Order):
            if record.event.key in opened:
                yield f"record {record.seq}: {record.event.key} is ordered again while it is open"
            opened[record.event.key] = record
        elif isinstance(record.event, OrderEnded) and opened.pop(record.event.key, None) is None:
            yield f"record {record.seq}: {record.event.key} ends, but is not open"
    view = BootView(world, len(world.boots) - 1)
    if not view.served_through(view.ended_ns - 2 * NS_PER_SECOND, view.ended_ns) or _hurt(world):
        return
    first = view.records[0].seq if view.records else 0
    for key, record in opened.items():
        if record.seq < first:
            yield f"record {record.seq}: {key} of an earlier boot never ended"


def fates_are_true(view: BootView) -> Breaches:
    """What the journal says became of a pod is what became of it, as far as it could be known."""
    for record, event in view.events(PodEnded):
        boxes = [box for box in view.boxes() if box.uid == event.uid and view.of_box(box, "start")]
        at_ns = view.at_ns(record)
        running = [box for box in boxes if view.exit_ns(box) > at_ns]
        unseen = [box for box in boxes if view.gone_was_known_ns(box) > at_ns]
        fits = {
            "graceful": not running and not any(view.exit_signal(box) == "SIGKILL" for box in boxes),
            "killed": not running and any(_died_of_kill(view, box) for box in boxes),
            "failed": any(view.of_box(box, "kill") for box in unseen),
            "unknown": bool(unseen) or not boxes,
            "spared": not any(_touched_before(view, box, at_ns) for box in boxes),
            "rejected": not boxes,
        }
        if not fits[event.outcome]:
            yield f"record {record.seq}: {event.uid} {event.outcome} ({event.reason}) is not what happened"


def _died_of_kill(view: BootView, box: Box) -> bool:
    """SIGKILL ended it, or seems to have: of a process that is not its child a daemon only sees it gone."""
    adopted = any(kill.life != box.parent for kill in view.of_box(box, "kill"))
    return adopted or view.exit_signal(box) == "SIGKILL"


def _touched_before(view: BootView, box: Box, at_ns: int) -> bool:
    return any(seen.at_ns < at_ns for seen in view.of_box(box, "hook", "signal", "kill"))


def each_pod_ends_once(view: BootView) -> Breaches:
    """In each shutdown every planned pod has one end; when the lock goes, all have theirs."""
    for episode, records in view.episodes().items():
        ended: set[str] = set()
        planned: set[str] = set()
        released = False
        for record in records:
            if isinstance(record.event, PodEnded):
                if record.event.uid in ended:
                    yield f"episode {episode}: {record.event.uid} ended twice (record {record.seq})"
                ended.add(record.event.uid)
            elif isinstance(record.event, PodPlanned):
                planned.add(record.event.pod.uid)
            released = released or isinstance(record.event, ReleaseLock)
            if released and record.last and planned - ended:
                yield f"episode {episode}: released without an end for {sorted(planned - ended)}"
                break


def the_next_boot_tells(world: World) -> Breaches:
    """The next start says complete if and only if the release was on record, else how far it came."""
    for index in range(1, len(world.boots)):
        before = world.boots[index - 1].records
        standing = _standing(before)
        view = BootView(world, index)
        told = [event for _, event in view.events(Resumed)][:1]
        if not told:
            continue
        start = view.events(Resumed).__next__()[0]
        mine = [event for record, event in view.events(EpisodeClosed) if record.seq <= start.seq]
        said = mine[0].outcome if mine else "nothing"
        if said != standing:
            yield f"boot {index + 1} says {said} of the shutdown before it, the journal says {standing}"


def _hurt(world: World) -> bool:
    """Whether a place of the journal failed at any time."""
    return any(seen.what.startswith("journal-") for seen in world.trail.seen)


def _standing(records: list[Record]) -> str:
    """How the last shutdown stands at the end of these records, told by events alone."""
    standing = "nothing"
    for record in records:
        event = record.event
        if isinstance(event, ShutdownBegan):
            standing = "never-begun"
        elif isinstance(event, WaveStarted) and standing == "never-begun":
            standing = "truncated"
        elif isinstance(event, ReleaseLock) and standing in ("never-begun", "truncated"):
            standing = "complete"
        elif isinstance(event, ShutdownCancelled):
            standing = "cancelled"
        elif isinstance(event, EpisodeClosed):
            standing = "nothing"
    return standing


def a_release_is_remembered(world: World) -> Breaches:
    """If the lock was released in good order, the next boot finds that on record."""
    for index, booted in enumerate(world.boots[:-1]):
        view = BootView(world, index)
        last = view.of("release", "withdraw", "shutdown")
        done = bool(last) and last[-1].what == "release" and last[-1].detail == ReleaseLock.__name__
        if done and not last[-1].late and not view.fled and _standing(booted.records) not in REMEMBERED:
            yield f"boot {index + 1} released its lock, the journal says {_standing(booted.records)}"


#: "nothing": the same boot has had a last word on it already.
REMEMBERED = ("complete", "nothing")


# --- words -------------------------------------------------------------------------------------


def _name(box: Box) -> str:
    return f"{box.uid}/{box.name}"


def _s(at_ns: int) -> str:
    return f"{at_ns / NS_PER_SECOND:.4f} s"


def _times(seen: list[Seen]) -> str:
    return ", ".join(_s(each.at_ns) for each in seen)


def _at(view: BootView, record: Record) -> int:
    return view.at_ns(record)


class Breach(NamedTuple):
    """An invariant that did not hold."""

    invariant: str
    sentence: str


OF_WORLDS: tuple[Callable[[World], Breaches], ...] = (
    no_exceptions,
    barriers_hold,
    the_journal_is_sound,
    the_journal_replays,
    each_order_ends_once,
    the_next_boot_tells,
    a_release_is_remembered,
)

OF_BOOTS: tuple[Callable[[BootView], Breaches], ...] = (
    no_failed_actor,
    no_hook_twice,
    no_stop_twice,
    nobody_is_touched_without_a_shutdown,
    grace_is_kept,
    nobody_gets_more_than_the_grace,
    waves_keep_their_order,
    every_pod_is_signalled,
    the_lock_waits_for_the_pods,
    the_grant_is_enough,
    a_node_that_stays_is_armed,
    a_cancel_spares_who_has_not_begun,
    late_pods_are_rejected,
    fates_are_true,
    each_pod_ends_once,
)


def check(world: World) -> list[Breach]:
    """Every breach of every invariant. A world whose daemon fell over is not looked at further."""
    fallen = [Breach(no_exceptions.__name__, sentence) for sentence in no_exceptions(world)]
    if fallen:
        return fallen
    views = [BootView(world, index) for index in range(len(world.boots))]
    found = [Breach(rule.__name__, each) for rule in OF_WORLDS for each in rule(world)]
    for view in views:
        found += [
            Breach(rule.__name__, f"boot {view.number}: {each}") for rule in OF_BOOTS for each in rule(view)
        ]
    return found
