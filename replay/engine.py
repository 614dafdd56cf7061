"""The replayer: a plain loop over a journal's records, with no Trio, no clock and no network.

Facts are decoded and stepped; decisions are produced again and compared, byte by byte, with what stands
in the journal. It serves twice: a starting daemon rebuilds its state with it, and ``replay verify``
proves that the whole journal is a function of its facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from actors.logic.snapshot import restore, take
from actors.logic.system import EDGE, System, Trace
from events.codec import decode_event, encode_event
from events.frames import FLAG_LAST
from events.marks import Checkpoint
from replay.difference import NOTHING, Side, alike, as_kept, checkpoint_field, first_difference


class Raw(Protocol):
    """A record as the reader yields it, its payload still encoded (see `events.frames.RawRecord`)."""

    @property
    def seq(self) -> int: ...
    @property
    def mono_ns(self) -> int: ...
    @property
    def wall_ns(self) -> int: ...
    @property
    def episode(self) -> int: ...
    @property
    def cause(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def actor(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def payload(self) -> bytes: ...


class Divergence(NamedTuple):
    """The first record that re-execution did not produce as it stands."""

    seq: int
    field: str
    expected: Side
    produced: Side


#: What stands in the place of a field where it is no field that differs: decisions are missing behind the
#: last record; a record stands where none can; there is no state to begin with; a time is before the last.
ENDS_HERE = "the journal ends here"
NO_FACT = "a fact is expected here"
NO_BEGIN = "a checkpoint is expected here"
BACKWARDS = "the clock goes backwards here"
#: A time that no record can have.
_NEVER = -(1 << 63) - 1

STATEMENTS = (ENDS_HERE, NO_FACT, NO_BEGIN, BACKWARDS)


class Replayer:
    """Feed it raw records in order; it stops at the first divergence and stays there.

    ``system`` is the state after the last whole step that was fed. The first record is a checkpoint, which
    says under which logic flags the others are executed; without one nothing is. With ``goes_on`` the first
    divergence is kept, and what follows is believed: facts are stepped, checkpoints taken over, and decisions
    passed over.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self.system = System()
        self.divergence: Divergence | None = None
        self.events = 0
        self._fresh = True
        self._pending: list[Trace] = []
        self._at = 0
        #: Of the fact at hand; its decisions carry them.
        self._mono_ns = self._wall_ns = 0
        #: A difference in nothing but the mark that ends a step: what it means, the next record tells.
        self._marked: Divergence | None = None
        self._goes_on = goes_on
        #: The last record that was stepped, or taken over.
        self._taken_seq = 0

    def feed(self, records: Iterable[Raw]) -> Divergence | None:
        """Raises events.codec.UnknownType and BadPayload where a fact cannot be read at all."""
        for raw in records:
            self.events += 1
            if self.divergence is None:
                if self._at < len(self._pending):  # two records of three, so without a call
                    produced = self._pending[self._at]
                    self._at += 1
                    cause, actor, event, episode = produced
                    if (
                        encode_event(event) == raw.payload
                        and actor == raw.actor
                        and cause == raw.cause
                        and type(event).__name__ == raw.tag
                        and episode == raw.episode
                        and raw.mono_ns == self._mono_ns
                        and raw.wall_ns == self._wall_ns
                        and raw.flags == (self._at == len(self._pending))
                    ):
                        continue
                    self._differs(raw)
                elif raw.tag == Checkpoint.__name__:
                    self._checkpoint(raw)
                else:
                    self._fact(raw)
            if self.divergence is not None:
                if not self._goes_on:
                    break
                self._believe(raw)
        return self.divergence

    def went_back(self, raw: Raw, before_ns: int) -> None:
        """This record's time is before that of the record in front of it, in the same boot."""
        self._diverge(raw, BACKWARDS, recorded(raw)._replace(mono_ns=before_ns))

    def believe(self, step: Sequence[Raw]) -> list[Side]:
        """Execute a whole step without comparing, and go on behind it; what is produced. Raises as `feed`."""
        produced = [side for raw in step for side in _sides(raw, self._believe(raw))]
        self.system.next_seq = step[-1].seq + 1
        self._fresh, self._pending, self._at = False, [], 0
        return produced

    def _believe(self, raw: Raw) -> list[Trace]:
        """What came from outside did happen, and what a process kept of itself is what it went on from."""
        if raw.seq == self._taken_seq:
            return []
        if raw.tag == Checkpoint.__name__:
            mark = decode_event(raw.tag, raw.payload)
            assert isinstance(mark, Checkpoint)
            self.system = restore(mark, raw.seq + 1)
        elif not raw.cause and raw.actor == EDGE:
            self.system.next_seq = raw.seq
            return self.system.trace(decode_event(raw.tag, raw.payload), raw.mono_ns)
        return []

    def _fact(self, raw: Raw) -> None:
        field = self._out_of_place(raw)
        if field or self._marked:
            self.divergence = Divergence(raw.seq, field, recorded(raw), NOTHING) if field else self._marked
            return
        self._taken_seq, self._mono_ns, self._wall_ns = raw.seq, raw.mono_ns, raw.wall_ns
        self._pending = self.system.trace(decode_event(raw.tag, raw.payload), raw.mono_ns)
        self._at = 1
        if self._pending[0][3] != raw.episode or raw.flags != (len(self._pending) == 1):
            self._differs(raw)

    def _out_of_place(self, raw: Raw) -> str:
        if raw.cause or raw.actor != EDGE or raw.seq != self.system.next_seq:
            return NO_FACT
        return NO_BEGIN if self._fresh else ""

    def _differs(self, raw: Raw) -> None:
        """Where a decision is missing, or one too many, the one before has the wrong mark, not the blame."""
        if self._marked is not None:
            self._mono_ns = self._marked.produced.mono_ns
        produced, there = self._side(self._at - 1), recorded(raw)
        if produced == there:
            self.divergence = self._marked
        elif self._marked is None and produced._replace(last=there.last) == there:
            self._marked = Divergence(raw.seq, "last", there, produced)
            self._mono_ns = _NEVER  # no record has it: the next one comes here, whatever it is
        else:
            self._diverge(raw, first_difference(produced, there), produced)

    def _checkpoint(self, raw: Raw) -> None:
        if self._marked is not None:
            self.divergence = self._marked
            return
        mark = decode_event(raw.tag, raw.payload)
        assert isinstance(mark, Checkpoint)
        if self._fresh:
            self.system = restore(mark, raw.seq + 1)
            self._fresh = False
            return
        self.system.flags = mark.logic_flags  # what a process executes under, like a fact, is its to say
        mine = as_kept(take(self.system), mark)
        self.system.next_seq = raw.seq + 1
        if encode_event(mine) != raw.payload and not alike(mark, mine):
            self._diverge(raw, checkpoint_field(mark, mine), recorded(raw)._replace(data=_plain(mine)))

    def finish(self) -> Divergence | None:
        """At the end: did the journal stop in the middle of what its last fact leads to?"""
        if self.divergence is None and self._at < len(self._pending):
            seq = self.system.next_seq - len(self._pending) + self._at
            self._mono_ns = self._marked.produced.mono_ns if self._marked else self._mono_ns
            produced = self._side(self._at)
            self.divergence = Divergence(seq, ENDS_HERE, NOTHING, produced)
        return self.divergence or self._marked

    def _diverge(self, raw: Raw, field: str, produced: Side) -> None:
        self.divergence = Divergence(raw.seq, field, recorded(raw), produced)

    def _side(self, at: int) -> Side:
        """What is produced at this place of the step at hand."""
        last = at == len(self._pending) - 1
        return _side(self._pending[at], self._mono_ns, self._wall_ns, last=last)


def _side(trace: Trace, mono_ns: int, wall_ns: int, *, last: bool) -> Side:
    cause, actor, event, episode = trace
    return Side(cause, actor, type(event).__name__, _plain(event), episode, mono_ns, wall_ns, last)


def _sides(fact: Raw, traces: list[Trace]) -> Iterator[Side]:
    for left, trace in zip(range(len(traces) - 1, -1, -1), traces, strict=True):
        yield _side(trace, fact.mono_ns, fact.wall_ns, last=not left)


def _plain(event: Any) -> Any:
    return msgspec.msgpack.decode(encode_event(event))


def plain_payload(raw: Raw) -> Any:
    """A payload as plain values; hexadecimal digits where it cannot be read."""
    try:
        return msgspec.msgpack.decode(raw.payload)
    except (msgspec.DecodeError, ValueError):
        return raw.payload.hex()


def recorded(raw: Raw) -> Side:
    """A record's side of a comparison."""
    last = bool(raw.flags & FLAG_LAST)
    return Side(
        raw.cause, raw.actor, raw.tag, plain_payload(raw), raw.episode, raw.mono_ns, raw.wall_ns, last
    )
