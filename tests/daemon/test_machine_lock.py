"""One daemon protects a machine, whatever its folders; the second one waits for its end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from ebbtide import machine_lock
from ebbtide.actors.edges.service_manager import ServiceManager
from ebbtide.events.decisions import ReleaseLock
from ebbtide.machine_lock import (
    TAKEOVER_SECONDS,
    Holder,
    connect_to_holder,
    lock_machine,
    machine_holder,
    machine_lock_name,
    serve_waiting,
    take_machine_lock,
)
from tests.daemon.rig import EBBTIDE, Rig
from tests.waiting import until

ANOTHER_USER = 4242


class Machine:
    """A bus's address, and the second daemon's log."""

    def __init__(self, folder: Path) -> None:
        path = folder / "bus"
        with socket.socket(socket.AF_UNIX) as bus:
            bus.bind(str(path))
        self.address = f"unix:path={path}"
        self.lines: list[str] = []
        self.locks: list[socket.socket] = []

    def take(self) -> socket.socket:
        lock = take_machine_lock(machine_lock_name(self.address))
        assert lock is not None
        return lock

    async def wait(self) -> None:
        lock = await lock_machine(self.address, ServiceManager(""), lambda _, line: self.lines.append(line))
        if lock is not None:
            self.locks.append(lock)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_the_first_one_takes_the_lock_at_once(
    machine: Machine, autojump_clock: trio.testing.MockClock
) -> None:
    await machine.wait()
    assert machine.locks
    assert trio.current_time() == 0
    assert not machine.lines
    machine.locks[0].close()


async def test_the_second_one_waits_and_takes_over(
    machine: Machine, autojump_clock: trio.testing.MockClock
) -> None:
    """Not at once: the service manager of the first one starts it again."""
    first = machine.take()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(machine.wait)
        await trio.sleep(3600)
        first.close()
    assert machine.locks
    assert trio.current_time() == 3600 + TAKEOVER_SECONDS
    assert machine.lines[0].startswith(f"another Ebbtide protects this machine (process {os.getpid()}: ")
    assert len(machine.lines) == 2
    machine.locks[0].close()


async def test_the_first_one_may_come_back(machine: Machine, autojump_clock: trio.testing.MockClock) -> None:
    first = machine.take()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(machine.wait)
        for _ in range(3):
            await trio.sleep(60)
            first.close()
            await trio.sleep(TAKEOVER_SECONDS - 1)
            first = machine.take()
        nursery.cancel_scope.cancel()
    first.close()
    assert not [line for line in machine.lines if "has ended" in line]


async def test_none_takes_over_in_a_shutdown(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """The first one has begun to end the pods: its hooks have run."""
    answers = [True] * 5

    async def preparing(*_: object) -> bool:
        return bool(answers) and answers.pop()

    monkeypatch.setattr(machine_lock, "ask_once", preparing)
    first = machine.take()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(machine.wait)
        await trio.sleep(1)
        first.close()
    assert machine.locks
    assert not answers
    machine.locks[0].close()


async def test_another_user_does_not_block_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An abstract name has no permissions: any user may take it."""
    monkeypatch.setattr(machine_lock, "peer_of", lambda _: Holder(7, ANOTHER_USER, "mallory"))
    with machine.take():
        await machine.wait()
        assert not machine.locks
        assert machine_holder(machine.address) is None
    assert machine.lines == ["process 7: mallory, uid 4242, has taken the machine's lock: ignoring it"]


IGNORED = "a process that takes no connection has the machine's lock: ignoring it"
WAITS = "another Ebbtide protects this machine (process 0: it takes no connection): waiting for its end"
IGNORED_USER = "process 0: it takes no connection, uid 4242, has taken the machine's lock: ignoring it"


@pytest.mark.parametrize(
    ("listens", "uid", "line"),
    [
        *((False, os.geteuid(), IGNORED), (True, os.geteuid(), WAITS)),
        pytest.param(True, ANOTHER_USER, IGNORED_USER, marks=pytest.mark.root),
    ],
)
async def test_a_holder_that_takes_no_connection(
    listens: bool, uid: int, line: str, machine: Machine, autojump_clock: trio.testing.MockClock
) -> None:
    """A hung daemon protects the machine. Another user's process does not, nor one with the name alone."""
    name = machine_lock_name(machine.address)
    own_uid = os.geteuid()
    os.seteuid(uid)
    try:
        taken = socket.socket(socket.AF_UNIX)
    finally:
        os.seteuid(own_uid)
    with taken, ExitStack() as queue:
        taken.bind(name)
        if listens:
            taken.listen(0)
        while (found := connect_to_holder(name)) is not None:
            queue.enter_context(found[0])
            if not found[1].pid:
                break
        with trio.move_on_after(3600) as hour:
            await machine.wait()
    assert not machine.locks
    assert machine.lines == [line]
    assert hour.cancelled_caught is (line == WAITS)


async def test_many_looks_leave_the_queue_empty(
    machine: Machine, autojump_clock: trio.testing.MockClock
) -> None:
    """Each look is a connection; the daemon accepts them and closes its end with theirs."""
    with machine.take() as lock:
        async with trio.open_nursery() as nursery:
            waiting = set[Holder]()
            nursery.start_soon(serve_waiting, lock, waiting)
            for _ in range(socket.SOMAXCONN):
                holder = machine_holder(machine.address)
                assert holder is not None
                assert holder.pid == os.getpid()
                await trio.testing.wait_all_tasks_blocked()
            assert not waiting
            found = connect_to_holder(machine_lock_name(machine.address))
            assert found is not None
            with found[0]:
                await trio.testing.wait_all_tasks_blocked()
                assert [each.pid for each in waiting] == [os.getpid()]
            nursery.cancel_scope.cancel()
    assert machine_holder(machine.address) is None


@pytest.mark.root
async def test_two_daemons_with_separate_folders_end_each_pod_once(rig: Rig) -> None:
    """As an old DaemonSet beside the host's unit."""
    rig.configure({0: 3})
    rig.pod("web", "after=0.1", hook=0.1)
    await rig.start()
    await rig.up("web")
    folders = ("--runtime", str(rig.folder / "run2"), "--journal", str(rig.folder / "j2"))
    doctor = [*rig.enter, *EBBTIDE, "doctor", *folders]
    second = subprocess.Popen(
        [*rig.enter, *rig.argv, *folders], env=rig.environment, stderr=subprocess.PIPE, text=True
    )
    assert second.stderr is not None
    try:
        assert "another Ebbtide protects this machine" in await trio.to_thread.run_sync(
            second.stderr.readline
        )
        found = await trio.run_process(doctor, env=rig.environment, capture_stdout=True, check=False)
        assert f"another Ebbtide protects this machine (process {rig.own_pid}" in found.stdout.decode()
        (waits,) = json.loads(await rig.ebbtide("status", "-o", "json"))["waiting"]
        assert waits.startswith("process ")
        assert len(await rig.bed.ours()) == 1
        await rig.bed.power_off()
        await rig.recorded(ReleaseLock)
        assert second.poll() is None
        assert not (rig.folder / "j2").exists()
    finally:
        with second:
            second.kill()
    assert [mark.what for mark in rig.trace("web")].count("TERM") == 1
    assert await until(lambda: not rig.lives("web"), "the end of web")
