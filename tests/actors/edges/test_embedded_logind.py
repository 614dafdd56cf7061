"""The embedded logind follows the real one's rules, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.embedded_logind import EmbeddedLogindEdge
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import Arm, ReleaseLock, RemoveDropIn, WriteDropIn
from ebbtide.events.facts import DropInsRead, LogindRead, PrepareForShutdown
from tests.actors.edges.logind.conftest import Rig


@pytest.fixture
async def embedded(nursery: trio.Nursery, autojump_clock: MockClock) -> AsyncIterator[Rig]:
    made = Rig(EmbeddedLogindEdge())
    nursery.start_soon(made.edge.run, made.facts)
    yield made
    nursery.cancel_scope.cancel()


async def test_it_waits_for_the_lock(embedded: Rig, autojump_clock: MockClock) -> None:
    """The machine waits for the lock's release."""
    await embedded.do(Arm(key="a"))
    await embedded.edge.begin("reboot")
    signal = await embedded.facts.wait(PrepareForShutdown)
    assert (signal.active, signal.kind, signal.lock_held) == (True, "reboot", True)
    assert signal.grant_ns == 5 * NS_PER_SECOND
    await trio.sleep(4)
    assert not embedded.edge.released.is_set()
    await embedded.do(ReleaseLock(key="r"))
    await embedded.edge.released.wait()
    assert embedded.edge.down == ("reboot", False)


async def test_it_goes_down_when_the_limit_is_over(embedded: Rig, autojump_clock: MockClock) -> None:
    """An unreleased lock holds the machine for the limit only."""
    await embedded.do(Arm(key="a"))
    began = trio.current_time()
    await embedded.edge.begin()
    await embedded.edge.released.wait()
    assert trio.current_time() - began == pytest.approx(5)
    assert embedded.edge.down == ("poweroff", True)


async def test_a_cancel_comes_as_false(embedded: Rig, autojump_clock: MockClock) -> None:
    """A cancel keeps the machine up; a later shutdown works."""
    await embedded.do(Arm(key="a"))
    await embedded.edge.begin()
    await embedded.facts.wait(PrepareForShutdown)
    await embedded.edge.cancel()
    assert not (await embedded.facts.wait(PrepareForShutdown, 2)).active
    assert not embedded.edge.released.is_set()
    await embedded.edge.begin("halt")
    assert (await embedded.facts.wait(PrepareForShutdown, 3)).kind == "halt"


async def test_the_limit_can_be_raised_but_not_in_a_shutdown(
    embedded: Rig, autojump_clock: MockClock
) -> None:
    """A drop-in raises and restores the limit; logind refuses both while preparing."""
    await embedded.do(Arm(key="a"))
    await embedded.do(WriteDropIn(key="w", seconds=35))
    assert embedded.facts.of(LogindRead)[-1].grant_ns == 35 * NS_PER_SECOND
    assert embedded.facts.of(DropInsRead)[-1].ours_ns == 35 * NS_PER_SECOND
    await embedded.do(RemoveDropIn(key="r"))
    assert embedded.facts.of(LogindRead)[-1].grant_ns == 5 * NS_PER_SECOND
    await embedded.edge.begin()
    await embedded.facts.wait(PrepareForShutdown)
    assert (await embedded.do(WriteDropIn(key="w", seconds=35))).reason == "preparing"
