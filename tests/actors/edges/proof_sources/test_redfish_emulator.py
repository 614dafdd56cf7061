"""Redfish on sushy-tools' emulator, over a machine's life and the emulator's absence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said, Unread
from ebbtide.actors.edges.proof_sources.redfish import Redfish
from tests.beds.bmc import Power, RedfishEmulator, redfish_emulator
from tests.beds.skipping import or_skip

pytestmark = pytest.mark.backend

OURS, NEIGHBOUR = "4c4c4544-0042-3510-8052-b4c04f4a3132", "99999999-9999-4999-8999-999999999999"
MACHINE = Machine("node-1", "uid-1", "boot-1", OURS, "")
SYSTEMS = "/redfish/v1/Systems"
OFF, ON = Said("off", "systemUUID", OURS), Said("on", "systemUUID", OURS)
#: An action takes effect within 3 s, counted in readings.
ACTION_SECONDS_MAX = 20
POLL_SECONDS = 0.05

Changes = list[tuple[str, Power]]


@pytest.fixture
def changes() -> Changes:
    return []


@pytest.fixture
def bmc(tmp_path: Path, changes: Changes) -> Iterator[RedfishEmulator]:
    machines = {NEIGHBOUR: "node-2", OURS: "node-1"}
    with or_skip():
        emulator = redfish_emulator(tmp_path, machines, on_change=lambda *each: changes.append(each))
        with emulator as bmc:
            yield bmc


def source(bmc: RedfishEmulator, **fields: Any) -> Redfish:
    given: dict[str, Any] = {"url": bmc.url, "ca_file": bmc.ca_file} | bmc.secrets
    return Redfish(**given | fields)


async def until(redfish: Redfish, said: Said) -> list[Said]:
    """The readings up to this one."""
    all_said: list[Said] = []
    with trio.fail_after(ACTION_SECONDS_MAX):
        while said not in all_said:
            await trio.sleep(POLL_SECONDS)
            all_said.append(await redfish.read(MACHINE))
    return all_said


async def test_a_machine_that_loses_its_power_and_gets_it_back(bmc: RedfishEmulator) -> None:
    """The right one of two machines, by UUID or by path."""
    by_uuid, by_path = source(bmc), source(bmc, system=f"{SYSTEMS}/{OURS}")
    for power, said in (("On", ON), ("Off", OFF), ("On", ON)):
        bmc.set_power(OURS, power)  # type: ignore[arg-type]
        for _ in range(2):
            assert await by_uuid.read(MACHINE) == await by_path.read(MACHINE) == said
    other = await source(bmc, system=f"{SYSTEMS}/{NEIGHBOUR}").read(MACHINE)
    assert other == Said("on", "systemUUID", NEIGHBOUR)


async def test_switching_off(bmc: RedfishEmulator, changes: Changes) -> None:
    """Accepted at once, off later in a reading; the second time is a no-op."""
    redfish = source(bmc)
    await redfish.power_off(OURS)
    assert set(await until(redfish, OFF)) <= {ON, OFF}
    assert changes == [(OURS, "Off")]
    await redfish.power_off(OURS)
    with pytest.raises(Unread, match="its UUID is not the Node's systemUUID"):
        await source(bmc, system=f"{SYSTEMS}/{NEIGHBOUR}").power_off(OURS)
    assert (bmc.power(OURS), bmc.power(NEIGHBOUR)) == ("Off", "On")
