"""Steps a journal's facts again, and compares every decision with the record, byte by byte.

The daemon's start uses it too, so a start is also a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec.structs import replace

from ebbtide.actors.actor import UndeclaredTransition
from ebbtide.actors.system import (
    ACTOR_TYPE_BY_NAME,
    EDGE,
    BareRecord,
    System,
    differing_field,
    restore,
    take_checkpoint,
)
from ebbtide.events.base import Checkpoint, StatesDigest
from ebbtide.events.codec import (
    FLAG_LAST,
    BadPayload,
    RawRecord,
    UnknownType,
    decode_event,
    encode_event,
    plain_payload,
)
from ebbtide.events.reader import Batch


class Divergence(NamedTuple):
    """The first record that re-execution does not reproduce."""

    seq: int
    field: str
    expected: Side
    produced: Side


#: In place of a field.
ENDS_HERE = "the journal ends here"
NO_FACT = "a fact is expected here"
NO_BEGIN = "a checkpoint is expected here"
#: No record can have this time.
_NEVER = -(1 << 63) - 1

STATEMENTS = (ENDS_HERE, NO_FACT, NO_BEGIN)


class Replayer:
    """Feed it raw records in order, from a checkpoint on; it stops at the first divergence.

    ``system`` is the state after the last whole step. With ``goes_on`` the replayer keeps the first
    divergence, and then trusts the record: it steps facts, takes over checkpoints, and skips decisions.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self.system = System()
        self.divergence: Divergence | None = None
        self.events = 0
        self._fresh = True
        self._pending: list[BareRecord] = []
        self._at = 0
        #: The current fact's stamps, which its decisions have too.
        self._mono_ns = self._wall_ns = 0
        #: A difference only in the mark of a step's end: the next record explains it.
        self._marked: Divergence | None = None
        self._goes_on = goes_on
        #: The last fact or checkpoint.
        self._taken_seq = 0

    def feed(self, records: Iterable[RawRecord]) -> Divergence | None:
        """Raises UnknownType and BadPayload (events.codec) for a fact that cannot be read or executed."""
        for raw in records:
            self.events += 1
            if self.divergence is None:
                # No call here: two of three records are decisions. Bytes are faster than values, and the same
                # values in other bytes are no decision of ours.
                if self._at < len(self._pending):
                    cause, actor, event, episode = self._pending[self._at]
                    self._at += 1
                    _, mono_ns, wall_ns, its_episode, its_cause, flags, its_actor, tag, payload, _, _ = raw
                    if (
                        encode_event(event) == payload
                        and actor == its_actor
                        and cause == its_cause
                        and type(event).__name__ == tag
                        and episode == its_episode
                        and mono_ns == self._mono_ns
                        and wall_ns == self._wall_ns
                        and flags == (self._at == len(self._pending))
                    ):
                        continue
                    self._differs(raw)
                else:
                    # An error of the caller's iterator is not the journal's.
                    try:
                        (self._checkpoint if raw.tag == Checkpoint.__name__ else self._fact)(raw)
                    except Exception as error:
                        self._refuse(error)
            if self.divergence is not None:
                if not self._goes_on:
                    break
                self._believe(raw)
        return self.divergence

    def _refuse(self, error: Exception) -> NoReturn:
        """Raise the error itself if it explains the journal's fault, else BadPayload: a forged state with the
        right types can have impossible values.
        """
        if isinstance(error, (UnknownType, BadPayload, UndeclaredTransition, OSError)):
            raise error
        what = f"{type(error).__name__}: {error}"
        raise BadPayload(f"behind record {self._taken_seq} nothing can be executed ({what})") from error

    def believe(self, step: Sequence[RawRecord]) -> list[Side]:
        """Executes a whole step without comparison. Raises as `feed`."""
        produced: list[Side] = []
        for raw in step:
            records = self._believe(raw)
            for at, record in enumerate(records, 1):
                produced.append(_side(record, raw.mono_ns, raw.wall_ns, last=at == len(records)))
        self.system.next_seq = step[-1].seq + 1
        self._fresh, self._pending, self._at = False, [], 0
        return produced

    def _believe(self, raw: RawRecord) -> list[BareRecord]:
        # `feed` has stepped the fact of the first different step.
        if raw.seq == self._taken_seq:
            return []
        try:
            if raw.tag == Checkpoint.__name__:
                mark = decode_event(raw.tag, raw.payload)
                assert isinstance(mark, Checkpoint)
                self._taken_seq = raw.seq
                self.system = restore(mark, raw.seq + 1)
            elif not raw.cause and raw.actor == EDGE:
                self.system.next_seq = raw.seq
                return self.system.trace(decode_event(raw.tag, raw.payload), raw.mono_ns)
        except Exception as error:
            self._refuse(error)
        return []

    def _fact(self, raw: RawRecord) -> None:
        # A checkpoint names the logic. Without it a guess could call an honest journal divergent, or another
        # one identical.
        field = ""
        seq, mono_ns, wall_ns, episode, cause, flags, actor, tag, payload, _, _ = raw
        if cause or actor != EDGE or seq != self.system.next_seq:
            field = NO_FACT
        elif self._fresh:
            field = NO_BEGIN
        if field or self._marked:
            self.divergence = Divergence(seq, field, recorded(raw), NO_RECORD) if field else self._marked
            return
        self._taken_seq, self._mono_ns, self._wall_ns = seq, mono_ns, wall_ns
        self._pending = self.system.trace(decode_event(tag, payload), mono_ns)
        self._at = 1
        # Only this follows from the state: the rest of the fact's record came from outside.
        if self._pending[0][3] != episode or flags != (len(self._pending) == 1):
            self._differs(raw)

    def _differs(self, raw: RawRecord) -> None:
        """A missing decision, or one too many, also changes the mark of the record before it."""
        if self._marked is not None:
            self._mono_ns = self._marked.produced.mono_ns
        produced, there = self._side(self._at - 1), recorded(raw)
        if produced == there:
            self.divergence = self._marked
        elif self._marked is None and replace(produced, last=there.last) == there:
            self._marked = Divergence(raw.seq, "last", there, produced)
            self._mono_ns = _NEVER  # every next record comes here
        else:
            self._diverge(raw, first_difference(produced, there), produced)

    def _checkpoint(self, raw: RawRecord) -> None:
        if self._marked is not None:
            self.divergence = self._marked
            return
        mark = decode_event(raw.tag, raw.payload)
        assert isinstance(mark, Checkpoint)
        if self._fresh:
            self._taken_seq = raw.seq
            self.system = restore(mark, raw.seq + 1)
            self._fresh = False
            return
        # Bytes first: a checkpoint is large, and nearly always equal.
        mine = without_new_blank_actors(take_checkpoint(self.system), mark)
        self.system.next_seq = raw.seq + 1
        if encode_event(mine) != raw.payload and not checkpoints_alike(mark, mine):
            self._diverge(raw, checkpoint_field(mark, mine), replace(recorded(raw), data=_plain(mine)))

    def finish(self) -> Divergence | None:
        """Diverges if the journal stops within a step. Raises as `feed`."""
        if self.divergence is None and self._at < len(self._pending):
            seq = self.system.next_seq - len(self._pending) + self._at
            self._mono_ns = self._marked.produced.mono_ns if self._marked else self._mono_ns
            try:
                produced = self._side(self._at)
            except Exception as error:
                self._refuse(error)
            self.divergence = Divergence(seq, ENDS_HERE, NO_RECORD, produced)
        return self.divergence or self._marked

    def _diverge(self, raw: RawRecord, field: str, produced: Side) -> None:
        self.divergence = Divergence(raw.seq, field, recorded(raw), produced)

    def _side(self, at: int) -> Side:
        last = at == len(self._pending) - 1
        return _side(self._pending[at], self._mono_ns, self._wall_ns, last=last)


def whole_steps(batches: Iterable[Batch]) -> Iterator[Batch]:
    for header, records in batches:
        begin = 0
        for at, raw in enumerate(records, 1):
            if raw.flags & FLAG_LAST:
                yield Batch(header, records[begin:at])
                begin = at


def _side(trace: BareRecord, mono_ns: int, wall_ns: int, *, last: bool) -> Side:
    cause, actor, event, episode = trace
    return Side(cause, actor, type(event).__name__, _plain(event), episode, mono_ns, wall_ns, last)


def _plain(event: Any) -> Any:
    return plain_payload(encode_event(event))


def recorded(raw: RawRecord) -> Side:
    data, last = plain_payload(raw.payload), bool(raw.flags & FLAG_LAST)
    return Side(raw.cause, raw.actor, raw.tag, data, raw.episode, raw.mono_ns, raw.wall_ns, last)


_encode = msgspec.msgpack.Encoder().encode


class Side(msgspec.Struct, frozen=True):
    """A record, its data as plain values. Type "": no record. ``last``: it ends its step."""

    cause: int
    actor: str
    type: str
    data: Any
    episode: int
    mono_ns: int = 0
    wall_ns: int = 0
    last: bool = False

    @property
    def stamps(self) -> tuple[int, int]:
        return self.mono_ns, self.wall_ns


NO_RECORD = Side(0, "", "", None, 0)


def first_difference(produced: Side, recorded: Side) -> str:
    """A part of the envelope, else a field of the event; ``actor field`` for a digest of states."""
    # The envelope first: fields of two types are not comparable. The time before the data: no logic decides
    # it, so a difference proves an edit.
    for name in ("type", "actor", "cause", "episode"):
        if getattr(produced, name) != getattr(recorded, name):
            return name
    if produced.stamps != recorded.stamps:
        return "time"
    found = _data_field(produced, recorded)
    return found or ("last" if produced.last != recorded.last else "encoding")


def _data_field(produced: Side, recorded: Side) -> str:
    """Empty for none. For two digests: the actor with the different state, and its field if both have it."""
    if not isinstance(recorded.data, dict) or not isinstance(produced.data, dict):
        return "data"
    if recorded.type != StatesDigest.__name__ or recorded.data == produced.data:
        names = {**recorded.data, **produced.data}
        # An edited payload may have a key that is empty, or no text.
        differing = (name for name in names if recorded.data.get(name) != produced.data.get(name))
        return next((str(name) or "data" for name in differing), "")
    there, here = recorded.data.get("actors", {}), produced.data.get("actors", {})
    if not isinstance(there, dict) or not isinstance(here, dict):
        return "actors"
    label = next((each for each in {**here, **there} if there.get(each) != here.get(each)), "")
    kept, made = there.get(label), here.get(label)
    kind = ACTOR_TYPE_BY_NAME.get(str(label).partition(":")[0])
    if kind is None or not isinstance(kept, bytes) or not isinstance(made, bytes):
        return f"actors {label}".rstrip()
    return f"{label} {differing_field(kind.state, kept, made)}".rstrip()


def without_new_blank_actors(mine: Checkpoint, recorded: Checkpoint) -> Checkpoint:
    """``mine`` without actors in their default state that the writer did not have yet: a start from the
    recorded checkpoint gives a new actor that state too.
    """
    there = {(kept.actor, kept.subject): None for kept in recorded.actors}
    actors = []
    for made in mine.actors:
        kind = ACTOR_TYPE_BY_NAME[made.actor]
        blank = not made.subject and not made.failed and bytes(made.state) == _encode(kind.state())
        if (made.actor, made.subject) in there or not blank:
            actors.append(made)
    return mine if len(actors) == len(mine.actors) else replace(mine, actors=tuple(actors))


def checkpoints_alike(recorded: Checkpoint, mine: Checkpoint) -> bool:
    """The same values in the same order. Their bytes may differ: MessagePack's head of a struct with more
    than 15 fields is longer, even if most fields are left out, so new fields change a state's bytes.
    """
    if len(recorded.actors) != len(mine.actors):
        return False
    same_states = all(
        (theirs.actor, theirs.subject, theirs.failed) == (ours.actor, ours.subject, ours.failed)
        and same_value(msgspec.msgpack.decode(theirs.state), msgspec.msgpack.decode(ours.state))
        for theirs, ours in zip(recorded.actors, mine.actors, strict=True)
    )
    return same_states and replace(recorded, actors=()) == replace(mine, actors=())


def checkpoint_field(recorded: Checkpoint, mine: Checkpoint) -> str:
    """The first actor with a different state, and its first different field."""
    for theirs, ours in zip(recorded.actors, mine.actors, strict=False):
        # Plain values: the recorded bytes need not fit this version's type.
        kept, made = msgspec.msgpack.decode(theirs.state), msgspec.msgpack.decode(ours.state)
        labels = [(each.actor, each.subject, each.failed) for each in (theirs, ours)]
        if labels[0] != labels[1] or not same_value(kept, made):
            name = next((key for key in {**kept, **made} if kept.get(key) != made.get(key)), "identity")
            return f"{ours.actor}:{ours.subject} {name}".replace(": ", " ")
    return "actors" if len(recorded.actors) != len(mine.actors) else "open orders"


#: Longer lists are shown whole.
ELEMENTS_MAX = 64


class ValueChange(msgspec.Struct, frozen=True):
    """One part by its path (``downs[0].phase``), as recorded or before, and as produced or after. None:
    missing, or a field at its default.
    """

    path: str
    left: Any
    right: Any


def same_value(left: Any, right: Any) -> bool:
    """Also of the same types: 1, true and 1.0 are three values in MessagePack."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(
            same_value(value, right[name]) for name, value in left.items()
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left == right)


def value_changes(left: Any, right: Any, path: str = "") -> Iterator[ValueChange]:
    """In the order of the left side, then the parts of the right side alone."""
    lists = isinstance(left, list | tuple) and isinstance(right, list | tuple)
    if isinstance(left, dict) and isinstance(right, dict):
        for name in {**left, **right}:
            yield from value_changes(left.get(name), right.get(name), f"{path}.{name}" if path else str(name))
    elif lists and max(len(left), len(right)) <= ELEMENTS_MAX:
        for at, (old, new) in enumerate(zip_longest(left, right)):
            yield from value_changes(old, new, f"{path}[{at}]")
    elif not same_value(left, right):
        yield ValueChange(path, left, right)
