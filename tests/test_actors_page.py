"""docs/actors.md: every statement names an existing test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "actors.md"

#: A statement is a list item; a section's introduction is not.
STATEMENT = "* "
MARKER = re.compile(r"<!-- (?P<path>[\w/.]+)::(?P<name>\w+)(\[(?P<case>[\w-]+)\])? -->$")

LINES = [line for line in PAGE.read_text().splitlines() if line.startswith(STATEMENT)]


def test_the_page_has_its_sections() -> None:
    """Each of its subjects has statements, and no prose without a test."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    titles = [section.splitlines()[0].split(",")[0] for section in sections]
    wanted = ["Tables", "Order", "Back-pressure", "A failing actor", "A failing effect"]
    wanted += ["Cancelling", "Detaching"]
    assert titles == wanted
    for section in sections:
        lines = [line for line in section.splitlines()[1:] if line]
        assert lines
        assert all(line.startswith(STATEMENT) for line in lines), f"prose without a test: {lines}"


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_statement(line: str) -> None:
    """One promise with the test that proves it."""
    found = MARKER.search(line)
    assert found, f"no test is named: {line}"
    sentence = line[len(STATEMENT) : found.start()].strip()
    assert sentence.endswith(".")
    file = ROOT / found["path"]
    functions = {node.name for node in ast.walk(ast.parse(file.read_text())) if hasattr(node, "name")}
    assert found["name"] in functions, f"{found['path']} has no test {found['name']}"
    if found["case"]:
        assert (file.parent / f"{found['case']}.txt").exists(), f"there is no script {found['case']}"
