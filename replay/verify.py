"""Is a whole journal a function of its facts? One pass over it, in whole steps, in the memory of a step.

What cannot be read is not called identical: an intact prefix verifies, and the verdict says where it ends.
"""

from __future__ import annotations

from operator import gt
from typing import NamedTuple

from ebbtide.events.base import Checkpoint
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType
from ebbtide.events.reader import Batch, History
from ebbtide.events.recovery import Verdict
from ebbtide.replay.replayer import Divergence, Replayer

#: A journal in such a state has records that nobody could read: that they agree cannot be said.
HIDES = ("corrupt", "incompatible")


class Verification(NamedTuple):
    """``events`` were executed, of ``episodes`` shutdowns.

    ``failure`` is why re-execution stopped before the end, at record ``stopped_seq``, which cannot be
    decoded; ``verdict`` is what a reader can say of the journal's end.
    """

    episodes: int
    events: int
    divergence: Divergence | None
    failure: BadPayload | UnknownType | None
    stopped_seq: int
    verdict: Verdict

    @property
    def identical(self) -> bool:
        """Every decision as recorded, and nothing that could not be looked at. A torn tail never counted."""
        return self.divergence is None and self.failure is None and self.verdict.state not in HIDES


def verify(history: History, only: int = 0) -> Verification:
    """Execute as far as it agrees; read on to the end for the verdict's sake.

    ``only`` is the number of the first record of the one shutdown that is asked about (0: of all): what
    diverges only after it says nothing against it. ``history`` needs the logic flags of this version
    (`actors.system.LOGIC_FLAGS`), so that what has others is refused. Raises OSError.
    """
    return _Run(only).go(history)


class _Run:
    """One pass."""

    def __init__(self, only: int) -> None:
        self.replayer = Replayer()
        self._clock = _Clock()
        self._only = only
        self._episodes: dict[int, None] = {}
        self._events = 0
        self._relevant = not only

    def go(self, history: History) -> Verification:
        failure: BadPayload | UnknownType | None = None
        batches = history.batches()
        try:
            for batch in batches:
                self._count(batch.records)
                if not self.replayer.events and not _is_begin(batch.records[0]):
                    break
                if self._diverges(batch):
                    self._relevant |= self._touches(batch.records)
                    break
            else:
                self.replayer.finish()
        except (UnknownType, BadPayload) as error:
            failure = error
        for batch in batches:
            self._count(batch.records)
            self._relevant |= self._touches(batch.records)
        self._episodes.pop(0, None)
        return Verification(
            1 if self._only else len(self._episodes),
            self._events if self._only else self.replayer.events,
            self.replayer.divergence if self._relevant else None,
            failure,
            self.replayer.system.next_seq if failure is not None else 0,
            history.verdict,
        )

    def _diverges(self, batch: Batch) -> bool:
        """Whichever comes first: another decision, or a time before the last one."""
        back = self._clock.goes_back(batch)
        if back is None:
            return self.replayer.feed(batch.records) is not None
        at, before_ns = back
        if self.replayer.feed(batch.records[:at]) is None:
            self.replayer.went_back(batch.records[at], before_ns)
        return True

    def _count(self, records: list[RawRecord]) -> None:
        self._episodes.update(dict.fromkeys([raw.episode for raw in records]))
        if self._only:
            self._events += [raw.episode for raw in records].count(self._only)

    def _touches(self, records: list[RawRecord]) -> bool:
        divergence = self.replayer.divergence
        return divergence is not None and any(
            raw.episode == self._only and raw.seq >= divergence.seq for raw in records
        )


class _Clock:
    """Within a boot the monotonic clock never goes back, neither in a process nor from one to the next."""

    def __init__(self) -> None:
        self._boot_id, self._mono_ns = "", 0

    def goes_back(self, batch: Batch) -> tuple[int, int] | None:
        """The first record of these whose time is before that of the one in front of it, and that time."""
        mono_ns = [raw.mono_ns for raw in batch.records]
        same_boot = batch.header.identity.boot_id == self._boot_id
        before_ns = [self._mono_ns if same_boot else mono_ns[0], *mono_ns[:-1]]
        self._boot_id, self._mono_ns = batch.header.identity.boot_id, mono_ns[-1]
        if not any(map(gt, before_ns, mono_ns)):
            return None
        return next((at, was) for at, was in enumerate(before_ns) if was > mono_ns[at])


def _is_begin(raw: RawRecord) -> bool:
    """Where the journal's begin is lost, what is left of it can be looked at, and not executed."""
    return raw.seq == 1 or raw.tag == Checkpoint.__name__
