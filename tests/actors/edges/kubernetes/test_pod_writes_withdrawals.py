"""A pod whose final status is on its way needs no withdrawal beside it: they would be in each other's way."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.calls import Answer
from ebbtide.actors.edges.kubernetes.pods import (
    KnownPod,
    PodStore,
)
from ebbtide.actors.edges.kubernetes.runtime import Writes
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Order
from ebbtide.events.decisions import DeliverStatuses, WithdrawPods
from tests.actors.edges.kubernetes.write_fake import Asked, Scripted, status
from tests.actors.edges.process.process_bed import Outbox

WITHDRAW = WithdrawPods(key="w", uids=("a", "b"))
ROWS = (("a", "Failed", "Terminated", "m"),)


def known(uid: str, phase: str = "Running") -> KnownPod:
    return KnownPod(uid=uid, api_uid=f"api-{uid}", namespace="default", name=uid, phase=phase)


def behave(asked: Asked) -> tuple[float, Answer]:
    """Half a second for each call, in which the other order begins."""
    found = {"metadata": {"uid": "api-a", "resourceVersion": "1"}, "status": {"phase": "Running"}}
    return 0.5, Answer(200, json.dumps(found).encode())


def refuse(asked: Asked) -> tuple[float, Answer]:
    return 0.1, status(403, "no")


async def do(writes: Writes, order: Order) -> Ending:
    ending = writes.effects[type(order)](order, Outbox())
    return ending if isinstance(ending, Ending) else await ending


def writes_on(server: Scripted, *pods: KnownPod) -> Writes:
    store = PodStore()
    store.replace(pods, "1")
    return Writes(server, store, "node-1")


def withdrawn(server: Scripted) -> list[str]:
    """The pods of which only the conditions were written."""
    return [
        asked.path.split("/")[-2]
        for asked in server.asked
        if asked.method == "PATCH" and "phase" not in asked.body["status"]
    ]


async def test_one_that_gets_its_final_status(autojump_clock: MockClock) -> None:
    """From the beginning of its delivery on, and after it; the others are withdrawn."""
    server = Scripted(behave)
    writes = writes_on(server, known("a"), known("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(do, writes, DeliverStatuses(key="d", statuses=ROWS))
        await trio.sleep(0.1)
        assert await do(writes, WITHDRAW) == Ending()
    assert await do(writes, WITHDRAW) == Ending()
    assert withdrawn(server) == ["b", "b"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_one_that_has_it_already(phase: str, autojump_clock: MockClock) -> None:
    """As the watch shows it."""
    server = Scripted(behave)
    assert await do(writes_on(server, known("a", phase), known("b")), WITHDRAW) == Ending()
    assert withdrawn(server) == ["b"]


async def test_one_whose_final_status_was_refused(autojump_clock: MockClock) -> None:
    """It still has to leave its Services."""
    server = Scripted(refuse)
    writes = writes_on(server, known("a"), known("b"))
    assert (await do(writes, DeliverStatuses(key="d", statuses=ROWS))).result == "failed"
    server.behaviour = behave
    assert await do(writes, WITHDRAW) == Ending()
    assert sorted(withdrawn(server)) == ["a", "b"]
