"""Shutdowns and outages in short: when they began, which pods they had, how the pods and they ended.

`EpisodeBuilder` reads the few events that decide this. ``journal ls`` needs no more, so that a long journal
costs little memory and a tenth of the decoding. `events.record.fold` adds the rest.

A journal of outages has episodes as well, each of them an outage: `OutageEpisodeBuilder`, which
`events.record.outage_record` adds to. Which of the two a journal has, its logic says (`is_of_outages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from ebbtide.events.base import Record, Stamp, episode_id, shutdown_trace_id
from ebbtide.events.codec import FLAG_LAST, RawRecord, decode_event
from ebbtide.events.decisions import (
    EpisodeClosed,
    EpisodeOutcome,
    LastBootEnded,
    PodEnded,
    PodOutcome,
    PodPlanned,
    PodRejected,
    ReleaseLock,
    Resumed,
    ShutdownBegan,
    ShutdownWithdrawn,
)
from ebbtide.events.facts import DaemonStarted, InventoryTaken
from ebbtide.events.outage_events import (
    LastBootStated,
    NodeRead,
    OutageBegan,
    OutageClosed,
    OutageOutcome,
    PodLost,
    PodRecovered,
    SetTaint,
)
from ebbtide.events.reader import History
from ebbtide.events.record.severity import Severity, Summary, severity_of
from ebbtide.events.segment import Header, is_outage_logic
from ebbtide.events.values import ShutdownKind

#: An outage's outcome while it has none.
OPEN: Literal["open"] = "open"
OutageEnd = OutageOutcome | Literal["open"]
#: What an episode is, and how it ended: a shutdown in the words of logind, or an outage.
EpisodeKind = ShutdownKind | Literal["outage"]
EpisodeEnd = EpisodeOutcome | OutageEnd
#: Of these more is to come.
GOING_ON: tuple[EpisodeEnd, ...] = ("running", OPEN)


class Episode(NamedTuple):
    """One shutdown or outage. Times are wall-clock nanoseconds: the first record's, plus monotonic
    difference.

    ``ended_wall_ns`` is when the lock was ordered released, or when a cancelled shutdown or an outage was
    closed; None when it was cut short or still runs. ``pods`` has a count for every outcome, together the
    inventory; of an outage the pods that were followed, ``recovered`` or ``waiting``. ``severity`` is how bad
    a shutdown was; of an outage its outcome says that. ``pods_running``: how many of the ``unknown`` of a
    shutdown that runs have not ended yet. ``headless``: its begin is not on record, so nobody knows how bad
    it was, and the counts and times are of what is.
    """

    id: str
    trace_id: str
    first_seq: int
    last_seq: int
    kind: EpisodeKind
    boot_id: str
    started_wall_ns: int
    ended_wall_ns: int | None
    outcome: EpisodeEnd
    pods: Mapping[str, int]
    severity: Severity | None = None
    pods_running: int = 0
    headless: bool = False


def is_of_outages(header: Header) -> bool:
    """Whether this is a journal of the controller in the cluster."""
    return is_outage_logic(header.identity.logic)


def is_outage_history(history: History) -> bool:
    """The same of a journal; one set of actors wrote all of it."""
    return any(each.header is not None and is_of_outages(each.header) for each in history.segments)


class BootRecord(NamedTuple):
    """How a boot ended, as the next one said. ``episode``: the id of its shutdown, empty: it had none; in a
    journal of outages that of the outage which the boot ended in.
    """

    event: LastBootEnded
    episode: str


def episodes(
    history: History, *, boot_id: str | None = None, boots: list[BootRecord] | None = None
) -> Iterator[Episode]:
    """The shutdowns or outages of a history, oldest first, each once it is over; an open one comes last.
    ``boots`` takes up how boots ended, in the order of the journal.

    One that is not closed counts as ``running``, unless ``boot_id`` (of this machine, now) says that its
    boot is over, or the record ends in damage: then nobody can know more than that it is cut short. Raises
    events.codec.BadPayload.
    """
    shutdown: AnyEpisodeBuilder | None = None
    fact: RawRecord | None = None
    #: Another shutdown may have begun before it is known how the last boot ended.
    last_of_boot: dict[str, str] = {}
    for batch in history.batches():
        for raw in grouped_by_episode(batch.records):
            if raw.cause == 0:
                fact = raw
            if boots is not None and raw.tag == LastBootEnded.__name__:
                said = decode_event(raw.tag, raw.payload)
                assert isinstance(said, LastBootEnded)
                boots.append(BootRecord(said, last_of_boot.get(said.boot_id, "") if said.recorded else ""))
            if not raw.episode:
                if shutdown is None or raw.tag not in shutdown.late:
                    continue
                shutdown.turn_to(raw, batch.header.identity.boot_id)
                shutdown.handlers[raw.tag](shutdown, decode_event(raw.tag, raw.payload))
                continue
            if shutdown is None or raw.episode != shutdown.number:
                if shutdown is not None:
                    yield shutdown.episode(history.journal_id, boot_id)
                    shutdown.add_boot(history.journal_id, boots)
                first = first_record(raw, fact)
                started = Stamp(first.mono_ns, first.wall_ns)
                made = BUILDERS[is_of_outages(batch.header)]
                shutdown = made(raw.episode, started, batch.header.identity.boot_id, first.hash)
                shutdown.headless = first.seq != raw.episode
                last_of_boot[shutdown.boot_id] = episode_id(history.journal_id, raw.episode)
            shutdown.last_seq = raw.seq
            handle = shutdown.handlers.get(raw.tag)
            if handle is not None:
                shutdown.turn_to(raw, batch.header.identity.boot_id)
                handle(shutdown, decode_event(raw.tag, raw.payload))
    if shutdown is not None:
        yield shutdown.episode(history.journal_id, boot_id, damaged=history.verdict.state != "intact")
        shutdown.add_boot(history.journal_id, boots)


def headless_episode(history: History) -> int | None:
    """The number of the shutdown, or outage, in the middle of which the history begins; reads that anew."""
    for batch in history.batches():
        # Its first fact may still be of the one that it closed.
        first = next((raw for raw in batch.records if raw.episode), None)
        if first is None or any(raw.seq == first.episode for raw in batch.records):
            return None
        return first.episode
    return None


def grouped_by_episode(records: Sequence[RawRecord]) -> Sequence[RawRecord]:
    """Whole steps, each shutdown's records together.

    A signal that comes while a cancelled shutdown's pods still go down closes it, and opens the next one, in
    one step: its first record is the next one's already, and the other's last records stand behind it.
    """
    opening = [index for index, raw in enumerate(records) if raw.episode == raw.seq and raw.cause == 0]
    if not opening:
        return records
    made = list(records)
    for index in opening:
        ends = (at + 1 for at in range(index, len(made)) if made[at].flags & FLAG_LAST)
        end = next(ends, len(made))
        mine = made[index].episode
        step = made[index:end]
        made[index:end] = [
            *(raw for raw in step if raw.episode not in (0, mine)),
            *(raw for raw in step if raw.episode in (0, mine)),
        ]
    return made


def first_record(raw: RawRecord, fact: RawRecord | None) -> RawRecord:
    """The fact that opened the episode, even where it still belonged to the one that it closed."""
    return fact if fact is not None and fact.seq == raw.episode else raw


class RecordPoint(NamedTuple):
    """A record's number, its time since the signal, and whether the signal's boot still goes on."""

    seq: int
    at_ns: int
    same_boot: bool


class AnyEpisodeBuilder:
    """An episode while it is being read. ``*_ns`` are nanoseconds since its begin."""

    #: By type tag, what an event means for it; filled in below.
    handlers: ClassVar[Mapping[str, Callable[[Any, Any], None]]]
    #: Of these, those that also mean something for it when they come after its end.
    late: ClassVar[tuple[str, ...]] = ()

    def __init__(self, number: int, started: Stamp, boot_id: str = "", first_hash: bytes = b"") -> None:
        self.number = number
        self.started = started
        self.boot_id = boot_id
        #: The chain hash of its first record, of which its trace id is made.
        self.first_hash = first_hash
        #: Its begin is not on record: retention, or whoever copied the journal, left older segments behind.
        self.headless = False
        #: The record that is being interpreted.
        self.point = RecordPoint(number, 0, True)
        self.last_seq = number

    def turn_to(self, record: RawRecord | Record, boot_id: str) -> None:
        """What follows is interpreted at this record, which was written in that boot.

        The monotonic clock starts anew with each boot; then only the record's own wall time is left.
        """
        same = boot_id == self.boot_id
        at_ns = record.mono_ns - self.started.mono_ns if same else record.wall_ns - self.started.wall_ns
        self.point = RecordPoint(record.seq, at_ns, same)

    def episode(self, journal_id: bytes, boot_id: str | None, *, damaged: bool = False) -> Episode:
        """The summary as it stands."""
        raise NotImplementedError

    def add_boot(self, journal_id: bytes, boots: list[BootRecord] | None) -> None:
        """What it knows, at its end, of how its boot ended; a shutdown knows nothing of it."""


class EpisodeBuilder(AnyEpisodeBuilder):
    """A shutdown while it is being read. ``*_ns`` are nanoseconds since the signal."""

    def __init__(self, number: int, started: Stamp, boot_id: str = "", first_hash: bytes = b"") -> None:
        super().__init__(number, started, boot_id, first_hash)
        self.kind: ShutdownKind = "unknown"
        #: By UID; None: it has no fate yet.
        self.outcomes: dict[str, PodOutcome | None] = {}
        #: UIDs in the order of the plan; from then on, inventories list only pods that have no part in it.
        self.planned: dict[str, None] = {}
        self.released_ns: int | None = None
        self.withdrawn = False
        self.closed: EpisodeOutcome | None = None
        self.closed_ns: int | None = None
        #: Pods of which nothing runs any more, although nobody knows how they ended.
        self.gone: dict[str, None] = {}
        #: Since when the machine does not have to wait: 0 from the signal on, None: it always had to.
        self.lock_lost_ns: int | None = None
        #: Whether the daemon that started last was handed the lock of the one before it.
        self.inherited = True

    @property
    def goes_on(self) -> bool:
        """Neither the release nor a close stands in the record."""
        return self.released_ns is None and self.closed is None

    def outcome(self, boot_id: str | None, *, damaged: bool) -> EpisodeOutcome:
        """Complete if and only if the release stands in the journal, and the machine did go down; where its
        begin is not on record, who closed it has read the release.
        """
        if self.released_ns is not None:
            return "complete"
        if self.closed is not None:
            unreleased = self.withdrawn or not self.headless
            return "truncated" if self.closed == "complete" and unreleased else self.closed
        same_boot = boot_id in (None, self.boot_id)
        return "running" if same_boot and not damaged else "truncated"

    def ended_ns(self, outcome: EpisodeOutcome) -> int | None:
        """The release of a complete one, the close of a cancelled one; every other has no end."""
        return {"complete": self.released_ns, "cancelled": self.closed_ns}.get(outcome)

    def episode(self, journal_id: bytes, boot_id: str | None, *, damaged: bool = False) -> Episode:
        """The summary as it stands."""
        outcome = self.outcome(boot_id, damaged=damaged)
        ended_ns = self.ended_ns(outcome)
        summary = self.summary(outcome)
        return Episode(
            id=episode_id(journal_id, self.number),
            trace_id=shutdown_trace_id(self.first_hash),
            first_seq=self.number,
            last_seq=self.last_seq,
            kind=self.kind,
            boot_id=self.boot_id,
            started_wall_ns=self.started.wall_ns,
            ended_wall_ns=None if ended_ns is None else self.started.wall_ns + ended_ns,
            outcome=outcome,
            pods=summary.pods,
            severity=None if self.headless else severity_of(summary),
            pods_running=sum(fate is None for fate in self.outcomes.values()) if outcome == "running" else 0,
            headless=self.headless,
        )

    def summary(self, outcome: EpisodeOutcome) -> Summary:
        """What its severity follows from."""
        fates = [fate or "unknown" for fate in self.outcomes.values()]
        pods = {name: fates.count(name) for name in get_args(PodOutcome)}
        # What a cancelled shutdown has no fate of, the next one went on with.
        left = sum(fate is None for fate in self.outcomes.values()) if outcome == "cancelled" else 0
        return Summary(outcome, pods, len(self.gone) + left, self.lock_lost_ns is not None)


def _shutdown_began(shutdown: EpisodeBuilder, event: ShutdownBegan) -> None:
    shutdown.kind = event.kind
    shutdown.lock_lost_ns = None if event.lock_held else 0


def _daemon_started(shutdown: EpisodeBuilder, event: DaemonStarted) -> None:
    shutdown.inherited = event.lock_inherited


def _daemon_resumed(shutdown: EpisodeBuilder, event: Resumed) -> None:
    """logind gives no delay lock while the machine goes down: one that is lost stays lost."""
    if event.action == "resume" and not shutdown.inherited and shutdown.lock_lost_ns is None:
        shutdown.lock_lost_ns = shutdown.point.at_ns


def _inventory_taken(shutdown: EpisodeBuilder, event: InventoryTaken) -> None:
    """Counts until the plan is made; later differences come as late pods."""
    if not shutdown.planned:
        shutdown.outcomes |= {pod.uid: None for pod in event.pods}


def _pod_planned(shutdown: EpisodeBuilder, event: PodPlanned) -> None:
    shutdown.planned[event.pod.uid] = None
    if event.again:
        shutdown.outcomes[event.pod.uid] = None
        shutdown.gone.pop(event.pod.uid, None)
    shutdown.outcomes.setdefault(event.pod.uid, None)


def _pod_ended(shutdown: EpisodeBuilder, event: PodEnded) -> None:
    shutdown.outcomes[event.uid] = event.outcome
    shutdown.gone.pop(event.uid, None)
    if event.outcome == "unknown" and event.gone:
        shutdown.gone[event.uid] = None


def _pod_rejected(shutdown: EpisodeBuilder, event: PodRejected) -> None:
    shutdown.outcomes.setdefault(event.uid, "rejected")


def _lock_released(shutdown: EpisodeBuilder, event: ReleaseLock) -> None:
    shutdown.released_ns = shutdown.point.at_ns


def _shutdown_withdrawn(shutdown: EpisodeBuilder, event: ShutdownWithdrawn) -> None:
    """A release after which the machine stayed is none."""
    shutdown.released_ns, shutdown.withdrawn = None, True


def _episode_closed(shutdown: EpisodeBuilder, event: EpisodeClosed) -> None:
    shutdown.closed, shutdown.closed_ns = event.outcome, shutdown.point.at_ns


#: What these events mean for every telling of a shutdown, by type tag.
EPISODE_HANDLERS: dict[str, Callable[[EpisodeBuilder, Any], None]] = {
    ShutdownBegan.__name__: _shutdown_began,
    DaemonStarted.__name__: _daemon_started,
    Resumed.__name__: _daemon_resumed,
    InventoryTaken.__name__: _inventory_taken,
    PodPlanned.__name__: _pod_planned,
    PodEnded.__name__: _pod_ended,
    PodRejected.__name__: _pod_rejected,
    ReleaseLock.__name__: _lock_released,
    ShutdownWithdrawn.__name__: _shutdown_withdrawn,
    EpisodeClosed.__name__: _episode_closed,
}

EpisodeBuilder.handlers = EPISODE_HANDLERS


# --- outages -----------------------------------------------------------------------------------


class OutageBoots:
    """The boots of an outage's node, and what was told of how they ended.

    A Node may say so of any boot, and of one that ended long before. It is about the outage where that boot
    was on record when the outage began, or when the taint was ordered. Once the outage is over only where
    another boot has come in its place: one that only was away for a while may end at any later time.
    """

    def __init__(self) -> None:
        self._suspected: dict[str, None] = {}
        self._read: dict[str, None] = {}
        self.told: LastBootStated | None = None

    def gone(self, event: OutageBegan | SetTaint) -> None:
        self._suspected[event.boot_id] = None

    def read(self, event: NodeRead) -> None:
        self._read[event.boot_id] = None

    def tell(self, event: LastBootStated, *, over: bool) -> bool:
        """Whether it is news, and about this outage."""
        replaced = any(boot != event.boot_id for boot in self._read)
        if event == self.told or event.boot_id not in self._suspected or (over and not replaced):
            return False
        self.told = event
        return True


class OutageEpisodeBuilder(AnyEpisodeBuilder):
    """An outage while it is being read. Its leaders may have run on several machines: from one to the next
    only the wall clock measures.
    """

    def __init__(self, number: int, started: Stamp, boot_id: str = "", first_hash: bytes = b"") -> None:
        super().__init__(number, started, boot_id, first_hash)
        #: Pods that are followed, by UID, and whether each is over.
        self.followed: dict[str, bool] = {}
        #: Another leader goes on with it, in whichever boot: it is open until it is closed.
        self.outcome: OutageEnd = OPEN
        self.ended_ns: int | None = None
        self.boots = OutageBoots()

    def add_boot(self, journal_id: bytes, boots: list[BootRecord] | None) -> None:
        if boots is None or (said := self.boots.told) is None:
            return
        ended = LastBootEnded(
            boot_id=said.boot_id,
            ending=said.ending,
            why=said.why,
            wave=said.wave,
            recorded=bool(said.trace_id),
            alive_wall_ns=said.alive_wall_ns,
        )
        boots.append(BootRecord(ended, episode_id(journal_id, self.number)))

    def episode(self, journal_id: bytes, boot_id: str | None, *, damaged: bool = False) -> Episode:
        over = sum(self.followed.values())
        started_ns, ended_ns = self.started.wall_ns, self.ended_ns
        return Episode(
            id=episode_id(journal_id, self.number),
            trace_id=shutdown_trace_id(self.first_hash),
            first_seq=self.number,
            last_seq=self.last_seq,
            kind="outage",
            boot_id=self.boot_id,
            started_wall_ns=started_ns,
            ended_wall_ns=None if ended_ns is None else started_ns + ended_ns,
            outcome=self.outcome,
            pods={"recovered": over, "waiting": len(self.followed) - over},
        )


def _pod_lost(outage: OutageEpisodeBuilder, event: PodLost) -> None:
    outage.followed.setdefault(event.pod.uid, False)


def _pod_recovered(outage: OutageEpisodeBuilder, event: PodRecovered) -> None:
    outage.followed[event.uid] = True


def _outage_closed(outage: OutageEpisodeBuilder, event: OutageClosed) -> None:
    outage.outcome, outage.ended_ns = event.outcome, outage.point.at_ns


def _boot_gone(outage: OutageEpisodeBuilder, event: OutageBegan | SetTaint) -> None:
    outage.boots.gone(event)


def _boot_read(outage: OutageEpisodeBuilder, event: NodeRead) -> None:
    outage.boots.read(event)


def _last_boot_stated(outage: OutageEpisodeBuilder, event: LastBootStated) -> None:
    outage.boots.tell(event, over=outage.outcome != OPEN)


OutageEpisodeBuilder.handlers = {
    OutageBegan.__name__: _boot_gone,
    SetTaint.__name__: _boot_gone,
    NodeRead.__name__: _boot_read,
    LastBootStated.__name__: _last_boot_stated,
    PodLost.__name__: _pod_lost,
    PodRecovered.__name__: _pod_recovered,
    OutageClosed.__name__: _outage_closed,
}

OutageEpisodeBuilder.late = (LastBootStated.__name__,)

#: Who tells an episode, by whether its journal is one of outages.
BUILDERS: Mapping[bool, type[AnyEpisodeBuilder]] = {False: EpisodeBuilder, True: OutageEpisodeBuilder}
