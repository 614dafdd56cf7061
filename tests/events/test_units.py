"""Displayed durations, offsets and sizes, for people and programs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.events.messages import plural
from ebbtide.events.record.format import rfc3339, visible, visible_json
from ebbtide.events.units import bound_text, json_seconds, offset, short_span, size_text, span, span_s

US, MS, S, DAY = 1_000, 1_000_000, 1_000_000_000, 86_400 * 1_000_000_000


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 s"),
        (999, "0 s"),
        (785 * US, "785 µs"),
        (5 * MS, "5 ms"),
        (8_987_654, "8.98 ms"),
        (10 * MS - 1, "9.99 ms"),
        (705 * MS, "705 ms"),
        (S - 1, "999 ms"),
        (S + 999_999, "1 s"),
        (3 * S, "3 s"),
        (10 * S + 6 * MS, "10.006 s"),
        (90 * S, "90 s"),
        (600 * S - 1, "599.999 s"),
        (600 * S, "10 min"),
        (725 * S + 345 * MS, "12 min 5.345 s"),
        (2 * 3600 * S + 5 * 60 * S, "2 h 5 min"),
        (DAY, "1 d"),
        (-1_500 * MS, "-1.500 s"),
    ],
)
def test_a_duration(ns: int, text: str) -> None:
    """Truncated, without useless digits; seconds only up to ten minutes."""
    assert span(ns) == text


@given(st.integers(0, 10**19))
def test_a_duration_tells_no_more_than_it_was(ns: int) -> None:
    """Read back it is at most the original, within one last digit."""
    scale = {"µs": US, "ms": MS, "s": S, "min": 60 * S, "h": 3600 * S, "d": DAY}
    found = re.findall(r"([0-9]+)(?:\.([0-9]+))? (\S+)", span(ns))
    read = sum(
        int(whole) * scale[unit] + int(rest or 0) * scale[unit] // 10 ** len(rest)
        for whole, rest, unit in found
    )
    assert 0 <= ns - read < (US if ns < MS else 10 * US if ns < 10 * MS else MS)


@pytest.mark.parametrize(
    ("write", "values", "texts"),
    [
        # Whole, with a fraction that floats cannot hold, and unset.
        (span_s, (5, 0.1, 29.3, 0.0, None), ["5 s", "100 ms", "29.300 s", "0 s", "not known"]),
        # The rest of 2 s at a call's start differs from call to call.
        (bound_text, (2.0, 1.998, 1.96), ["2 s"] * 3),
        # Two units at most: seconds of a day-long hang are useless.
        (
            short_span,
            (-1, 0.4, 119.9, 123.9, 180, 3 * 86_400 + 2 * 3600 + 61),
            ["0 s", "0 s", "119 s", "2 min 3 s", "3 min", "3 d 2 h"],
        ),
        # Truncated towards its reference time.
        (offset, (0, 3_070 * MS, -500 * US, -1_999_999), ["+0.000 s", "+3.070 s", "-0.000 s", "-0.001 s"]),
        (
            size_text,
            (0, 1, 1023, 64 * 1024, 1_600_000, 16 * 2**20, 3 * 2**30),
            ["0 bytes", "1 byte", "1023 bytes", "64 KiB", "1.5 MiB", "16 MiB", "3 GiB"],
        ),
        (json_seconds, (1_500 * MS, None), [1.5, None]),
        (lambda count: plural(count, "pod"), (0, 1, 2), ["0 pods", "1 pod", "2 pods"]),
        # Characters that reverse or break a line are escaped; letters and symbols stay.
        (
            visible,
            ("a\u202eb\x00\u2028", "a\x1b[2Jb\nc", "שלום 🌊", "naïve \u4e16\u754c ✔ {pod} [red]"),
            ["a\\u202eb\\x00\\u2028", r"a\x1b[2Jb\nc", "שלום 🌊", "naïve \u4e16\u754c ✔ {pod} [red]"],
        ),
    ],
    ids=["seconds", "bound", "age", "offset", "size", "for programs", "plural", "visible"],
)
def test_each_is_written_so(
    write: Callable[[Any], Any], values: tuple[Any, ...], texts: list[object]
) -> None:
    assert [write(each) for each in values] == texts


@given(st.integers(-(10**18), 10**19), st.integers(0, S - 1))
def test_moments_are_those_of_the_calendar(around_ns: int, rest_ns: int) -> None:
    """Each day from 1938 to 2286, against the system's calendar."""
    seconds = around_ns // S
    there = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    assert rfc3339(seconds * S + rest_ns) == f"{there}.{rest_ns:09d}Z"


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_json_that_is_visible_means_the_same(value: object) -> None:
    """Any text, also beyond 16 bits and with lone surrogates."""
    for indent in (None, 2):
        shown = visible_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(shown) == value
        assert shown.replace("\n", "").isprintable()
