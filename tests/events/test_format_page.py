"""The format page matches the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ebbtide.events.codec import FRAME_BYTES_MAX, FRAME_BYTES_MIN, FRAME_HEAD, FRAME_MAGIC
from ebbtide.events.recovery import TABLE, Row
from ebbtide.events.segment import HEADER_BYTES_MAX, HEADER_FIXED, HEADER_PREFIX

PAGE = Path(__file__).parents[2] / "docs" / "journal-format.md"
COLUMNS = ("row", "format", "damage", "place", "durable", "sealed", "step", "state", "because")


def table() -> str:
    """The recovery table as the page has it; ``python -m tests.events.test_format_page`` prints it."""
    head = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
    return "\n".join([head, *map(_line, TABLE)])


def _line(row: Row) -> str:
    values = [", ".join(column) or "any" for column in row[1:7]]
    return f"| {' | '.join([row.name, *values, row.state, row.meaning])} |"


def rows(section: str) -> list[tuple[int, int]]:
    """Offset and size of the fields in one of the page's byte tables."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| (\d+) \| (?:(\d+) bytes|[ui](\d+)) \|", text, re.MULTILINE)
    return [(int(at), int(size or 0) or int(bits) // 8) for at, size, bits in found]


def test_the_recovery_table_is_the_codes() -> None:
    """Made from it, and compared."""
    assert PAGE.read_text().split("by a test -->\n")[1].split("\n<!-- end")[0] == table()


@pytest.mark.parametrize(
    ("section", "size"), [("Header", HEADER_PREFIX.size + HEADER_FIXED.size + 2), ("Frame", FRAME_HEAD.size)]
)
def test_the_fields_of_a_table_lie_end_to_end(section: str, size: int) -> None:
    """Each offset is where the field before it ends, and the whole is as long as the code's."""
    at = 0
    for offset, length in rows(section):
        assert offset == at
        at += length
    assert at == size


def test_the_pages_numbers_are_the_codes() -> None:
    """Magic and limits."""
    page = PAGE.read_text()
    for number in (f"0x{FRAME_MAGIC:X}", f"{FRAME_BYTES_MIN} to 16 777 216", "65 536"):
        assert number in page
    assert (FRAME_BYTES_MAX, HEADER_BYTES_MAX) == (16_777_216, 65_536)


if __name__ == "__main__":
    print(table())
