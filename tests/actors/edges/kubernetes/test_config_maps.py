"""An outage's journal in a real API server: two writers, a server that goes away, answers that are lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from ebbtide.actors.edges.kubernetes.calls import ApiCaller
from ebbtide.actors.edges.kubernetes.config_maps import PIECE_BYTES_MAX, ConfigMapStorage
from ebbtide.events.segment import segment_file_name
from ebbtide.events.writer import Writer
from tests.actors.edges.kubernetes.config_map_fake import leading, read
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import JOURNAL_RULES, granted
from tests.events.making import OTHER_ID, Told, running, step, write_steps
from tests.node.bed import Bed

pytestmark = [pytest.mark.node]

NAMESPACE = "ebbtide-journal"


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
