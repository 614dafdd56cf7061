"""The warm watch against a real API server: it follows, it goes on, and it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes import watch
from ebbtide.events.decisions import DeletePod
from ebbtide.events.facts import ApiRead
from tests.actors.edges.kubernetes.rig import NODE, Rig, kubeconfig, running, until, wire
from tests.node.bed import Bed
from tests.node.identities import ADMIN, kubelet
from tests.node.pods import PODS, pod, static
from tests.node.pods import running as pods_running
from tests.node.weather import PORT, Weather

pytestmark = [pytest.mark.node, pytest.mark.slow]


@pytest.fixture
def short_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", (4, 4))


async def reachable(rig: Rig) -> None:
    await rig.outbox.wait_for(ApiRead, reachable=True)


async def test_it_follows(bed: Bed, tmp_path: Path) -> None:
    """Pods of this node are known with what a shutdown needs, as soon as they change, and no others."""
    rights = kubeconfig(tmp_path / "node", bed, kubelet(NODE))
    (first,) = await pods_running(bed, pod("one", NODE, priorityClassName="system-node-critical"))
    async with running(rights, tmp_path / "state") as rig:
        await until(lambda: rig.names() == ["one"])
        (second,) = await pods_running(bed, pod("two", NODE, terminationGracePeriodSeconds=7))
        await bed.api.post(PODS, pod("nowhere", "no-such-node"))
        uid = second["metadata"]["uid"]
        known = await until(lambda: (it := rig.edge.find(uid)) and it.started_at and it)
        assert (known.phase, known.grace_seconds, known.containers) == ("Running", 7, ("main",))
        assert rig.edge.find(first["metadata"]["uid"]).priority == 2_000_001_000
        await bed.api.delete(f"{PODS}/two")
        await until(lambda: rig.edge.find(uid) is None)
        assert rig.names() == ["one"]


async def test_an_order(bed: Bed, tmp_path: Path) -> None:
    """An order given to the edge is carried out as the node, on the pod that the watch knows."""
    rights = kubeconfig(tmp_path / "node", bed, kubelet(NODE))
    (made,) = await pods_running(bed, pod("one", NODE))
    uid = made["metadata"]["uid"]
    async with running(rights, tmp_path / "state") as rig:
        await until(lambda: rig.edge.find(uid))
        order = DeletePod(key="k", uid=uid, namespace="default", name="one", grace_seconds=1)
        assert (await rig.edge.adopt(order, rig.outbox)).result == "done"
        await until(lambda: rig.edge.find(uid) is None)


async def test_static_pods(bed: Bed, tmp_path: Path) -> None:
    """A static pod is found by the UID that the runtime has for it, with its mirror's own for the API."""
    member = bed.members[NODE]
    async with running(bed.kubeconfig, tmp_path) as rig, static(bed, member, pod("still")) as path:
        mirror = await bed.api.get(path)
        uid = mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
        known = await until(lambda: rig.edge.find(uid))
        assert known.static
        assert known.api_uid == mirror["metadata"]["uid"] != uid
        assert rig.edge.find_named("default", f"still-{NODE}") is not None


@pytest.mark.parametrize(("client", "taint"), [(ADMIN, True), (kubelet(NODE), False)], ids=["admin", "node"])
async def test_taint(bed: Bed, tmp_path: Path, client: object, taint: bool) -> None:
    """A node's own identity is known not to be allowed to taint, though it may patch its Node."""
    async with running(kubeconfig(tmp_path / "it", bed, client), tmp_path / "state") as rig:
        await reachable(rig)
        assert rig.outbox.of(ApiRead) == [ApiRead(reachable=True, taint=taint)]


@pytest.mark.usefixtures("short_watches")
async def test_bookmarks(bed: Bed, tmp_path: Path) -> None:
    """While nothing happens to our pods, bookmarks move the place on from which the watch continues."""
    async with running(bed.kubeconfig, tmp_path) as rig:
        await reachable(rig)
        before = int(rig.edge._store.resource_version)
        for number in range(3):
            await bed.api.post(PODS, pod(f"elsewhere-{number}", "no-such-node"))
        await until(lambda: int(rig.edge._store.resource_version) >= before + 3)
        assert rig.names() == []


async def test_a_place_that_is_forgotten(bed: Bed, weather: Weather, tmp_path: Path) -> None:
    """A place that the server no longer has (410) is one list more, and nothing that anybody hears of."""
    # A server that has just begun has no history: nothing before its begin can be watched from.
    await bed.stop("kube-apiserver")
    await bed.start_api()
    async with wire(bed, PORT) as between:
        rights = kubeconfig(tmp_path / "it", bed, ADMIN, between.server)
        async with running(rights, tmp_path / "state") as rig:
            await reachable(rig)
            rig.edge._store.resource_version = "1"
            between.cut()
            await until(lambda: int(rig.edge._store.resource_version) > 1)
            await pods_running(bed, pod("one", NODE))
            await until(lambda: rig.names() == ["one"])
        lists = [path for _, path, _ in weather.requests() if "limit=" in path]
        assert len(lists) == 2
        assert rig.outbox.of(ApiRead) == [ApiRead(reachable=True)]


async def test_a_server_that_is_killed(bed: Bed, tmp_path: Path) -> None:
    """A server that is gone for long is said to be, the pods stay known, and its return is noticed soon."""
    await pods_running(bed, pod("one", NODE))
    async with running(bed.kubeconfig, tmp_path) as rig:
        await until(lambda: rig.names() == ["one"])
        await bed.stop("kube-apiserver")
        began = trio.current_time()
        await rig.outbox.wait_for(ApiRead, reachable=False)
        assert 2.9 <= trio.current_time() - began <= 6
        assert rig.names() == ["one"]
        await bed.start_api()
        began = trio.current_time()
        await rig.outbox.wait_for(ApiRead, count=2, reachable=True)
        print(f"noticed {trio.current_time() - began:.2f} s after it was ready")
        await pods_running(bed, pod("two", NODE))
        await until(lambda: rig.names() == ["one", "two"])
    assert [each.reachable for each in rig.outbox.of(ApiRead)] == [True, False, True]
    assert rig.outbox.of(ApiRead)[1].error.startswith("GET /api/v1/pods: ")


async def test_a_wire_that_is_cut(bed: Bed, tmp_path: Path) -> None:
    """A connection that ends is made again at once, and nobody hears of it."""
    async with wire(bed) as between:
        rights = kubeconfig(tmp_path / "it", bed, ADMIN, between.server)
        async with running(rights, tmp_path / "state") as rig:
            await reachable(rig)
            for number in range(3):
                between.cut()
                await bed.api.post(PODS, pod(f"pod-{number}", NODE))
                await until(lambda number=number: f"pod-{number}" in rig.names(), 2)
        assert rig.outbox.of(ApiRead) == [ApiRead(reachable=True)]


async def test_a_wire_that_is_silent(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server from which nothing comes any more, not even a refusal, is found to be away all the same."""
    monkeypatch.setattr(watch, "SILENCE_SECONDS", 1.0)
    async with wire(bed) as between:
        rights = kubeconfig(tmp_path / "it", bed, ADMIN, between.server)
        async with running(rights, tmp_path / "state") as rig:
            await reachable(rig)
            between.block()
            await rig.outbox.wait_for(ApiRead, reachable=False)
            between.open.set()
            between.cut()
            await rig.outbox.wait_for(ApiRead, count=2, reachable=True)


async def test_a_server_that_moved(bed: Bed, tmp_path: Path) -> None:
    """A kubeconfig that names another server is followed without a restart."""
    async with wire(bed) as old, wire(bed) as new:
        rights = kubeconfig(tmp_path / "it", bed, ADMIN, old.server)
        async with running(rights, tmp_path / "state") as rig:
            await reachable(rig)
            old.block()
            kubeconfig(rights, bed, ADMIN, new.server)
            await bed.api.post(PODS, pod("one", NODE))
            await until(lambda: rig.names() == ["one"])
        assert rig.outbox.of(ApiRead) == [ApiRead(reachable=True)]


@pytest.mark.parametrize("code", [429, 500])
async def test_storms(bed: Bed, weather: Weather, tmp_path: Path, code: int) -> None:
    """A server that only refuses is away; when it stops refusing, the watch goes on."""
    async with wire(bed, PORT) as between:
        rights = kubeconfig(tmp_path / "it", bed, ADMIN, between.server)
        weather.becomes(answer=code)
        async with running(rights, tmp_path / "state") as rig:
            (said,) = await rig.outbox.wait_for(ApiRead, reachable=False)
            assert said.error.startswith(str(code))
            weather.becomes()
            await reachable(rig)
            await bed.api.post(PODS, pod("one", NODE))
            await until(lambda: rig.names() == ["one"])


async def test_a_slow_server(bed: Bed, weather: Weather, tmp_path: Path) -> None:
    """A server that takes a second for each answer is slow, not away."""
    async with wire(bed, PORT) as between:
        rights = kubeconfig(tmp_path / "it", bed, ADMIN, between.server)
        weather.becomes(delay_seconds=1.0)
        await bed.api.post(PODS, pod("one", NODE))
        async with running(rights, tmp_path / "state") as rig:
            await reachable(rig)
            assert rig.names() == ["one"]
        assert rig.outbox.of(ApiRead) == [ApiRead(reachable=True)]


async def test_without_the_server_from_the_start(bed: Bed, tmp_path: Path) -> None:
    """What was known before is known again, with the API server gone from the start."""
    (made,) = await pods_running(bed, pod("one", NODE, priorityClassName="system-node-critical"))
    async with running(bed.kubeconfig, tmp_path) as rig:
        await until(lambda: rig.names() == ["one"])
    await bed.stop("kube-apiserver")
    async with running(bed.kubeconfig, tmp_path) as rig:
        known = await until(lambda: rig.edge.find(made["metadata"]["uid"]))
        assert known.priority == 2_000_001_000
        await rig.outbox.wait_for(ApiRead, reachable=False)
        await bed.start_api()
        await reachable(rig)
        assert rig.names() == ["one"]
