"""Writes the table of the chart's values in docs/deployment.md from its schema and its defaults.

python docs/tools/write_values.py          # writes it
python docs/tools/write_values.py --check  # exits 1 if it is not current
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "ebbtide"
PAGE = ROOT / "docs" / "deployment.md"
BEGIN, END = "<!-- values: written by docs/tools/write_values.py -->\n", "<!-- end of values -->\n"
SECTION = "\n| `{}` | type | default | |\n|---|---|---|---|\n"


def table() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    return "".join(_lines("", schema["properties"], defaults)).lstrip("\n")


def _lines(path: str, properties: dict[str, Any], defaults: dict[str, Any]) -> Iterator[str]:
    """What stands at this level in one table, then one for each part."""
    parts = {
        name for name, each in properties.items() if "properties" in each and "propertyNames" not in each
    }
    rows = [
        _row(name, each, defaults.get(name, {})) for name, each in properties.items() if name not in parts
    ]
    if rows:
        yield SECTION.format(path or "value") + "".join(rows)
    for name in properties:
        if name in parts:
            yield from _lines(name, properties[name]["properties"], defaults[name])


def _row(name: str, schema: dict[str, Any], default: Any) -> str:
    kind = schema.get("type") or " or ".join(
        json.dumps(each).strip('"') or "empty" for each in schema["enum"]
    )
    if isinstance(kind, list):
        kind = " or ".join(kind)
    if kind == "array":
        kind = f"list of {schema['items']['type']}s"
    shown = yaml.safe_dump(default, default_flow_style=True, sort_keys=False, width=2**31)
    shown = shown.removesuffix("\n").removesuffix("\n...")
    return f"| `{name}` | {kind} | `{shown}` | {schema['description']} |\n"


def page() -> str:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{PAGE} has no place for the table"
    return before + BEGIN + "\n" + table() + "\n" + END + after


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(page() != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page(), encoding="utf-8")
