"""Switching a machine off: requests, and when none is sent."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.proof_sources.proof_source import NO_CONTROLLER, PowerEdge, Unread
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events.outage_events import CHANGED, PowerOff, Source
from tests.actors.edges.process.process_bed import Outbox

ORDER = PowerOff(key="k", node="n", node_uid="u", boot_id="b", system_uuid="s", ready="Unknown")
TAKEN, REFUSED = Ending(), Ending("failed", "503")
SILENT = Ending("timed-out")


class Switch:
    source: Source = "redfish"

    def __init__(self, name: str, ended: Ending) -> None:
        self.name, self.ended = name, ended
        self.asked: list[str] = []

    async def power_off(self, system_uuid: str) -> None:
        self.asked.append(system_uuid)
        if self.ended == REFUSED:
            raise Unread("503")
        if self.ended == SILENT:
            await trio.sleep_forever()


async def ordered(switches: list[Switch], checks: list[Ending | None]) -> Ending:
    async def check(order: PowerOff, outlet: Outlet) -> Ending | None:
        assert order == ORDER
        return checks.pop(0)

    effect = PowerEdge(switches, check).effects[PowerOff]
    ended = await effect(ORDER, Outbox())  # type: ignore[misc]
    assert isinstance(ended, Ending)
    return ended


@pytest.mark.parametrize(
    ("answers", "checks", "expected", "asked"),
    [
        ([TAKEN, TAKEN], [None], TAKEN, 1),
        ([REFUSED, TAKEN], [None, None], TAKEN, 2),
        ([REFUSED, REFUSED], [None, None], Ending("failed", "redfish 0: 503; redfish 1: 503"), 2),
        ([TAKEN], [Ending("failed", CHANGED)], Ending("failed", CHANGED), 0),
        # The first one may have switched it off after all.
        (
            [REFUSED, TAKEN],
            [None, Ending("failed", CHANGED)],
            Ending("failed", f"redfish 0: 503; {CHANGED}"),
            1,
        ),
        ([], [], Ending("failed", NO_CONTROLLER), 0),
        ([SILENT, TAKEN], [None, None], TAKEN, 2),
        ([SILENT], [None], Ending("failed", "redfish 0: no answer in 20 s"), 1),
    ],
)
async def test_one_after_the_other(
    autojump_clock: MockClock,
    answers: list[Ending],
    checks: list[Ending | None],
    expected: Ending,
    asked: int,
) -> None:
    """Read the node again before each attempt; stop at the first success."""
    switches = [Switch(str(index), ended) for index, ended in enumerate(answers)]
    assert await ordered(switches, checks) == expected
    assert [each.asked for each in switches] == [["s"]] * asked + [[]] * (len(answers) - asked)
    assert not checks
