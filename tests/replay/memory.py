"""A journal in memory, made of records as they are or as somebody changed them, with a chain that holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ebbtide.actors.system import LOGIC_FLAGS
from ebbtide.events.base import Record, Stamp
from ebbtide.events.catalog import StoredFile
from ebbtide.events.reader import History
from tests.journals import IDENTITY, segment

VERSION = IDENTITY.code_version


class Memory:
    """`events.catalog.Source` over bytes."""

    location = "memory"

    def __init__(self, data: Mapping[str, bytes]) -> None:
        self.data = dict(data)

    def files(self) -> list[StoredFile]:
        return [StoredFile(name, len(data), 0) for name, data in sorted(self.data.items())]

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self.data[name][offset : offset + size]


def chained(
    records: Iterable[Record], *, flags: Sequence[str] = LOGIC_FLAGS, version: str = VERSION
) -> dict[str, bytes]:
    """One segment with these records, whatever they say."""
    identity = IDENTITY._replace(code_version=version, logic_flags=tuple(flags))
    return segment(records, identity=identity, anchor=Stamp(0, 0))


def history(records: Iterable[Record], **identity: Any) -> History:
    return History([Memory(chained(records, **identity))], logic_flags=LOGIC_FLAGS)


def changed(records: Sequence[Record], seq: int, **changes: Any) -> list[Record]:
    """The records with the event of one of them changed."""
    return [
        msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, **changes))
        if record.seq == seq
        else record
        for record in records
    ]


def without(records: Sequence[Record], seq: int) -> list[Record]:
    """The records with one of them taken out, and the others numbered anew; its step still ends."""
    left = [record for record in records if record.seq != seq]
    taken = next(record for record in records if record.seq == seq)
    moved = {record.seq: at for at, record in enumerate(left, 1)}
    return [
        msgspec.structs.replace(
            record,
            seq=moved[record.seq],
            cause=moved.get(record.cause, 0),
            episode=moved.get(record.episode, 0),
            last=record.last or (taken.last and record.seq == seq - 1),
        )
        for record in left
    ]
