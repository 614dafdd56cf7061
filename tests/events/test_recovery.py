"""The recovery table: exactly one row per combination, and real damage reaches its row."""

from __future__ import annotations

import zlib
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.events import reader, recovery
from ebbtide.events.base import Record
from ebbtide.events.codec import FRAME_BYTES_MAX, FRAME_MAGIC_BYTES
from ebbtide.events.reader import History
from ebbtide.events.segment import Link, WriterStart, segment_file_name
from tests.events.making import IDENTITY, OTHER_ID, stamp, step
from tests.journals import JOURNAL_ID, NEW, Journal, Memory, checkpoint

CASES = [recovery.Case(*values) for values in product(*recovery.columns())]


def test_every_combination_has_exactly_one_row() -> None:
    matching = {case: [row.name for row in recovery.TABLE if row.matches(case)] for case in CASES}
    assert [case for case, rows in matching.items() if len(rows) != 1] == []
    assert {row.name for row in recovery.TABLE} == {row for rows in matching.values() for row in rows}


def test_a_writer_goes_on_in_place_exactly_where_nothing_durable_is_lost() -> None:
    """Corrupt and incompatible journals stay, and a new one begins beside them."""
    for row in recovery.TABLE:
        assert (row.continues == "link") == (row.state in ("intact", "torn")), row.name
    assert [recovery.EXIT_CODES[state] for state in recovery.SEVERITY] == [0, 4, 5, 6]


# --- journals laid out by hand


class Layout(Journal):
    """A journal with chosen durability and damage."""

    def __init__(self, start: WriterStart = NEW, files: dict[str, bytearray] | None = None) -> None:
        super().__init__(IDENTITY, start, files)

    def segment(self, *, checkpointed: bool = True) -> Layout:
        seq = self.chain.end.seq + 1
        self.begin(stamp(seq))
        return self.add(checkpoint(seq, stamp(seq))) if checkpointed else self

    def steps(self, count: int = 1, *, whole: bool = True) -> Layout:
        for _ in range(count):
            self.add(*step(self.chain.end.seq + 1, whole=whole))
        return self

    def durable(self, seq: int) -> Layout:
        self.durable_seq = seq
        return self

    def flip(self, offset: int, segment: int = 1) -> Layout:
        """Flip a bit; negative offsets count from the end."""
        self.data(segment)[offset] ^= 0x10
        return self

    def append(self, data: bytes) -> Layout:
        self.data().extend(data)
        return self

    def cut(self, keep: int, segment: int = 1) -> Layout:
        del self.data(segment)[keep:]
        return self

    def lose(self, segment: int) -> Layout:
        del self.files[segment_file_name(segment, JOURNAL_ID)]
        return self

    def verdict(self) -> recovery.Verdict:
        return self.history().read()

    def read(self) -> tuple[list[Record], recovery.Verdict]:
        history = self.history()
        return list(history.records()), history.verdict


def outcome(verdict: recovery.Verdict) -> tuple[str, str, int]:
    return verdict.state, verdict.worst.row.name if verdict.worst else "", verdict.end.seq


def test_an_empty_location_is_an_empty_journal() -> None:
    """No damage; a writer begins at the first record."""
    verdict = Layout().verdict()
    assert (verdict.state, verdict.header, verdict.start(OTHER_ID)) == (
        "intact",
        None,
        WriterStart(OTHER_ID, Link(), 1),
    )


def test_damage_above_all_that_is_known_durable_is_a_tear() -> None:
    """The prefix counts, and a writer continues after it."""
    verdict = Layout().segment().steps(3).flip(-50).verdict()
    assert outcome(verdict) == ("torn", "torn", 7)
    assert "0000000001-00010203.ebj at byte" in verdict.banner
    assert verdict.start(OTHER_ID).after.seq == 7


def test_damage_at_or_below_the_durable_number_of_a_later_frame_is_corruption() -> None:
    """A frame after the damage proves the durability."""
    layout = Layout().segment().steps(2)
    hurt = len(layout.data()) - 50
    verdict = layout.durable(7).steps(1).flip(hurt).verdict()
    assert outcome(verdict) == ("corrupt", "durable loss", 4)
    assert verdict.worst is not None
    assert (verdict.worst.seq, verdict.exit_code) == (7, 5)
    assert verdict.start(OTHER_ID) == WriterStart(OTHER_ID, Link(), 2)


TWO_STEPS_BYTES = len(Layout().segment().steps(2).data())


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        # Sectors of one unsynced write arrive in any order.
        (Layout().segment().steps(2).durable(6).steps(5).flip(TWO_STEPS_BYTES - 50), ("torn", "torn", 4)),
        # A trailer follows a durable segment and is never followed by data.
        (Layout().segment().steps(2).seal().flip(-300), ("corrupt", "durable loss", 4)),
        (Layout().segment().steps(2).seal().append(b"junk"), ("corrupt", "sealed loss", 7)),
        # A writer seals between steps only.
        (Layout().segment().steps(1, whole=False).seal(), ("corrupt", "sealed in a step", 1)),
        # Without a checkpoint the remaining records have no meaning.
        (
            Layout().segment().steps(1).segment(checkpointed=False).steps(1).lose(1),
            ("corrupt", "linked loss", 7),
        ),
        # A process that died at its segment's start lost no record.
        *((Layout().segment().steps(1).segment().cut(keep, 2), ("torn", "torn", 4)) for keep in (1, 30, 100)),
        # Behind a damaged header the frames still show durability.
        (
            Layout().segment().steps(1).segment().steps(1).durable(8).steps(1).flip(40, 2),
            ("corrupt", "durable loss", 4),
        ),
    ],
)
def test_what_damage_is(layout: Layout, expected: tuple[str, str, int]) -> None:
    """A tear or corruption, its table row, and the last good record."""
    assert outcome(layout.verdict()) == expected


def test_a_tear_that_a_later_process_went_on_from_is_passed_over() -> None:
    """The history is whole after a later process continued before the damage."""
    layout = Layout().segment().steps(3).flip(-50)
    after = Layout(layout.verdict().start(OTHER_ID), layout.files).segment().steps(1)
    records, verdict = after.read()
    assert outcome(verdict) == ("intact", "", 11)
    assert [record.seq for record in records] == list(range(1, 12))


def test_an_incomplete_last_step_is_torn_and_is_not_handed_out() -> None:
    """None of its orders was released."""
    records, verdict = Layout().segment().steps(1).steps(1, whole=False).read()
    assert outcome(verdict) == ("torn", "ends in a step", 4)
    assert len(records) == 4


def test_a_missing_segment_in_the_middle_is_corruption() -> None:
    """The part before the gap counts."""
    verdict = Layout().segment().steps(1).segment().steps(1).segment().steps(1).lose(2).verdict()
    assert outcome(verdict) == ("corrupt", "linked loss", 4)
    assert "segment 2 before 0000000003-00010203.ebj is damaged or missing" in verdict.banner


def test_segments_missing_at_the_front_are_retention() -> None:
    """The rest begins with a checkpoint and is intact."""
    layout = Layout().segment().steps(1).segment().steps(1)
    records, verdict = layout.lose(1).read()
    assert outcome(verdict) == ("intact", "", 8)
    assert (verdict.first_seq, len(records)) == (5, 4)
    assert verdict.banner == "the journal is intact: records 5 to 8"


def test_retention_may_die_between_two_removals() -> None:
    """Reading begins at the first checkpoint; remains of the removed part are skipped."""
    layout = Layout().segment().steps(1).segment(checkpointed=False).steps(1).segment().steps(1)
    verdict = layout.lose(1).verdict()
    assert outcome(verdict) == ("intact", "", 11)
    assert verdict.first_seq == 8


def test_a_disk_error_while_reading_is_damage_at_its_place() -> None:
    """The reader returns the records before an unreadable sector."""

    class Broken(Memory):
        def read(self, name: str, offset: int, size: int) -> bytes:
            if offset >= len(header):
                raise OSError(5, "Input/output error")
            return super().read(name, offset, min(size, len(header)))

    layout = Layout().segment(checkpointed=False)
    header = bytes(layout.data())
    layout.steps(2)
    verdict = History([Broken(layout.files)]).read()
    assert outcome(verdict) == ("torn", "torn", 0)
    assert "Input/output error" in verdict.banner


def test_reading_can_begin_at_the_last_checkpoint() -> None:
    """A start needs no more, even with months of journal."""
    layout = Layout().segment().steps(2).segment().steps(1)
    history = layout.history(from_checkpoint=True)
    assert [raw.seq for raw in history.raw()] == [8, 9, 10, 11]
    assert (history.verdict.state, history.verdict.first_seq) == ("intact", 8)


def test_damage_before_the_last_checkpoint_does_not_stop_a_start() -> None:
    """The daemon starts; a full reader reports the damage."""
    layout = Layout().segment().steps(2).segment().steps(1).segment().steps(1).flip(40, segment=2)
    assert layout.history(from_checkpoint=True).read().state == "intact"
    assert layout.verdict().state == "corrupt"


#: It has the usual first eight digits, so file names look alike.
ALIKE_ID = JOURNAL_ID[:4] + bytes(12)


def test_ids_that_begin_alike_are_two_journals() -> None:
    """Headers distinguish them; neither damages the other."""
    layout = Layout().segment().steps(3)
    Layout(WriterStart(ALIKE_ID, Link(), 2), layout.files).segment()
    newest = layout.history()
    assert (newest.read().state, newest.journal_id, newest.verdict.end.seq) == ("intact", ALIKE_ID, 1)
    assert newest.path.others == (JOURNAL_ID.hex(),)
    older = layout.history(journal=JOURNAL_ID.hex())
    assert (older.read().state, older.verdict.end.seq) == ("intact", 10)
    assert older.path.others == (ALIKE_ID.hex(),)


def test_a_damaged_header_is_of_each_journal_that_its_name_fits() -> None:
    """Its owner is unknown, so neither journal is whole without it."""
    layout = Layout().segment().steps(3)
    Layout(WriterStart(ALIKE_ID, Link(), 2), layout.files).segment().seal()
    third = Layout(WriterStart(ALIKE_ID, Link(), 3), layout.files).segment().seal()
    third.flip(30, segment=3)
    for journal in (JOURNAL_ID, ALIKE_ID):
        assert layout.history(journal=journal.hex()).read().state == "corrupt"


def test_another_machines_journal_is_readable_and_not_writable() -> None:
    """Both ids are named, and the cure."""
    verdict = Layout().segment().verdict()
    recovery.refuse_foreign(verdict.header, "machine-1")
    recovery.refuse_foreign(None, "machine-2")
    with pytest.raises(recovery.ForeignJournal, match=r"machine-1 \(node-1\) and this is machine-2: move"):
        recovery.refuse_foreign(verdict.header, "machine-2")


def test_a_step_that_never_ends_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory until a last record that may never come."""
    made = Layout().segment().add(*step(2, whole=False))
    assert made.history().read().state == "torn"
    monkeypatch.setattr(reader, "STEP_BYTES_MAX", 100)
    verdict = made.history().read()
    assert verdict.state == "torn"
    assert verdict.findings[0].reason == "a step is larger than 100 bytes"
    assert verdict.end.seq == 1


def test_heads_of_frames_that_are_none_are_not_looked_through_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each claims a large size, so its checksum covers most of the file."""
    head = FRAME_MAGIC_BYTES + bytes(4) + (3 * 1024 * 1024).to_bytes(4, "little")
    made = Layout().segment()
    made.data().extend(head * (4 * 1024 * 1024 // len(head)))
    looked = []

    def crc32(data: bytes) -> int:
        looked.append(len(data))
        return zlib.crc32(data)

    monkeypatch.setattr(reader, "zlib", SimpleNamespace(crc32=crc32))
    assert made.history().read().state == "torn"
    assert 0 < sum(looked) < 2 * len(made.data()) + FRAME_BYTES_MAX + 3 * 1024 * 1024


def test_what_a_reason_names_stays_here() -> None:
    """A copied report must not name it."""
    finding = recovery.Finding(
        recovery.Case(damage="record"), "0000000001-00010203.ebj", 300, 4, "/home/alice: Bad CRC-32"
    )
    (document,) = recovery.findings_to_documents([finding])
    assert document["reason"] == "in the original"
    assert recovery.findings_from_documents([document]) == (finding._replace(reason="in the original"),)


# --- properties


def _small() -> Layout:
    return Layout().segment().steps(1).durable(4).segment().steps(1).durable(6).steps(1)


def test_a_cut_at_every_byte_uses_the_intact_prefix() -> None:
    """Intact at a step's end, torn elsewhere, never corrupt."""
    whole, good = _whole_ends(), bytes(_small().data(2))
    for cut in range(len(good) + 1):
        verdict = _small().cut(cut, 2).verdict()
        assert verdict.exit_code == (0 if cut in whole else 4), cut
        assert verdict.end.seq == max(seq for at, seq in whole.items() if at <= cut), cut


def _whole_ends() -> dict[int, int]:
    """The second segment's step ends with their numbers; 0 bytes are an empty file."""
    layout = Layout().segment().steps(1)
    ends = {0: 4}
    layout.segment(checkpointed=False)
    ends[len(layout.data(2))] = 4
    for records in ([checkpoint(5, stamp(5))], step(6), step(9)):
        layout.add(*records)
        ends[len(layout.data(2))] = records[-1].seq
    return ends


@settings(max_examples=100)
@given(st.data())
def test_a_flipped_bit_is_detected_or_harmless(data: st.DataObject) -> None:
    """The result equals the original, and unread parts are reported."""
    original, _ = _small().read()
    layout = _small()
    segment = data.draw(st.sampled_from([1, 2]))
    bit = data.draw(st.integers(0, len(layout.data(segment)) * 8 - 1))
    layout.data(segment)[bit // 8] ^= 1 << (bit % 8)
    records, verdict = layout.read()
    before = records[0].seq - 1 if records else 0
    assert records == original[before : before + len(records)]
    if len(records) < len(original):
        assert verdict.state == "corrupt" if segment == 1 else verdict.state in ("torn", "corrupt")
    durable = [record for record in original if record.seq <= 6 and record.last]
    if verdict.state == "torn":
        assert len(records) >= len(durable)
