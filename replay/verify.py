"""Is a whole journal a function of its facts? One pass, in the memory of a step.

This proves a consistent journal, not its author. A `NotedHead`, kept elsewhere, proves the journal up to its
record.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ebbtide.events.base import Checkpoint, shutdown_trace_id
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType
from ebbtide.events.reader import History
from ebbtide.events.recovery import Verdict
from ebbtide.replay.replayer import Divergence, Replayer

#: Such a journal has unreadable records.
HIDES = ("corrupt", "incompatible")


#: ``there``: that record has that hash, so all up to it is unchanged. ``other``: another record is in its
#: place, or none. ``gone``: the journal begins after it, as after retention.
HeadState = Literal["there", "other", "gone"]

_HASH_DIGITS, _TRACE_DIGITS = 64, 32


class NotedHead(NamedTuple):
    """A record's chain hash, or its shutdown's trace id, in hexadecimal ``digits``. ``seq`` 0: no number."""

    seq: int
    digits: str

    @property
    def of_trace(self) -> bool:
        return len(self.digits) == _TRACE_DIGITS

    def is_of(self, raw: RawRecord) -> bool:
        if self.of_trace:
            return raw.seq == raw.episode and shutdown_trace_id(raw.hash) == self.digits
        return raw.hash.hex() == self.digits and self.seq in (0, raw.seq)

    def state(self, found_seq: int, verdict: Verdict) -> HeadState:
        if found_seq:
            return "there"
        # A hash without a number may be from before the begin.
        begins_later = verdict.first_seq > (self.seq or 1)
        return "gone" if begins_later else "other"


def parse_head(text: str) -> NotedHead:
    """``NUMBER:HASH``, a hash, or a trace id. Raises ValueError."""
    number, colon, digits = text.strip().lower().rpartition(":")
    is_hex = all(digit in "0123456789abcdef" for digit in digits)
    lengths = (_HASH_DIGITS,) if colon else (_HASH_DIGITS, _TRACE_DIGITS)
    seq = int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else 0
    if not is_hex or len(digits) not in lengths or bool(colon) != bool(seq):
        forms = "NUMBER:HASH as 'ebbtide journal check' prints it, a HASH, or a trace id"
        raise ValueError(f"{text!r} is no head: name {forms}")
    return NotedHead(seq, digits)


class Verification(NamedTuple):
    """``events`` and ``episodes`` are numbers of executed ones. ``failure``: why re-execution stopped at
    record ``stopped_seq``. ``noted_seq``: the noted head's record, 0 for none.
    """

    episodes: int
    events: int
    divergence: Divergence | None
    failure: BadPayload | UnknownType | None
    stopped_seq: int
    verdict: Verdict
    noted_seq: int = 0

    @property
    def identical(self) -> bool:
        """Every decision is as recorded, and every record readable. A torn tail does not count."""
        return self.divergence is None and self.failure is None and self.verdict.state not in HIDES


def verify(history: History, only: int = 0, noted: NotedHead | None = None) -> Verification:
    """Executes up to the first difference; reads on for the verdict.

    ``only``: the first record of one shutdown (0: all), after whose end a divergence does not count.
    ``history`` needs `events.segment.LOGICS`, so that it refuses another logic. Raises OSError.
    """
    replayer = Replayer()
    episodes: dict[int, None] = {}
    events = 0
    failure: BadPayload | UnknownType | None = None
    executes, relevant, noted_seq = True, not only, 0
    for batch in history.batches():
        records = batch.records
        episodes.update(dict.fromkeys([raw.episode for raw in records]))
        events += [raw.episode for raw in records].count(only) if only else 0
        if noted is not None and not noted_seq:
            noted_seq = next((raw.seq for raw in records if noted.is_of(raw)), 0)
        if not replayer.events and records[0].seq != 1 and records[0].tag != Checkpoint.__name__:
            # Without its begin a journal can be read, not executed.
            executes = False
        if executes:
            try:
                replayer.feed(records)
            except (UnknownType, BadPayload) as error:
                failure = error
            executes = failure is None and replayer.divergence is None
        divergence = replayer.divergence
        relevant |= divergence is not None and any(
            raw.episode == only and raw.seq >= divergence.seq for raw in records
        )
    if executes:
        try:
            replayer.finish()
        except (UnknownType, BadPayload) as error:
            failure = error
    episodes.pop(0, None)
    return Verification(
        1 if only else len(episodes),
        events if only else replayer.events,
        replayer.divergence if relevant else None,
        failure,
        replayer.system.next_seq if failure is not None else 0,
        history.verdict,
        noted_seq,
    )
