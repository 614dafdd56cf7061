"""The kubelet as a unit of the service manager, which is how a daemon stops and starts it."""

from __future__ import annotations

import pytest
import trio
from jeepney import DBusAddress, MatchRule, Message, Properties, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.trio import DBusRouter, Proxy
from jeepney.wrappers import DBusErrorResponse, unwrap_msg

from tests.node.bed import Bed

pytestmark = [pytest.mark.node]
MANAGER = DBusAddress(
    "/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
)
UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
JOB_SECONDS_MAX = 10


async def job(router: DBusRouter, method: str, unit: str) -> str:
    """Ask for one and wait until it is over: its result. Raises trio.TooSlowError."""
    rule = MatchRule(type="signal", interface=MANAGER.interface, member="JobRemoved")
    await Proxy(message_bus, router).AddMatch(rule)
    async with router.filter(rule, bufsize=8) as removed:
        asked = new_method_call(MANAGER, method, "ss", (unit, "replace"))
        (path,) = unwrap_msg(await router.send_and_get_reply(asked))
        with trio.fail_after(JOB_SECONDS_MAX):
            while True:
                message: Message = await removed.receive()
                if message.body[1] == path:
                    return str(message.body[3])


async def state(router: DBusRouter, unit: str) -> str:
    """Its ActiveState."""
    loaded = new_method_call(MANAGER, "LoadUnit", "s", (unit,))
    (path,) = unwrap_msg(await router.send_and_get_reply(loaded))
    address = DBusAddress(path, MANAGER.bus_name, UNIT_INTERFACE)
    return str(unwrap_msg(await router.send_and_get_reply(Properties(address).get("ActiveState")))[0][1])


async def test_stop_and_start(bed: Bed) -> None:
    """A stopped kubelet gives its lock back before the job is over; started again, it takes a new one."""
    unit = bed.members["node-1"].unit
    await bed.locks(2)
    async with bed.logind.client() as router:
        assert await state(router, unit) == "active"
        assert await job(router, "StopUnit", unit) == "done"
        assert await state(router, unit) == "inactive"
        await bed.locks(1)
        assert await job(router, "StartUnit", unit) == "done"
        assert await state(router, unit) == "active"
    await bed.locks(2)


async def test_stuck(bed: Bed) -> None:
    """A unit can be made not to stop, for those who have to go on without."""
    unit = bed.members["node-2"].unit
    await bed.logind.do("stuck", unit=unit, stuck=True)
    async with bed.logind.client() as router:
        asked = new_method_call(MANAGER, "StopUnit", "ss", (unit, "replace"))
        unwrap_msg(await router.send_and_get_reply(asked))
        assert await state(router, unit) == "active"
    await bed.logind.do("stuck", unit=unit, stuck=False)
    assert (await bed.logind.do("asked"))[-1] == ["StopUnit", unit]


async def test_unknown_unit(bed: Bed) -> None:
    """Of a unit that is not there it says so."""
    async with bed.logind.client() as router:
        with pytest.raises(DBusErrorResponse, match="NoSuchUnit"):
            await job(router, "StopUnit", "k3s.service")
