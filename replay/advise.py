"""The smallest periods with which every pod would have ended by itself (docs/whatif.md, Advice).

A stop that was cut is *censored*: its need is longer than its time (`survival`). The newest shutdown's
configuration gives the waves. A wave needs as long as its slowest pod, in whole seconds, and a margin.
`_wave` has the rules that keep a wave's period.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from textwrap import wrap
from typing import Literal, NamedTuple, get_args

from msgspec.structs import asdict, replace

from ebbtide.actors.policy.grace_periods import DEFAULT_PRIORITY, group_index
from ebbtide.events.base import NS_PER_SECOND, RESERVE_SECONDS_MIN, FrozenStruct
from ebbtide.events.messages import plural
from ebbtide.events.record.causes import cause_of, ignored_stop
from ebbtide.events.record.shutdown_record import ConfigurationRecord, PodRecord, ShutdownRecord
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Period, workload_name

#: On top of the slowest pod's need. A long period costs no time on a good day.
MARGIN_PERCENT = 25
#: With fewer stops no wave is shortened: the next stop is slower than n others with a probability of 1 in
#: n + 1.
SHRINK_STOPS_MIN = 10
#: With a smaller share of its pods no wave is shortened: the others may be slow.
SHRINK_SHARE_MIN = Fraction(3, 4)


class Caution(NamedTuple):
    """How far to trust the evidence."""

    margin_percent: int = MARGIN_PERCENT
    stops_min: int = SHRINK_STOPS_MIN
    share_min: Fraction = SHRINK_SHARE_MIN


CAUTION = Caution()


class NoEvidence(Exception):
    """No shutdown that stopped a pod is on record. Name more journals."""


#: mostly: its longest stop ended by itself, shorter ones were cut; deaf: it ignores its stop signal;
#: own-grace: each stop was cut when its own grace was over; too-short: the longest was cut before that;
#: unsteady: some stops ended by themselves, longer ones were cut.
WorkloadVerdict = Literal["ends", "mostly", "deaf", "own-grace", "too-short", "unsteady"]

KeptBecause = Literal[
    "", "never-stopped", "left-out", "never-ended", "too-short", "few-stops", "few-pods", "would-lose"
]


class Workload(FrozenStruct):
    """Pods that are each other's replicas or successors.

    ``wave``: its place in the advice. ``wanted_seconds``: the largest grace of its pods' specs. ``problem``:
    why its pods may be cut under any period, and the cure, or empty.
    """

    name: str
    wave: int
    times: Survival
    verdict: WorkloadVerdict
    wanted_seconds: int | None
    problem: str


class WaveAdvice(FrozenStruct):
    """``left_out``: its pods that are no evidence."""

    priority: int
    configured_seconds: int
    seconds: int
    why: str
    kept: KeptBecause
    times: Survival
    left_out: int


class Trial(FrozenStruct, omit_defaults=False):
    """What-if's verdicts on the advised periods, in pods, over the same nights. ``not_asked``: nights that
    cannot be decided again.
    """

    saved: int = 0
    perhaps_saved: int = 0
    lost: int = 0
    perhaps_lost: int = 0
    not_asked: int = 0

    def __add__(self, other: Trial) -> Trial:
        return Trial(**{name: of + getattr(other, name) for name, of in asdict(self).items()})


#: Periods to the sum of their trials.
TryOut = Callable[[tuple[Period, ...]], Trial]


class Advice(FrozenStruct):
    """``pods`` were to end in these shutdowns, and ``today`` of them ended by themselves. ``more_seconds``:
    the new periods' sum less the present sum. ``trial`` None: no period changes, or the journals are not at
    hand. ``inhibit_delay_max_seconds``: the periods and the reserve, which logind must grant.
    """

    shutdowns: int
    pods: int
    today: int
    more_seconds: int
    trial: Trial | None
    nodes: int
    margin_percent: int
    reserve_seconds: int
    inhibit_delay_max_seconds: int
    waves: tuple[WaveAdvice, ...]
    workloads: tuple[Workload, ...]
    configuration: str

    @property
    def periods(self) -> tuple[Period, ...]:
        return tuple(Period(priority=wave.priority, seconds=wave.seconds) for wave in self.waves)


def advise(
    shutdowns: Iterable[ShutdownRecord], caution: Caution = CAUTION, try_out: TryOut | None = None
) -> Advice:
    """Raises NoEvidence."""
    evidence = Evidence()
    for shutdown in shutdowns:
        evidence.add(shutdown)
    return conclude(evidence, caution) if try_out is None else tried_advice(evidence, caution, try_out)


def tried_advice(evidence: Evidence, caution: Caution, try_out: TryOut) -> Advice:
    """The boldest advice that loses no pod of these nights. Raises NoEvidence."""
    for bold in get_args(Boldness):
        advice = conclude(evidence, caution, bold)
        if all(wave.seconds == wave.configured_seconds for wave in advice.waves):
            break
        trial = try_out(advice.periods)
        if not trial.lost:
            return replace(advice, trial=trial)
    return advice


#: A wave may get any other period, only a longer one, or none.
Boldness = Literal["bold", "longer", "as-it-is"]


# --- how each pod really stopped

# A stop counts from its begin, because a grace has to cover hooks too.


class StopKind(NamedTuple):
    """A stop without its time. Neither ``ended`` nor ``killed``: it was cut short, or its end was not seen.
    ``limited``: it was cut before its own grace was over, or its spec has no grace. ``ignored_stop``: its
    first process ignored the stop signal just before SIGKILL.
    """

    workload: str
    priority: int
    wanted_seconds: int | None
    ended: bool
    killed: bool
    limited: bool
    ignored_stop: bool


class Stop(NamedTuple):
    pod: PodRecord
    kind: StopKind
    ns: int


#: A kubelet gives a container at least 2 s after its hook. A stop that takes 3 s more than its grace began
#: later than recorded, so it does not count.
KUBELET_LATE_NS = 3 * NS_PER_SECOND
#: These hooks did not run to their end.
CUT_HOOKS = ("timed-out", "cancelled", "not-run", "unknown", None)
#: The runtime did not begin a failed hook.
NOT_BEGUN = "it was not begun"


def observed_stops(shutdown: ShutdownRecord) -> Iterator[Stop]:
    first_ns = next((wave.began_ns for wave in shutdown.waves if wave.began_ns is not None), 0)
    for pod in shutdown.pods:
        if pod.began_ns is None or pod.outcome in ("spared", "rejected") or not _was_asked(pod, shutdown):
            continue
        cuts = [at_ns for at_ns in _cuts(pod, shutdown) if at_ns < _end_ns(pod, shutdown)]
        ended = pod.outcome == "graceful" and not cuts
        # The kubelet begins at the signal, before the daemon has the list of pods: each wave began earlier.
        early_ns = first_ns if ended and pod.means == "observe" else 0
        ns = min(cuts, default=_end_ns(pod, shutdown)) - pod.began_ns + early_ns
        by_kubelet, grace_ns = pod.means in ("api", "observe"), pod.grace_ns or 0
        if not ended:
            # A cut stop had less time: its signal was under way for so long.
            taken = ((each.taken_ns, each.signalled_ns) for each in pod.containers)
            delays = (took - sent for took, sent in taken if took is not None and sent is not None)
            ns -= max(delays, default=0)
        if ns <= 0 or (by_kubelet and ns > grace_ns + KUBELET_LATE_NS):
            continue
        if ended and by_kubelet and ns >= grace_ns:
            # A kubelet's hooks are not on record. It ended only after its grace, so its hook was cut.
            ended, ns = False, grace_ns
        wanted, killed = pod.wanted_grace_seconds, not ended and pod.outcome == "killed"
        short = wanted is None or grace_ns < wanted * NS_PER_SECOND or pod.hurried_ns is not None
        if wanted is not None and not killed:
            # The watch ended before the pod's grace.
            short |= ns < wanted * NS_PER_SECOND
        kind = StopKind(
            workload(pod.namespace, pod.name, shutdown.node),
            _priority(pod),
            wanted,
            ended,
            killed,
            not ended and short,
            not ended and ignored_stop(pod),
        )
        yield Stop(pod, kind, ns)


def _end_ns(pod: PodRecord, shutdown: ShutdownRecord) -> int:
    """Its end, its first SIGKILL, or the end of the wait for it."""
    ends = [pod.ended_ns]
    if pod.outcome != "graceful":
        ends += [each.killed_ns for each in pod.containers]
    known = [each for each in ends if each is not None]
    return min(known, default=shutdown.last_ns if shutdown.pods_ended_ns is None else shutdown.pods_ended_ns)


def _cuts(pod: PodRecord, shutdown: ShutdownRecord) -> Iterator[int]:
    """After these moments its need is unknown."""
    if pod.hurried_ns is not None:
        yield pod.hurried_ns
    for hook in pod.hooks:
        if hook.result in CUT_HOOKS or hook.reason.startswith(NOT_BEGUN):
            yield hook.began_ns if hook.ended_ns is None else hook.ended_ns
    away = [each.quiet_since_ns for each in shutdown.own_processes]
    away += [each.at_ns for each in shutdown.notices if each.code == "runtime-lost"]
    yield from (at_ns for at_ns in away if at_ns is not None and at_ns >= (pod.began_ns or 0))


def _was_asked(pod: PodRecord, shutdown: ShutdownRecord) -> bool:
    """False: perhaps no component asked it to stop, or the time is unknown."""
    began_ns, ended = pod.began_ns or 0, pod.outcome == "graceful"
    refused = not ended and any(each.stop_refused for each in pod.containers)
    unanswered = any(each.signalled_ns is not None and each.taken_ns is None for each in pod.containers)
    dead = any(each.code == "runtime-lost" and each.at_ns < began_ns for each in shutdown.notices)
    if pod.again or refused or dead or (unanswered and (pod.means or not ended)):
        return False
    if pod.means == "observe" and not shutdown.lock_held:
        # The kubelet began before the daemon.
        return False
    if pod.means == "api" and shutdown.by.handed_over_ns:
        # A hung kubelet hands over pods that it never asked.
        return pod.ended_ns is not None and pod.ended_ns < shutdown.by.handed_over_ns
    return pod.means not in ("api", "observe") or pod.outcome in ("graceful", "killed")


def workload(namespace: str, name: str, node: str = "") -> str:
    """``namespace/name`` without the replica's suffix."""
    return f"{namespace}/{workload_name(name, node)}"


def _priority(pod: PodRecord) -> int:
    return DEFAULT_PRIORITY if pod.priority is None else pod.priority


# --- how long stopping takes

# The Kaplan-Meier estimate (1958). Stopping would look too quick without the killed pods, or with their time
# as their need. If the longest times are all censored, the curve stays above 0 and does not reach a quantile
# below its end.

MEDIAN, P95 = Fraction(1, 2), Fraction(19, 20)

#: A share of 1, in integers: the answer is the same on every machine.
WHOLE = 1 << 128


def remaining(ended: Counter[int], cut: Counter[int]) -> Iterator[tuple[int, int]]:
    """Each time, and the share of stops that last longer. ``ended`` and ``cut`` count stops by their time."""
    share, left = WHOLE, ended.total() + cut.total()
    for ns in sorted(ended.keys() | cut.keys()):
        # At equal times the ended stops come first: the cut ones lasted longer.
        share = share * (left - ended[ns]) // left
        yield ns, share
        left -= ended[ns] + cut[ns]


class Survival(FrozenStruct):
    """``censored`` of ``stops`` were cut, ``killed`` of these by SIGKILL. ``ended_ns``: the longest stop that
    ended by itself. Half, 95 % and all ended within ``p50_ns``, ``p95_ns``, ``max_ns``; None: not reached.
    """

    stops: int
    censored: int
    killed: int
    p50_ns: int | None
    p95_ns: int | None
    max_ns: int | None
    ended_ns: int | None
    #: (whole seconds, pods that would end by themselves within them), where it rises.
    curve: tuple[tuple[int, int], ...] = ()

    @property
    def is_complete(self) -> bool:
        """The longest stop ended by itself: the curve reaches 0."""
        return self.max_ns is not None


def survival(stops: Iterable[tuple[bool, Counter[int]]], killed: int = 0) -> Survival:
    """From (whether these stops ended by themselves, their number by nanoseconds)."""
    ended, cut = Counter[int](), Counter[int]()
    for by_itself, times in stops:
        (ended if by_itself else cut).update(times)
    count, reached, curve = ended.total() + cut.total(), dict[Fraction, int](), dict[int, int]()
    for ns, share in remaining(ended, cut):
        for quantile in (MEDIAN, P95):
            if share <= (1 - quantile) * WHOLE:
                reached.setdefault(quantile, ns)
        if ended[ns]:
            # SIGKILL comes at the end of the period.
            curve[ns // NS_PER_SECOND + 1] = count * (WHOLE - share) // WHOLE
    ended_ns = max(ended, default=None)
    complete = ended_ns is not None and max(cut, default=-1) < ended_ns
    return Survival(
        stops=count,
        censored=cut.total(),
        killed=killed,
        p50_ns=reached.get(MEDIAN),
        p95_ns=reached.get(P95),
        max_ns=ended_ns if complete else None,
        ended_ns=ended_ns,
        curve=tuple(curve.items()),
    )


#: These fit a line; -o json has all steps.
STEPS_MAX = 8


def curve_text(times: Survival) -> str:
    """``1 s 3, 2 s 9, 13 s 14 of 14``."""
    steps = times.curve
    if not steps:
        return f"none of {times.stops}" if times.stops else "no stop"
    if len(steps) > STEPS_MAX:
        steps = tuple(steps[(at + 1) * len(steps) // STEPS_MAX - 1] for at in range(STEPS_MAX))
    return ", ".join(f"{span_s(seconds)} {pods}" for seconds, pods in steps) + f" of {times.stops}"


def wave_curves(shutdown: ShutdownRecord) -> dict[int, Survival]:
    stops: dict[int, list[tuple[StopKind, Counter[int]]]] = {}
    for pod, kind, ns in observed_stops(shutdown):
        stops.setdefault(pod.wave, []).append((kind, Counter([ns])))
    return {wave: _times_of(stops[wave]) for wave in sorted(stops) if wave >= 0}


# --- evidence that adds up


class NewestShutdown(NamedTuple):
    """By its begin, then by its journal, so that journals may be added in any order."""

    order: tuple[int, str, int]
    configuration: ConfigurationRecord


class Evidence:
    """Adds up stops from many journals in any order."""

    def __init__(self) -> None:
        self.shutdowns = self.pods = self.today = 0
        #: Two clusters may have nodes of one name.
        self.machines: dict[tuple[str, str], None] = {}
        self.newest: NewestShutdown | None = None
        #: By kind: the number of stops by nanoseconds.
        self.stops: dict[StopKind, Counter[int]] = {}
        #: Pods that are no evidence, by priority.
        self.left_out: Counter[int] = Counter()

    def add(self, shutdown: ShutdownRecord) -> None:
        # Without its begin, stops have no known begin, and missing pods may have been slow.
        if shutdown.headless:
            return
        self.shutdowns += 1
        self.machines[shutdown.node, shutdown.machine_id] = None
        if shutdown.configuration.periods:
            order = (shutdown.started_wall_ns, shutdown.journal_id, shutdown.first_seq)
            self._take_newest(NewestShutdown(order, shutdown.configuration))
        stopped: dict[str, None] = {}
        for pod, kind, ns in observed_stops(shutdown):
            stopped[pod.uid] = None
            self.stops.setdefault(kind, Counter())[ns] += 1
        own = [pod for pod in shutdown.pods if not pod.goes_on]
        self.pods += sum(pod.outcome not in ("rejected", "spared") for pod in own)
        self.today += shutdown.count("graceful")
        for pod in own:
            open_yet = shutdown.outcome == "running" and pod.outcome is None
            stops = pod.began_ns is not None and pod.began_ns != pod.ended_ns and pod.outcome != "spared"
            if not open_yet and (stops or cause_of(pod) is not None) and pod.uid not in stopped:
                self.left_out[_priority(pod)] += 1

    def merge(self, other: Evidence) -> None:
        self.shutdowns += other.shutdowns
        self.pods += other.pods
        self.today += other.today
        self.machines |= other.machines
        if other.newest is not None:
            self._take_newest(other.newest)
        for kind, times in other.stops.items():
            self.stops.setdefault(kind, Counter()).update(times)
        self.left_out.update(other.left_out)

    def _take_newest(self, found: NewestShutdown) -> None:
        if self.newest is None or self.newest.order <= found.order:
            self.newest = found


Kinds = Mapping[StopKind, Counter[int]]


def _times_of(kinds: Iterable[tuple[StopKind, Counter[int]]]) -> Survival:
    pairs = list(kinds)
    killed = sum(seen.total() for kind, seen in pairs if kind.killed)
    return survival(((kind.ended, seen) for kind, seen in pairs), killed)


def conclude(evidence: Evidence, caution: Caution = CAUTION, bold: Boldness = "bold") -> Advice:
    """Raises NoEvidence."""
    newest = evidence.newest
    if newest is None or not evidence.stops:
        left_out = evidence.left_out.total()
        pods = f"; left out, since their time is unknown: {plural(left_out, 'pod')}" if left_out else ""
        raise NoEvidence(f"no shutdown that stopped a pod is on record{pods}")
    periods = newest.configuration.periods
    groups: dict[tuple[int, str], dict[StopKind, Counter[int]]] = {}
    for kind, times in evidence.stops.items():
        groups.setdefault((group_index(periods, kind.priority), kind.workload), {})[kind] = times
    known = [(_workload(name, wave, groups[wave, name]), groups[wave, name]) for wave, name in sorted(groups)]
    missing: Counter[int] = Counter()
    for priority, count in evidence.left_out.items():
        missing[group_index(periods, priority)] += count
    waves = tuple(
        _wave(period, [each for each in known if each[0].wave == at], missing[at], caution, bold)
        for at, period in enumerate(periods)
    )
    # A smaller reserve takes time from the last wave.
    reserve_seconds = max(RESERVE_SECONDS_MIN, -(-newest.configuration.reserve_ns // NS_PER_SECOND))
    return Advice(
        shutdowns=evidence.shutdowns,
        pods=evidence.pods,
        today=evidence.today,
        more_seconds=sum(wave.seconds - wave.configured_seconds for wave in waves),
        trial=None,
        nodes=len(evidence.machines),
        margin_percent=caution.margin_percent,
        reserve_seconds=reserve_seconds,
        inhibit_delay_max_seconds=sum(wave.seconds for wave in waves) + reserve_seconds,
        waves=waves,
        workloads=tuple(each for each, _ in known),
        configuration=configuration_to_paste(waves, reserve_seconds),
    )


def _workload(name: str, wave: int, kinds: Kinds) -> Workload:
    times = _times_of(kinds.items())
    cut = [(max(seen), kind.limited, kind.wanted_seconds) for kind, seen in kinds.items() if not kind.ended]
    # Of stops that were cut after the same time, the more informative one.
    longest_ns, limited, asked = max(
        cut, key=lambda each: (each[0], each[1], each[2] is None, each[2] or 0), default=(0, False, None)
    )
    verdict: WorkloadVerdict
    if times.is_complete:
        verdict = "mostly" if times.censored else "ends"
    elif times.censored == times.stops and all(kind.ignored_stop for kind in kinds):
        verdict = "deaf"
    elif limited:
        verdict = "too-short"
    else:
        verdict = "own-grace" if times.censored == times.stops else "unsteady"
    wanted = max((kind.wanted_seconds for kind in kinds if kind.wanted_seconds is not None), default=None)
    asked = wanted if asked is None or verdict == "too-short" else asked
    need_ns, problem = times.max_ns or 0, ""
    # Its longest stop shows that it ends with enough time, if its own grace allows it.
    helped = verdict == "mostly" and (asked is None or need_ns < asked * NS_PER_SECOND)
    if times.censored and not helped:
        problem = _PROBLEMS[verdict].format(
            how=_cut_text(times),
            had=span(longest_ns),
            asks="asks for no grace of its own" if asked is None else f"asks for {span_s(asked)}",
            asked=span_s(asked or 0),
            wanted=asked,
            ended=span(times.ended_ns or 0),
            need=span(need_ns),
            enough=need_ns // NS_PER_SECOND + 1,
        )
    return Workload(
        name=name, wave=wave, times=times, verdict=verdict, wanted_seconds=wanted, problem=problem
    )


def _cut_text(times: Survival) -> str:
    """``was killed 3 and not seen to its end 2 of 9 times``."""
    counts = {"killed": times.killed, "not seen to its end": times.censored - times.killed}
    for what, count in counts.items():
        if count == times.stops:
            return f"was {what} every time"
    parts = [f"{what} {count}" for what, count in counts.items() if count]
    return f"was {' and '.join(parts)} of {plural(times.stops, 'time')}"


_PROBLEMS: dict[WorkloadVerdict, str] = {
    "mostly": (
        # Its replicas differ in grace or hooks.
        "{how}, at the latest after {had} ({asks}), and ends within {need} when it has that long: raise its"
        " terminationGracePeriodSeconds to {enough}"
    ),
    "deaf": (
        "ignored its stop signal until SIGKILL every time: no period helps; let its first process handle the"
        " signal, or name another with stopSignal"
    ),
    "own-grace": (
        "{how} when its own grace ({asked}) was over: no period helps; raise its"
        " terminationGracePeriodSeconds above {wanted}"
    ),
    "too-short": (
        "{how}, at the latest after {had}, and {asks}: how much it needs is not known; give its"
        " wave more and see"
    ),
    "unsteady": (
        "{how}, at the latest when its own grace ({asked}) was over, and else ended within {ended}: find"
        " out what it waits for, or raise its terminationGracePeriodSeconds"
    ),
}


def _wave(
    period: Period,
    workloads: Sequence[tuple[Workload, Kinds]],
    left_out: int,
    caution: Caution,
    bold: Boldness,
) -> WaveAdvice:
    known = [(each.times.ended_ns, each.name) for each, _ in workloads if each.times.ended_ns is not None]
    need_ns, because = max(known, key=lambda each: each[0], default=(None, ""))
    seconds = 0
    if need_ns is not None:
        # More than the need, because SIGKILL comes at the end of the grace.
        least = need_ns // NS_PER_SECOND + 1
        whole = need_ns * (100 + caution.margin_percent) // (100 * NS_PER_SECOND) + 1
        # No pod can use more than its own grace.
        asked = [each.wanted_seconds for each, _ in workloads]
        useful = whole if None in asked else max(each for each in asked if each is not None)
        seconds = max(least, min(whole, useful))
    times = _times_of(pair for _, kinds in workloads for pair in kinds.items())
    kept: KeptBecause = ""
    if not workloads:
        kept = "left-out" if left_out else "never-stopped"
    elif not seconds:
        kept = "never-ended"
    elif seconds < period.seconds:
        # No period saves a pod that ignores its stop signal.
        unknown = (
            kinds for each, kinds in workloads if not (each.times.is_complete or each.verdict == "deaf")
        )
        if any(kind.limited for kinds in unknown for kind in kinds):
            kept = "too-short"
        elif times.stops < caution.share_min * (times.stops + left_out):
            kept = "few-pods"
        elif times.stops < caution.stops_min:
            kept = "few-stops"
    changes = seconds < period.seconds if bold == "longer" else seconds != period.seconds
    if not kept and bold != "bold" and changes:
        kept = "would-lose"
    if kept:
        why = "as it is: " + _KEPT_TEXTS[kept].format(
            pods=plural(times.stops + left_out, "pod"),
            stops=plural(times.stops, "stop"),
            seen=times.stops,
            stops_min=caution.stops_min,
            share=f"{caution.share_min.numerator} of {caution.share_min.denominator}",
            seconds=span_s(seconds),
        )
    else:
        # If others were cut, the longest need is unknown.
        who = "the slowest that ended" if times.censored else "the slowest"
        margin = f", and {caution.margin_percent} % for a slower day" if caution.margin_percent else ""
        # A name from a journal must not end the comment's line.
        name = "".join(sign if sign.isprintable() else "?" for sign in because)
        why = f"{who}, {name}, took {span(times.ended_ns or 0)}{margin}"
    return WaveAdvice(
        priority=period.priority,
        configured_seconds=period.seconds,
        seconds=period.seconds if kept else seconds,
        why=why,
        kept=kept,
        times=times,
        left_out=left_out,
    )


_KEPT_TEXTS: dict[KeptBecause, str] = {
    "never-stopped": "no pod of it was ever stopped",
    "left-out": "it is not known how long any of its {pods} needs",
    "never-ended": "no pod of it ever ended by itself",
    "too-short": "a pod of it was cut before its own grace was over",
    "few-stops": "{stops}, too few to shorten it ({stops_min} are needed)",
    "would-lose": "with {seconds}, or with the other waves' new periods, pods of these nights would be lost",
    "few-pods": "{seen} of its {pods} seen to stop, too few to shorten it ({share} are needed)",
}


# --- to paste

COMMENT_COLUMNS = 76


def configuration_to_paste(waves: Sequence[WaveAdvice], reserve_seconds: int) -> str:
    """YAML for the current configuration, whose other settings stay. Comments have their own lines: a copy
    from a terminal is still YAML.
    """
    requested_seconds = sum(wave.seconds for wave in waves)
    lines = [
        "apiVersion: ebbtide/v1alpha1",
        "kind: EbbtideConfiguration",
        "shutdownGracePeriodByPodPriority:",
    ]
    for wave in waves:
        lines += _comment(wave.why, "  # ")
        lines += [f"  - priority: {wave.priority}", f"    shutdownGracePeriodSeconds: {wave.seconds}"]
    lines += [
        f"reserve: {reserve_seconds}s",
        *_comment(
            f"logind must grant {span_s(requested_seconds)} requested + {span_s(reserve_seconds)} reserved."
            " The daemon sees to it unless raiseGrant is false; by hand, in a file below"
            " /run/systemd/logind.conf.d or /etc/systemd/logind.conf.d:"
        ),
        "#   [Login]",
        f"#   InhibitDelayMaxSec={requested_seconds + reserve_seconds}",
    ]
    return "\n".join(lines) + "\n"


def _comment(text: str, prefix: str = "# ") -> list[str]:
    # Half a path or half a pod's name cannot be copied.
    return wrap(
        text,
        COMMENT_COLUMNS,
        initial_indent=prefix,
        subsequent_indent=prefix,
        break_long_words=False,
        break_on_hyphens=False,
    )
