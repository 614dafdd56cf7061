"""The edge with a lookup beside it, on a real containerd: late pods, restarts, and a runtime that is away."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.cri import inventory as inventory_module
from ebbtide.actors.edges.cri import orders as orders_module
from ebbtide.actors.edges.kubernetes.pods import KnownPod
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import TakeInventory
from ebbtide.events.facts import ContainerExited, InventoryTaken, PodJoined, RuntimeRead
from tests.actors.edges.cri.conftest import Rig, Told, rig_on
from tests.actors.edges.cri.pods import Kubelet, Spec
from tests.actors.edges.cri.test_edge import CODE_3, DEAF, NOT_READY, POLITE, kill, stop, until
from tests.beds.containerd import Containerd

pytestmark = [pytest.mark.node, pytest.mark.root]

RUNNING, READY = 1, 0


def take(key: str, *, refresh: bool = False, for_seconds: float = 0) -> TakeInventory:
    until_ns = time.monotonic_ns() + int(for_seconds * NS_PER_SECOND) if for_seconds else 0
    return TakeInventory(key=key, refresh=refresh, late_until_ns=until_ns)


def known(name: str, *containers: str, **fields: object) -> KnownPod:
    made = {"uid": f"uid-{name}", "api_uid": f"uid-{name}", "namespace": "test", "name": name}
    return KnownPod(**(made | {"phase": "Running", "containers": containers or ("main",)} | fields))  # type: ignore[arg-type]


def exits(rig: Rig) -> list[tuple[str, str, int | None]]:
    return [(fact.uid, fact.container, fact.exit_code) for fact in rig.outbox.of(ContainerExited)]


async def test_what_is_learned_later_counts(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """An inventory asks at its own moment, not when the pod was found."""
    kubelet.pod("web", Spec(POLITE, "proxy"), Spec(POLITE), annotations=(("ebbtide/priority", "5"),))
    lookup = Told()
    async with rig_on(bed, tmp_path, lookup) as rig:
        (before,) = await rig.inventory("before")
        lookup.known.append(known("web", priority=9, sidecars=("proxy",), owner="Deployment/web"))
        (after,) = await rig.inventory("after", refresh=False)
    assert (before.priority, before.owner) == (5, "")
    assert (after.priority, after.owner) == (9, "Deployment/web")
    assert [(each.name, each.sidecar) for each in after.containers] == [("proxy", True), ("main", False)]


@pytest.mark.parametrize("by_seconds", [-1.0, 0.5, 60.0])
async def test_the_first_word_has_its_time(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, by_seconds: float
) -> None:
    """Nobody has said a priority yet: that is waited for as long as the order allows, and 1.5 s at most."""
    kubelet.pod("web", Spec(POLITE))
    lookup = Told()
    lookup.expecting, lookup.untold = True, "not listed yet"
    async with rig_on(bed, tmp_path, lookup) as rig:
        await rig.do(take("warm", refresh=True))
        began_ns = time.monotonic_ns()
        by_ns = began_ns + int(by_seconds * NS_PER_SECOND)
        await rig.do(TakeInventory(key="first", priorities_by_ns=by_ns))
        took_seconds = (time.monotonic_ns() - began_ns) / NS_PER_SECOND
    assert rig.outbox.of(InventoryTaken)[-1].untold == "not listed yet"
    least_seconds = {-1.0: 0, 0.5: 0.48, 60.0: 1.48}[by_seconds]
    assert least_seconds <= took_seconds < least_seconds + 0.4


async def test_a_pod_that_comes_late(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """While the shutdown wants to know, a pod that no inventory had is one fact, and its end another."""
    kubelet.pod("first", Spec(POLITE))
    async with rig_on(bed, tmp_path, Told(known("late", priority=4))) as rig:
        await rig.do(take("signal"))
        await rig.do(take("closer", refresh=True, for_seconds=30))
        kubelet.pod("late", Spec(CODE_3))
        (joined,) = await rig.outbox.wait_for(PodJoined)
        assert (joined.pod.uid, joined.pod.priority) == ("uid-late", 4)
        await rig.do(stop("uid-late"))
        await rig.outbox.wait_for(ContainerExited, uid="uid-late")
        await trio.sleep(1)
        assert [fact.pod.uid for fact in rig.outbox.of(PodJoined)] == ["uid-late"]


async def test_a_pod_that_comes_too_late(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """Nobody asked, or the time is over: no fact."""
    kubelet.pod("first", Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.do(take("signal"))
        await rig.do(take("closer", refresh=True, for_seconds=0.2))
        await trio.sleep(0.3)
        kubelet.pod("late", Spec(POLITE))
        await until(lambda: len(rig.edge.active()) == 2, "it is not found")
        assert rig.outbox.of(PodJoined) == []


async def test_an_order_means_the_container_that_was_given(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Started again under its name by a kubelet, a container is not hit by what was meant for the old one."""
    made = kubelet.pod("web", Spec(CODE_3))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(stop("uid-web"))
        (ended,) = await rig.outbox.wait_for(ContainerExited)
        new = kubelet.again("web", made, Spec(CODE_3))
        await until(lambda: len(rig.edge.active()) == 1, "the new one is not found")
        assert await rig.do(kill("uid-web")) == Ending()
        assert await rig.do(stop("uid-web")) == Ending()
        assert rig.outbox.of(ContainerExited) == [ended] * 3
        assert kubelet.state(new) == RUNNING
        await trio.sleep(1)
        assert kubelet.sandbox_state(made.sandbox) == READY
        await rig.do(take("another shutdown"))
        await rig.do(stop("uid-web"))
        await rig.outbox.wait_for(ContainerExited, 4)
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_the_same_after_a_restart_of_the_daemon(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """What was given stands in a file: the next daemon's orders mean the same containers."""
    made = kubelet.pod("web", Spec(DEAF))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
    kubelet.stop_container(made.containers["main"])
    new = kubelet.again("web", made, Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.outbox.wait_for(ContainerExited, uid="uid-web")
        assert await rig.edge.adopt(kill("uid-web"), rig.outbox) == Ending()
        assert kubelet.state(new) == RUNNING


async def test_what_its_kubelet_has_started_again_joins_once_more(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """As it is now, after its end; from then on orders mean what runs. A second time as the first."""
    made = kubelet.pod("web", Spec(CODE_3), Spec(POLITE, "other"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(take("closer", refresh=True, for_seconds=30))
        spec = Spec(CODE_3)
        for times in (1, 2):
            await rig.do(stop("uid-web"))
            await rig.outbox.wait_for(ContainerExited, times)
            spec = spec._replace(attempt=times)
            new = kubelet.again("web", made, spec)
            joined = (await rig.outbox.wait_for(PodJoined, times))[-1].pod
            assert [(each.name, each.running) for each in joined.containers] == [
                ("main", True),
                ("other", True),
            ]
            assert kubelet.state(new) == RUNNING
        assert len(rig.outbox.of(PodJoined)) == 2
        await rig.do(kill("uid-web"))
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_what_its_kubelet_starts_only_now_joins(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Beside one that runs: it had failed before the signal, so no order was for it. From now on one is."""
    made = kubelet.pod("web", Spec(DEAF), Spec(POLITE, "crashing"))
    kubelet.stop_container(made.containers["crashing"])
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(take("closer", refresh=True, for_seconds=30))
        new = kubelet.again("web", made, Spec(CODE_3, "crashing"))
        (joined,) = await rig.outbox.wait_for(PodJoined)
        assert ("crashing", True) in [(each.name, each.running) for each in joined.pod.containers]
        await rig.do(stop("uid-web", "crashing"))
        await rig.outbox.wait_for(ContainerExited, uid="uid-web", container="crashing", exit_code=3)
        await until(lambda: kubelet.state(new) != RUNNING, "it was not stopped")


async def test_what_was_started_again_while_no_daemon_ran(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """It is said with the first listing, after the end of what it was, and before the listing's own end."""
    made = kubelet.pod("web", Spec(CODE_3))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
    kubelet.stop_container(made.containers["main"])
    new = kubelet.again("web", made, Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.do(take("closer", refresh=True, for_seconds=30))
        said = [type(fact) for fact in rig.outbox.facts]
        assert [each for each in said if each in (ContainerExited, PodJoined, InventoryTaken)] == [
            ContainerExited,
            PodJoined,
            InventoryTaken,
        ]
        assert rig.outbox.of(ContainerExited)[0].exit_code == 3
        await rig.do(kill("uid-web"))
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_a_restarted_daemon_cleans_up(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """A pod that was told to stop and ended while no daemon ran: its sandbox is stopped by the next one."""
    told = kubelet.pod(
        "told", Spec("trap 'sleep 1; exit 3' TERM; touch /tmp/up; while :; do sleep 0.05; done")
    )
    other = kubelet.pod("other", Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.do(take("signal", for_seconds=30))
        await rig.do(stop("uid-told"))
        await until(lambda: b"stopping" in (tmp_path / "told").read_bytes(), "it is not kept")
    kubelet.stop_container(other.containers["main"])
    await until(lambda: kubelet.state(told.containers["main"]) != RUNNING, "it does not end")
    async with rig_on(bed, tmp_path) as rig:
        await until(lambda: kubelet.sandbox_state(told.sandbox) == NOT_READY, "its sandbox stays")
        assert kubelet.sandbox_state(other.sandbox) == READY


async def test_without_the_runtime(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The pods are those that the API server knows, and it tells of their ends, until the runtime answers."""
    kubelet.pod("stays", Spec(CODE_3))
    kubelet.pod("ours", Spec(POLITE))
    lookup = Told(known("stays", priority=1), known("ends"), known("goes"), known("lost", "main", "other"))
    bed.stop()
    try:
        async with rig_on(bed, tmp_path, lookup) as rig:
            await rig.outbox.wait_for(RuntimeRead, reachable=False)
            began = time.monotonic()
            assert await rig.do(take("signal")) == Ending()
            assert time.monotonic() - began < 0.5
            (taken,) = rig.outbox.of(InventoryTaken)
            assert taken.source == "cache"
            assert [pod.name for pod in taken.pods] == ["stays", "ends", "goes", "lost"]
            lookup.known[1:3] = [known("ends", ended={"main": 7})]
            await rig.outbox.wait_for(ContainerExited, 2)
            assert exits(rig) == [("uid-ends", "main", 7), ("uid-goes", "main", None)]
            bed.start()
            await rig.outbox.wait_for(ContainerExited, 4)
            assert exits(rig)[2:] == [("uid-lost", "main", None), ("uid-lost", "other", None)]
            assert await rig.do(stop("uid-stays")) == Ending()
            await rig.outbox.wait_for(ContainerExited, uid="uid-stays")
    finally:
        if bed.process is None:
            bed.start()


async def test_nobody_knows(bed: Containerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No runtime, and a lookup that knows no pod: there is no inventory, no order, and that is said."""
    monkeypatch.setattr(inventory_module, "WARM_SECONDS_MAX", 1.5)
    monkeypatch.setattr(orders_module, "WARM_SECONDS_MAX", 0.1)
    bed.stop()
    try:
        async with rig_on(bed, tmp_path, Told()) as rig:
            failed = await rig.do(take("signal"))
            assert await rig.do(stop("uid-web")) == Ending("failed", orders_module.NOWHERE)
    finally:
        bed.start()
    assert failed == Ending("failed", "the runtime does not answer, so its pods are not known")
