"""Signals that a healthy logind 252 never sends: forged, malformed, or of a newer systemd."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from jeepney import HeaderFields, Message

from ebbtide.actors.edges.logind_edge import REJECTED_MAX, OwnerChanged, ShutdownSignal, SignalFilter
from ebbtide.actors.edges.logind_reading import PREPARE_FOR_SHUTDOWN, PREPARE_FOR_SHUTDOWN_WITH_METADATA
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import Arm, Disarm
from ebbtide.events.facts import PrepareForShutdown, PreparingRead, SignalRejected
from tests.actors.edges.logind.conftest import Rig
from tests.beds.login1 import FakeLogin1, fake_login1
from tests.beds.logind import LogindBed, manager_signal

pytestmark = pytest.mark.root


@pytest.fixture
async def fake(bed: LogindBed) -> AsyncIterator[FakeLogin1]:
    await bed.stop_logind()
    async with fake_login1(bed.address) as started:
        yield started


def make_it_look(bed: LogindBed) -> None:
    """A changed inhibitor makes the edge read logind's properties."""
    (bed.root / "run/systemd/inhibit/somebody").touch()


async def settled(rig: Rig, fake: FakeLogin1) -> list[PrepareForShutdown]:
    """After this last signal all earlier ones are reported."""
    count = len(rig.facts.of(SignalRejected))
    await fake.emit(PREPARE_FOR_SHUTDOWN, "s", "the last word")
    await rig.facts.wait(SignalRejected, count + 1)
    return rig.facts.of(PrepareForShutdown)


async def test_a_signal_to_us_alone_from_somebody_else_is_rejected(bed: LogindBed, rig: Rig) -> None:
    """The record has the forged signal's sender, and no shutdown begins."""
    await rig.do(Arm(key="a"))
    (ours,) = await bed.connections_of(os.getpid())
    async with bed.client() as stranger:
        await stranger.send(manager_signal(PREPARE_FOR_SHUTDOWN, "b", True, to=ours))
        rejected = await rig.facts.wait(SignalRejected)
        assert rejected.sender == stranger.unique_name
    assert rejected.member == PREPARE_FOR_SHUTDOWN
    assert "not sent by logind" in rejected.reason
    assert rig.facts.of(PrepareForShutdown) == []


@pytest.mark.parametrize(
    ("member", "signature", "body"),
    [
        (PREPARE_FOR_SHUTDOWN, "", ()),
        (PREPARE_FOR_SHUTDOWN, "s", ("true",)),
        (PREPARE_FOR_SHUTDOWN, "u", (1,)),
        (PREPARE_FOR_SHUTDOWN, "bb", (True, True)),
        (PREPARE_FOR_SHUTDOWN_WITH_METADATA, "b", (True,)),
        (PREPARE_FOR_SHUTDOWN_WITH_METADATA, "ba{ss}s", (True, {}, "")),
        (PREPARE_FOR_SHUTDOWN_WITH_METADATA, "sa{sv}", ("true", {})),
    ],
)
async def test_a_wrong_body_is_rejected(
    rig: Rig, fake: FakeLogin1, member: str, signature: str, body: tuple[Any, ...]
) -> None:
    """A malformed signal of logind (kubernetes#97951) is recorded; the next good one counts."""
    await rig.do(Arm(key="a"))
    await fake.emit(member, signature, *body)
    rejected = await rig.facts.wait(SignalRejected)
    assert (rejected.member, rejected.reason[:11]) == (member, "the body is")
    await fake.emit(PREPARE_FOR_SHUTDOWN, "b", True)
    assert (await rig.facts.wait(PrepareForShutdown)).active


async def test_a_withdrawal_of_newer_systemd_is_one_fact(rig: Rig, fake: FakeLogin1) -> None:
    """A repeated `false` counts once; the next episode's signals are two facts."""
    await rig.do(Arm(key="a"))
    for active in (True, False, True):
        await fake.emit(PREPARE_FOR_SHUTDOWN_WITH_METADATA, "ba{sv}", active, {"type": ("s", "reboot")})
        await fake.emit(PREPARE_FOR_SHUTDOWN, "b", active)
    assert [fact.active for fact in await settled(rig, fake)] == [True, False, True]


@pytest.mark.parametrize(
    "metadata", [{}, {"type": ("s", "hibernate")}, {"type": ("u", 7)}, {"type": ("as", [])}]
)
async def test_a_kind_that_is_not_known_stays_unknown(
    rig: Rig, fake: FakeLogin1, metadata: dict[str, Any]
) -> None:
    """Rule 1: unknown stays unknown, whatever the metadata and the schedule contain."""
    await rig.do(Arm(key="a"))
    fake.properties["ScheduledShutdown"] = ("(st)", ("dry-poweroff", 1))
    await fake.emit(PREPARE_FOR_SHUTDOWN_WITH_METADATA, "ba{sv}", True, metadata)
    assert (await rig.facts.wait(PrepareForShutdown)).kind == "unknown"


@pytest.mark.parametrize("silent", ["ScheduledShutdown", "InhibitDelayMaxUSec"])
async def test_a_logind_that_does_not_answer_delays_the_fact_by_a_bound(
    rig: Rig, fake: FakeLogin1, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bounded wait the fact is reported with the known fields."""
    monkeypatch.setattr(bounds, "now", bounds.now._replace(logind_kind_seconds=0.05))
    await rig.do(Arm(key="a"))
    fake.silent.add(silent)
    await fake.emit(PREPARE_FOR_SHUTDOWN, "b", True)
    fact = await rig.facts.wait(PrepareForShutdown)
    assert (fact.kind, fact.grant_ns) == ("unknown", 5 * NS_PER_SECOND)


async def test_an_answer_of_another_form_is_an_outcome(bed: LogindBed, rig: Rig, fake: FakeLogin1) -> None:
    """The order fails with one line; the polling continues."""
    for name, signature, body in (
        ("ListInhibitors", "as", (["kubelet"],)),
        ("ListInhibitors", "a(ss)", ([("shutdown", "kubelet")],)),
        ("ListInhibitors", "", ()),
        ("PreparingForShutdown", "", ()),
        ("PreparingForShutdown", "b", (True,)),
        ("InhibitDelayMaxUSec", "t", (5,)),
        ("Inhibit", "s", ("a lock",)),
        ("Inhibit", "", ()),
    ):
        fake.odd = {name: (signature, body)}
        ending = await rig.do(Arm(key="a"))
        assert ending.result == "failed"
        assert f"answered with {signature!r} where" in ending.reason
        make_it_look(bed)
        await settled(rig, fake)
        # The late lock was released, so another can be taken.
        await rig.do(Disarm(key="d"))
    fake.odd = {}
    assert (await rig.do(Arm(key="b"))).result == "done"


async def test_a_reading_never_overtakes_a_signal(bed: LogindBed, rig: Rig, fake: FakeLogin1) -> None:
    """A `false` read before `true` was signalled must not come after it: it would look like a cancel."""
    await rig.do(Arm(key="a"))
    for _ in range(20):
        make_it_look(bed)
        await fake.emit(PREPARE_FOR_SHUTDOWN, "b", True)
        await fake.emit(PREPARE_FOR_SHUTDOWN, "b", False)
    await settled(rig, fake)
    assert all(not read.preparing for read in rig.facts.of(PreparingRead))


def message(member: str, sender: str, signature: str, *body: Any) -> Message:
    made = manager_signal(member, signature, *body)
    made.header.fields[HeaderFields.sender] = sender
    return made


def test_rejections_are_bounded() -> None:
    """A flood of forged signals costs a line, not the disk."""
    signal_filter = SignalFilter()
    signal_filter.owner = ":1.1"
    found = [signal_filter.accept(message(PREPARE_FOR_SHUTDOWN, ":1.66", "b", True)) for _ in range(100)]
    assert sum(isinstance(item, SignalRejected) for item in found) == REJECTED_MAX


def test_the_owner_is_known_in_the_order_of_the_bus() -> None:
    """A new owner's signal counts right after the change; the old owner's does not."""
    signal_filter = SignalFilter()
    signal_filter.owner = ":1.1"
    change = message(
        "NameOwnerChanged", "org.freedesktop.DBus", "sss", "org.freedesktop.login1", ":1.1", ":1.2"
    )
    assert signal_filter.accept(change) == OwnerChanged(":1.2")
    assert signal_filter.accept(message(PREPARE_FOR_SHUTDOWN, ":1.2", "b", True)) == ShutdownSignal(
        True, "unknown", ":1.2"
    )
    assert isinstance(signal_filter.accept(message(PREPARE_FOR_SHUTDOWN, ":1.1", "b", True)), SignalRejected)
