"""Writes the list of the chart's values in docs/deployment.md from its schema and its defaults.

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
DEFAULT_CHARACTERS_MAX = 70

Rows = dict[str, tuple[dict[str, Any], Any]]


def listed() -> str:
    """One line a value. The controller's values that equal the daemon's share one line."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    rows: Rows = dict(_rows("", schema["properties"], defaults))
    alike = [
        path
        for path in rows
        if path.startswith("outage.") and rows[path] == rows.get(f"node.{path.removeprefix('outage.')}")
    ]
    lines = [_line(path, *row) for path, row in rows.items() if path not in alike]
    names = ", ".join(f"`{path}`" for path in alike)
    return "".join(lines) + f"* {names}: as of `node`.\n"


def _rows(path: str, properties: dict[str, Any], defaults: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, each in properties.items():
        if "properties" in each and "propertyNames" not in each:
            yield from _rows(f"{path}{name}.", each["properties"], defaults[name])
        else:
            yield f"{path}{name}", (each, defaults.get(name, {}))


def _line(path: str, schema: dict[str, Any], default: Any) -> str:
    shown = yaml.safe_dump(default, default_flow_style=True, sort_keys=False, width=2**31)
    shown = shown.removesuffix("\n").removesuffix("\n...")
    choices = " or ".join(json.dumps(each).strip('"') or "empty" for each in schema.get("enum", ()))
    text = f"{choices}. {schema['description']}" if choices else schema["description"]
    # A longer default stands in values.yaml.
    default_text = f" (`{shown}`)" if len(shown) <= DEFAULT_CHARACTERS_MAX else ""
    return f"* `{path}`{default_text}: {text}\n"


def page() -> str:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{PAGE} has no place for the list"
    return before + BEGIN + "\n" + listed() + "\n" + END + after


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(page() != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page(), encoding="utf-8")
