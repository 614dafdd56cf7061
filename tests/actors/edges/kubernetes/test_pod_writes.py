"""Deletes on a real API server: that very pod, marked, with a grace, in time, in any weather."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
import trio

from ebbtide.actors.edges.kubernetes.calls import QUICK_MAX
from ebbtide.actors.interfaces import Ending
from tests.actors.edges.kubernetes.write_rig import (
    NODE,
    NODE_CLIENT,
    Hand,
    delete,
    known,
    of_kind,
    writing,
)
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.pods import PODS, STUBBORN, pod, running

pytestmark = [pytest.mark.node]
#: On a machine that does nothing else the first one is in time.
WAVES_MAX = 3
#: A machine on which others take so long for the calls of a wave has too much other work for it.
PLAIN_SECONDS_MAX = 1.0


async def test_the_kubelet_keeps_the_mark(bed: Bed) -> None:
    """The final status, which the kubelet writes, still says why the pod went."""
    held = pod("one", NODE)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    (made,) = await running(bed, held)
    async with writing(bed, [known(made)], NODE_CLIENT) as hand:
        assert await hand.do(delete(made)) == Ending()
    path = f"{PODS}/one"
    try:
        now = await bed.api.until(path, lambda each: each["status"]["phase"] in ("Succeeded", "Failed"))
    finally:
        await bed.api.patch(path, {"metadata": {"finalizers": None}})
    assert of_kind(now, "DisruptionTarget")["reason"] == "TerminationByKubelet"


async def test_only_shortened(bed: Bed) -> None:
    """A second order for the same pod shortens its grace, and never makes it longer."""
    (made,) = await running(bed, pod("one", NODE, STUBBORN))
    graces = []
    async with writing(bed, [known(made)], NODE_CLIENT) as hand:
        for grace in (20, 25, 6):
            assert await hand.do(delete(made, grace)) == Ending()
            meta = (await bed.api.get(f"{PODS}/one"))["metadata"]
            graces.append(meta["deletionGracePeriodSeconds"])
    assert graces == [20, 20, 6]


async def test_of_another_node(bed: Bed) -> None:
    """The node's identity is refused a pod of another node: gone from here, and not touched."""
    made = await bed.api.post(PODS, pod("far", "node-of-somebody-else"))
    async with writing(bed, [known(made)], NODE_CLIENT) as hand:
        assert await hand.do(delete(made)) == Ending()
    assert "deletionTimestamp" not in (await bed.api.get(f"{PODS}/far"))["metadata"]


async def test_a_whole_wave(bed: Bed) -> None:
    """The deletes of 105 pods, ordered at once, are all taken; one that other work on the machine makes late
    says so. How long the machine takes for the same calls is seen before and after each wave.
    """
    waves = []
    for wave in range(WAVES_MAX):
        names = [f"pod-{wave}-{number}" for number in range(105)]
        made = [await bed.api.post(PODS, pod(name, "node-of-somebody-else")) for name in names]
        before = await plain_calls(bed, names)
        async with writing(bed, map(known, made)) as hand:
            ended, seconds = await all_at_once(hand, made)
        late = [each for each in ended if each != Ending()]
        assert all(each.result == "timed-out" or each.reason.startswith("not sent: ") for each in late)
        if not late:
            return
        slower = max(before, await plain_calls(bed, names))
        waves.append(f"{len(late)} of 105 were late in {seconds:.2f} s, plain calls took {slower:.2f} s")
        print(waves[-1])
        if slower > PLAIN_SECONDS_MAX:
            # It could not have been in time, and has said so of each.
            return
    pytest.fail("\n".join(waves))


async def plain_calls(bed: Bed, names: list[str]) -> float:
    """How long as many calls as a wave makes take somebody else who has eight out at a time, in seconds."""
    calls = iter([each for each in names for _ in ("mark", "delete")])

    async def some() -> None:
        for name in calls:
            with suppress(Refused):
                await bed.api.ask("DELETE", f"{PODS}/{name}?dryRun=All", {})

    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        for _ in range(QUICK_MAX):
            nursery.start_soon(some)
    return time.monotonic() - began


async def all_at_once(hand: Hand, made: list[Object]) -> tuple[list[Ending], float]:
    ended: list[Ending] = []

    async def one(each: Object) -> None:
        ended.append(await hand.do(delete(each, 5)))

    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        for each in made:
            nursery.start_soon(one, each)
    return ended, time.monotonic() - began
