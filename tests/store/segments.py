"""A journal of several segments, each with a checkpoint."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from benchmarks.episodes import IDENTITY, START, Theatre, _mark
from ebbtide.actors.system import take_checkpoint
from ebbtide.events.base import Stamp
from ebbtide.events.segment import Chain, segment_file_name

NODE = IDENTITY.node
JOURNAL_ID = START.journal_id


def lay_out_segments(folder: Path, segments: int, pods: int = 2) -> list[str]:
    """The file names; all but the last are closed."""
    theatre, chain = Theatre(pods, 1), Chain(IDENTITY, START)
    names = []
    for number in range(1, segments + 1):
        mark = _mark(take_checkpoint(theatre.system))
        seq = theatre.system.next_seq
        theatre.records.insert(0, replace(mark, seq=seq))
        theatre.system.next_seq += 1
        if number == 1:
            theatre.begin()
        theatre.shut_down()
        name = segment_file_name(number, JOURNAL_ID)
        *trailer, header = chain.begin_segment(Stamp(0, 0))
        for item in trailer:
            with (folder / names[-1]).open("ab") as file:
                file.write(item.data)
        data = header.data + b"".join(chain.append(record, record.seq).data for record in theatre.records)
        theatre.records.clear()
        (folder / name).write_bytes(data)
        names.append(name)
    return names
