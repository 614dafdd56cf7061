"""From a journal back to a running system: the last checkpoint, and every fact after it.

The state is rebuilt by the replayer, so a start is also a proof: where the recorded decisions are not what
this version decides, it says so, and goes on with the facts, which happened whatever was decided. What is
only shown is folded from the records themselves, and from further back than the state needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from ebbtide.actors.actor import UndeclaredTransition
from ebbtide.actors.checkpoint import take_checkpoint
from ebbtide.actors.config_reconciler import CONFIG, ConfigState
from ebbtide.actors.episode import EPISODE, EpisodePhase, EpisodeState
from ebbtide.actors.hook import HOOK, PodState
from ebbtide.actors.interfaces import Clock
from ebbtide.actors.system import EDGE, System
from ebbtide.daemon_status import FOLDED_TAGS, DaemonStatus, PodStatus, planned_wave
from ebbtide.events.base import NS_PER_SECOND, Stamp, shutdown_trace_id
from ebbtide.events.catalog import Source
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType, decode_event, decode_record
from ebbtide.events.decisions import EpisodeClosed, RunHook, ShutdownBegan
from ebbtide.events.facts import DaemonStarted, OrderEnded, SettingsLoaded
from ebbtide.events.reader import History
from ebbtide.events.recovery import ForeignJournal, Verdict, refuse_foreign
from ebbtide.events.retention import SEGMENT_BYTES_MAX
from ebbtide.events.segment import SHUTDOWN_LOGIC
from ebbtide.events.writer import Writer
from ebbtide.otel.meters import METERED, Meters, fold, kept_meters
from ebbtide.replay.replayer import Divergence, Replayer

#: Facts that every start admits by itself, its own first: a start after which nothing else came has come to
#: nothing.
OF_A_START = (DaemonStarted.__name__, SettingsLoaded.__name__)


class FailedStarts:
    """How many starts in a row, up to now, came to nothing at the same place.

    A start that falls over a bug, or over what stands in the journal, does so at the same record each time.
    One that was killed from outside did not fail, and two of those seldom end alike; to take them for
    failures would have the fallback stop pods in fewer steps than they are owed.
    """

    def __init__(self) -> None:
        self._count = 0
        #: Where the start before this one ended, and the last record of this one; empty: it has come to
        #: something.
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
            # An order that ends unknown is what a start itself says of the one before, so it does not show
            # that this one has come to anything.
            if isinstance(fact, OrderEnded) and fact.result == "unknown":
                # Not its ordinal, of which each start uses up some.
                self._last = fact.key.rpartition("/")[0]
            else:
                self._last = ""

    @property
    def count(self) -> int:
        """0: the last start came to something, or there was none."""
        if not self._last:
            return 0
        return self._count + 1 if self._last == self._before else 1


#: The hooks before these were another shutdown's: a pod that is started again keeps its UID in some runtimes.
OF_ANOTHER_SHUTDOWN = (ShutdownBegan.__name__, EpisodeClosed.__name__)

#: What is read from before the last checkpoint, for the last shutdown's record and the starts that failed:
#: a shutdown of a thousand pods fits, and it takes a fifth of a second.
EARLIER_BYTES_MAX = 8 * 1024 * 1024


class Recovered(NamedTuple):
    """What a start finds.

    ``failed_starts``: starts at the journal's end that came to nothing, all at the same place. ``spent``: the
    keys of this shutdown's hooks that were ordered and that the state does not know of (after a divergence).
    """

    system: System
    status: DaemonStatus
    verdict: Verdict
    trace_id: str
    failed_starts: int
    divergence: Divergence | None
    spent: frozenset[str] = frozenset()
    #: The metrics' sums, None if they lack what stands before the records that were read.
    meters: Meters | None = None


def beside(verdict: Verdict, wall_ns: int) -> Verdict:
    """For what is begun beside a journal that cannot be read: numbered by the clock, so that the next start
    finds it to be the newer one, when that can be read again.
    """
    return verdict._replace(next_number=max(verdict.next_number, wall_ns // NS_PER_SECOND))


def begin_segment(writer: Writer, system: System, clock: Clock) -> int:
    """From here on, with a checkpoint; the size at which the next one is due.

    That counts from behind the checkpoint: one that is as large as a segment may be must not make every step
    begin another one.
    """
    writer.begin_segment(Stamp(clock.mono_ns(), clock.wall_ns()), take_checkpoint(system))
    system.next_seq += 1  # the checkpoint's own
    return writer.segment_bytes + SEGMENT_BYTES_MAX


class Unreadable(Exception):
    """The journal needs another version; use that, or name another directory with --journal."""


def recover(sources: Sequence[Source], machine_id: str, fresh_id: bytes) -> Recovered:
    """Read what stands in ``sources``. Raises Unreadable, events.recovery.ForeignJournal, OSError."""
    try:
        return _recover(sources, machine_id, fresh_id)
    except (Unreadable, ForeignJournal, UndeclaredTransition, OSError):
        raise
    except (UnknownType, BadPayload) as error:
        raise Unreadable(f"the journal cannot be read by this version: {error}") from error
    # Of all kinds: what is wrong with a history, or with the code that reads it, is no reason for pods to end
    # without their grace.
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise Unreadable(f"the journal cannot be used, please report it: {what}") from error


def _recover(sources: Sequence[Source], machine_id: str, fresh_id: bytes) -> Recovered:
    history = History(sources, from_checkpoint=True, logics=(SHUTDOWN_LOGIC,))
    replayer = Replayer(goes_on=True)
    past = _Past(kept_meters(sources, history.journal_id or fresh_id))
    # Before the checkpoint the state needs nothing, but whoever asks for the last shutdown does.
    for raw in history.earlier(EARLIER_BYTES_MAX):
        past.see(raw)
    replayer.feed(past.see(raw) for raw in history.raw())
    verdict, system = history.verdict, replayer.system
    # A disk that was moved here: its shutdowns are another machine's, and its open orders would end our pods.
    refuse_foreign(verdict.header, machine_id)
    if verdict.state == "incompatible":
        raise Unreadable(verdict.banner)
    system.next_seq = verdict.start(fresh_id).after.seq + 1
    complete_from_actors(past.status, system)
    # The open shutdown's, or the last one's. Its first record may stand further back than what was read.
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
    """What the records say beside the state: folded over all that are read, also where replay diverges."""

    def __init__(self, meters: Meters) -> None:
        self.status = DaemonStatus()
        self.meters, self.meters_whole = meters, True
        self._seen_seq = meters.seq
        self.starts = FailedStarts()
        #: The chain hash of each shutdown's first record.
        self.hashes: dict[int, bytes] = {}
        self.hooks: dict[str, RunHook] = {}

    def see(self, raw: RawRecord) -> RawRecord:
        # A shutdown's number is that of its first record.
        if raw.episode == raw.seq:
            self.hashes[raw.seq] = raw.hash
        self.meters_whole &= raw.seq <= self._seen_seq + 1
        self._seen_seq = max(self._seen_seq, raw.seq)
        with suppress(UnknownType, BadPayload):  # the replayer says so, where it matters
            if raw.cause == 0 and raw.actor == EDGE:
                self.starts.see(raw)
            if raw.tag == RunHook.__name__:
                order = decode_event(raw.tag, raw.payload)
                assert isinstance(order, RunHook)
                self.hooks[order.key] = order
            elif raw.tag in OF_ANOTHER_SHUTDOWN:
                self.hooks.clear()
            # Most records are neither shown nor counted, and decoding is what takes the time of a start.
            if raw.tag in FOLDED_TAGS or raw.tag in METERED:
                records = (decode_record(raw),)
                self.status.fold(records)
                fold(self.meters, records)
        return raw


def _knows_hook(system: System, order: RunHook) -> bool:
    """Whether the pod's actor has this hook behind it."""
    # Always so, unless the replay diverged: then the hook has been run, the state is one that would order it
    # again, and a hook is run at most once.
    slot = system.slots.get((HOOK.name, order.uid))
    containers = cast(PodState, slot.state).downs if slot is not None else ()
    return any(each.spec.name == order.container and each.phase != "running" for each in containers)


# Where the records are gone, or tell another story, the actors' states have the last word on how it stands.
#
# ``hurry``, ``release`` and the stop time go by `DaemonStatus`: after any number of restarts,
# also one with the journal's older part unreadable, these must work in a shutdown that goes on.


#: The phases that are not shown as "running".
ACTOR_PHASES: dict[EpisodePhase, str] = {"cancelling": "cancelling", "released": "released"}


def phase_by_actors(system: System) -> str:
    """What ``status`` calls the phase, by the states."""
    state = cast(EpisodeState, system.slots[(EPISODE.name, "")].state)
    return ACTOR_PHASES.get(state.phase, "running") if system.episode else "idle"


def complete_from_actors(status: DaemonStatus, system: System) -> None:
    """Take over what the states say and ``status`` does not."""
    config = cast(ConfigState, system.slots[(CONFIG.name, "")].state)
    status.enabled, status.needed_ns = config.enabled, config.needed_ns
    if not system.episode:
        status.phase = "idle"
        return
    slot = system.slots[(EPISODE.name, "")]
    state = cast(EpisodeState, slot.state)
    if status.last_episode != system.episode:
        status.last_episode, status.kind = system.episode, state.kind
        status.waves, status.pods = {}, {}
    # An actor that failed has stopped where it was; what the records say of the phase is newer then.
    if not slot.failed or status.phase == "idle":
        status.phase = phase_by_actors(system)
    status.deadline_ns = status.deadline_ns or state.deadline_ns
    for index, wave in enumerate(state.waves):
        status.waves.setdefault(index, planned_wave(index, wave))
        for pod in wave.pods:
            known = state.pods.get(pod.uid)
            if pod.uid not in status.pods and known is not None:
                status.pods[pod.uid] = PodStatus(
                    label=known.label,
                    wave=index,
                    grace_seconds=pod.grace_seconds,
                    priority=known.priority or 0,
                    phase="waiting" if state.roll.is_open(pod.uid) else "ended",
                )
