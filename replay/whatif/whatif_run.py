"""`what_if`: read the record, change it, and run it again twice: the best and the worst case.

A container or hook with only a known bound ends just after it in the best case, and never by itself in the
worst. Equal results are certain. A total is the interval between the runs, which need not hold for every
mixture. Without changes both runs are the record (`Comparison.is_same`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from ebbtide.actors.config_reconciler import NAME as CONFIG
from ebbtide.actors.logind import NAME as LOGIND
from ebbtide.actors.logind import LogindState
from ebbtide.actors.system import System
from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_SECOND, Event, Mark, Record, Stamp
from ebbtide.events.codec import BadPayload, UnknownType
from ebbtide.events.facts import LogindRead, PrepareForShutdown, SettingsLoaded
from ebbtide.events.messages import shortened_list
from ebbtide.events.reader import History
from ebbtide.events.record.fold import RecordPoint, ShutdownFold
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord, WaveRecord, took_ns
from ebbtide.events.units import span
from ebbtide.events.values import Period
from ebbtide.replay.advise import Trial
from ebbtide.replay.sim.loop import Loop
from ebbtide.replay.whatif.record import (
    Changes,
    Diverged,
    NoShutdownAtRecord,
    RecordedBehaviour,
    RecordedShutdown,
    WrongChange,
    config_of,
    own_events,
    read_recorded_shutdown,
    up_to_next,
)
from ebbtide.replay.whatif.verdicts import (
    Curves,
    Doubts,
    PodChange,
    PodNeed,
    PodRuns,
    Verdict,
    killed_ns,
    verdict_of,
)
from ebbtide.replay.whatif.world import RecordedWorld, RunAgenda, Support, weakest

#: A shutdown, and a call that opens its journal.
Night = tuple[ShutdownRecord, Callable[[], History]]

#: (code, sentence). Codes are stable.
Assumption = tuple[str, str]


class Outline(NamedTuple):
    """A run, recorded or new. Times count from the signal; None: it did not happen.

    ``total_ns``: to the release, or to the end of a cancelled shutdown. ``pods``: by UID, as planned.
    """

    outcome: decisions.EpisodeOutcome
    total_ns: int | None
    grant_ns: int
    budget_ns: int
    waves: tuple[WaveRecord, ...]
    pods: dict[str, PodRecord]
    last_ns: int
    handed_over_ns: int | None

    @property
    def began(self) -> bool:
        """False: graceful shutdown is off."""
        return self.outcome != "never-begun"


def outline(events: Iterable[tuple[int, Event]], signal_ns: int) -> Outline:
    """``events``: (monotonic nanoseconds, event), in order."""
    shutdown = ShutdownFold(0, Stamp(signal_ns, 0))
    for mono_ns, event in events:
        shutdown.point = RecordPoint(0, mono_ns - signal_ns, True)
        shutdown.see(event)
    for wave in shutdown.waves:
        wave.period_ns = wave.planned_ns if wave.period_ns is None else wave.period_ns
    for uid, pod in shutdown.pods.items():
        pod.grace_ns = pod.grace_seconds * NS_PER_SECOND if pod.grace_ns is None else pod.grace_ns
        # Also for a fate without an observed end.
        pod.ended_ns = shutdown.decided_ns.get(uid)
    # No process continues a run that stops before the release.
    outcome = shutdown.outcome(None, damaged=True) if shutdown.begun else "never-begun"
    return Outline(
        outcome=outcome,
        total_ns=shutdown.ended_ns(outcome),
        grant_ns=shutdown.record.grant_ns,
        budget_ns=shutdown.record.budget_ns,
        waves=tuple(shutdown.waves),
        pods={uid: shutdown.pods[uid] for uid in shutdown.planned},
        last_ns=shutdown.point.at_ns,
        handed_over_ns=shutdown.record.by.handed_over_ns,
    )


class Run(NamedTuple):
    records: tuple[Record, ...]
    outline: Outline
    world: RecordedWorld


def what_if(history: History, first_seq: int, changes: Changes, curves: Curves | None = None) -> Comparison:
    """The shutdown that begins at record ``first_seq``, under ``changes``. ``curves``: for the chances.

    Raises as `run_again` and `replay.whatif.record.read_recorded_shutdown`.
    """
    return run_again(read_recorded_shutdown(history, first_seq), changes, curves)


def run_again(shutdown: RecordedShutdown, changes: Changes, curves: Curves | None = None) -> Comparison:
    """Raises WrongChange."""
    if changes.settings is not None:
        # The daemon sets it, not a configuration.
        version = shutdown.settings.projection_version
        changes = replace(changes, settings=replace(changes.settings, projection_version=version))
    grant_ns = changes.grant_ns if changes.grant_ns is not None else _raised_ns(shutdown, changes)
    seen = RecordedBehaviour(shutdown, changes, grant_ns)
    both = [_run_once(shutdown, changes, grant_ns, seen, is_best=is_best) for is_best in (True, False)]
    then = outline(((each.mono_ns, each.event) for each in shutdown.own), shutdown.signal_ns)
    runs = then, best, worst = (then, both[0].outline, both[1].outline)
    recorded = [(each.mono_ns, each.event) for each in shutdown.events]
    is_same = all(recorded == [(each.mono_ns, each.event) for each in run.records] for run in both)
    doubts, handovers_ns = Doubts(shutdown, seen), [run.handed_over_ns for run in runs]
    pods = []
    for uid in dict.fromkeys(uid for run in runs for uid in run.pods):
        sides = PodRuns(then.pods.get(uid), best.pods.get(uid), worst.pods.get(uid))
        support = weakest(run.world.evidence.of(uid) for run in both)
        verdict = Verdict("same")
        if not is_same:
            known = support.why if support.level == "assumed" else doubts.of(sides, handovers_ns)
            verdict = verdict_of(sides, known)
        support = Support("assumed", verdict.doubt) if verdict.doubt else support
        need = None if sides.then is None else _need_of(sides.then, then.last_ns)
        chance = (curves or Curves()).chance_percent(sides, verdict, need)
        pods.append(PodSide(*sides, need, support, verdict.change, chance))
    total = Interval(best.total_ns, worst.total_ns)
    # A pod may end at another time than in both runs, or the release may wait for its volumes.
    if not is_same and any(
        side.support.level == "assumed" or (side.then.means == "api" and side.then.volumes)
        for side in pods
        if side.then is not None
    ):
        total = Interval(0, None)
    assumptions = (*_granted(shutdown, changes, grant_ns), *_assumptions(shutdown, seen, both[1]))
    return Comparison(*runs, is_same, total, _wave_sides(runs), tuple(pods), assumptions)


def trial_of(nights: Iterable[Night], periods: tuple[Period, ...]) -> Trial:
    """Tries advice on its own nights. Shutdowns without a begin on record were no evidence."""
    changes, not_asked = Counter[str](), 0
    for shutdown, history in nights:
        if shutdown.headless:
            continue
        try:
            recorded = read_recorded_shutdown(history(), shutdown.first_seq)
            settings = replace(recorded.settings, by_pod_priority=periods)
            found = run_again(recorded, Changes(settings=settings))
        except (BadPayload, Diverged, NoShutdownAtRecord, UnknownType, WrongChange):
            not_asked += 1
            continue
        changes.update(side.change.replace("-", "_") for side in found.pods if side.change != "same")
    return Trial(**changes, not_asked=not_asked)


def _run_once(
    shutdown: RecordedShutdown,
    changes: Changes,
    grant_ns: int | None,
    seen: RecordedBehaviour,
    *,
    is_best: bool,
) -> Run:
    system, _ = _set_up(shutdown, changes)
    if grant_ns is not None and not isinstance(shutdown.events[0].event, PrepareForShutdown):
        # Its first fact has no grant: read logind just before it.
        state = cast(LogindState, system.slots[(LOGIND, "")].state)
        read = LogindRead(owner="", grant_ns=grant_ns, preparing=False, kind=state.kind)
        system.step(read, _stamp(shutdown))
    system.next_seq = shutdown.first_seq
    agenda = RunAgenda(shutdown, seen.downtimes)
    world = RecordedWorld(shutdown, seen, agenda, is_best=is_best)
    # When the machine goes down in any case. A cut record ends there; if logind's timer cut it, it ends with
    # the new grant, and so does a shutdown that was released within its grant.
    by_timer = shutdown.last_ns - shutdown.signal_ns >= shutdown.grant_ns > 0
    if shutdown.is_cut:
        longer_ns = grant_ns - shutdown.grant_ns if by_timer and grant_ns is not None else 0
        agenda.end(max(shutdown.signal_ns, shutdown.last_ns + longer_ns))
    elif grant_ns is not None and not by_timer and not shutdown.is_moved:
        agenda.end(shutdown.signal_ns + grant_ns)
    records: list[Record] = []
    for step in Loop(system, agenda, world, shutdown.wall_offset_ns).steps():
        records += step
        if system.episode != records[0].seq:
            break
    mine = up_to_next(records, shutdown.first_seq)
    happened = tuple(each for each in mine if not isinstance(each.event, Mark))
    own_records = own_events(happened, shutdown.first_seq)
    folded = outline(((each.mono_ns, each.event) for each in own_records), shutdown.signal_ns)
    return Run(happened, folded, world)


def _set_up(shutdown: RecordedShutdown, changes: Changes) -> tuple[System, list[Record]]:
    """Loads the new settings just before the signal; the new run does not have these decisions."""
    system = shutdown.system()
    if changes.settings is None or changes.settings == shutdown.settings:
        return system, []
    records = system.step(SettingsLoaded(settings=changes.settings), _stamp(shutdown))
    if config_of(system).settings != changes.settings:
        raise WrongChange("settings wait for the end of the shutdown before, which this one follows at once")
    return system, records


def _stamp(shutdown: RecordedShutdown) -> Stamp:
    return Stamp(shutdown.signal_ns, shutdown.signal_ns + shutdown.wall_offset_ns)


def _raised_ns(shutdown: RecordedShutdown, changes: Changes) -> int | None:
    """The actor's request to logind with these settings; None: no request, or logind did not obey the present
    drop-in.
    """
    known = config_of(shutdown.system())
    files = known.drop_ins
    disobeyed = files is not None and (bool(files.overridden_by) or known.grant_ns < (files.ours_ns or 0))
    _, records = _set_up(shutdown, changes)
    orders = [
        each.event
        for each in records
        if isinstance(each.event, decisions.WriteDropIn) and each.actor == CONFIG
    ]
    return orders[-1].seconds * NS_PER_SECOND if orders and not disobeyed else None


def _granted(shutdown: RecordedShutdown, changes: Changes, raised_ns: int | None) -> Iterator[Assumption]:
    if changes.grant_ns is not None:
        return
    if raised_ns is not None:
        yield "grant", f"logind grants {span(raised_ns)}, as the drop-in for these settings asks"
        return
    system, _ = _set_up(shutdown, changes)
    known = config_of(system)
    if changes.settings is None or shutdown.grant_ns >= known.needed_ns:
        return
    files = known.drop_ins
    why = "no drop-in was read" if files is None else "it was not raised on record"
    if files is not None and files.overridden_by:
        why = f"{files.overridden_by} overrides the drop-in"
    elif known.settings is not None and not known.settings.raise_grant:
        why = "raiseGrant is false"
    then, needed = span(shutdown.grant_ns), span(known.needed_ns)
    yield "grant", f"logind grants {then} as it did, of {needed} that these settings need: {why}"


def _assumptions(shutdown: RecordedShutdown, seen: RecordedBehaviour, run: Run) -> Iterator[Assumption]:
    if not run.outline.began:
        yield "off", "graceful shutdown is off under these settings: no lock holds the machine"
    for down in seen.downtimes:
        when = f"from {span(down.begin_ns - shutdown.signal_ns)} to {span(down.end_ns - shutdown.signal_ns)}"
        yield "restart", f"no daemon runs {when} after the signal, as in the record"
    for name, count in run.world.invented.items():
        slowest = span(seen.slowest_ns.get(name, 0))
        yield "order", f"{name}: {count} more than the record has, done after {slowest}"
    if run.world.first_kills:
        killed = [run.outline.pods[uid].label for uid in run.world.first_kills]
        who = shortened_list(killed, 3)
        yield "kill", f"SIGKILL ends {who} at once, or never: the record shows none of it"
    if run.world.missed:
        missed = f"{run.world.missed} recorded fact{'s' if run.world.missed > 1 else ''}"
        yield "too-late", f"{missed} would have come after the release, and did not happen"
    if not shutdown.is_cut and run.outline.outcome == "truncated":
        grant = span(run.outline.grant_ns)
        yield "grant-over", f"logind lets the machine go {grant} after the signal, unreleased"
    if shutdown.is_cut:
        end = span(shutdown.last_ns - shutdown.signal_ns)
        yield "cut-short", f"the record ends {end} after the signal: what comes later is not known"


# --- the record and both runs side by side

# If both runs agree, the result is as certain as the pod's evidence.


class Interval(NamedTuple):
    """Nanoseconds in both runs; None: it does not happen."""

    best: int | None
    worst: int | None

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The lower first; None is later than any time."""
        low, high = self
        return (high, low) if low is None or (high is not None and high < low) else (low, high)


class PodSide(NamedTuple):
    """``then`` None: a new pod. ``chance_percent``: for a ``perhaps``."""

    then: PodRecord | None
    best: PodRecord | None
    worst: PodRecord | None
    need: PodNeed | None
    support: Support
    change: PodChange
    chance_percent: int | None

    @property
    def pod(self) -> PodRecord:
        """For values that do not change."""
        found = self.then or self.best or self.worst
        assert found is not None, "a row is about a pod of one of the runs"
        return found

    def now(self, of: Callable[[PodRecord], int | None]) -> Interval:
        # An assumed stop has no bound.
        if of is took_ns and self.then is not None and self.support.level == "assumed":
            return Interval(0, None)
        return Interval(*(None if each is None else of(each) for each in (self.best, self.worst)))

    @property
    def outcomes(self) -> tuple[decisions.PodOutcome | None, decisions.PodOutcome | None]:
        """Best, worst; None: not stopped, or the record ends before that."""
        best, worst = (None if pod is None else pod.outcome for pod in (self.best, self.worst))
        return best, worst


class WaveSide(msgspec.Struct, frozen=True):
    """By priority; None: not in this configuration."""

    priority: int
    then: WaveRecord | None
    best: WaveRecord | None
    worst: WaveRecord | None


class Comparison(NamedTuple):
    """The record (``then``) and the two runs. ``is_same``: both are the record. ``total``: to the release, or
    to the end of a cancelled shutdown. Pods are in the recorded plan's order, new ones last.
    """

    then: Outline
    best: Outline
    worst: Outline
    is_same: bool
    total: Interval
    waves: tuple[WaveSide, ...]
    pods: tuple[PodSide, ...]
    assumptions: tuple[Assumption, ...]

    def expected_percent(self, change: Literal["saved", "lost"]) -> int:
        """Certain pods count 100, the others their chance."""
        perhaps: PodChange = "perhaps-saved" if change == "saved" else "perhaps-lost"
        chances = sum(pod.chance_percent or 0 for pod in self.changed(perhaps))
        return 100 * len(self.changed(change)) + chances

    def changed(self, change: PodChange) -> tuple[PodSide, ...]:
        return tuple(pod for pod in self.pods if pod.change == change)


def _wave_sides(runs: tuple[Outline, ...]) -> tuple[WaveSide, ...]:
    """By priority; waves of one priority keep their order."""
    sides: dict[tuple[int, int], list[WaveRecord | None]] = {}
    for side, run in enumerate(runs):
        seen: dict[int, int] = {}
        for wave in run.waves:
            nth = seen[wave.priority] = seen.get(wave.priority, -1) + 1
            sides.setdefault((wave.priority, nth), [None, None, None])[side] = wave
    return tuple(WaveSide(priority, *sides[priority, nth]) for priority, nth in sorted(sides))


def _need_of(pod: PodRecord, last_ns: int) -> PodNeed | None:
    """None: it was never asked to stop."""
    refused = any(each.stop_refused for each in pod.containers)
    if pod.began_ns is None or (refused and pod.outcome != "graceful"):
        return None
    if pod.outcome == "graceful" and pod.ended_ns is not None:
        return PodNeed(pod.ended_ns - pod.began_ns, at_least=False)
    ends = [each for each in (killed_ns(pod), pod.ended_ns, last_ns) if each is not None]
    return PodNeed(max(0, ends[0] - pod.began_ns), at_least=True)
