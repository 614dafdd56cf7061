"""An outage's journal in a real API server: two writers, a server that goes away, answers that are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from ebbtide.actors.actor import OUTAGE_FLAGS
from ebbtide.actors.checkpoint import take_checkpoint
from ebbtide.actors.edges.kubernetes.calls import ApiCaller
from ebbtide.actors.edges.kubernetes.config_maps import PIECE_BYTES_MAX, ConfigMapStorage
from ebbtide.actors.system import System
from ebbtide.events.base import Checkpoint
from ebbtide.events.outage import LeaderStarted, NodeRead, OutageBegan
from ebbtide.events.reader import History
from ebbtide.events.retention import Limits, trim
from ebbtide.events.segment import segment_file_name
from ebbtide.events.writer import Writer
from ebbtide.replay.replayer import Replayer
from tests.actors.edges.kubernetes.config_map_fake import leading, read
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import JOURNAL_RULES, granted
from tests.events.making import IDENTITY, OTHER_ID, Told, running, stamp, step, write_steps
from tests.node.bed import Bed

pytestmark = [pytest.mark.node]

NAMESPACE = "ebbtide-journal"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    """As an account that may do what `JOURNAL_RULES` say in one namespace."""
    return await granted(api_bed, NAMESPACE, JOURNAL_RULES)


@pytest.fixture
def uid() -> str:
    return str(uuid4())


@asynccontextmanager
async def leader(
    link: ApiCaller, uid: str, who: str, told: Told | None = None
) -> AsyncIterator[tuple[Writer, ConfigMapStorage]]:
    async with leading(ConfigMapStorage(link, NAMESPACE, uid, who), told) as made:
        yield made


async def test_a_system_is_recovered_from_it(rights: Path, uid: str) -> None:
    """An open outage goes on: the states are those that another process left there."""
    system = System(flags=OUTAGE_FLAGS)
    facts = (
        LeaderStarted(version="1", replica="one", node="node-1", node_uid=uid),
        NodeRead(uid=uid, boot_id="b1", ready="Unknown", resource_version="7"),
    )
    async with linked(rights) as link:
        place = ConfigMapStorage(link, NAMESPACE, uid, "one")
        await place.acquire("one")
        identity = IDENTITY._replace(machine_id=uid, logic_flags=OUTAGE_FLAGS)
        _, verdict = await read(place)
        async with running([place], verdict.start(OTHER_ID), checkpoint=False, identity=identity) as writer:
            writer.begin_segment(stamp(1), take_checkpoint(system))
            system.next_seq += 1
            for fact in facts:
                writer.append(system.step(fact, stamp(writer.last_seq + 1)))
            assert await writer.wait_synced(writer.last_seq)

        again = ConfigMapStorage(link, NAMESPACE, uid, "two")

        def replayed() -> tuple[Replayer, History]:
            history, replayer = History([again.source], logic_flags=OUTAGE_FLAGS), Replayer()
            replayer.feed(history.raw())
            return replayer, history

        replayer, history = await again.call(replayed)
        assert replayer.finish() is None
        assert history.verdict.state == "intact"
        tags = [raw.tag for raw in (await read(again))[0]]
    assert replayer.system.slots.keys() == system.slots.keys()
    assert all(slot.state == system.slots[at].state for at, slot in replayer.system.slots.items())
    assert replayer.system.episode == system.episode > 0
    assert OutageBegan.__name__ in tags


async def test_two_that_begin_at_once(rights: Path, uid: str) -> None:
    """Of ten processes that read the same empty journal one is its writer."""
    async with linked(rights) as link, trio.open_nursery() as nursery:
        places = [ConfigMapStorage(link, NAMESPACE, uid, f"replica-{at}") for at in range(10)]
        for place in places:
            await place.acquire("")
        won: list[str] = []

        async def try_it(place: ConfigMapStorage, at: int) -> None:
            async with running([place], (await read(place))[1].start(bytes([at] * 16))) as writer:
                if await writer.wait_synced(writer.last_seq):
                    won.append(f"replica-{at}")

        async with trio.open_nursery() as starting:
            for at, place in enumerate(places):
                starting.start_soon(try_it, place, at)
        nursery.cancel_scope.cancel()
    assert len(won) == 1


async def test_a_server_that_is_away_is_waited_for(rights: Path, uid: str, api_bed: Bed) -> None:
    """Killed and started again in the middle: nobody is told of a failure, and all is there once."""
    told = Told()
    async with linked(rights) as link:
        async with leader(link, uid, "one", told) as (writer, _):
            await write_steps(writer, 2, synced=True)
            await api_bed.stop("kube-apiserver")
            writer.append(step(writer.last_seq + 1))
            with trio.move_on_after(2):
                await writer.wait_written(writer.last_seq)
            assert writer.written_seq < writer.last_seq
            await api_bed.start_api()
            with trio.fail_after(60):
                assert await writer.wait_synced(writer.last_seq)
        assert not told.failed
        assert not told.lost
        raws, verdict = await read(ConfigMapStorage(link, NAMESPACE, uid, "two"))
    assert (verdict.state, len(raws)) == ("intact", 10)


async def test_the_largest_object(rights: Path, uid: str, api_bed: Bed) -> None:
    """The API server takes pieces of the largest size, and they are read back in parts."""
    data = bytes(range(256)) * (PIECE_BYTES_MAX // 256) * 20 + b"end"
    async with linked(rights) as link:
        place = ConfigMapStorage(link, NAMESPACE, uid, "one")
        await place.acquire("one")
        file = await place.create(segment_file_name(1, OTHER_ID))
        await file.write(data)
        await file.sync()
        again = ConfigMapStorage(link, NAMESPACE, uid, "two")
        assert await again.call(again.source.read, segment_file_name(1, OTHER_ID), 0, len(data) + 1) == data


async def test_retention(rights: Path, uid: str, api_bed: Bed) -> None:
    """Whole closed outages go, oldest first, and what is left reads on."""
    limits = Limits(total_bytes=0, hard_bytes=1 << 62, whole_episodes=True)
    async with linked(rights) as link:
        async with leader(link, uid, "one") as (writer, place):
            for episode in (5, 0, 0):
                await write_steps(writer, 3, synced=True)
                writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=episode))
            await writer.wait_synced(writer.last_seq)
            assert len(await trim([place], 0, None, limits)) == 3
            await write_steps(writer, 1, synced=True)
            assert len(await trim([place], 0, None, limits)) == 0
            await place.remove(segment_file_name(3, OTHER_ID))
        raws, verdict = await read(ConfigMapStorage(link, NAMESPACE, uid, "two"))
    assert (verdict.state, raws[0].seq) == ("intact", 31)
    items = (await api_bed.api.get(f"{MAPS}?labelSelector=ebbtide.dev/node-uid={uid}"))["items"]
    assert {each["metadata"]["labels"]["ebbtide.dev/segment"] for each in items} == {"0000000004"}
