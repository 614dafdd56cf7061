"""Go's durations, exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.config.fields import DURATION_NS_MAX, UNITS_NS, format_duration, parse_duration


@pytest.mark.parametrize("text, duration_ns", [
    ("0", 0), ("-0", 0), ("30s", 30_000_000_000), ("+30s", 30_000_000_000), ("1m30s", 90_000_000_000),
    ("1ms", 1_000_000), ("1.5h", 5_400_000_000_000), ("-1.5s", -1_500_000_000), (".5s", 500_000_000),
    ("5.s", 5_000_000_000), ("1us", 1_000), ("1µs", 1_000), ("1μs", 1_000),
    ("2562047h47m16.854775807s", DURATION_NS_MAX), ("-2562047h47m16.854775808s", -DURATION_NS_MAX - 1),
    ("0.0000000019s", 1),
])  # fmt: skip
def test_what_go_reads_is_read_exactly(text: str, duration_ns: int) -> None:
    """Fractions are cut to nanoseconds, without float rounding."""
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize("text, part", [
    ("30", "has no unit"), ("", "is not a duration"), ("-", "is not a duration"), ("s", "is not a duration"),
    (".s", "is not a duration"), ("1.2.3s", "is not a duration"), ("NaN", "is not a duration"),
    ("٣s", "is not a duration"), ("30sec", "'30sec' is not a duration"), ("1h-2m", "is not a duration"),
    ("9223372036854775808ns", "out of range"), ("9" * 101, "101 characters"),
])  # fmt: skip
def test_what_is_no_duration_is_refused_with_a_hint(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as raised:
        parse_duration(text)
    assert part in str(raised.value)


@pytest.mark.parametrize("duration_ns, text", [
    (0, "0s"), (1, "1ns"), (1_100, "1.1µs"), (2_200_000, "2.2ms"), (3_300_000_000, "3.3s"),
    (60_000_000_000, "1m0s"), (3_600_500_000_000, "1h0m0.5s"), (-1_000_000, "-1ms"),
])  # fmt: skip
def test_durations_are_printed_as_go_prints_them(duration_ns: int, text: str) -> None:
    """The kubelet's messages contain them in this form."""
    assert format_duration(duration_ns) == text


@given(st.integers(-DURATION_NS_MAX - 1, DURATION_NS_MAX))
def test_printing_and_reading_are_inverse(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS_NS))), min_size=1, max_size=5))
def test_terms_add_up(terms: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in terms)
    assert parse_duration(text) == sum(count * UNITS_NS[unit] for count, unit in terms)
