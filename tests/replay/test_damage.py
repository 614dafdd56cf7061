"""Damage is always detected: each bit of a thousand events flipped, each truncation.

A reader may return less, but never anything else as intact.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import pytest

from ebbtide.events.reader import History
from ebbtide.events.recovery import EXIT_CODES
from ebbtide.events.segment import LOGICS
from ebbtide.replay.verify import verify
from tests.journals import Memory
from tests.replay.damage import EVENTS_MIN, SEGMENTS, ends, files, intact, read, remembering

PARTS = 8
FILES = files()
RECORDS = intact()
EVENTS = len(RECORDS)
ENDS = ends(RECORDS)

#: With a damaged header the rest is displayed, but cannot be executed.
FIRST = next(iter(FILES))

#: One flip of so many is also executed.
VERIFIED_EACH = 211


#: Sample strides for bytes and cuts; primes, independent of the format's sizes. A header's few bytes get more
#: samples.
ONE_OF, HEADER_ONE_OF, HEADER_BYTES = 131, 31, 189


def flips(part: int, whole: bool) -> Iterator[tuple[int, str, dict[str, bytes]]]:
    """This part's bits: number, and journal with the flip."""
    number = 0
    for name, data in FILES.items():
        for at in range(len(data)):
            number += 1
            one_of = HEADER_ONE_OF if at < HEADER_BYTES else ONE_OF
            if number % PARTS != part or (not whole and number // PARTS % one_of):
                continue
            for bit in range(8):
                damaged = data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]
                yield number * 8 + bit, f"{name}, byte {at}, bit {bit}", {**FILES, name: damaged}


def test_the_journal_is_intact_before() -> None:
    """A thousand events in twenty segments, mostly decisions; all verify."""
    found = verify(History([Memory(FILES)], logics=LOGICS))
    assert found.identical
    assert found.events == EVENTS >= EVENTS_MIN
    assert found.episodes > 5
    assert len([raw for raw in RECORDS if raw.cause]) > EVENTS // 2
    assert len(FILES) == SEGMENTS


@pytest.mark.parametrize("part", range(PARTS))
def test_every_flipped_bit_is_seen(part: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never intact; each returned record is an original."""
    with remembering(monkeypatch):
        for number, where, damaged in flips(part, whole):
            found = read(damaged)
            assert found.state != "intact", where
            assert ENDS.get(found.last) == found.head, where
            assert found.first == 1 or where.startswith(FIRST), where
            if number % VERIFIED_EACH == 0:
                result = verify(History([Memory(damaged)], logics=LOGICS))
                assert result.divergence is None, where
                assert not (result.identical and result.events == EVENTS), where
                assert not result.events or found.first == 1, where


def lengths() -> Iterator[tuple[int, dict[str, bytes]]]:
    """Every prefix: whole earlier files, no later ones."""
    begins = [0, *accumulate(map(len, FILES.values()))]
    for begin, (name, data) in zip(begins, FILES.items(), strict=False):
        before = {other: kept for other, kept in FILES.items() if other < name}
        for size in range(len(data)):
            yield begin + size, {**before, name: data[:size]}


def boundaries() -> dict[int, int]:
    """Valid prefix ends and their record counts: after a header, a step, a trailer."""
    found = {0: 0}
    begin = 0
    for name, data in FILES.items():
        history = History([Memory({other: kept for other, kept in FILES.items() if other <= name})])
        header, last_seq = history.path.segments[-1].header, history.read().end.seq
        assert header is not None
        at = begin + len(history.path.segments[-1].header_bytes)
        found[begin], found[at] = header.link.seq, header.link.seq
        for raw in (raw for raw in RECORDS if header.link.seq < raw.seq <= last_seq):
            at += 96 + len(raw.actor) + len(raw.tag) + len(raw.payload)
            if raw.seq in ENDS:
                found[at] = raw.seq
        begin += len(data)
        found[begin] = max(found.values())
    return found


def test_every_length_is_used_as_far_as_it_goes(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code 0 at a valid end, else 4 or 5; each whole step before the cut is returned."""
    well = boundaries()
    last = 0
    with remembering(monkeypatch):
        for size, cut in lengths():
            last = max(last, well.get(size, 0))
            if not whole and size % ONE_OF and not {size - 1, size, size + 1} & well.keys():
                continue
            found = read(cut)
            assert (found.first, found.last, found.head) == (1, last, ENDS[last]), size
            code = EXIT_CODES[found.state]
            assert code == 0 if size in well else code in (4, 5), size
