"""Rule 1: subscribe, lock, read; a shutdown that already runs; the shutdown kind below systemd 255.

Signals that a healthy logind 252 never sends: forged, malformed, or of a newer systemd.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jeepney import HeaderFields, Message, MessageType

from ebbtide.actors.edges import logind_edge, logind_reading
from ebbtide.actors.edges.logind_reading import PREPARE_FOR_SHUTDOWN, PREPARE_FOR_SHUTDOWN_WITH_METADATA
from ebbtide.actors.edges.service_manager import LOCK_NAME, ServiceManager
from ebbtide.events import bounds
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import Arm, Disarm, ReleaseLock, RemoveDropIn, WriteDropIn
from ebbtide.events.facts import PrepareForShutdown, PreparingRead, SignalRejected
from tests.actors.edges.logind.conftest import Rig, running
from tests.beds.login1 import FakeLogin1, fake_login1
from tests.beds.logind import LogindBed, manager_signal
from tests.beds.notify import notify_bed

pytestmark = pytest.mark.root


async def waits_ten_minutes(bed: LogindBed) -> None:
    """Raise logind's own limit of five seconds for slow machines."""
    await bed.drop_in("00-patient.conf", "10min")
    await bed.restart_logind()


@pytest.mark.gate
async def test_arming_subscribes_then_locks_then_reads(bed: LogindBed, rig: Rig) -> None:
    """Rule 1: on the wire, AddMatch precedes Inhibit, and Inhibit precedes PreparingForShutdown. One delay
    lock on shutdown; state and drop-ins are reported first.
    """
    async with bed.monitor() as overheard:
        ending = await rig.do(Arm(key="a"))
    calls = [m for m in overheard if m.header.message_type is MessageType.method_call]
    words = [
        m.body[1] if m.header.fields[HeaderFields.member] == "Get" else m.header.fields[HeaderFields.member]
        for m in calls
    ]
    last_match = max(index for index, word in enumerate(words) if word == "AddMatch")
    assert last_match < words.index("Inhibit") < words.index("PreparingForShutdown")
    (lock,) = await bed.list_inhibitors()
    assert (ending.result, lock.what, lock.who, lock.mode) == ("done", "shutdown", "ebbtide", "delay")
    # On a busy machine the folder watch reports the drop-ins first.
    assert {f.LogindRead, f.DropInsRead} <= {type(fact) for fact in rig.facts.facts}
    assert rig.facts.of(f.LogindRead)[0].grant_ns == 5 * NS_PER_SECOND


async def test_a_running_shutdown_refuses_the_lock_and_is_reported(bed: LogindBed, rig: Rig) -> None:
    """Rule 1: `OperationInProgress` means a running shutdown; its state precedes the outcome."""
    async with bed.inhibitor("somebody"):
        await bed.power_off("reboot")
        ending = await rig.do(Arm(key="a"))
    assert (ending.result, ending.reason) == ("failed", "OperationInProgress")
    read = rig.facts.of(f.LogindRead)[0]
    assert (read.preparing, read.kind) == (True, "reboot")


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["poweroff", "reboot", "halt"])
async def test_the_kind_of_an_immediate_shutdown(bed: LogindBed, rig: Rig, kind: str) -> None:
    """Rule 1: 252 has no metadata signal, so the kind comes from `ScheduledShutdown`."""
    await rig.do(Arm(key="a"))
    await bed.power_off(kind)
    signal = await rig.facts.wait(f.PrepareForShutdown)
    assert signal == f.PrepareForShutdown(
        active=True,
        kind=kind,
        grant_ns=5 * NS_PER_SECOND,
        lock_held=True,
        owner=rig.facts.of(f.LogindRead)[0].owner,
    )


@pytest.mark.parametrize("held", [True, False])
async def test_a_list_of_locks_that_is_too_long_changes_nothing(bed: LogindBed, rig: Rig, held: bool) -> None:
    """Any local user may add a lock with a long reason: the edge arms and keeps its last list."""
    async with bed.inhibitor("kubelet" if held else "somebody"):
        await rig.do(Arm(key="a"))
        async with bed.inhibitor("somebody", why="because " * 100_000):
            assert (await rig.do(Arm(key="b"))).result == "done"
            assert [read.kubelet_lock for read in rig.facts.of(f.LogindRead)] == [held, held]
    assert not rig.facts.of(f.BusLost)


@pytest.mark.parametrize("what", ["logind", "bus"])
async def test_a_late_logind_is_reported_at_once(bed: LogindBed, what: str) -> None:
    """Before the first arming succeeds: the core need not wait for its next try."""
    await bed.do("stop_logind")
    if what == "bus":
        await bed.do("stop_bus")
    async with running(logind_edge.LogindEdge(bed.address, root=bed.root)) as rig:
        assert (await rig.do(Arm(key="a"))).result == "failed"
        if what == "bus":
            await bed.do("start_bus")
        await bed.start_logind()
        read = await rig.facts.wait(PreparingRead)
        assert read.owner
        assert not read.preparing


async def test_the_locks_of_others_are_reported_until_they_go(bed: LogindBed, rig: Rig) -> None:
    """At the signal, and when one goes after our release: logind waits for all of them."""
    await rig.do(Arm(key="a"))
    await waits_ten_minutes(bed)
    await rig.do(Arm(key="b"))
    async with bed.inhibitor("first", why="w" * 500):
        async with bed.inhibitor("second"), bed.inhibitor("asleep", what="sleep"):
            await bed.power_off("reboot")
            (first, second) = (await rig.facts.wait(f.LockHoldersRead)).holders
            assert (first.who, second.who) == ("first", "second")
            assert len(first.why) == logind_reading.HOLDER_CHARACTERS_MAX
            await rig.do(ReleaseLock(key="c"))
        gone = await rig.facts.wait(f.LockHoldersRead, where=lambda read: len(read.holders) == 1)
    assert gone.holders == (first,)
    kinds = [type(fact) for fact in rig.facts.facts]
    assert kinds.index(PrepareForShutdown) < kinds.index(f.LockHoldersRead), "no reading delays the signal"


@pytest.mark.parametrize("held", [True, False])
async def test_the_signal_says_whether_a_kubelet_holds_a_lock(bed: LogindBed, rig: Rig, held: bool) -> None:
    """Rule 8: from the last look; no call comes between the signal and its fact."""
    await rig.do(Arm(key="a"))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(bed.inhibitor("kubelet" if held else "somebody"))
        if held:
            await rig.facts.wait(f.LogindRead, where=lambda read: read.kubelet_lock)
        await bed.power_off()
        assert (await rig.facts.wait(f.PrepareForShutdown)).kubelet_lock is held


async def test_no_bus_is_one_clear_line(bed: LogindBed) -> None:
    """The order fails with one line: the address and the fix."""
    missing = "unix:path=/nonexistent/bus"
    for address in ("nonsense", "tcp:host=localhost,port=1", "unix:abstract=ebbtide-none", "unix:", missing):
        async with running(logind_edge.LogindEdge(address, root=bed.root)) as rig:
            ending = await rig.do(Arm(key="a"))
        assert (ending.result, "\n" in ending.reason) == ("failed", False)
    assert ending.reason.startswith(f"cannot reach the bus at {missing}: ")
    assert ending.reason.endswith("is dbus running?")


# Rule 5: the lock in the service manager's store, its duplicates, and the proof of its release.


@pytest.mark.gate
async def test_an_inherited_lock_counts(bed: LogindBed, tmp_path: Path) -> None:
    """Rule 5: after a crash in a shutdown no new lock can be had; the stored one is used, and logind waits
    for it. Stored without polling. Release: FDSTOREREMOVE, BARRIER, then our own descriptor.
    """
    await waits_ten_minutes(bed)
    async with notify_bed(tmp_path) as manager:
        service = ServiceManager(manager.address)
        async with running(logind_edge.LogindEdge(bed.address, root=bed.root, service=service)) as rig:
            await rig.do(Arm(key="a"))
            await manager.wait("FDSTORE")
            await bed.power_off()
            await rig.facts.wait(f.PrepareForShutdown)
            rig.die()
        inherited = manager.pass_on(LOCK_NAME)
        edge = logind_edge.LogindEdge(bed.address, root=bed.root, service=service, lock_fds=inherited)
        async with running(edge) as rig:
            assert (await rig.do(Arm(key="b"))).result == "done"
            assert len(await bed.ours()) == 1
            assert await bed.starts() == []
            assert (await rig.do(ReleaseLock(key="r"))).result == "done"
            assert (await bed.started())[0] == "poweroff.target"
            assert manager.store == {}
    assert await bed.none_of_ours()
    assert manager.said[0] == {"FDSTORE": "1", "FDNAME": LOCK_NAME, "FDPOLL": "0"}
    assert [set(message) for message in manager.said[-2:]] == [{"FDSTOREREMOVE", "FDNAME"}, {"BARRIER"}]


async def test_a_service_manager_that_does_not_confirm(
    bed: LogindBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our descriptor closes anyway; the outcome names the possible remaining copy."""
    monkeypatch.setattr(bounds, "now", bounds.now._replace(manager_barrier_seconds=0.1))
    async with notify_bed(tmp_path) as manager:
        manager.answers_barriers = False
        service = ServiceManager(manager.address)
        async with running(logind_edge.LogindEdge(bed.address, root=bed.root, service=service)) as rig:
            await rig.do(Arm(key="a"))
            ending = await rig.do(Disarm(key="d"))
            assert ending.result == "failed"
            assert ending.reason.startswith("the service manager did not confirm")
            assert not rig.edge.lock_held
        assert await bed.none_of_ours()


async def test_the_lock_is_not_inherited_by_children(bed: LogindBed) -> None:
    """Close-on-exec: a pod's duplicate would hold the machine."""
    before = set(os.listdir("/proc/self/fd"))
    async with running(logind_edge.LogindEdge(bed.address, root=bed.root)) as rig:
        await rig.do(Arm(key="a"))
        opened = set(os.listdir("/proc/self/fd")) - before
        inheritable = [number for number in opened if _is_inheritable(int(number))]
    assert inheritable == []


def _is_inheritable(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


# Rule 4: the drop-in is placed, sorts last, is verified, watched and removed.


WRITE = WriteDropIn(key="w", seconds=35)
OURS = "zz-ebbtide.conf"


@pytest.mark.gate
async def test_a_drop_in_raises_the_limit(bed: LogindBed, rig: Rig) -> None:
    """Rule 4: below /run with mode 0644; logind has read it, and both are reported."""
    await rig.do(Arm(key="a"))
    assert (await rig.do(WRITE)).result == "done"
    assert await bed.get("InhibitDelayMaxUSec") == 35_000_000
    assert os.listdir(bed.drop_ins) == [OURS]
    assert stat.S_IMODE((bed.drop_ins / OURS).stat().st_mode) == 0o644
    assert stat.S_IMODE(bed.drop_ins.stat().st_mode) == 0o755
    assert rig.facts.of(f.LogindRead)[-1].grant_ns == 35 * NS_PER_SECOND
    assert rig.facts.of(f.DropInsRead)[-1].ours_ns == 35 * NS_PER_SECOND


async def test_a_file_that_wins_is_named(bed: LogindBed, rig: Rig) -> None:
    """Rule 4: a file that sorts after ours keeps the limit low; the outcome names it and the fix."""
    await bed.drop_in("zzz-last.conf", "7s", "/usr/lib")
    await rig.do(Arm(key="a"))
    ending = await rig.do(WRITE)
    overrider = "/usr/lib/systemd/logind.conf.d/zzz-last.conf"
    assert ending.result == "failed"
    assert ending.reason == (
        f"logind's limit is 7 s: {overrider} is read after "
        f"/run/systemd/logind.conf.d/{OURS}; rename or mask it"
    )
    assert rig.facts.of(f.DropInsRead)[-1].overridden_by == overrider
    assert rig.facts.of(f.LogindRead)[-1].grant_ns == 7 * NS_PER_SECOND


async def test_a_logind_that_does_not_listen_is_a_failure(bed: LogindBed, rig: Rig) -> None:
    """The property is checked: an unread drop-in fails and names the place."""
    await bed.do("set", reload_works=False)
    await rig.do(Arm(key="a"))
    ending = await rig.do(WRITE)
    assert ending.result == "failed"
    assert ending.reason.startswith("logind's limit is 5 s: it did not take up /run/systemd/logind.conf.d/")


@pytest.mark.parametrize("place", ["/run", "/etc", "/usr/lib", "/usr/local/lib"])
async def test_the_folders_are_watched(bed: LogindBed, rig: Rig, place: str) -> None:
    """Rule 4: a file in any folder, even a new folder, is reported; so is its removal."""
    await rig.do(Arm(key="a"))
    await bed.drop_in("zzz-new.conf", "90s", place)
    read = await rig.facts.wait(f.DropInsRead, where=lambda read: read.overridden_by)
    assert read.overridden_by == f"{place}/systemd/logind.conf.d/zzz-new.conf"
    (bed.root / read.overridden_by.lstrip("/")).unlink()
    await rig.facts.wait(f.DropInsRead, 2, where=lambda read: not read.overridden_by)


LAYOUTS = {
    "nothing": {},
    "one": {"/etc/systemd/logind.conf.d/10-a.conf": "9s"},
    "name beats folder": {
        "/etc/systemd/logind.conf.d/10-a.conf": "9s",
        "/usr/lib/systemd/logind.conf.d/20-b.conf": "8",
    },
    "higher folder masks": {
        "/etc/systemd/logind.conf.d/50-a.conf": "1min 30s",
        "/run/systemd/logind.conf.d/50-a.conf": "2min",
        "/usr/lib/systemd/logind.conf.d/50-a.conf": "3min",
    },
    "main file is first": {
        "/etc/systemd/logind.conf": "77s",
        "/usr/lib/systemd/logind.conf.d/00-a.conf": "6s",
    },
    "main file alone": {"/etc/systemd/logind.conf": "1.5min"},
    "masked by a link": {
        "/etc/systemd/logind.conf.d/50-a.conf": None,
        "/usr/lib/systemd/logind.conf.d/50-a.conf": "3min",
    },
    "not understood": {
        "/etc/systemd/logind.conf.d/10-a.conf": "33s",
        "/etc/systemd/logind.conf.d/20-b.conf": "soon",
        "/etc/systemd/logind.conf.d/30-c.conf": "",
    },
    "other endings do not count": {"/etc/systemd/logind.conf.d/90-a.conf.bak": "50s"},
    "hidden files": {"/etc/systemd/logind.conf.d/.90-a.conf": "50s"},
    "upper case sorts first": {
        "/etc/systemd/logind.conf.d/ZZ-A.conf": "50s",
        "/etc/systemd/logind.conf.d/aa.conf": "40s",
    },
    "units": {"/etc/systemd/logind.conf.d/a.conf": "1h 2m 3s 4ms 5us"},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
async def test_we_read_the_files_as_logind_does(bed: LogindBed, layout: dict[str, str | None]) -> None:
    """Rule 4: our reading of each file layout equals the real logind's."""
    for path, value in layout.items():
        await bed.config(path, value)
    await bed.restart_logind()
    assert logind_reading.DropIns(bed.root).effective_ns() == await bed.get("InhibitDelayMaxUSec") * 1000


# Rules 2 and 3: signals during and after a shutdown, and the fixed limit.


def reads_since(rig: Rig, fact: f.PrepareForShutdown) -> list[f.PreparingRead]:
    """A look from before the first arming may be reported first."""
    later = rig.facts.facts[rig.facts.facts.index(fact) :]
    return [read for read in later if isinstance(read, f.PreparingRead)]


@pytest.mark.gate
async def test_a_restarted_logind_has_forgotten_the_shutdown(bed: LogindBed, rig: Rig) -> None:
    """Rule 2: an owner change means bus loss; the new owner's property is then false."""
    await rig.do(Arm(key="a"))
    await bed.power_off()
    signal = await rig.facts.wait(f.PrepareForShutdown)
    await bed.restart_logind()
    read = await rig.facts.wait(f.PreparingRead, where=lambda read: read in reads_since(rig, signal))
    lost = await rig.facts.wait(f.BusLost)
    assert (read.preparing, read.owner != rig.facts.of(f.LogindRead)[0].owner) == (False, True)
    assert rig.facts.facts.index(lost) < rig.facts.facts.index(read)


@pytest.mark.gate
@pytest.mark.parametrize("part", ["logind", "bus"])
async def test_arming_anew(bed: LogindBed, rig: Rig, part: str) -> None:
    """Rules 2 and 5: logind reopens the lock, and arming reuses it; or it arms on a new connection."""
    await rig.do(Arm(key="a"))
    await (bed.restart_logind() if part == "logind" else bed.restart_bus())
    await rig.facts.wait(f.BusLost)
    assert (await rig.do(Arm(key="b", attempt=2))).result == "done"
    assert len(await bed.ours()) == 1
    await bed.power_off()
    assert (await rig.facts.wait(f.PrepareForShutdown)).lock_held


@pytest.mark.parametrize("behaviour", ["failed", "error"])
async def test_false_after_the_release_when_the_final_unit_failed(
    bed: LogindBed, rig: Rig, behaviour: str
) -> None:
    """Rule 2: the final unit fails after our release; `false` comes, and a new lock is possible."""
    await bed.start_unit(behaviour)
    await rig.do(Arm(key="a"))
    await bed.power_off()
    await rig.facts.wait(f.PrepareForShutdown)
    await rig.do(ReleaseLock(key="r"))
    await rig.facts.wait(f.PrepareForShutdown, where=lambda fact: not fact.active)
    assert (await rig.do(Arm(key="b"))).result == "done"
    assert len(await bed.ours()) == 1


async def test_shutdown_c_in_the_delay_is_no_cancel(bed: LogindBed, rig: Rig) -> None:
    """Rule 2: on 252 `shutdown -c` clears the schedule, but the machine still goes down."""
    await rig.do(Arm(key="a"))
    await bed.schedule("reboot", 0.1)
    signal = await rig.facts.wait(f.PrepareForShutdown)
    await bed.cancel()
    assert (await bed.get("ScheduledShutdown"))[0] == ""
    await rig.do(ReleaseLock(key="r"))
    await bed.started()
    assert [fact.active for fact in rig.facts.of(f.PrepareForShutdown)] == [True]
    assert reads_since(rig, signal) == []


@pytest.mark.parametrize("order", [WriteDropIn(key="w", seconds=30), RemoveDropIn(key="w")])
async def test_no_drop_in_is_touched_while_preparing(
    bed: LogindBed, rig: Rig, order: WriteDropIn | RemoveDropIn
) -> None:
    """Rule 3: the edge checks again itself, and refuses."""
    await rig.do(Arm(key="a"))
    await bed.power_off()
    await rig.facts.wait(f.PrepareForShutdown)
    ending = await rig.do(order)
    assert (ending.result, ending.reason) == ("failed", "preparing")
    assert not bed.drop_ins.exists()


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
    signal_filter = logind_edge.SignalFilter()
    signal_filter.owner = ":1.1"
    found = [signal_filter.accept(message(PREPARE_FOR_SHUTDOWN, ":1.66", "b", True)) for _ in range(100)]
    assert sum(isinstance(item, SignalRejected) for item in found) == logind_edge.REJECTED_MAX


def test_the_owner_is_known_in_the_order_of_the_bus() -> None:
    """A new owner's signal counts right after the change; the old owner's does not."""
    signal_filter = logind_edge.SignalFilter()
    signal_filter.owner = ":1.1"
    change = message(
        "NameOwnerChanged", "org.freedesktop.DBus", "sss", "org.freedesktop.login1", ":1.1", ":1.2"
    )
    assert signal_filter.accept(change) == logind_edge.OwnerChanged(":1.2")
    assert signal_filter.accept(
        message(PREPARE_FOR_SHUTDOWN, ":1.2", "b", True)
    ) == logind_edge.ShutdownSignal(True, "unknown", ":1.2")
    assert isinstance(signal_filter.accept(message(PREPARE_FOR_SHUTDOWN, ":1.1", "b", True)), SignalRejected)
