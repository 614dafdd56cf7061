"""The column reference of docs/fleet.md, from the tables' list.

python -m tests.replay.sim.columns
"""

from __future__ import annotations

from pathlib import Path

from ebbtide.fleet.fleet_rows import JOURNAL_COLUMNS, JOURNALS, JOURNALS_TABLE
from ebbtide.replay.tables import KEY, OUTAGE_TABLES, TABLES

PAGE = Path(__file__).parents[3] / "docs" / "fleet.md"
PODS, OF_A_POD = "pods", ("hooks", "containers")
BEGIN, END = "<!-- columns: made by python -m tests.replay.sim.columns -->", "<!-- end of columns -->"


def reference() -> str:
    """One section per table after the shared columns."""
    tables = [
        (table.name, table.text, [(each.name, each.type, each.text) for each in table.columns[len(KEY) :]])
        for table in (*TABLES, *OUTAGE_TABLES)
    ]
    of_journals = JOURNALS.metadata[b"doc"].decode()
    (of_pods,) = (columns for table, _, columns in tables if table == PODS)
    parts = []
    for table, text, columns in (*tables, (JOURNALS_TABLE, of_journals, JOURNAL_COLUMNS)):
        shared = [column for column in columns if column in of_pods and table in OF_A_POD]
        lines = [f"* {', '.join(f'`{name}`' for name, _, _ in shared)}: as of `{PODS}`"] if shared else []
        own = [column for column in columns if column not in shared]
        lines += [f"* `{name}` ({kind}): {means}" for name, kind, means in own]
        parts.append("\n".join([f"### `{table}`: {text}", "", *lines, ""]))
    return "\n".join(parts)


def page(text: str) -> str:
    """The page with the reference of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
