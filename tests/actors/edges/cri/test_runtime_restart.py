"""A daemon that restarts in a shutdown: which containers it records as ended, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
import trio.testing
from google.protobuf.message import Message
from msgspec.structs import replace

from ebbtide.actors.edges.cri.cri_client import CriClient, Lost, NotFound, RuntimeReach, method_of
from ebbtide.actors.edges.cri.cri_pods import (
    InventoryContainer,
)
from ebbtide.actors.edges.cri.cri_runtime import ContainerEnds
from ebbtide.actors.edges.cri.orders import (
    NOT_KNOWN,
    NOWHERE,
    ContainerOrders,
)
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodStore
from ebbtide.actors.interfaces import Ending
from ebbtide.events.bounds import Bounds
from ebbtide.events.facts import ContainerExited
from ebbtide.events.units import bound_text
from tests.actors.edges.cri.conftest import Told, kill, stop
from tests.actors.edges.cri.test_runtime import DEAD, NUMBERS, Rig, Shims
from tests.actors.edges.process.process_bed import Outbox

BOUNDS = Bounds()


class Restart(Rig):
    """The former daemon received three pods and ordered their stops."""

    def __init__(self, shims: Shims | None = None) -> None:
        super().__init__(shims)
        self.outbox, self.runtime = Outbox(), cast(CriClient, self.shims)
        self.told = Told()
        start: Callable[..., None] = lambda *work: None  # noqa: E731 - no test here goes through the runtime
        lookup = cast(PodStore, self.told)
        self.ends = ContainerEnds(self.runtime, self.table, start, self.outbox, lookup)
        before = [InventoryContainer(uid=f"u{n}", container="main", id=f"c{n}") for n in NUMBERS]
        self.table.restore(tuple(before))
        self.ends.owed = before
        self.reach, self.warm = RuntimeReach(self.runtime, self.outbox, lambda *line: None), trio.Event()
        self.reach.known.set()
        self.orders = ContainerOrders(self.runtime, self.reach, self.table, self.warm, start, lambda key: "")

    async def look(self) -> None:
        await self.listing.refresh()
        self.warm.set()
        await self.ends.catch_up()

    def ended(self) -> list[tuple[str, int | None, bool]]:
        return [(fact.uid, fact.exit_code, fact.gone) for fact in self.outbox.of(ContainerExited)]


async def test_what_is_listed_has_not_ended(autojump_clock: trio.abc.Clock) -> None:
    """Listed as running without a state: its end waits until it leaves the list."""
    rig = Restart()
    rig.shims.broken["c2"] = DEAD
    rig.shims.ended["c3"] = 7
    await rig.look()
    assert rig.known() == ["u1"]
    assert rig.ended() == [("u3", 7, False)]
    for order in (stop("u2"), kill("u2")):
        assert await rig.orders.carry_out(order, rig.outbox) == Ending("failed", NOT_KNOWN)
    rig.shims.broken.clear()
    rig.shims.ended["c2"] = 5
    await rig.look()
    assert rig.ended() == [("u3", 7, False), ("u2", 5, False)]
    await rig.look()
    assert len(rig.ended()) == 2
    assert [*rig.table.followed] == ["c1"]


async def test_what_is_said_to_run_has_not_ended() -> None:
    """Unlisted, but its state is not exited: its shim may be lost."""
    rig = Restart()
    rig.shims.ended["c2"] = 5
    rig.shims.unsure.add("c2")
    await rig.look()
    assert await rig.orders.carry_out(stop("u2"), rig.outbox) == Ending("failed", NOT_KNOWN)
    assert rig.ended() == []
    rig.shims.unsure.clear()
    assert await rig.orders.carry_out(stop("u2"), rig.outbox) == Ending()
    assert rig.ended() == [("u2", 5, False)]


@pytest.mark.parametrize("shown", ["before", "after", "gone"])
async def test_the_api_server_has_the_exit_code_of_a_removed_container(
    shown: str, autojump_clock: trio.abc.Clock
) -> None:
    """The kubelet removed the container in between. Without the pod's object the code is unknown."""
    rig = Restart()
    told = rig.told
    runs, ended = KnownPod(uid="u2", api_uid="u2", namespace="ns", name="u2"), {"main": 3}
    told.known = [] if shown == "gone" else [replace(runs, ended=ended if shown == "before" else {})]
    rig.shims.ended, rig.shims.broken = {"c2": 3}, {"c2": NotFound("no such container")}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.look)
        await trio.testing.wait_all_tasks_blocked()
        if shown == "after":
            told.tell(replace(runs, ended=ended))
    assert rig.ended() == [("u2", None, True) if shown == "gone" else ("u2", 3, False)]


class Mute(Shims):
    async def call(self, request: Message, seconds: float, **more: Any) -> Any:
        name = method_of(request)
        if name == "ContainerStatus":
            await trio.sleep(seconds)
            raise Lost(f"{name}: no answer in {bound_text(seconds)}")
        return await super().call(request, seconds, **more)


async def test_states_of_the_ended_that_do_not_come(autojump_clock: trio.abc.Clock) -> None:
    """The list shows them as not running: they are gone. All states are awaited together."""
    rig = Restart(Mute())
    rig.shims.ended = dict.fromkeys(("c1", "c2", "c3"), 0)
    began = trio.current_time()
    await rig.look()
    assert trio.current_time() - began == BOUNDS.runtime_look_seconds
    assert sorted(rig.ended()) == [(f"u{number}", None, True) for number in NUMBERS]


async def test_a_runtime_that_has_not_answered(autojump_clock: trio.abc.Clock) -> None:
    """Without a list no container is recorded as ended."""
    rig = Restart(Mute())
    rig.warm.set()
    for order in (stop("u2"), kill("u2")):
        assert await rig.orders.carry_out(order, rig.outbox) == Ending("failed", NOWHERE)
    assert rig.ended() == []
