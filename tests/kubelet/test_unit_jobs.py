"""A stop beside other people's starts, in every order that a service manager can show them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from jeepney import DBusAddress

from actors.edges.bus import Refused
from actors.edges.kubelet import unit as unit_module
from actors.edges.kubelet.unit import PATH, STOP_SECONDS_MAX, Unit
from actors.interfaces import Ending

UNIT_PATH = f"{PATH}/unit/kubelet_2eservice"
NO_SUCH_OBJECT = "org.freedesktop.DBus.Error.UnknownObject"


class Manager:
    """One unit, of which the stop takes ``stop_seconds``; ``killed`` are the invocations that were."""

    def __init__(self, stop_seconds: float) -> None:
        self.stop_seconds = stop_seconds
        self.state, self.invocation, self.job = "active", 1, ""
        self.ends_at = float("inf")
        self.killed: list[int] = []

    async def method(self, target: DBusAddress, name: str, sign: str = "", *body: Any) -> tuple[Any, ...]:
        self._go_on()
        if name == "StopUnit":
            self.state, self.job = "deactivating", "stop"
            self.ends_at = trio.current_time() + self.stop_seconds
        elif name == "StartUnit":
            self.job = "start"
        elif name == "Kill":
            assert target.object_path == f"{PATH}/unit/_30{self.invocation:031x}"
            self.killed.append(self.invocation)
            self.ends_at = trio.current_time()
        return (UNIT_PATH,)

    async def get(self, target: DBusAddress, name: str) -> Any:
        self._go_on()
        if name == "JobType":
            if not self.job:
                raise Refused(NO_SUCH_OBJECT, "")
            return self.job
        return {
            "ActiveState": self.state,
            "LoadState": "loaded",
            "InvocationID": self.invocation.to_bytes(16, "big"),
            "Job": (1, "/job/1") if self.job else (0, "/"),
        }[name]

    def _go_on(self) -> None:
        if self.state == "deactivating" and trio.current_time() >= self.ends_at:
            again = self.job == "start"
            self.state, self.job = "active" if again else "inactive", ""
            self.invocation += again


@pytest.fixture
def manager(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Manager:
    """Asked by every `Unit` of the test."""
    made = Manager(getattr(request, "param", 0.0))

    async def ask(address: str, work: Callable[[Manager], Awaitable[Any]]) -> Any:
        return await work(made)

    monkeypatch.setattr(unit_module, "ask_once", ask)
    return made


@pytest.mark.parametrize("manager", [1.0], indirect=True, ids=["slow"])
async def test_a_start_that_is_asked_for_meanwhile(manager: Manager, autojump_clock: trio.abc.Clock) -> None:
    """Between two looks it has ended and runs again: what runs now is another one, and is left alone."""
    unit = Unit("bus", "kubelet.service")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_start_later, unit, 0.3)
        ending = await unit.stop()
    assert ending == Ending("done", "it has ended, and somebody has started it again")
    await trio.sleep(2 * STOP_SECONDS_MAX)
    assert (manager.state, manager.invocation, manager.killed) == ("active", 2, [])


async def test_a_unit_that_is_forgotten_when_it_has_ended(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """Nobody refers to it, so it is unloaded between two questions: no invocation is not another one."""
    asked: list[str] = []
    get = manager.get

    async def forget(target: DBusAddress, name: str) -> Any:
        asked.append(name)
        if asked.count("InvocationID") > 1:
            manager.state, manager.job = "inactive", ""
        return b"" if name == "InvocationID" and manager.state == "inactive" else await get(target, name)

    monkeypatch.setattr(manager, "get", forget)
    manager.stop_seconds = 1.0
    assert await Unit("bus", "kubelet.service").stop() == Ending()
    assert asked.count("InvocationID") == 2


@pytest.mark.parametrize("manager", [60.0], indirect=True, ids=["stubborn"])
async def test_only_what_was_to_be_stopped_is_killed(
    manager: Manager, autojump_clock: trio.abc.Clock
) -> None:
    """By its invocation, once; the start that waited for its end then goes on."""
    unit = Unit("bus", "kubelet.service")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_start_later, unit, 0.3)
        ending = await unit.stop()
    assert ending == Ending("done", "killed: it had not ended after 2 s")
    await trio.sleep(2 * STOP_SECONDS_MAX)
    assert (manager.state, manager.invocation, manager.killed) == ("active", 2, [1])


@pytest.mark.parametrize(
    ("state", "job", "active"),
    [
        ("active", "", True),
        ("active", "stop", True),
        ("reloading", "", True),
        ("activating", "", True),
        ("activating", "start", True),
        ("deactivating", "", True),
        ("deactivating", "restart", True),
        ("deactivating", "start", True),
        ("deactivating", "stop", False),
        ("inactive", "", False),
        ("inactive", "start", True),
        ("failed", "", False),
        ("failed", "restart", True),
    ],
)
async def test_what_counts_as_active(manager: Manager, state: str, job: str, active: bool) -> None:
    """False is only what nobody will start by itself: ended for good, or being stopped."""
    manager.state, manager.job = state, job
    assert await Unit("bus", "kubelet.service").active() is active


async def test_a_start_that_is_queued_is_taken_back(manager: Manager) -> None:
    """A unit that is not up yet, but will be, is stopped too."""
    manager.state, manager.job = "inactive", "start"
    assert await Unit("bus", "kubelet.service").stop() == Ending()
    assert (manager.state, manager.job) == ("inactive", "")


async def _start_later(unit: Unit, seconds: float) -> None:
    await trio.sleep(seconds)
    assert await unit.start() == Ending()
