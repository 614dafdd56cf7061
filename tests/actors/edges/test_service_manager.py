"""The service manager protocol (notify, descriptor store, watchdog), and whether the system is stopping."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from ebbtide.actors.edges import service_manager as system
from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.actors.edges.service_manager import ServiceManager, inherited_fds, userspace_id
from tests.actors.edges.logind.conftest import bed
from tests.beds.logind import LogindBed
from tests.beds.machine import machine_bed
from tests.beds.notify import drain, full_socket, notify_bed
from tests.beds.rootfs import SUITES
from tests.beds.skipping import or_skip


async def test_notify_says_variables(tmp_path: Path) -> None:
    """One line each; a line break in a value cannot inject a variable."""
    async with notify_bed(tmp_path) as bed:
        assert ServiceManager(bed.address).notify(READY=1, STATUS="armed\nWATCHDOG=trigger")
        assert await bed.wait("READY") == {"READY": "1", "STATUS": "armed WATCHDOG=trigger"}


__all__ = ["bed"]


async def test_what_has_no_room_waits_for_it(tmp_path: Path) -> None:
    """Any local user may fill the socket: a sign of life waits, and is sent once."""
    with full_socket(tmp_path / "notify") as full:
        service, sent = ServiceManager(str(tmp_path / "notify")), list[bool]()

        async def say() -> None:
            sent.append(await service.notify_in_time(WATCHDOG=1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(say)
            await trio.testing.wait_all_tasks_blocked()
            assert not service.notify(STATUS="lost")
            drain(full)
        assert sent == [True]
        assert drain(full) == [b"WATCHDOG=1"]


#: Connect as root first: only root can enter the machine. Then act as any user.
FLOOD = """
import os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    sender.connect(sys.argv[1])
    os.setgid(65534)
    os.setuid(65534)
    print(flush=True)
    while True:
        try:
            sender.send(b"x")
        except OSError:
            pass
"""
FLOODERS = 6


@pytest.mark.root
@pytest.mark.machine
async def test_a_flood_of_systemds_own_socket() -> None:
    """Any user may write to systemd's socket. One-time messages may be lost; signs of life arrive."""
    with or_skip():
        async with machine_bed(SUITES[-1]) as machine:
            await machine.boot()
            path = f"/proc/{machine.init}/root/run/systemd/notify"
            service = ServiceManager(path)
            argv = (sys.executable, "-I", "-S", "-c", FLOOD, path)
            strangers = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(FLOODERS)]
            try:
                for stranger in strangers:
                    assert stranger.stdout is not None
                    assert await trio.to_thread.run_sync(stranger.stdout.readline) == b"\n"
                with trio.fail_after(10):
                    while service.notify(WATCHDOG=1):
                        await trio.lowlevel.checkpoint()
                assert [await service.notify_in_time(WATCHDOG=1) for _ in range(20)] == [True] * 20
            finally:
                for stranger in strangers:
                    stranger.kill()
                    stranger.communicate()


@pytest.mark.parametrize(
    "environ, seconds",
    [
        ({"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": str(os.getpid())}, 2.0),
        ({"WATCHDOG_USEC": "6000000"}, 2.0),
        ({"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_how_often_it_wants_a_sign_of_life(environ: dict[str, str], seconds: float) -> None:
    """A third of the watchdog time, only if it is meant for this process."""
    environ = environ | {"NOTIFY_SOCKET": "/run/notify", "HOME": "/"}
    assert ServiceManager.from_environment(environ).life_seconds == seconds
    assert environ == {"HOME": "/"}


async def test_store_and_remove_are_confirmed(tmp_path: Path) -> None:
    """A stored descriptor is a duplicate; a confirmed removal closes it."""
    async with notify_bed(tmp_path) as bed:
        service = ServiceManager(bed.address)
        ours, theirs = os.pipe()
        assert await service.store("x", theirs)
        os.close(theirs)
        await bed.wait("FDSTORE")
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 1)
        assert await service.remove("x")
        assert os.read(ours, 1) == b""
        os.close(ours)


def test_inherited_descriptors_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names map to open descriptors from 3 on; the variables are removed."""
    seen: dict[int, bool] = {}

    def remember(descriptor: int, inheritable: bool) -> None:
        if descriptor == 5:
            raise OSError
        seen[descriptor] = inheritable

    monkeypatch.setattr(os, "set_inheritable", remember)
    environ = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": "4",
        "LISTEN_FDNAMES": "ebbtide-lock:http:ebbtide-lock:ebbtide-lock",
        "HOME": "/",
    }
    assert inherited_fds(environ) == {"ebbtide-lock": (3, 6), "http": (4,)}
    assert environ == {"HOME": "/"}
    assert set(seen.values()) == {False}


@pytest.mark.parametrize("environ", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_FDS": "x"}])
def test_descriptors_for_somebody_else_are_not_ours(environ: dict[str, str]) -> None:
    """Without our PID in LISTEN_PID no descriptor is ours."""
    assert inherited_fds(environ) == {}
    assert environ == {}


@pytest.mark.root
async def test_is_the_system_stopping(bed: LogindBed) -> None:
    """Rule 7: SIGTERM is a machine shutdown if the service manager is `stopping`, else a unit stop."""
    assert not await system.system_is_stopping(bed.address)
    await bed.do("property", name="SystemState", signature="s", value="stopping")
    assert await system.system_is_stopping(bed.address)


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "signature", "value", "suffix"),
    [
        ("SoftRebootsCount", "u", 0, ""),
        ("SoftRebootsCount", "u", 2, "+2"),
        ("Version", "s", "255.4-1", "+1000000"),
        ("Version", "s", "252.39-1~deb12u2", ""),
    ],
)
async def test_a_soft_reboot_is_another_userspace(
    bed: LogindBed, name: str, signature: str, value: object, suffix: str
) -> None:
    """The counter separates userspaces of one boot. systemd 254 to 256 has only the userspace's start time;
    252 has no soft reboot.
    """
    await bed.do("property", name=name, signature=signature, value=value)
    assert await userspace_id(bed.address) == boot_id() + suffix


# --- which life of a machine this is


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PID 1's folder; the machine is a container."""
    (tmp_path / "container").write_text("systemd-nspawn\n")
    monkeypatch.setattr(system, "CONTAINER_FILE", tmp_path / "container")
    monkeypatch.setattr(system, "FIRST_PROCESS", tmp_path)
    monkeypatch.setattr(system, "PRIVATE_SOCKET", f"unix:path={tmp_path}/nobody")
    return tmp_path


async def test_a_container_that_starts_again_is_another_userspace(first: Path) -> None:
    """Container machines share the kernel's boot ID; the start of PID 1 differs."""
    for ticks in (1000, 2000):
        fields = " ".join(str(number) for number in range(1, 19))
        (first / "stat").write_text(f"1 (systemd) S {fields} {ticks} 0 0\n")
        assert await userspace_id(f"unix:path={first}/nobody") == f"{boot_id()}.{ticks}"
