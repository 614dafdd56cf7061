"""The journal of this format, kept as files: today's reader reads them, today's writer makes them again."""

from __future__ import annotations

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import decode_record, encode_event
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from tests.events.golden import GOLDEN, LISTING, LOCATIONS, listing, make


def sources() -> list[DirectorySource]:
    return [DirectorySource(GOLDEN / location) for location in LOCATIONS]


def test_the_writer_still_writes_the_same_bytes() -> None:
    """A change of a single byte is a new format version, and a new golden journal beside this one."""
    files = make()
    assert {(location, path.name) for location in LOCATIONS for path in (GOLDEN / location).iterdir()} == set(
        files
    )
    for (location, name), data in files.items():
        assert (GOLDEN / location / name).read_bytes() == data, name


def test_the_reader_still_reads_them() -> None:
    """Every field of every record, the chain, and the verdict."""
    assert listing() == LISTING.read_text()


def test_every_payload_decodes_to_what_encodes_the_same() -> None:
    """Structs may have grown fields since, but their defaults mean 'as before'."""
    for raw in History(sources()).raw():
        assert encode_event(decode_record(raw).event) == raw.payload


def test_the_shutdown_in_it_is_complete() -> None:
    """Begun on one disk, carried to another, closed by the next boot."""
    (episode,) = episodes(History(sources()))
    assert (episode.id, episode.kind, episode.outcome) == ("00112233-5", "poweroff", "complete")
    assert episode.trace_id == "9fa5db8f3b69590a76a2bc9dc8b5b69a"
