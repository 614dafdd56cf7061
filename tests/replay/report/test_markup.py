"""The report's sentences: what a person reads first."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.events.record.model import PodRecord, ShutdownRecord
from ebbtide.replay.report.markup import counted, fates, moment, verdict
from tests.replay.report import journals

ACCOUNT = journals.told(journals.story())[0]
SECOND = 1_000_000_000

VERDICTS: tuple[tuple[dict[str, Any], str], ...] = (
    (
        {"outcome": "complete", "ended_ns": 3 * SECOND},
        "The reboot of n-1 is complete: the machine was let go after 3s.",
    ),
    ({"outcome": "cancelled", "cancelled_ns": 2 * SECOND}, "The reboot of n-1 was cancelled after 2s."),
    (
        {"outcome": "running", "ended_ns": None, "last_ns": 1_500_000_000},
        "The reboot of n-1 is under way, 1.500s after the signal.",
    ),
    (
        {"outcome": "truncated", "ended_ns": None, "last_ns": 4 * SECOND, "last_wave": 1},
        "The reboot of n-1 was cut short in wave 1, 4s after the signal.",
    ),
    (
        {"outcome": "truncated", "ended_ns": None, "last_ns": 4 * SECOND, "last_wave": -1},
        "The reboot of n-1 was cut short before its first wave, 4s after the signal.",
    ),
    ({"outcome": "never-begun"}, "The reboot of n-1 never began for the pods."),
)


@pytest.mark.parametrize("changes, sentence", VERDICTS)
def test_verdict(changes: dict[str, Any], sentence: str) -> None:
    """Each outcome has its sentence, with the time that matters to it."""
    told: ShutdownRecord = replace(ACCOUNT, kind="reboot", node="n-1", **changes)
    assert verdict(told) == sentence


def test_fates() -> None:
    """Pods by what became of them; one without a fate on record is said to have none."""
    assert fates(ACCOUNT) == "5 pods ended by themselves, 1 was killed."
    open_pod = PodRecord(uid="u", namespace="shop", name="late-0")
    assert fates(replace(ACCOUNT, pods=(open_pod,))) == "1 pod has no fate on record."
    assert fates(replace(ACCOUNT, pods=())) == "There was no pod to end."


def test_numbers() -> None:
    """Counts agree with their noun, thousands stand apart, moments have a sign."""
    assert (counted(1, "pod"), counted(12_345, "pod")) == ("1 pod", "12 345 pods")
    assert (moment(None), moment(0), moment(1_500_000_000), moment(-7_000_000)) == (
        "–",
        "+0",
        "+1.500s",
        "−7ms",
    )
