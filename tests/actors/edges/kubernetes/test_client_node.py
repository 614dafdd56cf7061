"""Our client against a real API server: calls, bursts, bounds, and an identity that rotates."""

from __future__ import annotations

import json
import time

import pytest
import trio

from ebbtide.actors.edges.kubernetes.calls import MERGE_PATCH, Answer
from tests.actors.edges.kubernetes.rig import NODE, linked
from tests.node.bed import Bed
from tests.node.pods import PODS, pod

pytestmark = [pytest.mark.node]
SECONDS = 5.0


async def test_calls(bed: Bed) -> None:
    """A call's answer is what the server said: created, read, patched, refused, deleted."""
    async with linked(bed.kubeconfig) as link:
        made = await link.call("POST", PODS, body=pod("one"), seconds_max=SECONDS)
        again = await link.call("POST", PODS, body=pod("one"), seconds_max=SECONDS)
        patch = {"metadata": {"annotations": {"a": "ü"}}}
        changed = await link.call(
            "PATCH", f"{PODS}/one", body=patch, content_type=MERGE_PATCH, seconds_max=SECONDS
        )
        read = await link.call("GET", f"{PODS}?fieldSelector=metadata.name%3Done", seconds_max=SECONDS)
        gone = await link.call("DELETE", f"{PODS}/one", body={}, seconds_max=SECONDS)
    assert (made.code, again.code, changed.code, read.code, gone.code) == (201, 409, 200, 200, 200)
    assert made.ok
    assert not again.ok
    assert json.loads(read.body)["items"][0]["metadata"]["annotations"]["a"] == "ü"


async def test_a_burst(bed: Bed) -> None:
    """A wave's 32 calls at once are all answered, and on a second time without new connections."""
    async with linked(bed.kubeconfig) as link:
        answers: list[Answer] = []

        async def ask() -> None:
            answers.append(await link.call("GET", f"/api/v1/nodes/{NODE}", seconds_max=SECONDS))

        for _ in range(2):
            began = time.monotonic()
            async with trio.open_nursery() as nursery:
                for _ in range(32):
                    nursery.start_soon(ask)
            print(f"32 calls in {1000 * (time.monotonic() - began):.0f} ms")
    assert [each.code for each in answers] == [200] * 64
