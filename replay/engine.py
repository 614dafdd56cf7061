"""The replayer: a plain loop over a journal's records, with no Trio, no clock and no network.

Facts are decoded and stepped; decisions are produced again and compared, byte by byte, with what stands
in the journal. It serves twice: a starting daemon rebuilds its state with it, and ``replay verify``
proves that the whole journal is a function of its facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from actors.logic.snapshot import restore, take
from actors.logic.system import EDGE, System, Trace
from events.codec import decode_event, encode_event
from events.marks import Checkpoint
from replay.difference import NOTHING, Side, checkpoint_field, first_difference


class Raw(Protocol):
    """A record as the reader yields it, its payload still encoded (see `events.frames.RawRecord`)."""

    @property
    def seq(self) -> int: ...
    @property
    def mono_ns(self) -> int: ...
    @property
    def episode(self) -> int: ...
    @property
    def cause(self) -> int: ...
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


#: The field of a divergence where decisions are missing behind the last record.
ENDS_HERE = "the journal ends here"


class Replayer:
    """Feed it raw records in order; it stops at the first divergence and stays there.

    ``system`` is the state after the last whole step that was fed. A journal whose first segments were
    removed begins with a checkpoint; one that has its beginning starts empty. With ``goes_on`` the first
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
                    ):
                        continue
                    self._differs(raw, self._side(produced))
                elif raw.tag == Checkpoint.__name__:
                    self._checkpoint(raw)
                else:
                    self._fact(raw)
            if self.divergence is not None:
                if not self._goes_on:
                    break
                self._believe(raw)
        return self.divergence

    def begin_under(self, flags: tuple[str, ...]) -> None:
        """The logic flags of the first segment, for a journal that begins without a checkpoint."""
        if self._fresh:
            self.system.flags = flags

    def believe(self, step: Sequence[Raw]) -> list[Side]:
        """Execute a whole step without comparing, and go on behind it; what is produced. Raises as `feed`."""
        produced = [trace for raw in step for trace in self._believe(raw)]
        self.system.next_seq = step[-1].seq + 1
        self._fresh, self._pending, self._at = False, [], 0
        return list(map(self._side, produced))

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
        if raw.cause or raw.actor != EDGE or raw.seq != self.system.next_seq:
            self._diverge(raw, "a fact is expected here", NOTHING)
            return
        self._fresh, self._taken_seq = False, raw.seq
        self._pending = self.system.trace(decode_event(raw.tag, raw.payload), raw.mono_ns)
        self._at = 1
        if self._pending[0][3] != raw.episode:
            self._diverge(raw, "episode", self._side(self._pending[0]))

    def _differs(self, raw: Raw, produced: Side) -> None:
        self._diverge(raw, first_difference(produced, recorded(raw)), produced)

    def _checkpoint(self, raw: Raw) -> None:
        mark = decode_event(raw.tag, raw.payload)
        assert isinstance(mark, Checkpoint)
        if self._fresh:
            self.system = restore(mark, raw.seq + 1)
            self._fresh = False
            return
        self.system.flags = mark.logic_flags  # what a process executes under, like a fact, is its to say
        mine = take(self.system)
        self.system.next_seq = raw.seq + 1
        if encode_event(mine) != raw.payload:
            side = Side(0, raw.actor, raw.tag, _plain(mine), raw.episode)
            self._diverge(raw, checkpoint_field(mark, mine), side)

    def finish(self) -> Divergence | None:
        """At the end: did the journal stop in the middle of what its last fact leads to?"""
        if self.divergence is None and self._at < len(self._pending):
            seq = self.system.next_seq - len(self._pending) + self._at
            produced = self._side(self._pending[self._at])
            self.divergence = Divergence(seq, ENDS_HERE, NOTHING, produced)
        return self.divergence

    def _diverge(self, raw: Raw, field: str, produced: Side) -> None:
        self.divergence = Divergence(raw.seq, field, recorded(raw), produced)

    def _side(self, trace: Trace) -> Side:
        cause, actor, event, episode = trace
        return Side(cause, actor, type(event).__name__, _plain(event), episode)


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
    return Side(raw.cause, raw.actor, raw.tag, plain_payload(raw), raw.episode)
