"""An event's envelope is compared too: each change is found.

Only a fact's own times come from outside.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Record
from ebbtide.events.codec import FLAG_LAST, RawRecord
from ebbtide.events.decisions import ReleaseLock
from ebbtide.replay.divergence import explain
from ebbtide.replay.replayer import Divergence, Replayer
from ebbtide.replay.verify import verify
from tests.journals import VERSION, history
from tests.replay import shutdown

RECORDS = shutdown.write().records
RAWS = list(history(RECORDS).raw())
HOUR_NS = 3600 * NS_PER_SECOND

#: A change of an envelope part, and the difference's name.
CHANGES: dict[str, tuple[str, Any]] = {
    "mono_ns": ("time", lambda raw: raw.mono_ns + 1),
    "wall_ns": ("time", lambda raw: raw.wall_ns - 1),
    "flags": ("last", lambda raw: raw.flags ^ FLAG_LAST),
    "episode": ("episode", lambda raw: raw.episode + 1),
    "cause": ("cause", lambda raw: raw.cause - 1),
    "actor": ("actor", lambda raw: f"{raw.actor}:1"),
    "tag": ("type", lambda raw: "Leave"),
}


def replayed(raws: list[RawRecord]) -> Divergence | None:
    replayer = Replayer()
    return replayer.feed(raws) or replayer.finish()


def changed(seq: int, **changes: Any) -> list[Record]:
    return [msgspec.structs.replace(record, **changes) if record.seq == seq else record for record in RECORDS]


@pytest.mark.parametrize("part", CHANGES)
def test_every_part_of_every_decision(part: str) -> None:
    """The report finds and names the difference in any decision."""
    name, change = CHANGES[part]
    for at, raw in enumerate(RAWS):
        if raw.cause:
            edited = raw._replace(**{part: change(raw)})
            found = replayed([*RAWS[:at], edited, *RAWS[at + 1 :]])
            assert found is not None, raw
            assert (found.seq, found.field) == (raw.seq, name), raw


@pytest.mark.parametrize("part", [part for part in CHANGES if part not in ("mono_ns", "wall_ns", "tag")])
def test_every_part_of_every_fact_but_its_times(part: str) -> None:
    """A fact has no cause, an edge as source, and its step's shutdown and end mark."""
    _, change = CHANGES[part]
    for at, raw in enumerate(RAWS):
        if not raw.cause and raw.tag != Checkpoint.__name__:
            edited = raw._replace(**{part: change(raw._replace(cause=2))})
            found = replayed([*RAWS[:at], edited, *RAWS[at + 1 :]])
            assert found is not None, raw
            assert found.seq == raw.seq, raw


def test_a_release_an_hour_later_is_no_identical_journal() -> None:
    """Only that record was moved, with a rebuilt chain: the times reveal it."""
    release = next(record for record in RECORDS if isinstance(record.event, ReleaseLock))
    found = history(
        changed(release.seq, mono_ns=release.mono_ns + HOUR_NS, wall_ns=release.wall_ns + HOUR_NS)
    )
    result = verify(found)
    assert not result.identical
    assert result.divergence is not None
    assert (result.divergence.seq, result.divergence.field) == (release.seq, "time")
    assert result.divergence.expected.mono_ns - result.divergence.produced.mono_ns == HOUR_NS
    told = explain(found, result.divergence, VERSION)
    assert [reason.name for reason in told.reasons] == ["edited"]
