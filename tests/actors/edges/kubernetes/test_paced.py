"""Our own rate limit in virtual time: never exceeded, urgent calls first, no starvation."""

from __future__ import annotations

import math
import os
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import (
    BURST,
    EVENT,
    FIRST_EVERY,
    JOURNAL,
    NODE,
    OTHER,
    REQUESTS_PER_SECOND,
    Answer,
    PacedCaller,
    node_path,
    rank_of,
)
from ebbtide.actors.edges.kubernetes.node_view import lease_path
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.write_fake import Scripted, answers

SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "8"))
MAPS = "/api/v1/namespaces/ebbtide/configmaps"
PATHS = {NODE: node_path("n"), JOURNAL: f"{MAPS}/p", OTHER: f"{MAPS}?limit=16"}


def test_ten_seconds_have_no_more_than_is_promised() -> None:
    """Twenty a second, including the burst after a calm."""
    assert BURST + 10 * REQUESTS_PER_SECOND <= 10 * 20


@pytest.mark.parametrize(
    "method, path, rank",
    [
        ("PATCH", node_path("n"), NODE),
        ("GET", node_path("configmaps"), NODE),
        ("GET", lease_path("n"), NODE),
        ("POST", MAPS, JOURNAL),
        ("POST", "/api/v1/namespaces/default/events", EVENT),
        ("GET", f"{MAPS}/ebbtide-outage-u-0000000001", JOURNAL),
        ("DELETE", f"{MAPS}/ebbtide-outage-u-0000000001", OTHER),
        ("GET", f"{MAPS}?labelSelector=a", OTHER),
        ("GET", "/api/v1/nodes?limit=100", OTHER),
        ("GET", "/api/v1/nodes", OTHER),
        ("GET", "/api/v1/namespaces/configmaps/pods/a", OTHER),
        ("GET", "/apis/storage.k8s.io/v1/volumeattachments", OTHER),
    ],
)
def test_what_is_urgent(method: str, path: str, rank: int) -> None:
    """Calls between a permit and its taint, then journals, then the rest."""
    assert rank_of(method, path) == rank


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_laws(seed: int, autojump_clock: MockClock) -> None:
    """Each call waits at most four times as long as the calls before it."""
    draws = Draws(seed)
    asked = Scripted(answers(Answer(200)))
    paced = PacedCaller(asked)
    ahead_max: dict[str, float] = {}

    async def one(name: str, rank: int, patience: float) -> None:
        began, ahead = autojump_clock.current_time(), sum(paced.waiting)
        with trio.CancelScope(deadline=began + patience):
            await paced.call("GET", f"{PATHS[rank]}{name}", seconds_max=1e6)
            waited = autojump_clock.current_time() - 0.01 - began
            ahead_max[name] = waited - FIRST_EVERY * (ahead + 2) / REQUESTS_PER_SECOND

    async with trio.open_nursery() as nursery:
        for at in range(300):
            patience = draws.pick([math.inf, math.inf, 2.0])
            nursery.start_soon(one, f"x{at}", draws.pick([NODE, NODE, NODE, JOURNAL, OTHER]), patience)
            if draws.below(30) == 0:
                await trio.sleep(draws.below(4000) / 1000)
    at_seconds = [each.at_seconds for each in asked.asked]
    for first in range(len(at_seconds)):
        for last in range(first, len(at_seconds)):
            seconds = at_seconds[last] - at_seconds[first]
            assert last - first + 1 <= BURST + seconds * REQUESTS_PER_SECOND + 1e-6
    assert max(ahead_max.values()) <= 0


async def test_events_take_only_what_is_left(autojump_clock: MockClock) -> None:
    """A rack's pods have hundreds: no list waits behind them."""
    asked = Scripted(answers(Answer(200)))
    paced = PacedCaller(asked)
    async with trio.open_nursery() as nursery:
        for at in range(100):
            path = f"/api/v1/namespaces/{at}/events"
            nursery.start_soon(partial(paced.call, "POST", path, seconds_max=1e6))
        await trio.sleep(0.1)
        for at in range(100):
            nursery.start_soon(partial(paced.call, "GET", f"{PATHS[OTHER]}{at}", seconds_max=1e6))
    lists = [at for at, each in enumerate(asked.asked) if each.method == "GET"]
    assert len(lists) == 100
    assert lists[-1] - lists[0] == 99
