"""The one way to make a small journal of records: one segment, with a chain that holds, whatever they say.

As bytes for a source in memory (`segment`), or in a folder (`write_segment`). Where a test is about the
writer itself, `tests.events.making` runs a real one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ebbtide.actors.system import LOGIC_FLAGS
from ebbtide.events.base import Record, Stamp
from ebbtide.events.segment import Chain, Identity, Link, WriterStart, segment_file_name

JOURNAL_ID = bytes(range(16))
IDENTITY = Identity("node-1", "machine-1", "boot-1", "0.1.0", LOGIC_FLAGS)


def segment(
    records: Iterable[Record],
    *,
    identity: Identity = IDENTITY,
    anchor: Stamp | None = None,
    durable: bool = True,
    sealed: bool = False,
    journal_id: bytes = JOURNAL_ID,
) -> dict[str, bytes]:
    """The file's name and its bytes. ``anchor``: of the header, by default the first record's. ``durable``:
    each frame knows all before it to be durable, else none.
    """
    written = list(records)
    anchor = anchor or Stamp(written[0].mono_ns, written[0].wall_ns)
    chain = Chain(identity, WriterStart(journal_id, Link(), 1))
    items = chain.begin_segment(anchor)
    items += [chain.append(record, max(0, record.seq - 1) if durable else 0) for record in written]
    items += [chain.seal()] if sealed else []
    return {segment_file_name(1, journal_id): b"".join(item.data for item in items)}


def write_segment(folder: Path, files: dict[str, bytes]) -> Path:
    """`segment`'s file in a folder, which is made; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    ((name, data),) = files.items()
    (folder / name).write_bytes(data)
    return folder / name
