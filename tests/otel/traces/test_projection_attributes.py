"""docs/attributes.md has exactly our attributes, and docs/traces.md our spans."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    host_attributes,
    k8s_attributes,
    process_attributes,
    service_attributes,
)

from ebbtide.events.base import TYPES, Order
from ebbtide.otel import attributes as at
from ebbtide.otel.span import POD_ROLE, REJECT_ROLE, ROOT_ROLE, WAVE_ROLE, Span
from ebbtide.otel.traces.shutdown_trace import NEXT_BOOT
from tests.otel.records import DOCUMENTED, documented

ROOT = Path(__file__).parents[3]
#: Roles of a shutdown's orders.
ORDER_ROLES = {
    kind.span_role
    for kind in TYPES.values()
    if issubclass(kind, Order) and kind.span_role and kind.__module__ == "ebbtide.events.decisions"
}
CONVENTIONS = (error_attributes, host_attributes, k8s_attributes, process_attributes, service_attributes)
EMITTERS = tuple((ROOT / "otel" / "traces").glob("*.py"))


def test_the_page_and_the_code_have_the_same_names() -> None:
    """OpenTelemetry's names are in its conventions package."""
    constants = {name: value for name, value in vars(at).items() if name.isupper() and isinstance(value, str)}
    del constants["SCHEMA_URL"]
    assert {*constants.values(), *at.POD_COUNTS.values()} == set(DOCUMENTED)
    used = {
        node.attr
        for path in EMITTERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "at"
    }
    assert set(constants) <= used
    theirs = {value for module in CONVENTIONS for value in vars(module).values() if isinstance(value, str)}
    assert {name for name in DOCUMENTED if not name.startswith("ebbtide.")} <= theirs


@pytest.mark.parametrize("pair", [("ebbtide.nonsense", "x"), (at.WAVE, "1"), (at.LATE, 1), (at.WAVE, True)])
def test_the_check_sees_what_is_not_documented(pair: tuple[str, str | int]) -> None:
    """An unknown name, or a value of a wrong type."""
    span = Span(b"", b"", b"", "pod", 0, 1, (pair,), 1, 1)
    with pytest.raises(AssertionError):
        documented([span])


def test_the_traces_page_has_every_span() -> None:
    calls = (
        node
        for path in EMITTERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "span"
    )
    literal = {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}
    literal -= {"suspicion", "return", "proof", "last boot"}
    emitted = literal | {*ORDER_ROLES, ROOT_ROLE, POD_ROLE, WAVE_ROLE, REJECT_ROLE, NEXT_BOOT}
    table = (ROOT / "docs" / "traces.md").read_text().partition("## The spans")[2].partition("## Links")[0]
    listed = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\|[^|]*\|", table, re.MULTILINE)))
    assert sorted(listed) == sorted(emitted)


def test_the_picture_of_the_documentation_is_current() -> None:
    """docs/trace.svg is the demo's trace."""
    assert (
        subprocess.run([sys.executable, "docs/tools/picture_trace.py", "--check"], cwd=ROOT).returncode == 0
    )
