"""Headers and frames: lossless, and damage is detected."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from ebbtide.events import codec
from ebbtide.events.base import ITEMS_MAX, TYPES, Event, Record
from ebbtide.events.decisions import Disarmed, PodEnded
from ebbtide.events.facts import BusLost, Tick
from ebbtide.events.segment import (
    FORMAT_VERSION,
    HEADER_FIXED,
    HEADER_PREFIX,
    NUMBERS_MAX,
    SEGMENT_MAGIC,
    DamagedHeader,
    Header,
    Identity,
    IncompatibleHeader,
    Link,
    encode_header,
    parse_header,
    parse_segment_file_name,
    segment_file_name,
)
from tests.events.making import IDENTITY, step
from tests.filled import filled
from tests.journals import JOURNAL_ID

BEFORE = bytes(range(32))

signed = st.integers(-(2**63), 2**63 - 1)
unsigned = st.integers(0, 2**64 - 1)
texts = st.text(max_size=40)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Tick),
    st.builds(BusLost, error=texts),
    st.builds(Disarmed, reason=texts, retry_at_ns=signed),
    st.builds(
        PodEnded,
        uid=texts,
        wave=st.integers(0, 9),
        outcome=st.sampled_from(["killed", "graceful"]),
        reason=texts,
    ),
)
records = st.lists(
    st.builds(
        Record,
        seq=st.just(0),
        mono_ns=signed,
        wall_ns=signed,
        episode=unsigned,
        cause=unsigned,
        actor=texts,
        last=st.booleans(),
        event=events,
    ),
    min_size=1,
    max_size=8,
)
in_header, time_in_header = st.integers(0, NUMBERS_MAX - 1), st.integers(1 - NUMBERS_MAX, NUMBERS_MAX - 1)
headers = st.builds(
    Header,
    journal_id=st.binary(min_size=16, max_size=16),
    segment=in_header,
    anchor_wall_ns=time_in_header,
    anchor_mono_ns=time_in_header,
    carries=st.booleans(),
    link=st.builds(Link, in_header, in_header, in_header, st.binary(min_size=32, max_size=32)),
    identity=st.builds(Identity, texts, texts, texts, texts, texts),
    compatible=st.integers(0, 2**32 - 1),
    incompatible=st.just(0),
)


def chain(made: list[Record], from_seq: int = 1) -> tuple[list[Record], bytes]:
    """The records numbered, and their frames behind the hash that they start from."""
    numbered = [msgspec.structs.replace(record, seq=from_seq + at) for at, record in enumerate(made)]
    data = BEFORE
    for record in numbered:
        data += codec.encode_frame(record, data[-codec.HASH_BYTES :], 0)
    return numbered, data


@given(records)
def test_a_record_survives_the_round_trip(made: list[Record]) -> None:
    """Every envelope field and the event come back equal."""
    numbered, data = chain(made)
    parsed = codec.parse_frames(data, codec.HASH_BYTES, len(data), 0)
    assert [codec.decode_record(raw) for raw in parsed.records] == numbered
    assert (parsed.pos, parsed.seq, parsed.stop) == (len(data), len(numbered), None)


def test_the_end_of_the_last_whole_step_is_told() -> None:
    """Later records wait for the rest of their step."""
    _, data = chain([*step(1), *step(4, whole=False)])
    parsed = codec.parse_frames(data, codec.HASH_BYTES, len(data), 0)
    assert (len(parsed.records), parsed.whole) == (6, 3)
    again = codec.parse_frames(data, parsed.whole_pos, len(data), 3)
    assert [raw.seq for raw in again.records] == [4, 5, 6]
    assert parsed.records[2].flags == codec.FLAG_LAST


def test_a_number_out_of_order_is_not_taken() -> None:
    """A valid chain is not enough: numbers have no gaps."""
    _, data = chain(step(1), from_seq=5)
    assert codec.parse_frames(data, codec.HASH_BYTES, len(data), 0).stop == "record 5 stands where 1 belongs"


@given(headers)
def test_a_header_survives_the_round_trip(header: Header) -> None:
    """Unknown compatible bits are carried along."""
    data = encode_header(header)
    assert parse_header(data + b"more") == (header, len(data))


@settings(max_examples=50)
@given(headers, st.data())
def test_a_changed_header_is_damaged_and_never_misread(header: Header, data: st.DataObject) -> None:
    """A flipped version is damage, not another version; so is a cut."""
    good = encode_header(header)
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << (bit % 8)
    for damaged in (bytes(bad), good[: bit // 8]):
        with pytest.raises(DamagedHeader):
            parse_header(damaged)


def _crafted(fixed: bytes, texts: bytes) -> bytes:
    """A header with valid length and hash around this content."""
    length = HEADER_PREFIX.size + len(fixed) + len(texts) + codec.HASH_BYTES
    content = HEADER_PREFIX.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, length) + fixed + texts
    return content + hashlib.sha256(content).digest()


def _fixed(segment: int = 1, wall_ns: int = 0, mono_ns: int = 0, seq: int = 0) -> bytes:
    return HEADER_FIXED.pack(0, 0, JOURNAL_ID, segment, wall_ns, mono_ns, 0, 0, 0, seq, bytes(32))


FIVE_TEXTS = b"\5\0" + 5 * b"\1\0x"


@pytest.mark.parametrize(
    ("fixed", "texts"),
    [
        (b"", b""),
        (_fixed(), b""),
        (_fixed(), b"\4\0" + 4 * b"\1\0x"),
        (_fixed(), b"\5\0" + 4 * b"\1\0x"),
        (_fixed(), b"\5\0" + 4 * b"\1\0x" + b"\2\0x"),
        (_fixed(), b"\5\0" + 5 * b"\1\0\xff"),
        (_fixed(segment=NUMBERS_MAX), FIVE_TEXTS),
        (_fixed(wall_ns=-NUMBERS_MAX), FIVE_TEXTS),
        (_fixed(mono_ns=NUMBERS_MAX), FIVE_TEXTS),
        (_fixed(seq=(1 << 64) - 1), FIVE_TEXTS),
    ],
    ids=["48 bytes", "no texts", "few", "too few", "cut", "no UTF-8", "segment", "wall", "mono", "seq"],
)
def test_a_header_that_was_made_up_is_damaged(fixed: bytes, texts: bytes) -> None:
    """A valid hash is easy to forge; the content is truncated or impossible."""
    with pytest.raises(DamagedHeader):
        parse_header(_crafted(fixed, texts))
    assert parse_header(_crafted(_fixed(), FIVE_TEXTS))[0].identity == ("x", "x", "x", "x", "x")


def test_what_is_nested_too_deep_is_a_bad_payload() -> None:
    """It would overflow the stack; its bytes are shown."""
    payload = b"\x81\xa5actor" + b"\x91" * 10_000 + b"\x90"
    with pytest.raises(codec.BadPayload):
        codec.decode_event("Checkpoint", b"\x81\xa6actors" + b"\x91" * 10_000 + b"\x90")
    assert codec.plain_payload(payload) == payload.hex()


def test_a_payload_of_too_many_values_is_not_unfolded() -> None:
    """Each byte would take a hundred in memory."""
    payload = b"\xdd" + (codec.VALUES_MAX + 1).to_bytes(4, "big") + b"\x90" * (codec.VALUES_MAX + 1)
    with pytest.raises(codec.BadPayload, match="more than 1200000 values"):
        codec.decode_event("Checkpoint", payload)
    with pytest.raises(codec.BadPayload, match="more than 200000 values"):
        codec.decode_event("InventoryTaken", payload)
    assert codec.plain_payload(payload) == f"{len(payload)} bytes, more than 200000 values: not shown"
    # A text's bytes are not values.
    text = b"\x81\xa5error\xdb" + (2 * codec.VALUES_MAX).to_bytes(4, "big") + b"x" * (2 * codec.VALUES_MAX)
    assert codec.decode_event("BusLost", text) == BusLost(error="x" * (2 * codec.VALUES_MAX))


def test_another_format_version_is_incompatible() -> None:
    """Every version has the prefix and final hash, so it differs from damage."""
    good = encode_header(Header(JOURNAL_ID, 1, 0, 0, False, Link(), IDENTITY))
    other = bytearray(good[: -codec.HASH_BYTES])
    other[8:10] = (FORMAT_VERSION + 1).to_bytes(2, "little")
    with pytest.raises(IncompatibleHeader, match="format version 2"):
        parse_header(bytes(other) + hashlib.sha256(other).digest())
    assert HEADER_PREFIX.size == 16


def test_an_unknown_incompatible_bit_is_incompatible() -> None:
    """Bits of the other kind are passed over."""
    header = Header(JOURNAL_ID, 1, 0, 0, False, Link(), IDENTITY, compatible=6, incompatible=4)
    with pytest.raises(IncompatibleHeader, match="0x4"):
        parse_header(encode_header(header))


def test_file_names_sort_and_say_whose_they_are() -> None:
    names = [segment_file_name(number, JOURNAL_ID) for number in (1, 2, 10, 1_000_000_000)]
    assert names == sorted(names)
    assert parse_segment_file_name(names[2]) == (10, "00010203")
    assert parse_segment_file_name("lock") is None


# --- every list of every event


def lists_of(kind: Any) -> Iterator[Any]:
    match kind:
        case inspect.Metadata(inner):
            yield from lists_of(inner)
        case inspect.StructType(_, fields):
            for each in fields:
                yield from lists_of(each.type)
        case inspect.VarTupleType(item):
            yield kind
            yield from lists_of(item)
        case inspect.DictType(_, item):
            yield kind
            yield from lists_of(item)
        case inspect.TupleType(items):
            for each in items:
                yield from lists_of(each)
        case inspect.UnionType(types):
            for each in types:
                yield from lists_of(each)


WITH_LISTS = {
    tag: kind for tag, kind in TYPES.items() if tag != "Checkpoint" and any(lists_of(inspect.type_info(kind)))
}


@pytest.mark.parametrize("tag", WITH_LISTS)
@pytest.mark.parametrize("count", [3, ITEMS_MAX, ITEMS_MAX + 1, 300_000])
def test_what_is_written_can_be_read(tag: str, count: int) -> None:
    """The writer refuses exactly what the reader does: a record that it takes is read back. Every list of
    every event has a bound.
    """
    info = inspect.type_info(WITH_LISTS[tag])
    assert [each for each in lists_of(info) if each.max_length is None or each.max_length > ITEMS_MAX] == []
    # Each letter may begin a value, as far as a reader can see without decoding.
    event = filled(info, lambda _: "é" * 60, count)
    record = Record(seq=1, mono_ns=1, wall_ns=1, episode=0, cause=0, actor="a", last=True, event=event)
    try:
        frame = codec.encode_frame(record, BEFORE, 0)
    except codec.FrameTooLarge:
        assert count >= ITEMS_MAX
        return
    parsed = codec.parse_frames(BEFORE + frame, codec.HASH_BYTES, codec.HASH_BYTES + len(frame), 0)
    assert [codec.decode_record(raw) for raw in parsed.records] == [record]
    assert count <= ITEMS_MAX
