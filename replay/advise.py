"""The configuration that a node needs, learned from how its pods really stopped.

Every stop on record is an observation; a stop that ended in SIGKILL is censored: its need is longer than its
time (`replay.survival`). The advice is the smallest periods with which every pod that can end by itself would
have done so; an unknown need is "not reached".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from textwrap import wrap
from typing import Literal, NamedTuple

from ebbtide.actors.policy.grace_periods import (
    DEFAULT_PRIORITY,
    END_MARGIN_NS,
    FLOOR_NS,
    group_index,
    share_grant,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import plural
from ebbtide.events.record import shutdown_record
from ebbtide.events.record.causes import Cause, cause_key, cause_of, ignored_stop
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Period, workload_name
from ebbtide.replay.survival import Observation, StopCounts, Survival, merge_counts, survival

# The evidence covers all given shutdowns. A pod belongs to its wave under the newest shutdown's
# configuration. A wave needs as long as its slowest pod, in whole seconds, and a margin, because SIGKILL
# comes at the end of a grace. Three rules limit the advice.
#
# A workload whose longest times are all censored has no known need ("not reached"): the advice covers its
# stops that ended, and a verdict names the cure for the others.
#
# A wave with a pod that was killed before its own grace was over, and whose workload has no known need, keeps
# at least its period.
#
# A wave without a stop, or without a stop that ended by itself, keeps its period. So does a wave that would
# get less on fewer stops, or on a smaller share of its pods, than `Caution` asks for: the missing pods may be
# the slow ones.


#: ends: every stop; mostly: its longest ended by itself, shorter ones were killed too soon; deaf: ignores its
#: stop signal; own-grace: killed after its full grace; too-short: killed before; unsteady: ended at times,
#: and was killed after longer ones.
WorkloadVerdict = Literal["ends", "mostly", "deaf", "own-grace", "too-short", "unsteady"]


#: Why a wave keeps its period: no stop, no evidence among its pods, no pod that ended by itself, too short;
#: or it would get less on too few stops, or on too few of its pods.
KeptBecause = Literal["", "never-stopped", "left-out", "never-ended", "too-short", "few-stops", "few-pods"]

#: In percent, on top of the slowest pod's need: a busier day or a slower disk is common, and a long period
#: costs no time on other days.
MARGIN_PERCENT = 25
#: Fewer stops do not shorten a wave. One more stop is slower than the slowest of n with a probability of 1 in
#: n + 1: below one in ten that is evidence, above it luck.
SHRINK_STOPS_MIN = 10
#: Nor does a smaller share of its pods: the others may have been left out for being slow.
SHRINK_SHARE_MIN = Fraction(3, 4)


class Caution(NamedTuple):
    """How far to trust the evidence."""

    margin_percent: int = MARGIN_PERCENT
    stops_min: int = SHRINK_STOPS_MIN
    share_min: Fraction = SHRINK_SHARE_MIN


CAUTION = Caution()


class NoEvidence(Exception):
    """Nothing can be advised: no shutdown that stopped a pod is on record. Name more journals."""


class KilledStop(NamedTuple):
    """The stop with the longest time that SIGKILL ended, or that never ended."""

    ns: int
    limited: bool
    wanted_seconds: int | None


class Workload(NamedTuple):
    """Pods that are each other's replicas, or successors. ``wave`` is its place in the advice.

    ``wanted_seconds``: the largest grace that one of its pods asks for. ``unsaved``: how many of its stops no
    period saves. ``stops``: if they are kept.
    """

    name: str
    wave: int
    survival: Survival
    verdict: WorkloadVerdict
    wanted_seconds: int | None
    longest_killed: KilledStop | None
    unsaved: int = 0
    stops: tuple[Stop, ...] = ()

    @property
    def need_ns(self) -> int | None:
        """What it needs; None: not reached."""
        return self.survival.longest_ns

    @property
    def ended_ns(self) -> int | None:
        """The longest of its stops that ended by themselves."""
        return self.survival.ended_ns


class WaveAdvice(NamedTuple):
    """``seconds``: the advice; ``because``: the workload that decides it, "" for a kept period.

    ``left_out``: how many of its pods are no evidence.
    """

    priority: int
    configured_seconds: int
    seconds: int
    because: str
    kept: KeptBecause
    stops: int
    survival: Survival
    left_out: int = 0
    caution: Caution = CAUTION

    @property
    def pods(self) -> int:
        return self.stops + self.left_out


class LeftOut(NamedTuple):
    """Pods that are no evidence, for one cause: ``text`` is the cause, ``labels`` the pods, if kept."""

    text: str
    pods: int
    labels: tuple[str, ...] = ()


class Advice(NamedTuple):
    """``saved``, ``perhaps`` and ``hopeless`` divide the known stops: these end within the advised periods by
    observation; these if they behave like their workload's others; these not for certain.

    ``short``: nodes whose logind grants less than these periods ask for: the grant limits their stops.
    ``cut``: the hopeless stops that only this limit keeps from ending.

    ``counts`` has their numbers. Only `advise` keeps the stops and the shutdowns' ids; a sum over many places
    does not.
    """

    shutdown_count: int
    nodes: int
    configuration: shutdown_record.ConfigurationRecord
    waves: tuple[WaveAdvice, ...]
    workloads: tuple[Workload, ...]
    counts: Mapping[Outlook, int]
    short: tuple[ShortGrant, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    caution: Caution = CAUTION
    shutdowns: tuple[str, ...] = ()
    saved: tuple[Stop, ...] = ()
    perhaps: tuple[Stop, ...] = ()
    hopeless: tuple[Stop, ...] = ()
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


def advise(shutdowns: Iterable[shutdown_record.ShutdownRecord], caution: Caution = CAUTION) -> Advice:
    """From all these shutdowns together; keeps their stops, not the shutdowns. Raises NoEvidence."""
    evidence = Evidence()
    # By their journals too: two journals may share the digits in a shutdown's id.
    ids: dict[tuple[str, str], None] = {}
    stops: dict[StopKind, list[Stop]] = {}
    labels: dict[str, list[str]] = {}
    for shutdown in shutdowns:
        if shutdown.headless:
            continue
        ids[shutdown.journal_id, shutdown.id] = None
        for kind, stop in evidence.add(shutdown):
            stops.setdefault(kind, []).append(stop)
        for pod, cause in _silent_pods(shutdown):
            labels.setdefault(cause_key(pod, cause), []).append(pod.label)
    advice = conclude(evidence, caution)
    # The evidence has decided; add the stops' owners.
    periods = advice.configuration.periods
    by_workload: dict[tuple[int, str], list[tuple[StopKind, Stop]]] = {}
    for kind, members in stops.items():
        of = by_workload.setdefault((group_index(periods, kind.priority), kind.workload), [])
        of += ((kind, stop) for stop in members)
    order = {key: at for at, key in enumerate(ids)}
    parts: dict[Outlook, list[Stop]] = {"saved": [], "perhaps": [], "hopeless": []}
    cut: list[Stop] = []
    workloads = []
    rooms = Rooms(advice)
    for each in advice.workloads:
        # In their order: of a shutdown, in the order of its pods.
        seen = sorted(by_workload[each.wave, each.name], key=lambda item: order[item[1].episode])
        for kind, stop in seen:
            now, enough = rooms.outlooks(kind, stop.observed.ns, each)
            parts[now].append(stop)
            if now == "hopeless" != enough:
                cut.append(stop)
        workloads.append(each._replace(stops=tuple(stop for _, stop in seen)))
    return advice._replace(
        shutdowns=tuple(shutdown for _, shutdown in ids),
        workloads=tuple(workloads),
        saved=tuple(parts["saved"]),
        perhaps=tuple(parts["perhaps"]),
        hopeless=tuple(parts["hopeless"]),
        cut=tuple(cut),
        left_out=tuple(
            found._replace(labels=tuple(labels[key]))
            for key, found in zip(_left_out_order(evidence), advice.left_out, strict=True)
        ),
    )


# --- evidence that adds up ---------------------------------------------------------------------


class StopKind(NamedTuple):
    """All of a stop but its time: only the time distinguishes stops of one kind.

    ``hooked``: a hook ran. ``grant_ns``: of a shutdown with less than its node asked logind for; 0: any
    other.
    """

    workload: str
    priority: int
    wanted_seconds: int | None
    grace_ns: int
    ended: bool
    limited: bool
    ignored_stop: bool
    hook_cut: bool
    hooked: bool
    grant_ns: int = 0


class NewestShutdown(NamedTuple):
    """By its begin, then by its owner, so that any order gives the same."""

    started_wall_ns: int
    journal_id: str
    first_seq: int
    configuration: shutdown_record.ConfigurationRecord


class SeenAt(NamedTuple):
    """A pod's place among all: of the earliest shutdown, in the order of its pods."""

    started_wall_ns: int
    journal_id: str
    first_seq: int
    position: int


class Evidence:
    """The input of an advice. It adds up: from many journals in any order, and in any parts.

    Its memory grows with workloads, nodes, and distinct times of stops, not with stops.
    """

    def __init__(self) -> None:
        self.shutdowns = 0
        self.machines: dict[tuple[str, str], None] = {}
        self.newest: NewestShutdown | None = None
        #: By kind: how many stops took so many nanoseconds.
        self.stops: dict[StopKind, Counter[int]] = {}
        #: Where a workload, of a priority, came first: in the earliest shutdown, in any order of reading.
        self.first: dict[tuple[str, int], SeenAt] = {}
        #: Pods that are no evidence, by priority; and by cause, with its sentence, which is empty if they
        #: have several.
        self.silent: Counter[int] = Counter()
        self.causes: Counter[str] = Counter()
        self.sentences: dict[str, str] = {}
        #: The last of each node and grant; two clusters may have nodes of one name.
        self.shorts: dict[tuple[str, str, int], ShortGrant] = {}

    def add(self, shutdown: shutdown_record.ShutdownRecord) -> Sequence[tuple[StopKind, Stop]]:
        """Adds its stops; none of a shutdown without its begin on record."""
        # Its stops have no known begin, and its missing pods may have been slow.
        if shutdown.headless:
            return []
        self.shutdowns += 1
        self.machines[shutdown.node, shutdown.machine_id] = None
        if shutdown.configuration.periods:
            newest = NewestShutdown(
                shutdown.started_wall_ns, shutdown.journal_id, shutdown.first_seq, shutdown.configuration
            )
            self._take_newest(newest)
        asked_ns = shutdown.configuration.requested_ns + shutdown.configuration.reserve_ns
        short = None
        if 0 < shutdown.grant_ns < asked_ns:
            short = ShortGrant(
                shutdown.id,
                shutdown.node,
                shutdown.grant_ns,
                asked_ns,
                shutdown.journal_id,
                shutdown.machine_id,
                shutdown.started_wall_ns,
            )
            self._take_short(short)
        found = [(_kind(stop, short), stop) for stop in observed_stops((shutdown,))]
        for at, (kind, stop) in enumerate(found):
            self.stops.setdefault(kind, Counter())[stop.observed.ns] += 1
            seen = SeenAt(shutdown.started_wall_ns, shutdown.journal_id, shutdown.first_seq, at)
            self._take_first((kind.workload, kind.priority), seen)
        for pod, cause in _silent_pods(shutdown):
            self.silent[_priority(pod.priority)] += 1
            self._take_cause(cause_key(pod, cause), cause.sentence, 1)
        return found

    def merge(self, other: Evidence) -> None:
        """Of other shutdowns."""
        self.shutdowns += other.shutdowns
        self.machines |= other.machines
        if other.newest is not None:
            self._take_newest(other.newest)
        for kind, times in other.stops.items():
            self.stops.setdefault(kind, Counter()).update(times)
        for workload_of, seen in other.first.items():
            self._take_first(workload_of, seen)
        self.silent.update(other.silent)
        for key, count in other.causes.items():
            self._take_cause(key, other.sentences[key], count)
        for short in other.shorts.values():
            self._take_short(short)

    def _take_newest(self, found: NewestShutdown) -> None:
        if self.newest is None or self.newest[:3] <= found[:3]:
            self.newest = found

    def _take_first(self, workload_of: tuple[str, int], seen: SeenAt) -> None:
        self.first[workload_of] = min(self.first.get(workload_of, seen), seen)

    def _take_cause(self, key: str, sentence: str, count: int) -> None:
        same = self.sentences.setdefault(key, sentence) == sentence
        self.sentences[key] = sentence if same else ""
        self.causes[key] += count

    def _take_short(self, found: ShortGrant) -> None:
        key = (found.node, found.machine_id, found.grant_ns)
        self.shorts[key] = max(self.shorts.get(key, found), found, key=lambda each: each.order)


def _kind(stop: Stop, short: ShortGrant | None) -> StopKind:
    return StopKind(
        stop.workload,
        _priority(stop.priority),
        stop.wanted_seconds,
        stop.grace_ns,
        stop.observed.ended,
        stop.limited,
        stop.ignored_stop,
        stop.hook_cut,
        any(part.hook_ns for part in stop.parts),
        short.grant_ns if short is not None else 0,
    )


def conclude(evidence: Evidence, caution: Caution = CAUTION) -> Advice:
    """The advice of all that was added. Raises NoEvidence."""
    left_out = tuple(
        LeftOut(evidence.sentences[key] or key, evidence.causes[key]) for key in _left_out_order(evidence)
    )
    newest = evidence.newest
    if newest is None or not evidence.stops:
        raise NoEvidence(
            "; ".join(["no shutdown that stopped a pod is on record", *left_out_sentences(left_out)])
        )
    periods = newest.configuration.periods
    groups: dict[tuple[int, str], dict[StopKind, Counter[int]]] = {}
    first: dict[tuple[int, str], SeenAt] = {}
    for kind, times in evidence.stops.items():
        key = (group_index(periods, kind.priority), kind.workload)
        groups.setdefault(key, {})[kind] = times
        seen = evidence.first[kind.workload, kind.priority]
        first[key] = min(first.get(key, seen), seen)
    # By wave, then in their first order.
    ordered = sorted(groups, key=lambda key: (key[0], first[key]))
    known = [_workload(name, wave, groups[wave, name]) for wave, name in ordered]
    missing: Counter[int] = Counter()
    for priority, count in evidence.silent.items():
        missing[group_index(periods, priority)] += count
    waves = tuple(
        _wave(
            period,
            [(each, groups[at, each.name]) for each in known if each.wave == at],
            missing[at],
            caution,
        )
        for at, period in enumerate(periods)
    )
    advice = Advice(
        evidence.shutdowns,
        len(evidence.machines),
        newest.configuration,
        waves,
        (),
        {},
        left_out=left_out,
        caution=caution,
    )
    rooms = Rooms(advice)
    counts: Counter[Outlook] = Counter()
    workloads = []
    for each in known:
        unsaved = 0
        for kind, times in groups[each.wave, each.name].items():
            for ns, count in times.items():
                now, enough = rooms.outlooks(kind, ns, each)
                counts[now] += count
                # A better grant saves the stops that only a small grant cuts (`grant_sentences`).
                unsaved += count if enough == "hopeless" else 0
        workloads.append(each._replace(unsaved=unsaved))
    shorts = sorted(
        (each for each in evidence.shorts.values() if each.grant_ns < advice.drop_in_ns),
        key=lambda each: each.order,
    )
    last = {(each.node, each.machine_id): each for each in shorts}
    return advice._replace(
        workloads=tuple(workloads),
        counts=counts,
        short=tuple(last[key] for key in sorted(last)),
    )


Kinds = Mapping[StopKind, Counter[int]]


def _left_out_order(evidence: Evidence) -> list[str]:
    """The largest group comes first."""
    return sorted(evidence.causes, key=lambda key: (-evidence.causes[key], key))


def _workload(name: str, wave: int, kinds: Kinds) -> Workload:
    curve = survival(_stop_counts(kinds))
    longest = max(
        (
            KilledStop(max(times), kind.limited, kind.wanted_seconds)
            for kind, times in kinds.items()
            if not kind.ended
        ),
        # Of several that were killed after the same time, the more informative one.
        key=lambda each: (each.ns, each.limited, each.wanted_seconds is None, each.wanted_seconds or 0),
        default=None,
    )
    wanted = [kind.wanted_seconds for kind in kinds if kind.wanted_seconds is not None]
    verdict = _verdict(kinds, curve, longest)
    return Workload(name, wave, curve, verdict, max(wanted, default=None), longest)


def _stop_counts(kinds: Kinds) -> StopCounts:
    none: Counter[int] = Counter()
    return merge_counts(
        StopCounts(times, none) if kind.ended else StopCounts(none, times) for kind, times in kinds.items()
    )


def _priority(known: int | None) -> int:
    """A pod without one counts as the kubelet counts it."""
    return DEFAULT_PRIORITY if known is None else known


def _silent_pods(
    shutdown: shutdown_record.ShutdownRecord,
) -> Iterator[tuple[shutdown_record.PodRecord, Cause]]:
    """Pods that did not end by themselves, with an unknown need."""
    for pod in shutdown.pods:
        if shutdown.outcome == "running" and pod.outcome is None:
            continue
        cause = cause_of(pod)
        if cause is not None and _observed(pod, shutdown) is None:
            yield pod, cause


def left_out_sentences(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """The pods that are no evidence, and why; a sentence a cause."""
    for each in left_out:
        pods = plural(each.pods, "pod")
        yield f"left out, since nobody saw how long it takes: {pods}: {each.text}"


def _verdict(kinds: Kinds, curve: Survival, longest: KilledStop | None) -> WorkloadVerdict:
    if curve.is_complete:
        return "mostly" if curve.censored else "ends"
    if curve.censored == curve.total and all(kind.ignored_stop for kind in kinds):
        return "deaf"
    if longest is not None and longest.limited:
        return "too-short"
    return "own-grace" if curve.censored == curve.total else "unsteady"


def _wave(
    period: Period, workloads: Sequence[tuple[Workload, Kinds]], left_out: int, caution: Caution
) -> WaveAdvice:
    known = [(each.ended_ns, each.name) for each, _ in workloads if each.ended_ns is not None]
    need_ns, because = max(known, key=lambda each: each[0], default=(None, ""))
    seconds = 0 if need_ns is None else _with_margin(need_ns, [each for each, _ in workloads], caution)
    curve = survival(merge_counts(_stop_counts(kinds) for _, kinds in workloads))
    kept: KeptBecause = ""
    if not workloads:
        kept = "left-out" if left_out else "never-stopped"
    elif not seconds:
        kept = "never-ended"
    elif seconds < period.seconds:
        # A pod with too little time and an unknown need allows no shorter period. A pod that ignores its stop
        # signal does: no period saves it.
        unknown = (
            kinds for each, kinds in workloads if not (each.survival.is_complete or each.verdict == "deaf")
        )
        if any(kind.limited for kinds in unknown for kind in kinds):
            kept = "too-short"
        elif curve.total < caution.share_min * (curve.total + left_out):
            kept = "few-pods"
        elif curve.total < caution.stops_min:
            kept = "few-stops"
    if kept:
        seconds, because = period.seconds, ""
    return WaveAdvice(
        period.priority, period.seconds, seconds, because, kept, curve.total, curve, left_out, caution
    )


def _with_margin(need_ns: int, workloads: Sequence[Workload], caution: Caution) -> int:
    """Whole seconds, and more than the need, because SIGKILL comes at the end of the grace."""
    least = need_ns // NS_PER_SECOND + 1
    whole = need_ns * (100 + caution.margin_percent) // (100 * NS_PER_SECOND) + 1
    # No pod can use more than its own grace.
    asked = [each.wanted_seconds for each in workloads]
    useful = whole if None in asked else max(seconds for seconds in asked if seconds is not None)
    return max(least, min(whole, useful))


# Whom the advised periods save under the grant of each node.
#
# Some logind does not grant the request: a later file overrides the drop-in, raising is off, or logind
# ignores it. A shutdown with less than its request shows such a node. There the code divides the advised
# periods as the daemon does, from the highest priority down, and promises no pod more.


Outlook = Literal["saved", "perhaps", "hopeless"]


class ShortGrant(NamedTuple):
    """A shutdown with less than its node's request to logind, ``asked_ns``."""

    shutdown: str
    node: str
    grant_ns: int
    asked_ns: int
    journal_id: str = ""
    machine_id: str = ""
    started_wall_ns: int = 0

    @property
    def order(self) -> tuple[int, str, str]:
        """By its begin, then by its owner."""
        return self.started_wall_ns, self.journal_id, self.shutdown


class WaveTime(NamedTuple):
    """The time of a wave. ``is_cut``: under a grant that is too small, ``margin_ns`` of it may be missing."""

    seconds: int
    margin_ns: int = 0
    is_cut: bool = False


def wave_times(periods: Sequence[Period], grant_ns: int | None) -> tuple[WaveTime, ...]:
    """``grant_ns`` None: logind grants what these periods ask for."""
    if grant_ns is None:
        return tuple(WaveTime(period.seconds) for period in periods)
    shares = share_grant(periods, grant_ns // NS_PER_SECOND)
    last = max((at for at, each in enumerate(shares) if each.seconds), default=0)
    return tuple(
        WaveTime(each.seconds, END_MARGIN_NS if at >= last else 0, is_cut=True)
        for at, each in enumerate(shares)
    )


class Rooms:
    """The time of each wave of the advised periods, under any grant."""

    def __init__(self, advice: Advice) -> None:
        self._periods, self._drop_in_ns = advice.periods, advice.drop_in_ns
        self._enough = wave_times(self._periods, None)
        self._short: dict[int, tuple[WaveTime, ...]] = {}

    def outlooks(self, kind: StopKind, ns: int, of: Workload) -> tuple[Outlook, Outlook]:
        """Of such a stop after that time: under its node's grant, and with the full request."""
        enough = outlook(kind, ns, of.need_ns, self._enough[of.wave])
        # A grant that was too small for that configuration may be enough for these periods.
        if not 0 < kind.grant_ns < self._drop_in_ns:
            return enough, enough
        if kind.grant_ns not in self._short:
            self._short[kind.grant_ns] = wave_times(self._periods, kind.grant_ns)
        return outlook(kind, ns, of.need_ns, self._short[kind.grant_ns][of.wave]), enough


def outlook(kind: StopKind, ns: int, need_ns: int | None, room: WaveTime) -> Outlook:
    """Its grace is the period, or its own smaller one. ``need_ns``: of its workload, None: unknown."""
    wanted = kind.wanted_seconds
    grace_ns = (room.seconds if wanted is None else min(room.seconds, wanted)) * NS_PER_SECOND
    if not kind.ended:
        return "perhaps" if need_ns is not None and need_ns < grace_ns - room.margin_ns else "hopeless"
    # A hook is cut early enough for the fixed time between stop signal and SIGKILL.
    floor_ns = FLOOR_NS if room.margin_ns and kind.hooked else 0
    in_time = ns < grace_ns - room.margin_ns - floor_ns
    # After a hook that used up the grace, this fixed time comes on top.
    as_then = not room.margin_ns and (
        kind.grace_ns == grace_ns if kind.hook_cut else kind.grace_ns <= grace_ns
    )
    if as_then or (in_time and not kind.hook_cut):
        return "saved"
    return "perhaps" if in_time or not room.is_cut else "hopeless"


# The advice to paste: the configuration, the drop-in's value, and a sentence a problem.


_DROP_IN = "/run/systemd/logind.conf.d"

#: Nodes that a sentence names.
NODES_NAMED_MAX = 3

#: Columns of a comment, if there is room.
COMMENT_COLUMNS = 76


def configuration_to_paste(advice: Advice, columns: int = COMMENT_COLUMNS) -> str:
    """An Ebbtide configuration in YAML; the last lines say what logind must grant.

    Paste it over the current configuration: other settings stay. Comments have lines of their own, of so many
    columns, so that a copy from a terminal is still YAML.
    """
    lines = [
        "apiVersion: ebbtide/v1alpha1",
        "kind: EbbtideConfiguration",
        "shutdownGracePeriodByPodPriority:",
    ]
    if advice.left_out:
        said = (line for each in left_out_sentences(advice.left_out) for line in _comment(each, columns))
        lines = [*said, *lines]
    for wave in advice.waves:
        lines += _comment(wave_comment(wave), columns, "  # ")
        lines += [f"  - priority: {wave.priority}", f"    shutdownGracePeriodSeconds: {wave.seconds}"]
    lines += [
        f"reserve: {advice.reserve_seconds}s",
        *_comment(
            f"logind must grant {span_s(advice.requested_seconds)} requested +"
            f" {span_s(advice.reserve_seconds)} reserved. The daemon"
            f" {'asks for' if advice.short else 'sees to'} it unless raiseGrant is false;"
            f" by hand, in a file below {_DROP_IN} or /etc/systemd/logind.conf.d:",
            columns,
        ),
        "#   [Login]",
        f"#   InhibitDelayMaxSec={advice.drop_in_seconds}",
        *(line for sentence in grant_sentences(advice) for line in _comment(sentence, columns)),
    ]
    return "\n".join(lines) + "\n"


def grant_sentences(advice: Advice) -> Iterator[str]:
    """A sentence for each node that does not grant the advice, three of them by name."""
    for short in advice.short[:NODES_NAMED_MAX]:
        yield (
            f"On {_plain_text(short.node)} the grant was not raised: {span(short.grant_ns)} of the"
            f" {span(short.asked_ns)} asked for. Find out why ('ebbtide doctor'): until then these"
            " periods are cut there."
        )
    if len(advice.short) > NODES_NAMED_MAX:
        yield f"So it was on {plural(len(advice.short) - NODES_NAMED_MAX, 'other node')}."


def _comment(text: str, columns: int, prefix: str = "# ") -> list[str]:
    # Never inside of a word: half a path or half a pod's name cannot be copied.
    return wrap(
        text,
        columns,
        initial_indent=prefix,
        subsequent_indent=prefix,
        break_long_words=False,
        break_on_hyphens=False,
    )


_KEPT_TEXTS: dict[KeptBecause, str] = {
    "never-stopped": "as it is: no pod of it was ever stopped",
    "left-out": "as it is: none of its {pods} says how long it needs",
    "never-ended": "as it is: no pod of it ever ended by itself",
    "too-short": "as it is: a pod of it was killed before its own grace was over",
    "few-stops": "as it is: {stops}, too few to shorten it ({stops_min} are needed)",
    "few-pods": "as it is: known of {seen} of its {pods}, too few to shorten it ({share} are needed)",
}


def wave_comment(wave: WaveAdvice) -> str:
    """What decides a wave's period."""
    caution = wave.caution
    if wave.kept:
        return _KEPT_TEXTS[wave.kept].format(
            pods=plural(wave.pods, "pod"),
            stops=plural(wave.stops, "stop"),
            seen=wave.stops,
            stops_min=caution.stops_min,
            share=f"{caution.share_min.numerator} of {caution.share_min.denominator}",
        )
    # If others were killed, the longest time is unknown, and its column says so.
    who = "the slowest that ended" if wave.survival.censored else "the slowest"
    margin = f", and {caution.margin_percent} % for a slower day" if caution.margin_percent else ""
    return f"{who}, {_plain_text(wave.because)}, took {span(wave.survival.ended_ns or 0)}{margin}"


def _plain_text(name: str) -> str:
    """A name in a comment stays on its line, whatever a journal has."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


def problems(advice: Advice) -> Iterator[tuple[Workload, str]]:
    """Every workload with a pod that no period can save on this evidence, and the cure."""
    for each in advice.workloads:
        longest = each.longest_killed
        if longest is not None and each.unsaved:
            count, total = each.survival.censored, each.survival.total
            need_ns, wanted = each.need_ns or 0, longest.wanted_seconds
            sentence = _SENTENCES[each.verdict].format(
                killed="every time" if count == total else f"{count} of {plural(total, 'time')}",
                had=span(longest.ns),
                asks="asks for no grace of its own" if wanted is None else f"asks for {span_s(wanted)}",
                asked=span_s(wanted or 0),
                wanted=wanted,
                ended=span(each.ended_ns or 0),
                need=span(need_ns),
                enough=need_ns // NS_PER_SECOND + 1,
            )
            yield each, sentence


_SENTENCES: dict[WorkloadVerdict, str] = {
    "mostly": (
        # Its replicas ask for different times, or only one of them has hooks.
        "was killed {killed}, at the latest after {had} ({asks}), and takes up to {need} where it has that:"
        " raise its terminationGracePeriodSeconds to {enough}"
    ),
    "deaf": (
        "ignored its stop signal until SIGKILL {killed}: no period helps; let its first process handle the"
        " signal, or name another with stopSignal"
    ),
    "own-grace": (
        "was killed {killed} after all the time that it asks for ({asked}): no period helps; raise its"
        " terminationGracePeriodSeconds above {wanted}"
    ),
    "too-short": (
        "was killed {killed}, at the latest after {had}, and {asks}: how much it needs is not known; give its"
        " wave more and see"
    ),
    "unsteady": (
        "ended within {ended}, or was killed ({killed}), at the latest after all the time that it asks for"
        " ({asked}): find out what it waits for, or raise its terminationGracePeriodSeconds"
    ),
}


# How each pod really stopped, as observations: from the records of shutdowns, of one node or of a fleet.
#
# A stop counts from its begin, hooks included, because a grace has to cover that. It is censored if the pod
# did not end by itself: killed, hurried, or still there at the end of the wait. A pod with a refused stop
# signal, or that was never asked, is no observation.


class Stop(NamedTuple):
    """One pod in one shutdown. ``wanted_seconds`` None: it asks for no grace of its own."""

    shutdown: str
    node: str
    uid: str
    label: str
    workload: str
    priority: int | None
    wanted_seconds: int | None
    grace_ns: int
    observed: Observation
    #: It was killed, or its record ended, before its own grace was over, or it has none.
    limited: bool = False
    #: Just before SIGKILL, its first process ignored the stop signal.
    ignored_stop: bool = False
    #: A hook did not run, or did not come to its own end: with another grace it may take longer.
    hook_cut: bool = False
    parts: tuple[ContainerTimes, ...] = ()
    journal_id: str = ""

    @property
    def episode(self) -> tuple[str, str]:
        """Identifies its shutdown: its journal's id, and its own."""
        return self.journal_id, self.shutdown


def observed_stops(shutdowns: Iterable[shutdown_record.ShutdownRecord]) -> Iterator[Stop]:
    """In the order of the shutdowns, each in the order of its pods."""
    for shutdown in shutdowns:
        for pod in shutdown.pods:
            observed = _observed(pod, shutdown)
            if observed is None:
                continue
            grace_ns = pod.grace_ns if pod.grace_ns is not None else 0
            wanted = pod.wanted_grace_seconds
            short = wanted is None or grace_ns < wanted * NS_PER_SECOND or pod.hurried_ns is not None
            if wanted is not None and pod.outcome not in ("killed", "failed"):
                # The record ended before the pod's grace.
                short |= observed.ns < wanted * NS_PER_SECOND
            # A hook that ended with its container was not cut: more time would change nothing.
            exits = {each.name: each.exited_ns for each in pod.containers}
            hook_cut = False
            for hook in pod.hooks:
                gone_ns = exits.get(hook.container)
                gone = gone_ns is not None and hook.ended_ns is not None and gone_ns <= hook.ended_ns
                hook_cut |= hook.result not in ("done", "failed") and not gone
            yield Stop(
                shutdown=shutdown.id,
                node=shutdown.node,
                uid=pod.uid,
                label=pod.label,
                workload=workload(pod.namespace, pod.name, shutdown.node),
                priority=pod.priority,
                wanted_seconds=wanted,
                grace_ns=grace_ns,
                observed=observed,
                limited=not observed.ended and short,
                ignored_stop=not observed.ended and ignored_stop(pod),
                hook_cut=hook_cut,
                parts=container_times(pod, (pod.began_ns or 0) + observed.ns),
                journal_id=shutdown.journal_id,
            )


def workload(namespace: str, name: str, node: str = "") -> str:
    """``namespace/name`` without the replica's part; a StatefulSet keeps its number."""
    return f"{namespace}/{workload_name(name, node)}"


def _observed(pod: shutdown_record.PodRecord, shutdown: shutdown_record.ShutdownRecord) -> Observation | None:
    if pod.began_ns is None or pod.outcome in ("spared", "rejected"):
        return None
    if pod.outcome == "graceful" and pod.ended_ns is not None:
        return Observation(pod.ended_ns - pod.began_ns, ended=True)
    if any(each.stop_refused for each in pod.containers):
        return None
    # Up to the first of these it had not ended by itself; the rest is unknown.
    ends = (pod.hurried_ns, *(each.killed_ns for each in pod.containers), pod.ended_ns)
    known = [each for each in ends if each is not None]
    known += [] if known or shutdown.pods_ended_ns is None else [shutdown.pods_ended_ns]
    return Observation(max(0, min(known, default=shutdown.last_ns) - pod.began_ns), ended=False)


# What each container had in a pod's stop: a grace has to cover the slowest of them, not their sum.
#
# All containers run their hooks at once, each gets its signal after its own hook; sidecars get theirs after
# all others ended, in reverse order. So a longer hook delays its own container and the sidecars only.


class ContainerTimes(NamedTuple):
    """``hook_ns``: how long its hook ran (``slept``: a sleep); ``stop_ns``: from there, or from its turn, on.

    ``container`` "": a whole pod without containers on record.
    """

    container: str
    sidecar: bool
    slept: bool
    hook_ns: int
    stop_ns: int


def container_times(pod: shutdown_record.PodRecord, until_ns: int) -> tuple[ContainerTimes, ...]:
    """Of a stop that ended, or was cut, at ``until_ns``; containers in their order."""
    began_ns = until_ns if pod.began_ns is None else pod.began_ns
    known = {each.name: each for each in pod.containers if each.running}
    hooks: dict[str, shutdown_record.HookRecord] = {}
    for hook in pod.hooks:
        hooks.setdefault(hook.container, hook)
    # A hook without its container on record took its time too.
    for name in hooks:
        known.setdefault(name, shutdown_record.ContainerRecord(name=name))
    ends = {name: _first_of(each.exited_ns, until_ns) for name, each in known.items()}
    others_ns = max((ends[name] for name, each in known.items() if not each.sidecar), default=began_ns)
    found = []
    for name, each in known.items():
        run = hooks.get(name)
        hook_ns = 0 if run is None else max(0, _first_of(run.ended_ns, until_ns) - run.began_ns)
        turn_ns = others_ns if each.sidecar else began_ns + hook_ns
        asked_ns = turn_ns if each.signalled_ns is None else each.signalled_ns
        slept = run is not None and run.kind == "sleep"
        found.append(ContainerTimes(name, each.sidecar, slept, hook_ns, max(0, ends[name] - asked_ns)))
    if not pod.containers:
        found.append(ContainerTimes("", False, False, 0, until_ns - began_ns))
    return tuple(found)


def _first_of(at_ns: int | None, until_ns: int) -> int:
    return until_ns if at_ns is None else min(at_ns, until_ns)
