"""Damage is always seen: every bit of a thousand events flipped, every length that a cut may leave.

A reader may hand out less than there was. It never hands out anything else, and never calls that intact.
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

#: Where its header is damaged, what stands behind it is still shown (and nothing of it can be executed).
FIRST = next(iter(FILES))

#: One flip of so many is executed as well, after it was read.
VERIFIED_EACH = 211


#: Sampled, one byte and one cut of so many; primes, so that a sample does not follow the format's own steps.
#: The few bytes of a segment's header are met more often than those of its records.
ONE_OF, HEADER_ONE_OF, HEADER_BYTES = 131, 31, 189


def flips(part: int, whole: bool) -> Iterator[tuple[int, str, dict[str, bytes]]]:
    """Every bit whose number falls into this part: its number, and the journal with it flipped."""
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
    """A thousand events in twenty segments, most of them decisions, and all of them verify."""
    found = verify(History([Memory(FILES)], logics=LOGICS))
    assert found.identical
    assert found.events == EVENTS >= EVENTS_MIN
    assert found.episodes > 5
    assert len([raw for raw in RECORDS if raw.cause]) > EVENTS // 2
    assert len(FILES) == SEGMENTS


@pytest.mark.parametrize("part", range(PARTS))
def test_every_flipped_bit_is_seen(part: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never intact, and whatever is handed out is what was written."""
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
    """Every prefix of the journal: the files before are whole, the ones behind were never begun."""
    begins = [0, *accumulate(map(len, FILES.values()))]
    for begin, (name, data) in zip(begins, FILES.items(), strict=False):
        before = {other: kept for other, kept in FILES.items() if other < name}
        for size in range(len(data)):
            yield begin + size, {**before, name: data[:size]}


def boundaries() -> dict[int, int]:
    """Where a prefix ends well, and how many records it has: behind a header, a whole step, a trailer."""
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
    """0 where it ends well, else 4 or 5; either way every whole step before the cut is handed out."""
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
