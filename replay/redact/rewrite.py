"""The facts under pseudonyms, executed again: new segments, record for record like the original's.

Every record keeps its number, its times and its cause, so that what is said of one journal can be looked up
in the other. Only the journal's id and all hashes are new.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from actors.logic.digest import note
from actors.logic.snapshot import restore, take
from actors.logic.system import System
from events.chain import Chain, Start
from events.codec import decode_event
from events.episodes import episodes
from events.frames import FLAG_LAST, RawRecord
from events.history import History
from events.marks import Checkpoint, RedactedFrom
from events.record import Record, Stamp
from events.segment import Header, Identity, Link, file_name
from replay.engine import NO_BEGIN, Divergence
from replay.redact.names import Names
from replay.verification import verify

_DOMAIN = b"ebbtide.redacted.v1"
_ID_BYTES = 16


class NoBegin(Exception):
    """The journal does not begin with a checkpoint: nothing can be executed from its first record on."""


class Diverged(Exception):
    """The original does not replay: what its facts lead to is not what it says. See ``replay verify``."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(f"it diverges at record {divergence.seq}")
        self.divergence = divergence


class Written(NamedTuple):
    """A piece of a segment, in order."""

    name: str
    data: bytes


def redact(history: History, names: Names) -> Iterator[Written]:
    """The new journal's files in pieces. Reads ``history`` four times.

    Raises Diverged and NoBegin before the first piece, events.codec.UnknownType and BadPayload, and OSError.
    """
    result = verify(history)
    if result.divergence is not None:
        if result.divergence.field == NO_BEGIN:
            raise NoBegin("it does not begin with a checkpoint")
        raise Diverged(result.divergence)
    if result.failure is not None:
        raise result.failure
    statement = _statement(history)
    _learn(history, names)
    names.replace()
    return _copy(history, names, statement)


def _statement(history: History) -> RedactedFrom:
    traces = {episode.first_seq: episode.trace_id for episode in episodes(history)}
    end = history.verdict.end
    head = _last(history)
    return RedactedFrom(
        journal_id=history.journal_id.hex(), head_seq=end.seq, head=head.hex(), trace_ids=traces
    )


def _last(history: History) -> bytes:
    """The chain hash of the last record of a whole step."""
    found = b""
    for batch in history.batches():
        found = batch.records[-1].hash
    return found


def _learn(history: History, names: Names) -> None:
    """Every name that facts and the first checkpoint hold, so that no pseudonym is one of them."""
    first = True
    for batch in history.batches():
        _identity(batch.header.identity, names)
        for raw in batch.records:
            if first or not (raw.cause or raw.tag == Checkpoint.__name__):
                event = decode_event(raw.tag, raw.payload)
                if isinstance(event, Checkpoint):
                    _state(event, raw.seq, names)
                elif first:
                    raise NoBegin("it does not begin with a checkpoint")
                else:
                    names.told(event)
            first = False


def _identity(identity: Identity, names: Names) -> Identity:
    return identity._replace(
        node=names.of("node", identity.node),
        machine_id=names.of("machine", identity.machine_id),
        boot_id=names.of("boot", identity.boot_id),
    )


def _state(mark: Checkpoint, seq: int, names: Names) -> System:
    """The system of a checkpoint, under pseudonyms."""
    system, told = restore(mark, seq + 1), System(seq + 1, mark.logic_flags)
    told.episode = system.episode
    for opened in system.open_orders.values():
        order = names.told(opened.order)
        told.open_orders[order.key] = opened._replace(order=order)
    for (kind, subject), slot in system.slots.items():
        who = names.subject(subject)
        twin = told.slots.get((kind, who)) or told.register(slot.kind, who)
        twin.state, twin.failed = names.told(slot.state), slot.failed
        told.watch(twin)
    note(told.slots.values())
    return told


def _copy(history: History, names: Names, statement: RedactedFrom) -> Iterator[Written]:
    head = bytes.fromhex(statement.journal_id) + bytes.fromhex(statement.head)
    journal_id = hashlib.sha256(_DOMAIN + head).digest()[:_ID_BYTES]
    header, scribe = None, _Scribe(names, statement)
    for batch in history.batches():
        for raw in batch.records:
            if batch.header != header:
                header = batch.header
                yield from scribe.begin(header, raw.seq, journal_id)
            yield scribe.write(raw)


class _Scribe:
    """Executes and writes. ``_step`` has what is still to come of the step at hand."""

    def __init__(self, names: Names, statement: RedactedFrom) -> None:
        self._names, self._statement = names, statement
        self._system: System | None = None
        self._chain: Chain | None = None
        self._step: deque[Record] = deque()

    def begin(self, header: Header, seq: int, journal_id: bytes) -> Iterator[Written]:
        """A segment for each of the original's: times are shown by its anchor."""
        identity = _identity(header.identity, self._names)
        if self._chain is None:
            # Where the original begins later than its history did, so does this one.
            number = max(header.segment, 2 if seq > 1 else 1)
            before = Link(number - 1, 0, seq - 1) if seq > 1 else Link()
            self._chain = Chain(identity, Start(journal_id, before, number))
        self._chain.identity = identity
        for item in self._chain.begin_segment(Stamp(header.anchor_mono_ns, header.anchor_wall_ns)):
            yield Written(file_name(item.end.segment, journal_id), item.data)

    def write(self, raw: RawRecord) -> Written:
        assert self._chain is not None
        record = self._record(raw)
        item = self._chain.append(record, raw.durable_seq)
        return Written(file_name(item.end.segment, self._chain.journal_id), item.data)

    def _record(self, raw: RawRecord) -> Record:
        if self._step:
            return self._step.popleft()
        event = decode_event(raw.tag, raw.payload)
        if isinstance(event, Checkpoint):
            return self._checkpoint(event, raw)
        assert self._system is not None
        stamp = Stamp(raw.mono_ns, raw.wall_ns)
        self._step.extend(self._system.step(self._names.told(event), stamp))
        return self._step.popleft()

    def _checkpoint(self, mark: Checkpoint, raw: RawRecord) -> Record:
        if self._system is None:
            self._system = _state(mark, raw.seq, self._names)
            event = msgspec.structs.replace(take(self._system), redacted=self._statement)
        else:
            self._system.flags = mark.logic_flags
            event = take(self._system)
            self._system.next_seq = raw.seq + 1
        return Record(
            seq=raw.seq,
            mono_ns=raw.mono_ns,
            wall_ns=raw.wall_ns,
            episode=event.episode,
            cause=0,
            actor=raw.actor,
            last=bool(raw.flags & FLAG_LAST),
            event=event,
        )
