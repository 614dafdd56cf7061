"""docs/attributes.md has every attribute, and no attribute is there that nothing emits."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ebbtide.events.base import TYPES, Order
from ebbtide.otel import attributes as at
from ebbtide.otel.logs import Logs
from ebbtide.otel.span import Span
from ebbtide.otel.traces.shutdown_trace import NEXT_BOOT
from ebbtide.otel.traces.trace import ROOT as ROOT_SPAN
from tests.otel import golden
from tests.otel.node_story import node
from tests.otel.records import documented
from tests.otel.story import everything

ROOT = Path(__file__).parents[3]
#: Roles of a shutdown's orders.
ORDER_ROLES = {
    kind.span_role
    for kind in TYPES.values()
    if issubclass(kind, Order) and kind.span_role and kind.__module__ == "ebbtide.events.decisions"
}
EMITTERS = tuple((ROOT / "otel" / "traces").glob("*.py"))


def test_the_page_is_current() -> None:
    """docs/attributes.md is what docs/tools/write_attributes.py makes of the table of now."""
    check = subprocess.run(
        [sys.executable, "docs/tools/write_attributes.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stderr


def test_every_row_is_emitted_somewhere() -> None:
    """The projection uses every constant of the table, and knows no name that is not in it."""
    names = {name: value for name, value in vars(at).items() if isinstance(value, str) and value in at.TABLE}
    used = {
        node.attr
        for path in (*EMITTERS, ROOT / "otel" / "logs.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "at"
    }
    assert set(names) <= used
    assert {*names.values(), *at.POD_COUNTS.values()} == set(at.TABLE)


def test_golden_exports_have_documented_attributes_and_all_of_them() -> None:
    """The story of everything emits each row of the table, and each span of the page, with its type."""
    told, seen = golden.of_stories(), set[str]()
    for spans, resource in (*told, *golden.of_journal(golden.GOLDEN / "shutdown-v1")):
        documented([*spans, spans[0]._replace(attributes=resource.attributes)])
        seen |= {name for name, _ in resource.attributes}
    for span in (span for spans, _ in told for span in spans):
        pairs = (*span.events, *span.links)
        seen |= {name for each in (span, *pairs) for name, _ in each.attributes}
    logs = Logs()
    for header, records in everything().steps:
        seen |= {
            name for record in logs.feed(header, records, golden.JOURNAL_ID) for name, _ in record.attributes
        }
    assert seen == set(at.TABLE)


@pytest.mark.parametrize("pair", [("ebbtide.nonsense", "x"), (at.WAVE, "1"), (at.LATE, 1), (at.WAVE, True)])
def test_the_check_sees_what_is_not_documented(pair: tuple[str, str | int]) -> None:
    """A name that is not there, or a value of another type."""
    span = Span(b"", b"", b"", "pod", 0, 1, (pair,), 1, 1)
    with pytest.raises(AssertionError):
        documented([span])


def test_the_traces_page_has_every_span() -> None:
    """Each name that the projection gives a span stands in the table of docs/traces.md, and no other."""
    calls = (
        node
        for path in EMITTERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("begin", "point")
    )
    literal = {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}
    emitted = literal | {*ORDER_ROLES, ROOT_SPAN, NEXT_BOOT}
    table = (ROOT / "docs" / "traces.md").read_text().partition("## The spans")[2].partition("## Links")[0]
    listed = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\|[^|]*\|", table, re.MULTILINE)))
    assert sorted(listed) == sorted(emitted)
    stories = (*golden.of_story(), *golden.of_story(node()))
    assert emitted == {span.name for spans, _ in stories for span in spans}
