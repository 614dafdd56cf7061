"""The host's unit: stopped and disabled, so that nothing arms this node again.

A shutdown that runs is not cut off: whoever asked for it is waiting for pods that would then be killed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from jeepney import DBusAddress

from actors.edges.bus import Bus, BusError, Refused, ask_once, system_bus_address
from actors.edges.logind.names import SYSTEMD
from actors.edges.logind.reader import preparing
from ebbtide.uninstall.steps import Step

UNIT = "ebbtide.service"
PROPERTIES = "org.freedesktop.systemd1.Unit"
#: A plain stop leaves pods alone and takes a fraction of a second; a disk that hangs gets its bounds.
STOP_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
ENDED = ("inactive", "failed")
ABSENT = ("not-found", "")
ENABLED = ("enabled", "enabled-runtime", "linked", "linked-runtime")

T = TypeVar("T")


class State:
    """What the service manager says of the unit."""

    def __init__(self, load: str, active: str, enabled: str) -> None:
        self.is_there = load not in ABSENT
        self.is_active = self.is_there and active not in ENDED
        self.is_enabled = self.is_there and enabled in ENABLED


async def ask(work: Callable[[Bus], Awaitable[T]]) -> T:
    """One conversation on the system bus. Raises BusError."""
    return await ask_once(system_bus_address(), work)


async def in_shutdown() -> bool:
    """Whether logind prepares one; without logind nobody does."""
    try:
        return await ask(preparing)
    except BusError:
        return False


async def state() -> State:
    """Raises BusError, but for a unit that is not there."""
    try:
        return await ask(_read)
    except Refused as error:
        if error.name.endswith(("NoSuchUnit", "UnknownMethod")):
            return State("", "", "")
        raise


async def _read(bus: Bus) -> State:
    (path,) = await bus.method(SYSTEMD, "LoadUnit", "s", UNIT)
    unit = DBusAddress(path, SYSTEMD.bus_name, PROPERTIES)
    values = [str(await bus.get(unit, name)) for name in ("LoadState", "ActiveState", "UnitFileState")]
    return State(*values)


async def remove(dry_run: bool) -> Step:
    """Stop it and take it out of the boot; its files are the package's."""
    try:
        found = await state()
        if not found.is_active and not found.is_enabled:
            return Step("unit", UNIT, "nothing", "it neither runs nor is enabled")
        if dry_run:
            return Step("unit", UNIT, "would", "stop and disable it")
        await ask(_stop_and_disable)
        return Step("unit", UNIT, "done", "stopped and disabled")
    except (BusError, trio.TooSlowError) as error:
        why = str(error) or f"it has not ended after {STOP_SECONDS_MAX:g} s"
        return Step("unit", UNIT, "failed", why)


async def _stop_and_disable(bus: Bus) -> None:
    await bus.method(SYSTEMD, "DisableUnitFiles", "asb", [UNIT], False)
    await bus.method(SYSTEMD, "Reload", "")
    await bus.method(SYSTEMD, "StopUnit", "ss", UNIT, "replace")
    with trio.fail_after(STOP_SECONDS_MAX):
        while (await _read(bus)).is_active:
            await trio.sleep(LOOK_SECONDS)
