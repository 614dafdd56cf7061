"""Inventories on a fake runtime: pods that are late, about to start, or restarting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio

from ebbtide.actors.edges.cri import cri_runtime as runtime_module
from ebbtide.actors.edges.cri.cri_client import CriClient, RuntimeReach
from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, InventoryFile, PodEntry, PodTable
from ebbtide.actors.edges.cri.cri_runtime import FIRST_WORD_POLL_SECONDS, NOT_LISTED, ComingPods, Inventory
from ebbtide.actors.edges.kubernetes.known_pods import PodStore
from ebbtide.actors.edges.linux.processes import ExitStatus
from ebbtide.actors.edges.pod_spec import ContainerSpec
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import TakeInventory
from ebbtide.events.facts import ContainerExited, InventoryTaken, PodAppeared, PodJoined
from tests.actors.edges.cri.conftest import Told, known, take
from tests.actors.edges.process.process_bed import Outbox


def looked(table: PodTable, uid: str, name: str, key: str) -> ContainerEntry:
    pod = table.pods.setdefault(uid, PodEntry(uid, "test", uid, uid))
    entry = ContainerEntry(pod, key, ContainerSpec(name=name, argv=()))
    table.put(entry)
    return entry


def test_what_is_about_to_start() -> None:
    """Not running, not deleted, and startable; no mirrors and no finished pods."""
    table = PodTable(frozenset({"uid-ours"}))
    looked(table, "uid-web", "main", "first")
    lookup = Told(
        known("web", phase="Pending"),
        known("new", phase="Pending"),
        known("again"),
        known("ours", phase="Pending"),
        known("listed", phase="Pending"),
        known("file", phase="Pending", static=True),
        known("going", phase="Pending", deleted_by_ns=1),
        known("runs", running={"main": "r"}),
        known("done", phase="Failed"),
        known("over", ended={"main": 0}),
    )
    assert [each.name for each in ComingPods(table, lookup).find(("uid-listed",))] == ["new", "again"]
    assert ComingPods(table, None).find(()) == []
    lookup.version = 0
    assert ComingPods(table, lookup).find(()) == []


def test_the_end_of_a_pod_that_was_about_to_start() -> None:
    """The API server reports the end until the runtime has shown the pod."""
    table, lookup = PodTable(), Told(*(known(name, phase="Pending") for name in ("never", "brief", "runs")))
    coming = ComingPods(table, lookup)
    coming.find(())
    assert coming.settle() == []
    lookup.known = lookup.known[1:]
    entry = looked(table, "uid-runs", "main", "r")
    looked(table, "uid-brief", "main", "b").finish(ExitStatus(exit_code=3))
    found = coming.settle()
    ends = [(end.uid, end.exit_code, end.never_ran) for end in found if isinstance(end, ContainerExited)]
    assert ends == [("uid-never", None, True), ("uid-brief", 3, False)]
    assert [each.pod.uid for each in found if isinstance(each, PodJoined)] == ["uid-runs"]
    assert table.followed[entry.id] is entry
    assert coming.settle() == []


def inventory_of(
    table: PodTable,
    lookup: Told | None,
    folder: Path | None = None,
    *,
    away: bool = False,
    warm: bool = True,
    starts: bool = False,
    look: Callable[[], None] = int,
) -> Inventory:
    """``look``: the runtime's behaviour when asked."""
    reach, filled = RuntimeReach(cast(CriClient, None), Outbox(), lambda level, line: None), trio.Event()
    reach.answering = not away
    reach.known.set()
    if away:
        reach._gone.set()
    if warm:
        filled.set()

    async def ask() -> bool:
        look()
        return True

    file = cast(InventoryFile, None) if folder is None else InventoryFile(folder / "cri", "boot")
    return Inventory(table, file, cast(PodStore | None, lookup), reach, filled, ask, lambda: starts)


def told_of(outbox: Outbox) -> list[tuple[str, list[tuple[str, bool]]]]:
    """Pods that joined, with their current containers."""
    return [
        (fact.pod.uid, [(each.name, each.running) for each in fact.pod.containers])
        for fact in outbox.of(PodJoined)
    ]


@pytest.mark.parametrize("by_listing", [False, True])
@pytest.mark.parametrize("name", ["crashing", "main"])
async def test_what_the_kubelet_starts_during_the_shutdown(
    autojump_clock: trio.abc.Clock, tmp_path: Path, by_listing: bool, name: str
) -> None:
    """Of a container that was in CrashLoopBackOff at the signal, or that has ended since."""
    table, outbox = PodTable(), Outbox()
    first = looked(table, "uid-web", "main", "first")

    def start() -> None:
        if by_listing and started:
            looked(table, "uid-web", name, "second")

    started = list[int]()
    inventory = inventory_of(table, None, tmp_path, look=start)
    await inventory.take(take("signal"), outbox)
    await inventory.take(take("closer", refresh=True, late=True), outbox)
    started.append(1)
    if name == "main":
        first.finish(ExitStatus(exit_code=3))
    if by_listing:
        await inventory.take(take("stopped", refresh=True, late=True), outbox)
        assert [type(fact) for fact in outbox.facts][-2:] == [PodJoined, InventoryTaken]
    else:
        looked(table, "uid-web", name, "second")
    await inventory.report_late(outbox)
    await inventory.report_late(outbox)
    assert told_of(outbox) == [("uid-web", [(each, True) for each in dict.fromkeys(("main", name))])]
    assert table.given["uid-web", name].id == "second"
    # From now on its end is awaited.
    assert "second" in table.followed


@pytest.mark.parametrize(("away", "source"), [(False, "cri"), (True, "table")])
async def test_a_listing_says_whether_the_runtime_was_asked(
    autojump_clock: trio.abc.Clock, tmp_path: Path, away: bool, source: str
) -> None:
    """A runtime that is away is not asked: the listing has the last look's pods."""
    table, outbox, looks = PodTable(), Outbox(), list[int]()
    looked(table, "uid-web", "main", "first")
    inventory = inventory_of(table, None, tmp_path, away=away, look=lambda: looks.append(1))
    assert await inventory.take(take("signal"), outbox) == Ending()
    assert await inventory.take(take("closer", refresh=True, late=True), outbox) == Ending()
    assert [fact.source for fact in outbox.of(InventoryTaken)] == ["cri", source]
    assert len(looks) == (0 if away else 1)


@pytest.mark.parametrize(("by_seconds", "waits_seconds"), [(-1.0, 0.0), (0.5, 0.5), (60.0, 1.5)])
async def test_the_first_word_has_its_time(
    autojump_clock: trio.abc.Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_seconds: float,
    waits_seconds: float,
) -> None:
    """Wait for priorities until the order's bound, at most 1.5 s."""
    table, lookup, outbox = PodTable(), Told(), Outbox()
    looked(table, "uid-web", "main", "first")
    lookup.expecting, lookup.untold = True, "not listed yet"
    inventory, now_ns = inventory_of(table, lookup, tmp_path), 100 * NS_PER_SECOND
    monkeypatch.setattr(runtime_module, "time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    began = trio.current_time()
    by_ns = now_ns + int(by_seconds * NS_PER_SECOND)
    await inventory.take(TakeInventory(key="first", priorities_by_ns=by_ns), outbox)
    assert trio.current_time() - began == pytest.approx(waits_seconds, abs=FIRST_WORD_POLL_SECONDS)
    assert outbox.of(InventoryTaken)[-1].untold == "not listed yet"


async def test_a_stopped_kubelet_leaves_pods(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    """Pods without a running container, whatever the API server shows of them, end with the others. Pods that
    were bound after the signal are to be rejected, once. A container that starts all the same joins.
    """
    table, outbox = PodTable(), Outbox()
    looked(table, "uid-web", "main", "first")
    names = ("crashing", "going", "stale", "file", "over", "done")
    lookup = Told(
        known("crashing"),
        known("going", deleted_by_ns=1),
        known("stale", running={"main": "r"}),
        known("file", static=True),
        known("over", ended={"main": 0}),
        known("done", phase="Failed"),
    )
    inventory = inventory_of(table, lookup, tmp_path)
    await inventory.take(take("signal"), outbox)
    lookup.known.append(known("new", phase="Pending"))
    await inventory.take(take("stopped", refresh=True, late=True), outbox)
    pods = {pod.uid: pod for pod in outbox.of(InventoryTaken)[-1].pods}
    assert list(pods) == ["uid-web", *(f"uid-{name}" for name in names[:-1])]
    assert not any(each.running for uid, pod in pods.items() if uid != "uid-web" for each in pod.containers)
    lookup.known.append(known("newer", phase="Pending"))
    looked(table, "uid-crashing", "main", "second")
    for _ in range(2):
        await inventory.report_late(outbox)
    assert [fact.pod.uid for fact in outbox.of(PodAppeared)] == ["uid-new", "uid-newer"]
    assert [uid for uid, _ in told_of(outbox)] == ["uid-crashing"]


@pytest.mark.parametrize("starts", [True, False])
async def test_a_pod_that_comes_late(autojump_clock: trio.abc.Clock, tmp_path: Path, starts: bool) -> None:
    """One fact per late pod during a shutdown, otherwise none. Waiting pods join too, until the kubelet is
    being stopped.
    """
    table, lookup, outbox = PodTable(), Told(), Outbox()
    looked(table, "uid-first", "main", "first")
    inventory = inventory_of(table, lookup, tmp_path, starts=starts)
    await inventory.take(take("signal"), outbox)
    looked(table, "uid-early", "main", "early")
    await inventory.report_late(outbox)
    assert told_of(outbox) == []
    lookup.known.append(known("waits", phase="Pending"))
    await inventory.take(take("closer", refresh=True, late=True), outbox)
    given = [pod.uid for pod in outbox.of(InventoryTaken)[-1].pods]
    assert given == ["uid-first", "uid-early", *["uid-waits"] * starts]
    looked(table, "uid-late", "main", "late")
    lookup.known.append(known("soon", phase="Pending"))
    for _ in range(2):
        await inventory.report_late(outbox)
    assert [uid for uid, _ in told_of(outbox)] == ["uid-late", *["uid-soon"] * starts]
    await inventory.take(take("another"), outbox)
    looked(table, "uid-later", "main", "later")
    await inventory.report_late(outbox)
    assert "uid-later" not in [uid for uid, _ in told_of(outbox)]


@pytest.mark.parametrize("warm", [True, False])
async def test_what_the_runtime_never_showed(
    autojump_clock: trio.abc.Clock, tmp_path: Path, warm: bool
) -> None:
    """The last look is the inventory; without one there is no inventory. Pods known only to the API server
    are not ours to stop.
    """
    table, lookup, outbox = PodTable(), Told(known("new", running={"main": "n"})), Outbox()
    if warm:
        looked(table, "uid-web", "main", "first")
    inventory = inventory_of(table, lookup, tmp_path, away=True, warm=warm)
    ending = await inventory.take(take("signal"), outbox)
    assert ending == (Ending() if warm else Ending("failed", NOT_LISTED))
    given = [pod.uid for fact in outbox.of(InventoryTaken) for pod in fact.pods]
    assert given == ["uid-web"] * warm == [pod.uid for pod in inventory.views()]
