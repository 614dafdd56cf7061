"""An outage's root cause: its gravest alarm, else what it waits for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide import replay as library
from ebbtide.actors.outage import BRAKE_SAYS, DRY_TAINT, LIMITED, MANY_DEAD, NO_PLACE, PAUSED, TAKEN_AWAY
from ebbtide.events.record.episodes import episodes, outage_records
from ebbtide.events.record.outage_causes import CURES, outage_cause, outage_headline
from ebbtide.events.record.outage_record import Alarm, LostPodRecord, OutageRecord, Phase
from tests.journals import SHUTDOWN

OUTAGE = SHUTDOWN.parent / "outage-v1"
OUT = 5_000_000_000
POD = LostPodRecord(uid="u", namespace="shop", name="web-0", began_ns=0)


def outage(**fields: Any) -> OutageRecord:
    (first, *_) = outage_records(library.open(OUTAGE).history())
    open_now = {
        "outcome": "open",
        "ended_ns": None,
        "alarms": (),
        "unrecovered": (),
        "pods": (),
        "attachments": (),
    }
    return replace(first, **(open_now | fields))


def stage(what: Any, text: str) -> dict[str, Any]:
    return {"course": (Phase(what=what, text=text, began_ns=0),)}


def alarm(code: str) -> Alarm:
    return Alarm(at_ns=0, seq=1, code=code, text=f"the {code}.")


CASES: list[tuple[dict[str, Any], str]] = [
    (stage("proof", "no source has reported"), "not-proved"),
    (stage("permit", "the storm brake: 2 of 1"), "brake"),
    *(
        (stage("permit", f"{BRAKE_SAYS}{reason}"), code)
        for reason, code in (
            (LIMITED["control-plane"].format(1, 1), "brake-control-plane"),
            (LIMITED["etcd"], "brake-etcd"),
            (MANY_DEAD, "brake-view"),
            (NO_PLACE.format(2, 2), "brake"),
        )
    ),
    (stage("proof", PAUSED), "paused"),
    (stage("proof", DRY_TAINT), "dry-run"),
    (stage("out", TAKEN_AWAY) | {"out_ns": OUT, "pods": (POD,)}, "taken-away"),
    (stage("tainting", "the taint could not be written, and is tried again: 403"), "write-failed"),
    (stage("tainting", "the taint is stored, and written"), ""),
    (stage("recovering", "what hangs is waited for") | {"out_ns": OUT, "pods": (POD,)}, "hanging"),
    (stage("out", "the node has not come back") | {"out_ns": OUT}, ""),
    (stage("out", "") | {"alarms": (alarm("power-off-given-up"), alarm("proof-wrong"))}, "proof-wrong"),
    ({"outcome": "recovered", "unrecovered": ("shop/web-0",)}, "unrecovered"),
    ({"outcome": "recovered"}, ""),
    ({"outcome": "false-alarm", "unrecovered": ("shop/web-0",)}, ""),
]


@pytest.mark.parametrize(("fields", "code"), CASES)
def test_each_state_has_its_cause(fields: dict[str, Any], code: str) -> None:
    found = outage(**fields)
    cause = outage_cause(found)
    assert ("" if cause is None else cause.code) == code
    if cause is not None:
        assert outage_headline(found).startswith(f"{cause.text}. ")
        assert cause.do
        assert cause.severity == CURES[code][0]


def test_the_list_has_the_same_first_line() -> None:
    history = library.open(OUTAGE).history()
    lines = [outage_headline(each) for each in outage_records(history)]
    assert [each.headline for each in episodes(library.open(OUTAGE).history())] == lines
