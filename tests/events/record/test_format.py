"""Displayed times and foreign text."""

from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.events.messages import plural
from ebbtide.events.record.format import rfc3339, visible, visible_json

S = 1_000_000_000


def test_one_of_a_thing_is_not_many() -> None:
    assert [plural(count, "pod") for count in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]


@given(st.integers(-(10**18), 10**19), st.integers(0, S - 1))
def test_moments_are_those_of_the_calendar(around_ns: int, rest_ns: int) -> None:
    """Each day from 1938 to 2286, against the system's calendar."""
    seconds = around_ns // S
    there = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    assert rfc3339(seconds * S + rest_ns) == f"{there}.{rest_ns:09d}Z"


def test_visible() -> None:
    """Characters that reverse or break a line are escaped; letters and symbols stay."""
    assert visible("a\u202eb\x00\u2028") == "a\\u202eb\\x00\\u2028"
    assert visible("a\x1b[2Jb\nc") == r"a\x1b[2Jb\nc"
    assert visible("שלום 🌊") == "שלום 🌊"
    assert visible("naïve \u4e16\u754c ✔ {pod} [red]") == "naïve \u4e16\u754c ✔ {pod} [red]"


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_json_that_is_visible_means_the_same(value: object) -> None:
    """Any text, also beyond 16 bits and with lone surrogates."""
    for indent in (None, 2):
        shown = visible_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(shown) == value
        assert shown.replace("\n", "").isprintable()
