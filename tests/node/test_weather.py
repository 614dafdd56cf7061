"""Bad weather between a client and the API server is what the test ordered, and nothing else."""

from __future__ import annotations

import time

import pytest
import trio

from tests.node.bed import Bed
from tests.node.client import Api, Object, Refused
from tests.node.identities import ADMIN
from tests.node.pods import PODS, pod
from tests.node.weather import Weather

pytestmark = [pytest.mark.node]


@pytest.fixture
def through(bed: Bed, weather: Weather) -> Api:
    """A client in the node, who stands in the weather."""
    return Api(weather.server, bed.secrets.authority, ADMIN.token, bed.network)


async def test_clear(bed: Bed, weather: Weather, through: Api) -> None:
    """In clear weather each request gets the server's answer, and is on record."""
    await through.post(PODS, pod("one", "node-1"))
    assert [each["metadata"]["name"] for each in (await through.get(PODS))["items"]] == ["one"]
    assert weather.requests() == [("POST", PODS, 0), ("GET", PODS, 0)]


@pytest.mark.parametrize("code", [429, 500])
async def test_refusals(bed: Bed, weather: Weather, through: Api, code: int) -> None:
    """A refusal never reaches the server, and is only for the methods that are named."""
    weather.becomes(answer=code, methods=["POST"])
    with pytest.raises(Refused) as refused:
        await through.post(PODS, pod("one", "node-1"))
    assert refused.value.code == code
    assert (await through.get(PODS))["items"] == []
    assert weather.requests() == [("POST", PODS, code), ("GET", PODS, 0)]


async def test_slow(weather: Weather, through: Api) -> None:
    """A delay comes before the server's answer."""
    weather.becomes(delay_seconds=0.5)
    began = time.monotonic()
    await through.get(PODS)
    assert time.monotonic() - began >= 0.5


async def test_watch(bed: Bed, through: Api) -> None:
    """A watch goes through it event by event."""
    async with trio.open_nursery() as nursery:
        told: list[Object] = []

        async def watch() -> None:
            told.extend(await through.watch(PODS, seconds=2))

        nursery.start_soon(watch)
        await bed.api.post(PODS, pod("one", "node-1"))
    assert told[0]["type"] == "ADDED"
    assert {event["object"]["metadata"]["name"] for event in told} == {"one"}
