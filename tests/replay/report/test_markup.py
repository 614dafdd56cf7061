"""The report's first sentences."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.replay.report.markup import counted, moment, seal
from tests.replay.report import journals

ACCOUNT = journals.told(journals.story())[0]

SEALS: tuple[tuple[dict[str, Any], tuple[str, str]], ...] = (
    ({}, ("!", "mixed")),
    ({"pods": ()}, ("✓", "good")),
    ({"pods": (), "outcome": "cancelled"}, ("○", "cancelled")),
    ({"pods": (), "outcome": "running", "ended_ns": None}, ("…", "running")),
    ({"outcome": "truncated", "ended_ns": None}, ("✕", "bad")),
    ({"pods": ACCOUNT.pods[2:3]}, ("✕", "bad")),
)


@pytest.mark.parametrize("changes, expected", SEALS)
def test_seal(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    """The sign shows the severity; without trouble, the machine's end."""
    told: ShutdownRecord = replace(ACCOUNT, **changes)
    assert seal(told) == expected


def test_numbers() -> None:
    assert (counted(1, "pod"), counted(12_345, "pod")) == ("1 pod", "12 345 pods")
    assert (moment(None), moment(0), moment(1_500_000_000), moment(-7_000_000)) == (
        "–",
        "+0 s",
        "+1.500 s",
        "−7 ms",
    )
