"""Pods that the API server tells of before a look at the runtime has shown them, or before they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from ebbtide.actors.edges.cri import runtime as ends_module
from ebbtide.actors.edges.cri import runtime as runtime_module
from ebbtide.actors.edges.cri.client import WARM_SECONDS_MAX, CriClient, RuntimeReach
from ebbtide.actors.edges.cri.inventory import ContainerKey, Inventory, starting_pods, unseen_containers
from ebbtide.actors.edges.cri.pods import ContainerEntry, InventoryFile, OperatorNotes, PodEntry, PodTable
from ebbtide.actors.edges.linux.exits import ExitStatus
from ebbtide.actors.edges.pod_spec import ContainerSpec
from ebbtide.actors.interfaces import Ending
from ebbtide.events.facts import ContainerExited, InventoryTaken, PodJoined
from tests.actors.edges.cri.conftest import Told, rig_on
from tests.actors.edges.cri.pods import Kubelet, Made, Spec
from tests.actors.edges.cri.test_edge import CODE_3, EXITED, stop, until
from tests.actors.edges.cri.test_inventory import known, take
from tests.actors.edges.process.process_bed import Outbox
from tests.beds.containerd import Containerd

REAL = [pytest.mark.node, pytest.mark.root]


def on_real(test: Callable[..., Any]) -> Callable[..., Any]:
    for mark in REAL:
        test = mark(test)
    return test


def looked(table: PodTable, uid: str, name: str, key: str) -> ContainerEntry:
    pod = table.pods.setdefault(uid, PodEntry(uid, "test", uid, uid))
    entry = ContainerEntry(pod, key, ContainerSpec(name=name, argv=()))
    table.put(entry)
    return entry


# --- what is found -----------------------------------------------------------------------------


def test_what_no_look_has_found() -> None:
    """By the container's id: one that was started again is another; one that has ended is not missed."""
    table = PodTable(frozenset({"uid-ours"}))
    looked(table, "uid-web", "main", "first")
    looked(table, "uid-over", "main", "over").finish(ExitStatus(exit_code=0))
    lookup = Told(
        known("web", running={"main": "second", "proxy": "p"}),
        known("over", running={"main": "over"}),
        known("new", running={"main": "n"}),
        known("ours", running={"main": "o"}),
        known("done", phase="Succeeded", running={"main": "d"}),
        known("quiet"),
    )
    assert unseen_containers(lookup, table) == {
        "uid-web": {"main": "second", "proxy": "p"},
        "uid-new": {"main": "n"},
    }
    looked(table, "uid-web", "main", "second")
    assert unseen_containers(lookup, table)["uid-web"] == {"proxy": "p"}
    lookup.version = 0
    assert unseen_containers(lookup, table) == {}
    assert unseen_containers(None, table) == {}


def test_what_is_about_to_start() -> None:
    """Here, not running, not asked to go, and something of it may run: no mirror, nothing that is over."""
    table = PodTable(frozenset({"uid-ours"}))
    looked(table, "uid-web", "main", "first")
    lookup = Told(
        known("web", phase="Pending"),
        known("new", phase="Pending"),
        known("again"),
        known("ours", phase="Pending"),
        known("listed", phase="Pending"),
        known("file", phase="Pending", static=True),
        known("going", phase="Pending", deleting=True),
        known("runs", running={"main": "r"}),
        known("done", phase="Failed"),
        known("over", ended={"main": 0}),
    )
    assert [each.name for each in starting_pods(lookup, table, ("uid-listed",))] == ["new", "again"]
    assert starting_pods(None, table, ()) == []
    lookup.version = 0
    assert starting_pods(lookup, table, ()) == []


async def test_it_goes_away_below_a_wave(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    """One look is waited for and no more: who comes after it goes by the processes."""
    names = [f"c{number}" for number in range(20)]
    ids = {name: f"{number:064x}" for number, name in enumerate(names)}
    lookup, table, found, warm = Told(known("web", running=ids)), PodTable(), list[str](), trio.Event()
    reach = RuntimeReach(cast(CriClient, None), OperatorNotes(lambda level, line: None))
    reach.answering = True
    warm.set()

    async def hang() -> None:
        await trio.sleep(2)
        reach.answering = False
        await trio.sleep_forever()

    async def take_processes(pods: object, wanted: Mapping[str, ContainerKey]) -> None:
        for key, (uid, name) in wanted.items():
            looked(table, uid, name, key)
            found.append(name)

    file = InventoryFile(tmp_path / "cri", "boot")
    inventory = Inventory(
        table, file, lookup, reach, warm, hang, lambda: -math.inf, lambda: False, take_processes
    )
    inventory.cached.expect("uid-web", ids)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(inventory.catch_up, "uid-web", name, Outbox())
    assert trio.current_time() - began == WARM_SECONDS_MAX
    assert found == names


def inventory_of(
    table: PodTable, lookup: Told | None, folder: Path, *, away: bool = False, look: Callable[[], None] = int
) -> Inventory:
    """With a warm table, and a runtime of which ``look`` says what it does when it is asked."""
    reach, warm = RuntimeReach(cast(CriClient, None), OperatorNotes(lambda level, line: None)), trio.Event()
    reach.answering = not away
    reach.known.set()
    warm.set()

    async def ask() -> None:
        look()

    async def take_processes(pods: object, wanted: object) -> None:
        raise AssertionError("nobody looks for processes here")

    file = InventoryFile(folder / "cri", "boot")
    made = Inventory(table, file, lookup, reach, warm, ask, lambda: -math.inf, lambda: False, take_processes)
    made.settled.set()
    return made


def told_of(outbox: Outbox) -> list[tuple[str, list[tuple[str, bool]]]]:
    """Pods that joined, with their containers as they are."""
    return [
        (fact.pod.uid, [(each.name, each.running) for each in fact.pod.containers])
        for fact in outbox.of(PodJoined)
    ]


@pytest.mark.parametrize("by_listing", [False, True])
async def test_what_did_not_run_at_the_signal(
    autojump_clock: trio.abc.Clock, tmp_path: Path, by_listing: bool
) -> None:
    """Of a pod that was given: its kubelet had it wait (CrashLoopBackOff), and starts it in the shutdown."""
    table, outbox = PodTable(), Outbox()
    looked(table, "uid-web", "main", "first")

    def start() -> None:
        if by_listing and started:
            looked(table, "uid-web", "crashing", "second")

    started = list[int]()
    inventory = inventory_of(table, None, tmp_path, look=start)
    await inventory.take(take("signal"), outbox)
    await inventory.take(take("closer", refresh=True, for_seconds=30), outbox)
    started.append(1)
    if by_listing:
        await inventory.take(take("stopped", refresh=True, for_seconds=30), outbox)
        assert [type(fact) for fact in outbox.facts][-2:] == [PodJoined, InventoryTaken]
    else:
        looked(table, "uid-web", "crashing", "second")
    await inventory.report_late(outbox)
    await inventory.report_late(outbox)
    assert told_of(outbox) == [("uid-web", [("main", True), ("crashing", True)])]
    assert table.given["uid-web", "crashing"].id == "second"
    # Its end is waited for from then on, and its next life is one as any other's.
    assert "second" in table.followed


async def test_what_was_expected_does_not_join(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    """The inventory had it, as the API server told of it: what a look shows later is no news."""
    table, outbox = PodTable(), Outbox()
    looked(table, "uid-web", "main", "first")
    lookup = Told(known("web", "main", "proxy", running={"main": "first", "proxy": "second"}))
    inventory = inventory_of(table, lookup, tmp_path)
    await inventory.take(take("signal", for_seconds=30), outbox)
    looked(table, "uid-web", "proxy", "second")
    await inventory.report_late(outbox)
    await inventory.take(take("closer", refresh=True, for_seconds=30), outbox)
    assert told_of(outbox) == []


async def test_what_nobody_had_told_of(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    """Beside what the API server had told of, a look shows what did not run at the signal: that joins."""
    table, outbox = PodTable(), Outbox()
    lookup = Told(known("web", "main", "crashing", running={"main": "first"}))
    inventory = inventory_of(table, lookup, tmp_path)
    await inventory.take(take("signal", for_seconds=30), outbox)
    looked(table, "uid-web", "main", "first")
    looked(table, "uid-web", "crashing", "second")
    await inventory.report_settled(outbox)
    await inventory.report_late(outbox)
    assert told_of(outbox) == [("uid-web", [("main", True), ("crashing", True)])]


async def test_another_shutdown_has_what_runs(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    """What was started since the last one is in its inventory, and does not join beside it."""
    table, outbox = PodTable(), Outbox()
    looked(table, "uid-web", "main", "first")
    inventory = inventory_of(table, None, tmp_path)
    await inventory.take(take("signal", for_seconds=30), outbox)
    looked(table, "uid-web", "crashing", "second")
    await inventory.take(take("another", for_seconds=30), outbox)
    await inventory.report_late(outbox)
    assert told_of(outbox) == []
    assert [each.name for each in outbox.of(InventoryTaken)[-1].pods[0].containers] == ["main", "crashing"]


@pytest.mark.parametrize(("away", "source"), [(False, "cri"), (True, "table")])
async def test_a_listing_says_whether_the_runtime_was_asked(
    autojump_clock: trio.abc.Clock, tmp_path: Path, away: bool, source: str
) -> None:
    """A runtime that is known to be away is not: the pods are those of the last look."""
    table, outbox, looks = PodTable(), Outbox(), list[int]()
    looked(table, "uid-web", "main", "first")
    inventory = inventory_of(table, None, tmp_path, away=away, look=lambda: looks.append(1))
    assert await inventory.take(take("signal"), outbox) == Ending()
    assert await inventory.take(take("closer", refresh=True, for_seconds=30), outbox) == Ending()
    assert [fact.source for fact in outbox.of(InventoryTaken)] == ["cri", source]
    assert len(looks) == (0 if away else 1)


# --- on a real runtime -------------------------------------------------------------------------


def as_told(name: str, made: Made) -> dict[str, object]:
    return {"running": dict(made.containers), "containers": tuple(made.containers)}


@on_real
async def test_a_pod_that_was_ready_a_moment_before_the_signal(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the watch knows it: it is in the inventory, and a stop finds it all the same."""
    monkeypatch.setattr(runtime_module, "NEWS_SECONDS", 60)
    lookup = Told()
    kubelet.pod("old", Spec(CODE_3))
    async with rig_on(bed, tmp_path, lookup) as rig:
        await until(lambda: len(rig.edge.active()) == 1, "the first look does not end")
        made = kubelet.pod("new", Spec(CODE_3))
        lookup.tell(known("new", priority=7, **as_told("new", made)))
        old, new = await rig.inventory(refresh=False)
        assert (old.uid, new.uid, new.priority) == ("uid-old", "uid-new", 7)
        assert [(each.name, each.running) for each in new.containers] == [("main", True)]
        assert await rig.do(stop("uid-new")) == Ending()
        (ended,) = await rig.outbox.wait_for(ContainerExited, uid="uid-new")
        assert ended.exit_code == 3


@on_real
async def test_a_container_that_was_started_again_before_the_signal(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pod of which another one runs: the new one is in the inventory, and can be stopped."""
    monkeypatch.setattr(runtime_module, "NEWS_SECONDS", 60)
    monkeypatch.setattr(runtime_module, "BUSY_SECONDS", 60)
    lookup = Told()
    made = kubelet.pod("web", Spec(CODE_3), Spec(CODE_3, "other"))
    async with rig_on(bed, tmp_path, lookup) as rig:
        await until(lambda: len(rig.edge.active()) == 1, "the first look does not end")
        kubelet.stop_container(made.containers["main"])
        await until(lambda: not rig.edge.active()[0].containers[0].running, "its end is not seen")
        again = kubelet.again("web", made, Spec(CODE_3))
        ids = made.containers | {"main": again}
        lookup.tell(known("web", "main", "other", running=ids))
        (web,) = await rig.inventory(refresh=False)
        assert [(each.name, each.running) for each in web.containers] == [("main", True), ("other", True)]
        await rig.do(stop("uid-web"))
        await rig.outbox.wait_for(ContainerExited, uid="uid-web", container="main", exit_code=3)
        await until(lambda: kubelet.state(again) == EXITED, "it was not stopped")


@on_real
async def test_one_that_has_ended_though_the_watch_has_it_running(bed: Containerd, tmp_path: Path) -> None:
    """A look that began since does not show it: its end is said, once."""
    async with rig_on(bed, tmp_path, Told(known("gone", running={"main": "nobody"}))) as rig:
        assert [pod.uid for pod in await rig.inventory(refresh=False)] == ["uid-gone"]
        assert await rig.inventory("closer") == ()
        (ended,) = rig.outbox.of(ContainerExited)
        assert ended == ContainerExited(uid="uid-gone", container="main", gone=True)


@on_real
async def test_news_of_the_watch_are_looked_at_soon(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """On a quiet node the table has a pod long before the next idle look."""
    lookup = Told()
    async with rig_on(bed, tmp_path, lookup) as rig:
        await rig.inventory()
        made = kubelet.pod("new", Spec(CODE_3))
        with trio.fail_after(runtime_module.IDLE_SECONDS / 2):
            lookup.tell(known("new", **as_told("new", made)))
            await until(lambda: len(rig.edge.active()) == 1, "nobody looks")


@on_real
async def test_a_pod_that_is_about_to_start(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """Pods that wait for their start are in the closer inventory, or join when the watch shows them; their
    ends are the API server's to tell, or the runtime's once they run.
    """
    lookup = Told(known("early", phase="Pending", priority=3))
    async with rig_on(bed, tmp_path, lookup, starts=True) as rig:
        assert await rig.inventory("signal", refresh=False) == ()
        await rig.do(take("closer", refresh=True, for_seconds=30))
        (early,) = rig.outbox.of(InventoryTaken)[-1].pods
        assert (early.uid, early.priority, early.containers[0].running) == ("uid-early", 3, True)
        lookup.tell(known("early", phase="Pending"), known("late", phase="Pending"))
        (joined,) = await rig.outbox.wait_for(PodJoined)
        assert joined.pod.uid == "uid-late"
        lookup.tell(known("early", phase="Pending", deleting=True))
        await rig.outbox.wait_for(ContainerExited, uid="uid-late")
        kubelet.pod("early", Spec("sleep 1.2; exit 3"))
        (ended,) = await rig.outbox.wait_for(ContainerExited, uid="uid-early")
        assert ended.exit_code == 3
        assert len(rig.outbox.of(PodJoined)) == 1


@on_real
async def test_a_pod_that_nobody_starts(bed: Containerd, tmp_path: Path) -> None:
    """Once the kubelet is being stopped a pod that waits for its start is no part of a shutdown."""
    lookup = Told(known("early", phase="Pending"))
    async with rig_on(bed, tmp_path, lookup) as rig:
        await rig.do(take("closer", refresh=True, for_seconds=30))
        lookup.tell(known("early", phase="Pending"), known("late", phase="Pending"))
        await trio.sleep(2 * runtime_module.NEWS_SECONDS)
        assert rig.outbox.of(InventoryTaken)[-1].pods == ()
        assert rig.outbox.of(PodJoined) == []


@on_real
async def test_a_stop_of_one_that_has_not_started(bed: Containerd, tmp_path: Path) -> None:
    """Handed over before it ran: the runtime is looked at once more, and there is nothing to stop."""
    async with rig_on(bed, tmp_path, Told(known("early", phase="Pending")), starts=True) as rig:
        await rig.do(take("closer", refresh=True, for_seconds=30))
        assert await rig.do(stop("uid-early")) == Ending()
        assert [each.uid for each in rig.outbox.of(ContainerExited)] == ["uid-early"]


@on_real
async def test_a_signal_soon_after_the_start(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended while no daemon ran holds no inventory up; and an end of a container that was started again
    since is nothing that this shutdown should hear.
    """
    old = kubelet.pod("old", Spec(CODE_3), Spec(CODE_3, "other"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
    kubelet.stop_container(old.containers["main"])
    again = kubelet.again("old", old, Spec(CODE_3))
    real, asked = ends_module.exit_of_container, trio.Event()

    async def slow(caller: Any, container_id: str) -> ExitStatus | None:
        if container_id == old.containers["main"]:
            asked.set()
            await go_on.wait()
        return await real(caller, container_id)

    monkeypatch.setattr(ends_module, "exit_of_container", slow)
    go_on = trio.Event()
    async with rig_on(bed, tmp_path) as rig:
        await asked.wait()
        (pod,) = await rig.inventory(refresh=False)
        assert [(each.name, each.running) for each in pod.containers] == [("other", True), ("main", True)]
        go_on.set()
        await rig.do(stop("uid-old"))
        (ended,) = await rig.outbox.wait_for(ContainerExited)
        assert ended.container == "main"
        await until(lambda: kubelet.state(again) == EXITED, "it was not stopped")
