"""Rule 1: subscribe, lock, read; a shutdown that runs already; the kind below systemd 255."""

from __future__ import annotations

import contextlib

import pytest
from jeepney import HeaderFields, MessageType

from actors.edges.inotify import FolderWatch
from actors.edges.logind import LogindEdge, watch
from events.base import NS_PER_SECOND
from events.decisions import Arm, Disarm
from events.facts import DropInsRead, LogindRead, PrepareForShutdown
from tests.beds.logind import LogindBed
from tests.logind.conftest import Rig, running

pytestmark = pytest.mark.root


async def test_arming_subscribes_then_locks_then_reads(bed: LogindBed, rig: Rig) -> None:
    """Rule 1: on the wire, AddMatch comes before Inhibit, and Inhibit before PreparingForShutdown."""
    async with bed.monitor() as overheard:
        await rig.do(Arm(key="a"))
    calls = [m for m in overheard if m.header.message_type is MessageType.method_call]
    words = [
        m.body[1] if m.header.fields[HeaderFields.member] == "Get" else m.header.fields[HeaderFields.member]
        for m in calls
    ]
    last_match = max(index for index, word in enumerate(words) if word == "AddMatch")
    assert last_match < words.index("Inhibit") < words.index("PreparingForShutdown")


async def test_arming_takes_one_delay_lock_and_reports(bed: LogindBed, rig: Rig) -> None:
    """Rule 1: an armed edge holds one delay lock on shutdown and has reported state and drop-ins first."""
    ending = await rig.do(Arm(key="a"))
    (lock,) = await bed.list_inhibitors()
    assert (ending.result, lock.what, lock.who, lock.mode) == ("done", "shutdown", "ebbtide", "delay")
    assert [type(fact) for fact in rig.facts.all[:2]] == [LogindRead, DropInsRead]
    assert rig.facts.of(LogindRead)[0].grant_ns == 5 * NS_PER_SECOND


async def test_arming_again_keeps_the_lock(bed: LogindBed, rig: Rig) -> None:
    """An order repeated after a crash, or after a lost bus, leads to one lock, not two."""
    await rig.do(Arm(key="a"))
    await rig.do(Arm(key="b", attempt=2))
    assert len(await bed.ours()) == 1


async def test_listening_takes_no_lock(bed: LogindBed, rig: Rig) -> None:
    """`Arm(lock=False)` hears the signal without holding anything back."""
    assert (await rig.do(Arm(key="a", lock=False))).result == "done"
    assert await bed.ours() == []
    await bed.power_off()
    assert not (await rig.facts.wait(PrepareForShutdown)).lock_held


async def test_disarm_goes_on_listening(bed: LogindBed, rig: Rig) -> None:
    """Switched off by configuration: the lock is given back, the signal is still heard."""
    await rig.do(Arm(key="a"))
    assert (await rig.do(Disarm(key="d"))).result == "done"
    assert await bed.none_of_ours()
    await bed.power_off()
    await rig.facts.wait(PrepareForShutdown)


async def test_a_running_shutdown_refuses_the_lock_and_is_reported(bed: LogindBed, rig: Rig) -> None:
    """Rule 1: `OperationInProgress` means that a shutdown runs; its state is reported before the outcome."""
    async with bed.inhibitor("somebody"):
        await bed.power_off("reboot")
        ending = await rig.do(Arm(key="a"))
    assert (ending.result, ending.reason) == ("failed", "OperationInProgress")
    read = rig.facts.of(LogindRead)[0]
    assert (read.preparing, read.kind) == (True, "reboot")


@pytest.mark.parametrize("kind", ["poweroff", "reboot", "halt"])
async def test_the_kind_of_an_immediate_shutdown(bed: LogindBed, rig: Rig, kind: str) -> None:
    """Rule 1: 252 has no metadata signal; the kind is in `ScheduledShutdown`, also when it is immediate."""
    await rig.do(Arm(key="a"))
    await bed.power_off(kind)
    signal = await rig.facts.wait(PrepareForShutdown)
    assert signal == PrepareForShutdown(
        active=True,
        kind=signal.kind,
        grant_ns=5 * NS_PER_SECOND,
        lock_held=True,
        owner=rig.facts.of(LogindRead)[0].owner,
    )
    assert signal.kind == kind


@pytest.mark.parametrize("kind", ["poweroff", "reboot", "halt", "kexec"])
async def test_the_kind_of_a_scheduled_shutdown(bed: LogindBed, rig: Rig, kind: str) -> None:
    """Rule 1: a schedule that falls due comes as a signal with its kind."""
    await rig.do(Arm(key="a"))
    await bed.schedule(kind, 0.1)
    assert (await rig.facts.wait(PrepareForShutdown)).kind == kind


async def test_a_kubelets_lock_is_seen_at_arming(bed: LogindBed, rig: Rig) -> None:
    """Rule 8: another program called kubelet with a delay lock on shutdown is on record."""
    async with bed.inhibitor("kubelet"):
        await rig.do(Arm(key="a"))
    assert rig.facts.of(LogindRead)[0].kubelet_lock


async def test_a_kubelets_lock_is_seen_when_it_comes_later(bed: LogindBed, rig: Rig) -> None:
    """Rule 8: a kubelet that starts after us is on record before the next signal."""
    await rig.do(Arm(key="a"))
    async with bed.inhibitor("kubelet"):
        await rig.facts.wait(LogindRead, where=lambda read: read.kubelet_lock)
    await rig.facts.wait(LogindRead, 2, where=lambda read: not read.kubelet_lock)


@pytest.mark.parametrize("held", [True, False])
async def test_the_signal_says_whether_a_kubelet_holds_a_lock(bed: LogindBed, rig: Rig, held: bool) -> None:
    """Rule 8: as last seen before it; nobody is asked between the signal and its fact."""
    await rig.do(Arm(key="a"))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(bed.inhibitor("kubelet" if held else "somebody"))
        if held:
            await rig.facts.wait(LogindRead, where=lambda read: read.kubelet_lock)
        await bed.power_off()
        assert (await rig.facts.wait(PrepareForShutdown)).kubelet_lock is held


async def test_a_kubelets_lock_is_seen_without_inotify(
    bed: LogindBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the folder of locks cannot be watched, logind is asked every few seconds."""
    monkeypatch.setattr(watch, "FolderWatch", _no_inotify)
    monkeypatch.setattr(watch, "IDLE_SECONDS", 0.1)
    async with running(LogindEdge(bed.address, root=bed.root)) as blind:
        await blind.do(Arm(key="a"))
        async with bed.inhibitor("kubelet"):
            await blind.facts.wait(LogindRead, where=lambda read: read.kubelet_lock)
            assert [read.kubelet_lock for read in blind.facts.of(LogindRead)] == [False, True]


def _no_inotify(folders: object) -> FolderWatch:
    raise OSError("no inotify instance is left")


async def test_no_bus_is_one_clear_line(bed: LogindBed) -> None:
    """A bus that is not there fails the order with one line that names the address and the cure."""
    async with running(LogindEdge("unix:path=/nonexistent/bus", root=bed.root)) as rig:
        ending = await rig.do(Arm(key="a"))
    assert ending.result == "failed"
    assert ending.reason.startswith("cannot reach the bus at unix:path=/nonexistent/bus: ")
    assert ending.reason.endswith("is dbus running?")
    assert "\n" not in ending.reason


@pytest.mark.parametrize(
    "address", ["nonsense", "tcp:host=localhost,port=1", "unix:abstract=ebbtide-none", ""]
)
async def test_an_address_that_cannot_be_used_is_an_outcome(bed: LogindBed, address: str) -> None:
    """Whatever stands in the address, arming ends in an outcome and never raises."""
    async with running(LogindEdge(address or "unix:", root=bed.root)) as rig:
        ending = await rig.do(Arm(key="a"))
    assert (ending.result, "\n" in ending.reason) == ("failed", False)


async def test_logind_absent_is_one_clear_line(bed: LogindBed, rig: Rig) -> None:
    """A bus without logind fails the order, and the next attempt works once logind is there."""
    await bed.stop_logind()
    ending = await rig.do(Arm(key="a"))
    assert ending.result == "failed"
    assert "org.freedesktop.login1" in ending.reason
    await bed.start_logind()
    assert (await rig.do(Arm(key="b", attempt=2))).result == "done"
    assert len(await bed.ours()) == 1


async def test_start_state_before_there_is_a_loop(bed: LogindBed) -> None:
    """`DaemonStarted` can say whether a shutdown runs, of what kind, and what is granted."""
    edge = LogindEdge(bed.address, root=bed.root)
    assert await edge.read_start_state() == (False, "unknown", 5 * NS_PER_SECOND)
    async with bed.inhibitor("somebody"):
        await bed.power_off("reboot")
        assert await edge.read_start_state() == (True, "reboot", 5 * NS_PER_SECOND)
    await bed.do("stop_bus")
    assert await edge.read_start_state() == (None, "unknown", 0)
