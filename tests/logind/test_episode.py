"""Rules 2 and 3: what logind says in the middle of a shutdown and after it, and the limit that is fixed."""

from __future__ import annotations

import pytest
import trio

from events.base import NS_PER_SECOND
from events.decisions import Arm, ReleaseLock, RemoveDropIn, WriteDropIn
from events.facts import BusLost, LogindRead, PrepareForShutdown, PreparingRead, ScheduleRead
from tests.beds.logind import LogindBed
from tests.logind.conftest import Rig

pytestmark = pytest.mark.root


def going(active: bool):  # noqa: ANN201
    """Picks the signals that say so."""
    return lambda fact: fact.active is active


async def test_release_lets_the_machine_go(bed: LogindBed, rig: Rig) -> None:
    """Rule 5: after `ReleaseLock` no lock of ours is listed, and logind starts the final unit at once."""
    await rig.do(Arm(key="a"))
    await bed.power_off()
    await rig.facts.wait(PrepareForShutdown)
    assert await bed.starts() == []
    assert (await rig.do(ReleaseLock(key="r"))).result == "done"
    assert (await bed.started())[0] == "poweroff.target"
    assert await bed.none_of_ours()


async def test_release_may_be_repeated(rig: Rig) -> None:
    """A release whose record was lost is done again: nothing is held, and that is success."""
    await rig.do(Arm(key="a"))
    assert (await rig.do(ReleaseLock(key="r"))).result == "done"
    assert (await rig.do(ReleaseLock(key="r"))).result == "done"


async def test_a_restarted_logind_has_forgotten_the_shutdown(bed: LogindBed, rig: Rig) -> None:
    """Rule 2: at an owner change the property is read: the bus was lost, then false under the new owner."""
    await rig.do(Arm(key="a"))
    await bed.power_off()
    await rig.facts.wait(PrepareForShutdown)
    await bed.restart_logind()
    read = await rig.facts.wait(PreparingRead)
    lost = await rig.facts.wait(BusLost)
    assert (read.preparing, read.owner != rig.facts.of(LogindRead)[0].owner) == (False, True)
    assert rig.facts.all.index(lost) < rig.facts.all.index(read)


async def test_the_lock_outlives_a_restart_of_logind(bed: LogindBed, rig: Rig) -> None:
    """Rules 2 and 5: logind opens the lock again; arming finds it good and takes no second one."""
    await rig.do(Arm(key="a"))
    await bed.restart_logind()
    await rig.facts.wait(BusLost)
    assert (await rig.do(Arm(key="b"))).result == "done"
    assert len(await bed.ours()) == 1
    await bed.power_off()
    assert (await rig.facts.wait(PrepareForShutdown)).lock_held


async def test_a_lock_that_logind_lost_is_replaced(bed: LogindBed, rig: Rig) -> None:
    """A logind that forgot its locks leaves ours dead; arming sees it and takes a new one."""
    await rig.do(Arm(key="a"))
    await bed.restart_logind(clean=True)
    await rig.facts.wait(BusLost)
    assert await bed.ours() == []
    assert (await rig.do(Arm(key="b"))).result == "done"
    assert len(await bed.ours()) == 1


async def test_a_second_true_after_a_restart_is_a_fact_of_its_own(bed: LogindBed, rig: Rig) -> None:
    """Rule 2: logind restarts in the delay and is asked again: two signals, the lock still held."""
    await rig.do(Arm(key="a"))
    await bed.power_off("reboot")
    first = await rig.facts.wait(PrepareForShutdown)
    await bed.restart_logind()
    await bed.power_off("poweroff")
    second = await rig.facts.wait(PrepareForShutdown, 2)
    assert (first.kind, second.kind) == ("reboot", "poweroff")
    assert first.owner != second.owner
    assert second.lock_held


@pytest.mark.parametrize("behaviour", ["failed", "error"])
async def test_false_after_the_release_when_the_final_unit_failed(
    bed: LogindBed, rig: Rig, behaviour: str
) -> None:
    """Rule 2: the final unit fails after our release; `false` comes, and a new lock can be had."""
    await bed.start_unit(behaviour)
    await rig.do(Arm(key="a"))
    await bed.power_off()
    await rig.facts.wait(PrepareForShutdown)
    await rig.do(ReleaseLock(key="r"))
    await rig.facts.wait(PrepareForShutdown, where=going(False))
    assert (await rig.do(Arm(key="b"))).result == "done"
    assert len(await bed.ours()) == 1


async def test_shutdown_c_in_the_delay_is_no_cancel(bed: LogindBed, rig: Rig) -> None:
    """Rule 2: on 252 `shutdown -c` in the delay clears the schedule, and the machine still goes down."""
    await rig.do(Arm(key="a"))
    await bed.schedule("reboot", 0.1)
    await rig.facts.wait(PrepareForShutdown)
    await bed.cancel()
    assert (await bed.get("ScheduledShutdown"))[0] == ""
    await rig.do(ReleaseLock(key="r"))
    await bed.started()
    assert [fact.active for fact in rig.facts.of(PrepareForShutdown)] == [True]
    assert rig.facts.of(PreparingRead) == []


async def test_preparing_is_looked_at_every_second(bed: LogindBed, rig: Rig) -> None:
    """Rule 2: in an episode the property is read once a second, and an unchanged value is no fact."""
    await rig.do(Arm(key="a"))
    await bed.power_off()
    await rig.facts.wait(PrepareForShutdown)
    async with bed.monitor() as overheard:
        await trio.sleep(2.2)
    looks = [message for message in overheard if message.body[1:] == ("PreparingForShutdown",)]
    assert len(looks) in (2, 3)
    assert rig.facts.of(PreparingRead) == []


async def test_the_limit_is_fixed_at_the_signal(bed: LogindBed, rig: Rig) -> None:
    """Rule 3: raising the limit in the delay moves the property, not the timer."""
    await bed.drop_in("10-two.conf", "2s")
    await bed.restart_logind()
    await rig.do(Arm(key="a"))
    asked_ns = await bed.power_off()
    signal = await rig.facts.wait(PrepareForShutdown)
    await bed.drop_in("20-more.conf", "60s")
    await bed.hang_up()
    await bed.until("InhibitDelayMaxUSec", 60_000_000)
    _, at_ns = await bed.started()
    assert signal.grant_ns == 2 * NS_PER_SECOND
    assert 1.9 < (at_ns - asked_ns) / NS_PER_SECOND < 3


@pytest.mark.parametrize("order", [WriteDropIn(key="w", seconds=30), RemoveDropIn(key="w")])
async def test_no_drop_in_is_touched_while_preparing(
    bed: LogindBed, rig: Rig, order: WriteDropIn | RemoveDropIn
) -> None:
    """Rule 3: the edge looks again itself, and refuses."""
    await rig.do(Arm(key="a"))
    await bed.power_off()
    await rig.facts.wait(PrepareForShutdown)
    ending = await rig.do(order)
    assert (ending.result, ending.reason) == ("failed", "preparing")
    assert not bed.drop_ins.exists()


async def test_a_limit_raised_behind_our_back_is_in_the_signal(bed: LogindBed, rig: Rig) -> None:
    """On 252 the limit is read in the same round trip as the kind, so it is the one in force."""
    await rig.do(Arm(key="a"))
    await bed.drop_in("20-more.conf", "60s")
    await bed.hang_up()
    await bed.until("InhibitDelayMaxUSec", 60_000_000)
    await bed.power_off()
    assert (await rig.facts.wait(PrepareForShutdown)).grant_ns == 60 * NS_PER_SECOND


async def test_bus_loss_is_a_fact_and_arming_anew_works(bed: LogindBed, rig: Rig) -> None:
    """The bus restarts: `BusLost`, then arming succeeds on a new connection, and signals come."""
    await rig.do(Arm(key="a"))
    await bed.restart_bus()
    await rig.facts.wait(BusLost)
    assert (await rig.do(Arm(key="b", attempt=2))).result == "done"
    assert len(await bed.ours()) == 1
    await bed.power_off()
    await rig.facts.wait(PrepareForShutdown)


async def test_a_schedule_falls_due_and_was_announced(bed: LogindBed, rig: Rig) -> None:
    """Rule 6: the schedule is on record before the signal that follows from it."""
    await rig.do(Arm(key="a"))
    await bed.schedule("poweroff", 0.3)
    await rig.facts.wait(PrepareForShutdown)
    kinds = [type(fact) for fact in rig.facts.all]
    assert kinds.index(ScheduleRead) < kinds.index(PrepareForShutdown)
