"""A packed journal reads like its directory, and a part of a journal is a journal."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebbtide.events.pack import (
    MANIFEST,
    Excerpt,
    NotPacked,
    PackedSource,
    around_records,
    source_at,
    whole_journal,
    write_pack,
)
from ebbtide.events.reader import History
from tests.journals import Memory
from tests.replay import shutdown

FILES = shutdown.write().files


def source() -> Memory:
    return Memory(FILES)


def pieces(excerpt: Excerpt | Memory) -> list[tuple[str, bytes]]:
    """In small pieces, like a streaming writer's."""
    return [
        (file.name, excerpt.read(file.name, offset, 1000))
        for file in excerpt.files()
        for offset in range(0, file.size, 1000)
    ]


def packed(path: Path, excerpt: Excerpt | Memory) -> Path:
    with path.open("wb") as file:
        write_pack(file, {"kind": "PackedJournal"}, pieces(excerpt))
    return path


def test_it_reads_as_the_directory_does(tmp_path: Path) -> None:
    made = History([PackedSource(packed(tmp_path / "one.zip", source()))])
    original = History([source()])
    assert list(made.raw()) == list(original.raw())
    assert made.verdict.state == original.verdict.state == "intact"


def test_the_same_journal_makes_the_same_bytes(tmp_path: Path) -> None:
    """Independent of file name and time; the manifest comes first."""
    one, two = packed(tmp_path / "one.zip", source()), packed(tmp_path / "two.zip", source())
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert archive.namelist() == [MANIFEST, *(f"segments/{name}" for name in FILES)]
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_damage_in_the_archive_is_damage_of_the_journal(tmp_path: Path) -> None:
    """A changed member is unreadable; no wrong record results."""
    path = packed(tmp_path / "one.zip", source())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    made = History([PackedSource(path)])
    assert made.read().state in ("torn", "corrupt")
    assert list(made.raw()) == list(History([source()]).raw())[: made.verdict.end.seq]


@pytest.mark.parametrize(
    "content", [b"", b"EBBTIDE\n", b"PK\x05\x06" + bytes(18)], ids=["empty", "segment", "zip"]
)
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file, a segment, another archive."""
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(NotPacked) as refused:
        source_at(path)
    assert "is no packed journal" in str(refused.value)


def test_a_part_begins_at_a_checkpoint_and_ends_where_the_next_goes_on() -> None:
    """The segments around some records are an intact journal."""
    original = History([source()])
    original.read()
    for wanted in ((12, 40), (46, 50), (90, 96), (12, 90)):
        part = History([around_records(original, *wanted)])
        numbers = [raw.seq for raw in part.raw()]
        assert part.verdict.state == "intact"
        assert numbers[0] <= wanted[0]
        assert numbers[-1] >= wanted[1]
    assert next(History([around_records(original, 46, 50)]).raw()).seq == 45


def test_the_whole_tells_of_a_gap_that_its_own_bytes_do_not_show() -> None:
    """The first header is damaged: alone, the others look like the rest after retention."""
    files = dict(FILES)
    first = next(iter(files))
    files[first] = b"EBBTIDX\n" + files[first][8:]
    original = History([Memory(files)])
    assert original.read().state == "corrupt"
    copy = History([whole_journal(original)])
    assert copy.read().state == "corrupt"
    assert copy.verdict.findings == tuple(each for each in original.verdict.findings if each.offset == 0)


def test_what_a_process_left_behind_is_not_in_a_part() -> None:
    """A later process continued before a torn end; the part leaves that end out."""
    files = dict(FILES)
    first = next(iter(files))
    files[first] += b"half a frame"
    original = History([Memory(files)])
    assert original.read().state == "intact"
    assert History([around_records(original, 12, 40)]).read().state == "intact"


# --- from a stranger

MIB = 1024 * 1024
NAME = next(iter(FILES))


def archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return path


@contextmanager
def in_memory(bytes_max: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < bytes_max
    finally:
        tracemalloc.stop()


ZEROS = bytes(64 * MIB)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({MANIFEST: b'{"a": "' + ZEROS + b'"}'}, "it would unpack to 64 MiB"),
        ({MANIFEST: b"{}", f"segments/{NAME}": ZEROS}, "it would unpack to"),
        ({MANIFEST: b" " * (300 * 1024)}, "its manifest.json is above 256 KiB"),
        ({MANIFEST: b"[" * 100_000}, "its manifest.json is nested too deep"),
        ({MANIFEST: b"[]"}, "its manifest.json is no object"),
        ({MANIFEST: b"{}"} | {f"segments/{at:090}": b"" for at in range(8000)}, "the list of its members"),
        ({MANIFEST: b'{"findings": [{}]}'}, "no such finding"),
        ({MANIFEST: b'{"findings": 7}'}, "its findings are no list"),
    ],
    ids=["manifest", "segment", "long", "deep", "list", "members", "finding", "no findings"],
)
def test_what_would_take_the_memory_is_refused(tmp_path: Path, members: dict[str, bytes], why: str) -> None:
    """Before the first member opens, and in normal memory."""
    path = archive(tmp_path / "one.zip", members)
    with in_memory(8 * MIB), pytest.raises(NotPacked, match=why):
        PackedSource(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_are_refused(tmp_path: Path, method: int) -> None:
    """They unpack without a bound."""
    with pytest.raises(NotPacked, match="neither stored nor deflated"):
        PackedSource(archive(tmp_path / "one.zip", {MANIFEST: b"{}"}, method))


def test_an_encrypted_one_is_refused(tmp_path: Path) -> None:
    """By its members' flags."""
    path = archive(tmp_path / "one.zip", {MANIFEST: b"{}"})
    data = bytearray(path.read_bytes())
    data[data.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(NotPacked, match="its members are encrypted"):
        PackedSource(path)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of them counts would be anybody's choice."""
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as made:
        made.writestr(MANIFEST, "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            made.writestr(MANIFEST, "{}")
    with pytest.raises(NotPacked, match="two of its members have one name"):
        PackedSource(tmp_path / "one.zip")


def test_few_members_are_open_at_a_time(tmp_path: Path) -> None:
    """A reader uses one after another, and may return."""
    names = [f"{at:010d}-00010203.ebj" for at in range(1, 400)]
    path = archive(
        tmp_path / "one.zip", {MANIFEST: b"{}"} | {f"segments/{name}": name.encode() for name in names}
    )
    with in_memory(4 * MIB):
        made = PackedSource(path)
        for name in (*names, names[0]):
            assert made.read(name, 0, 10) == name[:10].encode()
