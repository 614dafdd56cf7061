"""The column reference of docs/fleet.md, made from the tables' own list.

python -m tests.replay.sim.columns
"""

from __future__ import annotations

from pathlib import Path

from ebbtide.fleet.fleet_rows import JOURNAL_COLUMNS, JOURNALS, JOURNALS_TABLE
from ebbtide.replay.tables import KEY, OUTAGE_TABLES, TABLES

PAGE = Path(__file__).parents[3] / "docs" / "fleet.md"
BEGIN, END = "<!-- columns: made by python -m tests.replay.sim.columns -->", "<!-- end of columns -->"


def reference() -> str:
    """A section a table; the columns that all share stand before them."""
    tables = [
        (table.name, table.text, [(each.name, each.type, each.text) for each in table.columns[len(KEY) :]])
        for table in (*TABLES, *OUTAGE_TABLES)
    ]
    of_journals = JOURNALS.metadata[b"doc"].decode()
    parts = []
    for table, text, columns in (*tables, (JOURNALS_TABLE, of_journals, JOURNAL_COLUMNS)):
        lines = [f"* `{name}` ({kind}): {means}" for name, kind, means in columns]
        parts.append("\n".join([f"### `{table}`: {text}", "", *lines, ""]))
    return "\n".join(parts)


def page(text: str) -> str:
    """The page with the reference of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
