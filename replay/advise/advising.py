"""The smallest periods with which every pod that can end by itself would have done so.

The evidence is pooled over all shutdowns given. A pod belongs to the wave that the newest shutdown's
configuration gives it; a wave needs as long as its slowest pod needed, in whole seconds, and more than that,
because at the end of its grace a pod is killed. Three things bound what can be said:

* A workload whose longest times are all censored has no known need ("not reached"). Of its stops those that
  did end are covered; the others no period saves on this evidence, and `Verdict` says what would have to
  change instead.
* A wave with a pod that was killed before the time that it asks for was over, of a workload whose need is not
  known, keeps at least the period that it has: taking from what was too little already would be a guess.
* A wave of which no pod was stopped, or none ended by itself, keeps its period.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from actors.policy.grouping import group_of
from actors.policy.periods import DEFAULT_PRIORITY
from events.base import NS_PER_SECOND
from events.model import Period
from replay.account.model import Account, ConfigurationTold
from replay.advise.hope import Short, hope, nodes, rooms, short_of
from replay.advise.stops import Stop, stops
from replay.advise.survival import LAST, Survival, survival

#: ends: every stop; mostly: its longest ended by itself, shorter ones were killed too soon;
#: deaf: ignores its stop signal; own-grace: killed after all the time that it asks for;
#: too-short: killed before that time was over; unsteady: ended at times, and was killed after longer ones.
Verdict = Literal["ends", "mostly", "deaf", "own-grace", "too-short", "unsteady"]


#: Why a wave keeps its period: nobody of it was stopped, nobody of it ended by itself, or it was too short.
Kept = Literal["", "never-stopped", "never-ended", "too-short"]


class NoEvidence(Exception):
    """Nothing can be advised: no shutdown that stopped a pod is on record. Name more journals."""


class Workload(NamedTuple):
    """Pods that are each other's replicas, or successors. ``wave`` is its place in the advice."""

    name: str
    wave: int
    stops: tuple[Stop, ...]
    survival: Survival
    verdict: Verdict

    @property
    def need_ns(self) -> int | None:
        """What it needs; None: not reached."""
        return self.survival.quantile_ns(LAST)

    @property
    def ended_ns(self) -> int | None:
        """The longest of its stops that ended by themselves."""
        return max((each.observed.ns for each in self.stops if each.observed.ended), default=None)

    @property
    def longest_killed(self) -> Stop | None:
        """The stop that was given most time, and was over only with SIGKILL, or never."""
        return _longest(each for each in self.stops if not each.observed.ended)

    @property
    def wanted_seconds(self) -> int | None:
        """The largest grace that one of its pods asks for."""
        asked = (each.wanted_seconds for each in self.stops)
        return max((seconds for seconds in asked if seconds is not None), default=None)


def _longest(stops: Iterable[Stop]) -> Stop | None:
    return max(stops, key=lambda each: each.observed.ns, default=None)


class Wave(NamedTuple):
    """``seconds`` is what is advised; ``because`` the workload that decides it, "" where it is only kept."""

    priority: int
    configured_seconds: int
    seconds: int
    because: str
    kept: Kept
    stops: int
    survival: Survival


class Advice(NamedTuple):
    """``saved``, ``perhaps`` and ``hopeless`` part the stops that are known: by observation these end within
    the advised periods, these would if they do as their workload's others did, these nobody can promise.

    ``short``: nodes on which logind did not grant what was asked for, and grants less than these periods ask
    for: there their stops have what that leaves. ``cut``: those of the hopeless whom only that keeps.
    """

    shutdowns: tuple[str, ...]
    nodes: int
    configuration: ConfigurationTold
    waves: tuple[Wave, ...]
    workloads: tuple[Workload, ...]
    saved: tuple[Stop, ...] = ()
    perhaps: tuple[Stop, ...] = ()
    hopeless: tuple[Stop, ...] = ()
    short: tuple[Short, ...] = ()
    cut: tuple[Stop, ...] = ()

    @property
    def periods(self) -> tuple[Period, ...]:
        return tuple(Period(priority=wave.priority, seconds=wave.seconds) for wave in self.waves)

    @property
    def requested_seconds(self) -> int:
        return sum(wave.seconds for wave in self.waves)

    @property
    def reserve_seconds(self) -> int:
        return -(-self.configuration.reserve_ns // NS_PER_SECOND)

    @property
    def drop_in_seconds(self) -> int:
        """logind's ``InhibitDelayMaxSec``: what is requested and reserved."""
        return self.requested_seconds + self.reserve_seconds

    @property
    def drop_in_ns(self) -> int:
        return self.drop_in_seconds * NS_PER_SECOND


def advise(accounts: Iterable[Account]) -> Advice:
    """From all these shutdowns together; keeps their stops, not the accounts. Raises NoEvidence."""
    newest: Account | None = None
    names: dict[str, None] = {}
    machines: dict[tuple[str, str], None] = {}
    found: list[Stop] = []
    shorts: list[Short] = []
    for account in accounts:
        names[account.id] = machines[account.node, account.machine_id] = None
        if account.configuration.periods and (
            newest is None or account.started_wall_ns >= newest.started_wall_ns
        ):
            newest = account
        found += stops((account,))
        short = short_of(account)
        shorts += [] if short is None else [short]
    if newest is None or not found:
        raise NoEvidence("no shutdown that stopped a pod is on record")
    advice = _conclude(tuple(names), len(machines), newest.configuration, found)
    return _under_grants(advice, [each for each in shorts if each.grant_ns < advice.drop_in_ns])


def _conclude(
    names: tuple[str, ...], nodes: int, configuration: ConfigurationTold, found: Sequence[Stop]
) -> Advice:
    periods = configuration.periods
    workloads = tuple(_workloads(periods, found))
    waves = tuple(_wave(at, period, workloads) for at, period in enumerate(periods))
    return Advice(names, nodes, configuration, waves, workloads)


def _under_grants(advice: Advice, shorts: Sequence[Short]) -> Advice:
    """Who is saved, by what logind grants each."""
    enough = rooms(advice.periods, None)
    left = {each.shutdown: rooms(advice.periods, each.grant_ns) for each in shorts}
    kinds: dict[str, list[Stop]] = {"saved": [], "perhaps": [], "hopeless": []}
    cut: list[Stop] = []
    for each in advice.workloads:
        for stop in each.stops:
            now = hope(stop, each.need_ns, left.get(stop.shutdown, enough)[each.wave])
            kinds[now].append(stop)
            if now == "hopeless" and hope(stop, each.need_ns, enough[each.wave]) != now:
                cut.append(stop)
    return advice._replace(
        saved=tuple(kinds["saved"]),
        perhaps=tuple(kinds["perhaps"]),
        hopeless=tuple(kinds["hopeless"]),
        short=nodes(shorts),
        cut=tuple(cut),
    )


def _workloads(periods: Sequence[Period], found: Iterable[Stop]) -> Iterable[Workload]:
    """By wave, then in the order in which they were first seen."""
    groups: dict[tuple[int, str], list[Stop]] = {}
    for stop in found:
        priority = DEFAULT_PRIORITY if stop.priority is None else stop.priority
        groups.setdefault((group_of(periods, priority), stop.workload), []).append(stop)
    for (wave, name), members in sorted(groups.items(), key=lambda item: item[0][0]):
        curve = survival(each.observed for each in members)
        yield Workload(name, wave, tuple(members), curve, _verdict(members, curve))


def _verdict(members: Sequence[Stop], curve: Survival) -> Verdict:
    if curve.is_complete:
        return "mostly" if curve.censored else "ends"
    censored = [each for each in members if not each.observed.ended]
    if curve.censored == curve.total and all(each.deaf for each in censored):
        return "deaf"
    longest = _longest(censored)
    if longest is not None and longest.limited:
        return "too-short"
    return "own-grace" if curve.censored == curve.total else "unsteady"


def _wave(at: int, period: Period, workloads: Sequence[Workload]) -> Wave:
    mine = [each for each in workloads if each.wave == at]
    known = [(each.ended_ns, each.name) for each in mine if each.ended_ns is not None]
    need_ns, because = max(known, key=lambda each: each[0], default=(None, ""))
    seconds = 0 if need_ns is None else need_ns // NS_PER_SECOND + 1
    seconds, kept = _kept(seconds, period.seconds, mine)
    curve = survival(stop.observed for each in mine for stop in each.stops)
    because = "" if kept else because
    return Wave(period.priority, period.seconds, seconds, because, kept, curve.total, curve)


def _kept(seconds: int, configured: int, mine: Sequence[Workload]) -> tuple[int, Kept]:
    """What a wave has at least."""
    if not mine:
        return configured, "never-stopped"
    if not seconds:
        return configured, "never-ended"
    if seconds < configured and any(_is_short(each) for each in mine):
        return configured, "too-short"
    return seconds, ""


def _is_short(mine: Workload) -> bool:
    """Its need is not known, and one of its pods was killed before the time that it asks for was over."""
    known = mine.survival.is_complete or mine.verdict == "deaf"
    return not known and any(stop.limited for stop in mine.stops)
