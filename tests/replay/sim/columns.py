"""The column reference of docs/fleet.md, from the tables' list.

python -m tests.replay.sim.columns
"""

from __future__ import annotations

import re
from pathlib import Path

from ebbtide.fleet.fleet_rows import ALL_TABLES
from ebbtide.replay.tables import KEY, OUTAGE_KEY

PAGE = Path(__file__).parents[3] / "docs" / "fleet.md"
BEGIN, END = "<!-- columns: made by python -m tests.replay.sim.columns -->", "<!-- end of columns -->"


def reference() -> str:
    """One section per table after the shared columns. A column that an earlier table has names that table."""
    parts = []
    first: dict[tuple[str, str, str], str] = {}
    for table, found in ALL_TABLES.items():
        columns = [
            (each.name, each.type, each.text) for each in found.columns if each not in (*KEY, *OUTAGE_KEY)
        ]
        earlier: dict[str, list[str]] = {}
        own: dict[tuple[str, str], list[str]] = {}
        for name, kind, means in columns:
            if where := first.get((name, kind, means)):
                earlier.setdefault(where, []).append(f"`{name}`")
            else:
                own.setdefault((kind, means.removesuffix(f": {name}")), []).append(f"`{name}`")
        lines = [f"* {', '.join(names)}: as of `{where}`" for where, names in earlier.items()]
        lines += [
            f"* {', '.join(names)}{'' if kind == 'text' or _is_timed(names) else f' ({kind})'}: {means}"
            for (kind, means), names in own.items()
        ]
        parts.append("\n".join([f"### `{table}`: {found.text}", "", *lines, ""]))
        first |= {column: table for column in columns if column not in first}
    return "\n".join(parts)


def _is_timed(names: list[str]) -> bool:
    """The unit in the name says that it is an int."""
    return all(re.search("_m?s`$", each) for each in names)


def page(text: str) -> str:
    """The page with the reference of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
