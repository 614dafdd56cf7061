"""The kubelet's unit, over the bus: is it active, stop it in bounded time, start it again.

A wave runs while the kubelet is being stopped, and what a stopped kubelet no longer does is start again
what the wave ends. So a stop never lasts: after a bound it is SIGKILL. (The kubelet keeps its state on
disk and takes its containers up again when it starts; a crash is nothing special to it.)
"""

from __future__ import annotations

import trio
from jeepney import DBusAddress

from actors.edges.bus import Bus, BusError, Refused, ask_once
from actors.interfaces import Ending

NAME, PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
MANAGER = DBusAddress(PATH, NAME, f"{NAME}.Manager")
UNIT = f"{NAME}.Unit"
JOB = f"{NAME}.Job"
#: The path below which the service manager also finds a unit by the invocation that it runs now.
BY_INVOCATION = f"{PATH}/unit/"
SIGKILL = 9

#: A kubelet ends within some ten milliseconds of SIGTERM. Two seconds are the floor that every pod has in any
#: case: a kubelet that lives longer could start again what the first wave has ended.
STOP_SECONDS_MAX = 2.0
#: After SIGKILL only the service manager's own bookkeeping is left.
KILL_SECONDS_MAX = 1.0
#: ``Type=simple`` is active at once; a unit with conditions and mounts before it needs longer.
START_SECONDS_MAX = 5.0
#: Between two looks at a unit that is on its way: a look is half a millisecond.
LOOK_SECONDS = 0.02

#: ``ActiveState`` of a unit whose processes work.
ACTIVE = ("active", "reloading")
ENDED = ("inactive", "failed")
ENDING = "deactivating"
MISSING = "not-found"
#: ``JobType``; every other one leads to a unit that works.
STOP_JOB = "stop"

#: These units are the kubelet and the container runtime in one (k3s, rke2, k0s).
WHOLE = ("k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0scontroller", "k0sworker")


class Missing(BusError):
    """The service manager knows no such unit."""


class Unit:
    """``name`` with its suffix, such as ``kubelet.service``; ``address`` of the bus, as D-Bus writes it."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self.name = name

    @property
    def stoppable(self) -> bool:
        """False: the container runtime would go with it."""
        return self.name.removesuffix(".service") not in WHOLE

    async def active(self) -> bool | None:
        """Does it run, or will it by itself? None: it cannot be told (no such unit, no bus, no manager).

        A kubelet that crashed waits for its next attempt as ``activating``: nobody had stopped it.
        """
        try:
            return await ask_once(self._address, self._active)
        except BusError:
            return None

    async def stop(self) -> Ending:
        """Idempotent; bounded by `STOP_SECONDS_MAX` and `KILL_SECONDS_MAX`. Raises nothing.

        What is stopped, and killed at last, is what runs now: not what somebody starts meanwhile.
        """
        if not self.stoppable:
            both = "is the kubelet and the container runtime in one: without it no container could be stopped"
            return Ending("failed", f"{self.name} {both}")
        try:
            return await ask_once(self._address, self._stop)
        except BusError as error:
            return Ending("failed", str(error))

    async def start(self) -> Ending:
        """Idempotent; bounded by `START_SECONDS_MAX`. Raises nothing."""
        try:
            return await ask_once(self._address, self._start)
        except BusError as error:
            return Ending("failed", str(error))

    async def _active(self, bus: Bus) -> bool:
        unit = await self._unit(bus)
        state = await self._state(bus, unit)
        if state in ENDED:
            return await _job_type(bus, unit) not in ("", STOP_JOB)
        return state != ENDING or await _job_type(bus, unit) != STOP_JOB

    async def _stop(self, bus: Bus) -> Ending:
        unit = await self._unit(bus)
        invocation = await _invocation(bus, unit)
        with trio.move_on_after(STOP_SECONDS_MAX):
            if await self._state(bus, unit) == "inactive" and not await _job_type(bus, unit):
                return Ending()
            await self._job(bus, "StopUnit")
            return await self._ended(bus, unit, invocation)
        with trio.move_on_after(KILL_SECONDS_MAX):
            await self._kill(bus, invocation)
            await self._ended(bus, unit, invocation)
            return Ending("done", f"killed: it had not ended after {STOP_SECONDS_MAX:g} s")
        return Ending("failed", f"{self.name} lives on, {KILL_SECONDS_MAX:g} s after SIGKILL")

    async def _ended(self, bus: Bus, unit: DBusAddress, invocation: str) -> Ending:
        """By looking, not by ``JobRemoved``: who asks for a start takes the place of our job.

        A unit that is on its way up again may be seen as ended never: then its invocation is another one.
        One without any has ended since the look before, and was unloaded.
        """
        while await self._state(bus, unit) not in ENDED:
            if await _invocation(bus, unit) not in ("", invocation):
                return Ending("done", "it has ended, and somebody has started it again")
            await trio.sleep(LOOK_SECONDS)
        return Ending()

    async def _kill(self, bus: Bus, invocation: str) -> None:
        """By the invocation, so that no newer one can be hit."""
        if not invocation:
            await bus.method(MANAGER, "KillUnit", "ssi", self.name, "all", SIGKILL)
            return
        try:
            await bus.method(_by_invocation(invocation), "Kill", "si", "all", SIGKILL)
        except Refused as error:
            if not error.name.endswith(".NoUnitForInvocationID"):
                raise

    async def _start(self, bus: Bus) -> Ending:
        with trio.move_on_after(START_SECONDS_MAX):
            await self._job(bus, "StartUnit")
            unit = await self._unit(bus)
            while await self._state(bus, unit) not in ACTIVE:
                await trio.sleep(LOOK_SECONDS)
            return Ending()
        return Ending("timed-out", f"{self.name} is not active after {START_SECONDS_MAX:g} s")

    async def _job(self, bus: Bus, method: str) -> None:
        """No interactive authorization is allowed for, so polkit answers at once."""
        await bus.method(MANAGER, method, "ss", self.name, "replace")

    async def _unit(self, bus: Bus) -> DBusAddress:
        """Raises Missing, BusError."""
        try:
            (path,) = await bus.method(MANAGER, "LoadUnit", "s", self.name)
        except Refused as error:
            if error.name.endswith(".NoSuchUnit"):
                raise Missing(f"there is no unit {self.name}") from None
            raise
        return DBusAddress(path, NAME, UNIT)

    async def _state(self, bus: Bus, unit: DBusAddress) -> str:
        """``ActiveState``. Raises Missing, BusError."""
        state = str(await bus.get(unit, "ActiveState"))
        if state == "inactive" and await bus.get(unit, "LoadState") == MISSING:
            raise Missing(f"there is no unit {self.name}")
        return state


async def _invocation(bus: Bus, unit: DBusAddress) -> str:
    """In hexadecimal digits; empty where there is none: never started, or a manager that counts none."""
    try:
        return bytes(await bus.get(unit, "InvocationID")).hex()
    except Refused:
        return ""


def _by_invocation(invocation: str) -> DBusAddress:
    """No label of a D-Bus path begins with a digit: systemd writes that as ``_`` and its code."""
    first = f"_{ord(invocation[0]):02x}" if invocation[0].isdigit() else invocation[0]
    return DBusAddress(f"{BY_INVOCATION}{first}{invocation[1:]}", NAME, UNIT)


async def _job_type(bus: Bus, unit: DBusAddress) -> str:
    """``JobType`` of what is queued for a unit or runs; empty: nothing (any more)."""
    try:
        number, path = await bus.get(unit, "Job")
        return str(await bus.get(DBusAddress(path, NAME, JOB), "JobType")) if number else ""
    except Refused:
        return ""
