"""Compare a golden journal with today's journal of the same story: equal records, except the checkpoints.

A checkpoint holds every actor's state. A version with a new actor or field writes more, but agrees on the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ebbtide.events.base import Checkpoint
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.reader import History
from ebbtide.replay.replayer import checkpoints_alike, without_new_blank_actors
from tests.journals import Memory


def made_again(files: Mapping[str, bytes], golden: Path) -> None:
    """``files``: segments by name. Fails on a different record."""
    made = list(History([Memory(files)]).raw())
    kept = list(History([DirectorySource(golden)]).raw())
    assert sorted(files) == sorted(file.name for file in golden.iterdir())
    assert [_envelope(raw) for raw in made] == [_envelope(raw) for raw in kept]
    for ours, theirs in zip(made, kept, strict=True):
        if ours.tag == Checkpoint.__name__:
            mark = checkpoint_of(theirs)
            assert checkpoints_alike(mark, without_new_blank_actors(checkpoint_of(ours), mark)), ours.seq
        else:
            assert ours.payload == theirs.payload, ours.seq


def _envelope(raw: RawRecord) -> RawRecord:
    return raw._replace(payload=b"", hash=b"")


def checkpoint_of(raw: RawRecord) -> Checkpoint:
    mark = decode_event(raw.tag, raw.payload)
    assert isinstance(mark, Checkpoint)
    return mark
