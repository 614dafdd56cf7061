"""From a journal back to a running system: the last checkpoint, and every fact after it.

Where this version decides differently from the record, it continues with the facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from ebbtide.actors.actor import UndeclaredTransition
from ebbtide.actors.config_reconciler import CONFIG, ConfigState
from ebbtide.actors.episode import EPISODE, EpisodePhase, EpisodeState
from ebbtide.actors.hook import HOOK, PodState
from ebbtide.actors.interfaces import Clock
from ebbtide.actors.system import EDGE, System, take_checkpoint
from ebbtide.daemon_status import FOLDED_TAGS, DaemonStatus
from ebbtide.events import decisions, facts
from ebbtide.events.base import NS_PER_SECOND, Stamp, shutdown_trace_id
from ebbtide.events.catalog import Source
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, decode_event, decode_record
from ebbtide.events.disk import SEGMENT_BYTES_MAX
from ebbtide.events.reader import History
from ebbtide.events.record.fold import ShutdownFold
from ebbtide.events.recovery import ForeignJournal, Verdict, refuse_foreign
from ebbtide.events.segment import SHUTDOWN_LOGIC
from ebbtide.events.values import Pod
from ebbtide.events.writer import Writer
from ebbtide.otel.metric_table import METERED, Meters, fold, kept_meters
from ebbtide.replay.replayer import Divergence, Replayer

#: Facts of every start. A start without any further fact has failed.
OF_A_START = (facts.DaemonStarted.__name__, facts.SettingsLoaded.__name__)


class FailedStarts:
    """Counts the last starts in a row that failed at the same record, as a bug makes them fail. Killed starts
    must not lead to the fallback.
    """

    def __init__(self) -> None:
        self._count = 0
        #: The last record of the former start, and of this one; empty: it succeeded.
        self._before, self._last = "", ""

    def see(self, raw: RawRecord) -> None:
        """A fact. Raises UnknownType and BadPayload."""
        if raw.tag == OF_A_START[0]:
            self._count, self._before = self.count, self._last
            self._last = raw.tag
        elif raw.tag in OF_A_START:
            self._last = self._last and raw.tag
        elif self._last:
            fact = decode_event(raw.tag, raw.payload)
            # A start itself ends the former one's orders as unknown: that is no success.
            if isinstance(fact, facts.OrderEnded) and fact.result == "unknown":
                # Not its ordinal: each start uses some.
                self._last = fact.key.rpartition("/")[0]
            else:
                self._last = ""

    @property
    def count(self) -> int:
        if not self._last:
            return 0
        return self._count + 1 if self._last == self._before else 1


#: Earlier hooks belong to another shutdown: a restarted pod keeps its UID in some runtimes.
OF_ANOTHER_SHUTDOWN = (decisions.ShutdownBegan.__name__, decisions.EpisodeClosed.__name__)

#: Outside of a shutdown each sets the same fields anew: only the last one is decoded.
LATEST = frozenset(
    kind.__name__
    for kind in (
        *(decisions.Armed, decisions.ConfigAdopted, decisions.Disarmed, decisions.GrantAssessed),
        *(facts.ApiRead, facts.KubeletRead, facts.LogindRead, facts.RuntimeRead, facts.ScheduleRead),
    )
)

#: Records before the last checkpoint: a shutdown of a thousand pods fits; reading takes 0.2 s.
EARLIER_BYTES_MAX = 8 * 1024 * 1024


class Recovered(NamedTuple):
    """``failed_starts``: see `FailedStarts`. ``spent``: keys of this shutdown's hooks that were ordered but
    are not in the state (after a divergence).
    """

    system: System
    status: DaemonStatus
    verdict: Verdict
    trace_id: str
    failed_starts: int
    divergence: Divergence | None
    spent: frozenset[str] = frozenset()
    #: The metrics' sums; None if they lack the older records.
    meters: Meters | None = None


def beside(verdict: Verdict, wall_ns: int) -> Verdict:
    """For a new journal beside an unreadable one: the clock's number makes it the newer one."""
    return verdict._replace(next_number=max(verdict.next_number, wall_ns // NS_PER_SECOND))


def begin_segment(writer: Writer, system: System, clock: Clock) -> int:
    """With a checkpoint. Returns the size that makes the next segment due."""
    writer.begin_segment(Stamp(clock.mono_ns(), clock.wall_ns()), take_checkpoint(system))
    system.next_seq += 1  # the checkpoint's own
    return writer.segment_bytes + SEGMENT_BYTES_MAX


class Unreadable(Exception):
    """Use another version, or name another directory with --journal."""


def recover(sources: Sequence[Source], machine_id: str, fresh_id: bytes) -> Recovered:
    """Raises Unreadable, events.recovery.ForeignJournal, OSError."""
    try:
        return _recover(sources, machine_id, fresh_id)
    except (Unreadable, ForeignJournal, UndeclaredTransition, OSError):
        raise
    except (UnknownType, BadPayload) as error:
        raise Unreadable(f"the journal cannot be read by this version: {error}") from error
    # Any defect: it must not end pods without their grace.
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise Unreadable(f"the journal cannot be used, please report it: {what}") from error


def _recover(sources: Sequence[Source], machine_id: str, fresh_id: bytes) -> Recovered:
    history = History(sources, from_checkpoint=True, logics=(SHUTDOWN_LOGIC,))
    replayer = Replayer(goes_on=True)
    past = _Past(kept_meters(sources, history.journal_id or fresh_id))
    # For the last shutdown's display.
    for raw in history.earlier(EARLIER_BYTES_MAX):
        past.see(raw)
    replayer.feed(past.see(raw) for raw in history.raw())
    past.fold_latest()
    verdict, system = history.verdict, replayer.system
    # A disk from another machine: its open orders would end our pods.
    refuse_foreign(verdict.header, machine_id)
    if verdict.state == "incompatible":
        raise Unreadable(verdict.banner)
    system.next_seq = verdict.start(fresh_id).after.seq + 1
    complete_from_actors(past.status, system)
    # The shutdown's first record may be before the records read.
    trace_id = ""
    if system.episode:
        first_hash = past.hashes.get(system.episode)
        if first_hash is None:
            found = (raw.hash for raw in History(sources).raw() if raw.seq == system.episode)
            first_hash = next(found, b"")
        trace_id = shutdown_trace_id(first_hash)
    elif past.hashes:
        trace_id = shutdown_trace_id(past.hashes[max(past.hashes)])
    return Recovered(
        system=system,
        status=past.status,
        verdict=verdict,
        trace_id=trace_id,
        failed_starts=past.starts.count,
        divergence=replayer.finish(),
        spent=frozenset(key for key, order in past.hooks.items() if not _knows_hook(system, order)),
        meters=past.meters if past.meters_whole and past.meters.seq < system.next_seq else None,
    )


class _Past:
    """Over all read records, also where the replay diverges."""

    def __init__(self, meters: Meters) -> None:
        self.status = DaemonStatus()
        self.meters, self.meters_whole = meters, True
        self._seen_seq = meters.seq
        self.starts = FailedStarts()
        #: Of each shutdown's first record.
        self.hashes: dict[int, bytes] = {}
        self.hooks: dict[str, decisions.RunHook] = {}
        self._latest: dict[str, RawRecord] = {}

    def see(self, raw: RawRecord) -> RawRecord:
        # A shutdown's number is its first record's.
        if raw.episode == raw.seq:
            self.hashes[raw.seq] = raw.hash
        self.meters_whole &= raw.seq <= self._seen_seq + 1
        self._seen_seq = max(self._seen_seq, raw.seq)
        with suppress(UnknownType, BadPayload):  # the replayer says so, where it matters
            if raw.cause == 0 and raw.actor == EDGE:
                self.starts.see(raw)
            if raw.tag == decisions.RunHook.__name__:
                order = decode_event(raw.tag, raw.payload)
                assert isinstance(order, decisions.RunHook)
                self.hooks[order.key] = order
            elif raw.tag in OF_ANOTHER_SHUTDOWN:
                self.hooks.clear()
            # Most records are neither shown nor counted, and decoding makes a start slow.
            if raw.tag in LATEST and not raw.episode:
                self._latest.pop(raw.tag, None)
                self._latest[raw.tag] = raw
            elif raw.tag in METERED or (raw.episode and raw.tag in FOLDED_TAGS):
                self.fold_latest()
                self._fold(raw)
        return raw

    def fold_latest(self) -> None:
        latest, self._latest = self._latest, {}
        for raw in latest.values():
            with suppress(UnknownType, BadPayload):
                self._fold(raw)

    def _fold(self, raw: RawRecord) -> None:
        records = (decode_record(raw),)
        self.status.fold(records)
        if self.meters_whole:
            fold(self.meters, records)


def _knows_hook(system: System, order: decisions.RunHook) -> bool:
    # Whether the state has this hook's begin. After a divergence it may not, and would order the hook again.
    slot = system.slots.get((HOOK.name, order.uid))
    containers = cast(PodState, slot.state).downs if slot is not None else ()
    return any(each.spec.name == order.container and each.phase != "running" for each in containers)


# The actors' states win over missing or diverging records: ``hurry``, ``release`` and the stop time use
# `DaemonStatus`.

ACTOR_PHASES: dict[EpisodePhase, str] = {"cancelling": "cancelling", "released": "released"}


def phase_by_actors(system: System) -> str:
    state = cast(EpisodeState, system.slots[(EPISODE.name, "")].state)
    return ACTOR_PHASES.get(state.phase, "running") if system.episode else "idle"


def complete_from_actors(status: DaemonStatus, system: System) -> None:
    config = cast(ConfigState, system.slots[(CONFIG.name, "")].state)
    status.enabled, status.needed_ns = config.enabled, config.needed_ns
    if not system.episode:
        status.phase = "idle"
        return
    slot = system.slots[(EPISODE.name, "")]
    state = cast(EpisodeState, slot.state)
    fold = status.shutdown
    if fold.number != system.episode:
        fold = status.shutdown = ShutdownFold(system.episode, Stamp(0, 0))
        fold.record.kind, fold.record.deadline_ns = state.kind, state.deadline_ns
    # A failed actor has stopped: the records' phase is newer.
    if not slot.failed or status.phase == "idle":
        status.phase = phase_by_actors(system)
    for index, wave in enumerate(state.waves):
        if index >= len(fold.waves):
            record = fold.wave(index)
            record.priority, record.planned_ns = wave.priority, wave.period_seconds * NS_PER_SECOND
            record.pods = [pod.uid for pod in wave.pods]
        for pod in wave.pods:
            known = state.pods.get(pod.uid)
            if pod.uid not in fold.planned and known is not None:
                namespace, _, name = known.label.rpartition("/")
                fold.planned[pod.uid] = None
                made = fold.introduce(
                    Pod(uid=pod.uid, namespace=namespace, name=name, priority=known.priority)
                )
                made.wave, made.grace_seconds = index, pod.grace_seconds
                made.gone = not state.roll.is_open(pod.uid)
