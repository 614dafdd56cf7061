"""What the folds of shutdowns and outages share: the order of records, times, and the table of handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from ebbtide.events.base import Event, Record, Stamp, episode_id, shutdown_trace_id
from ebbtide.events.codec import FLAG_LAST, BadPayload, RawRecord
from ebbtide.events.segment import Header

MethodT = TypeVar("MethodT", bound=Callable[..., None])


class RecordPoint(NamedTuple):
    """A record's number, its time since the episode's begin, and whether it is of the boot of that begin."""

    seq: int
    at_ns: int
    same_boot: bool


def meaning(*kinds: type[Event]) -> Callable[[MethodT], MethodT]:
    """The decorated method of a fold says what these events mean."""

    def mark(method: MethodT) -> MethodT:
        vars(method)["tags"] = tuple(kind.__name__ for kind in kinds)
        return method

    return mark


class EpisodeFold:
    """An episode during the fold. Times are nanoseconds since its begin."""

    #: By type tag: what an event means. A reader need not decode other types.
    handlers: ClassVar[dict[str, Callable[[Any, Any], None]]]
    #: The tags that count after the episode's end, in records of no episode.
    late_tags: ClassVar[tuple[str, ...]] = ()
    #: The record so far.
    record: Any

    def __init_subclass__(cls) -> None:
        cls.handlers = {tag: each for each in vars(cls).values() for tag in getattr(each, "tags", ())}

    def __init__(self, number: int, first: RawRecord | Stamp, boot_id: str) -> None:
        self.number = number
        self.started = Stamp(first.mono_ns, first.wall_ns)
        self.boot_id = boot_id
        #: The error of a record that does not fit its type.
        self.unreadable: BadPayload | None = None
        #: The record that the fold interprets.
        self.point = RecordPoint(number, 0, True)

    def turn_to(self, record: RawRecord | Record, boot_id: str) -> None:
        """Interpret what follows at this record, which that boot wrote."""
        # The monotonic clock starts anew with each boot: between boots only the wall clock measures.
        same = boot_id == self.boot_id
        at_ns = record.mono_ns - self.started.mono_ns if same else record.wall_ns - self.started.wall_ns
        self.point = RecordPoint(record.seq, at_ns, same)

    @property
    def goes_on(self) -> bool:
        """The journal does not have its end."""
        raise NotImplementedError

    def take(self, raw: RawRecord, header: Header, fact: RawRecord | None) -> None:
        """One record of the journal. ``fact`` began its step; records of other episodes change nothing."""
        raise NotImplementedError

    def finish(self, boot_id: str | None, damage: Any) -> Any:
        """The record as it stands."""
        raise NotImplementedError


def begin_of_record(number: int, first: RawRecord | Stamp, header: Header) -> dict[str, Any]:
    """What a record has from the first record of its episode, and from that segment's header."""
    identity = header.identity
    return {
        "id": episode_id(header.journal_id, number),
        "trace_id": shutdown_trace_id(first.hash if isinstance(first, RawRecord) else b""),
        "journal_id": header.journal_id.hex(),
        "first_seq": number,
        "last_seq": number,
        "node": identity.node,
        "boot_id": identity.boot_id,
        "version": identity.code_version,
        "logic": identity.logic,
        "started_wall_ns": first.wall_ns,
        "started_mono_ns": first.mono_ns,
    }


def grouped_by_episode(records: Sequence[RawRecord]) -> Sequence[RawRecord]:
    """Whole steps, with each episode's records together.

    A signal may come while the pods of a cancelled shutdown still end. One step then closes this shutdown and
    opens the next: its first record already belongs to the next one, and the closing records follow.
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
