"""Seals: each with a key of its own, which is gone; the first one makes them all again."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.events.seal import (
    SEALS_MAX,
    BrokenSeal,
    Seals,
    checked_seals,
    encode_seals,
    next_key,
    parse_seals,
    with_seal,
)
from tests.journals import JOURNAL_ID

FIRST = bytes(range(32))


def sealed(count: int, key: bytes = FIRST) -> Seals:
    made = Seals(key.hex())
    for number in range(count):
        made = with_seal(made, JOURNAL_ID, 10 + number, bytes([number]) * 32, number)
    return made


def test_each_seal_is_made_with_the_next_key() -> None:
    """The first key makes all of them again; in the file is the one that has made none yet."""
    made = parse_seals(encode_seals(sealed(3)))
    assert [seal.seq for seal in checked_seals(made, FIRST)] == [10, 11, 12]
    assert made.key == next_key(next_key(next_key(FIRST))).hex()
    assert FIRST.hex() not in encode_seals(made).decode()


@pytest.mark.parametrize(
    "changes", [{"journal": "f" * 32}, {"seq": 99}, {"head": "f" * 64}, {"wall_ns": 99}, {"mac": "0" * 64}]
)
def test_a_changed_seal_is_broken(changes: dict[str, object]) -> None:
    """Whichever part of it; those before it stand."""
    made = sealed(3)
    one, two, three = made.seals
    changed = msgspec.structs.replace(made, seals=(one, msgspec.structs.replace(two, **changes), three))
    found = checked_seals(changed, FIRST)
    assert next(found) == one
    with pytest.raises(BrokenSeal, match="seal 2 of 3"):
        next(found)


def test_who_finds_the_key_can_make_no_earlier_seal() -> None:
    """Seals taken out, put in with the key that was found, or begun anew with it: none fits its place."""
    found = sealed(3)
    stolen = Seals(found.key, found.seals[:1])
    for forged in (
        with_seal(stolen, JOURNAL_ID, 11, b"x" * 32, 1),
        with_seal(Seals(found.key), JOURNAL_ID, 10, b"x" * 32, 0),
        msgspec.structs.replace(found, seals=found.seals[1:]),
    ):
        with pytest.raises(BrokenSeal):
            list(checked_seals(forged, FIRST))
    # What comes after is theirs.
    assert len(list(checked_seals(with_seal(found, JOURNAL_ID, 13, b"x" * 32, 9), FIRST))) == 4


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_seals_cut_off_at_the_end_are_missed(kept: int) -> None:
    """The key that lies there is that of a later place, and none goes back from it."""
    made = sealed(3)
    with pytest.raises(BrokenSeal, match="the last seals are missing"):
        list(checked_seals(Seals(made.key, made.seals[:kept]), FIRST))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"key": "x"}',
        b'{"key": "' + b"0" * 64 + b'", "format": 2}',
        b'{"key": "' + b"0" * 64 + b'", "seals": [{}]}',
        b'{"key": "' + b"0" * 64 + b'", "seals": [1, 2]}',
        b'{"x": ' + b"[" * 5000,
        encode_seals(msgspec.structs.replace(sealed(1), seals=sealed(1).seals * (SEALS_MAX + 1))),
        encode_seals(msgspec.structs.replace(sealed(1), key="é" * 64)),
    ],
)
def test_what_is_no_file_of_seals_is_refused(data: bytes) -> None:
    """By one kind of error."""
    with pytest.raises(ValueError):
        parse_seals(data)
