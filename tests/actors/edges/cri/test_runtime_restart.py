"""A daemon that was started again in a shutdown: which containers it puts on record as ended, and when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from google.protobuf.message import Message
from msgspec.structs import replace

from ebbtide.actors.edges.cri.cri_client import CriClient, Lost, NotFound, RuntimeReach, method_of
from ebbtide.actors.edges.cri.cri_pods import (
    InventoryContainer,
    OperatorNotes,
    inventory_file,
    kept_pods,
    table_file,
)
from ebbtide.actors.edges.cri.cri_runtime import ContainerEnds, Runtime
from ebbtide.actors.edges.cri.inventory import Inventory
from ebbtide.actors.edges.cri.orders import (
    NOT_KNOWN,
    NOWHERE,
    ContainerHooks,
    ContainerOrders,
    ContainerStops,
    SandboxCleanup,
)
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodStore
from ebbtide.actors.interfaces import Ending
from ebbtide.events.bounds import Bounds
from ebbtide.events.facts import ContainerExited
from ebbtide.events.units import bound_text
from tests.actors.edges.cri.conftest import Told, kill, known, stop
from tests.actors.edges.cri.test_runtime import DEAD, NUMBERS, Rig, Shims, id_of, pod
from tests.actors.edges.process.process_bed import Outbox

BOUNDS = Bounds()


class Restart(Rig):
    """The daemon before was given all three pods, and has asked for their ends."""

    def __init__(self, folder: Path, shims: Shims | None = None, *told: Any) -> None:
        super().__init__(shims)
        self.outbox, self.runtime = Outbox(), cast(CriClient, self.shims)
        self.cleanup = SandboxCleanup(self.runtime, self.table)
        self.told = cast(PodStore, Told(*told))
        start: Callable[..., None] = lambda *work: None  # noqa: E731 - no test here goes through the runtime
        self.ends = ContainerEnds(self.runtime, self.table, self.cleanup, start, self.outbox, self.told)
        before = [
            InventoryContainer(uid=f"u{n}", container="main", id=f"c{n}", stopping=True) for n in NUMBERS
        ]
        self.table.restore(tuple(before))
        self.ends.owed = before
        self.reach, self.warm = (
            RuntimeReach(self.runtime, notes := OperatorNotes(lambda level, line: None)),
            trio.Event(),
        )
        self.inventory = Inventory(
            self.table,
            inventory_file(folder / "cri", "boot"),
            self.told,
            self.reach,
            self.warm,
            self.look,
            lambda: self.listing.as_of,
            lambda: False,
        )
        self.inventory.settled.set()
        self.orders = ContainerOrders(
            self.table,
            self.warm,
            self.inventory,
            ContainerHooks(self.runtime, self.reach),
            ContainerStops(self.runtime, self.reach, start, notes),
            self.cleanup,
            lambda key: "",
            self.runtime,
        )

    async def look(self) -> None:
        await self.listing.refresh()
        self.warm.set()
        await self.ends.catch_up()

    def ended(self) -> list[tuple[str, int | None, bool]]:
        return [(fact.uid, fact.exit_code, fact.gone) for fact in self.outbox.of(ContainerExited)]


async def test_what_is_listed_has_not_ended(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    """The runtime cannot tell its state, and lists it as running: its end is on record once it is not."""
    rig = Restart(tmp_path)
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


async def test_what_is_said_to_run_has_not_ended(tmp_path: Path) -> None:
    """It is in no list, and its state says that it has not exited: such as one whose shim is lost."""
    rig = Restart(tmp_path)
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
    shown: str, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    """A kubelet has removed it while no daemon ran. With its object gone as well, no component knows it."""
    rig = Restart(tmp_path)
    told = cast(Told, rig.told)
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
    """Lists, and tells no state."""

    async def call(self, request: Message, seconds: float, **more: Any) -> Any:
        name = method_of(request)
        if name == "ContainerStatus":
            await trio.sleep(seconds)
            raise Lost(f"{name}: no answer in {bound_text(seconds)}")
        return await super().call(request, seconds, **more)


async def test_states_of_the_ended_that_do_not_come(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    """The list has told that they do not run: they are gone, and all are waited for at once."""
    rig = Restart(tmp_path, Mute())
    rig.shims.ended = dict.fromkeys(("c1", "c2", "c3"), 0)
    began = trio.current_time()
    await rig.look()
    assert trio.current_time() - began == BOUNDS.runtime_look_seconds
    assert sorted(rig.ended()) == [(f"u{number}", None, True) for number in NUMBERS]


async def test_nobody_has_answered(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    """No list has come: what is not known to have lost its process is not said to be gone."""
    rig = Restart(tmp_path, Mute())
    rig.warm.set()
    await rig.ends.catch_up({"c3"})
    assert rig.ended() == [("u3", None, True)]
    for order in (stop("u2"), kill("u2")):
        assert await rig.orders.carry_out(order, rig.outbox) == Ending("failed", NOWHERE)
    assert rig.ended() == [("u3", None, True)]
    rig.shims.ended["c2"] = 5
    rig.ends.owed = [each for each in rig.ends.owed if each.id == "c2"]
    await rig.look()
    assert rig.ended()[1:] == [("u2", None, True)]


@pytest.mark.parametrize("key", ["c2", ""], ids=["listed", "not-heard"])
async def test_what_only_the_api_server_has_shown(
    key: str, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    """The next look lists it and cannot tell its state, or does not come: no end is on record of it."""
    rig = Restart(tmp_path, None, known("web", running={"main": "c2"}))
    rig.table.restore(())
    rig.ends.owed = []
    rig.shims.broken["c2"] = DEAD
    await rig.look()
    await trio.sleep(1)
    rig.inventory.expected.expect("uid-web", {"main": key})
    if not key:
        rig.listing.refresh = trio.sleep_forever  # type: ignore[method-assign]
    ending = await rig.orders.carry_out(stop("uid-web"), rig.outbox)
    assert ending == Ending("failed", NOT_KNOWN if key else NOWHERE)
    assert rig.ended() == []
    assert rig.inventory.expected.expects("uid-web", "main")


async def test_a_look_that_broke_off_has_shown_it(tmp_path: Path) -> None:
    """What the daemon before kept of it does not take its place: whoever waits for its end has it."""
    file, kept = inventory_file(tmp_path, "boot"), table_file(tmp_path, "boot")
    tell, context = lambda level, line: None, lambda key: ""
    runtime = Runtime("unix:///nowhere", file, kept, "", None, lambda: False, context, tell, Outbox())
    shown, lost = pod(runtime.table, "shown", "main"), pod(runtime.table, "lost", "main")
    for entry in [*runtime.table.entries()]:
        runtime.table.put(entry)
    shown.pod_ip, shown.grace_seconds = "10.0.0.1", 7
    kept.store(kept_pods(runtime.table))
    shown.pod_ip, shown.grace_seconds = "", None
    del runtime.table.pods[lost.sandbox]
    runtime._reach.answering = False
    runtime.table.restore((given := InventoryContainer(uid="lost", container="main", id="other"),))
    runtime._ends.owed = [given]
    runtime.table._seen.pop(lost.containers["main"].id)
    await runtime._do_without()
    assert runtime.table.find("shown", "main") is shown.containers["main"]
    assert (shown.pod_ip, shown.grace_seconds) == ("10.0.0.1", 7)
    assert [entry.id for entry in runtime.table.entries()] == [id_of("shown", "main"), id_of("lost", "main")]
    assert runtime._ends.owed == [given]
