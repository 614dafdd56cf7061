"""Evidence about the last boot's end: real formats, damage, floods and hung disks."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from ebbtide.actors.edges import last_boot_reading as last_boot
from ebbtide.actors.edges.last_boot_reading import PSTORE
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import LastBootRead
from tests.actors.edges.process.process_bed import Outbox
from tests.waiting import WATCHDOG_SECONDS, until

S = NS_PER_SECOND
#: When the boot was last seen alive.
ALIVE_S = 1_800_000_000
BOOT, SHUTDOWN, LOGIN = (2, b"reboot"), (1, b"shutdown"), (7, b"root")
NO_PROGRAM = ("/nowhere/journalctl",)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need seconds to start a journalctl that is a program of Python."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds().widened(WATCHDOG_SECONDS))


# --- wtmp


def entry(what: tuple[int, bytes], seconds: float, processor: str = "x86_64") -> bytes:
    """utmp(5), as glibc has it."""
    kind, user = what
    whole, part = divmod(round(seconds * 1_000_000), 1_000_000)
    head = struct.pack("<hxxi32s4s32s256shh", kind, 0, b"~", b"~~", user, b"6.1.0", 0, 0)
    if last_boot.UTMP_FORMS[processor][0] == 384:
        return head + struct.pack("<iii16x20x", 0, whole, part)
    return head + struct.pack("<q", 0) + struct.pack("<qq", whole, part) + bytes(16 + 20 + 4)


def wtmp(tmp_path: Path, *entries: bytes) -> Path:
    path = tmp_path / "wtmp"
    path.write_bytes(b"".join(entries))
    return path


@pytest.mark.parametrize("processor", last_boot.UTMP_FORMS)
def test_a_shutdown_and_none_in_wtmp(tmp_path: Path, processor: str) -> None:
    """Records after the last sign of life count, without other boots and logins."""

    def read(*entries: tuple[tuple[int, bytes], float]) -> str:
        made = (entry(what, ALIVE_S + at, processor) for what, at in entries)
        return last_boot.read_wtmp(wtmp(tmp_path, *made), ALIVE_S * S, processor)

    before = ((BOOT, -900.0), (SHUTDOWN, -800.0), (BOOT, -700.0), (LOGIN, -600.0))
    assert read(*before, (LOGIN, 1), (SHUTDOWN, 5), (BOOT, 30)) == "shutdown"
    assert read(*before, (LOGIN, 1), (BOOT, 30)) == "no-shutdown"
    assert read(*before, (BOOT, 30), (SHUTDOWN, 50), (BOOT, 70)) == "no-shutdown"
    assert read(*before) == "absent"
    # A run level that is no shutdown, within a second of the last sign of life.
    assert read(*before, ((1, b"runlevel"), 1), (BOOT, 30)) == "no-shutdown"
    assert read(*before, (SHUTDOWN, -0.5), (BOOT, 0.25)) == "no-shutdown"


def test_a_wtmp_that_tells_nothing(tmp_path: Path) -> None:
    """Missing, foreign architecture, no sign of life, truncated, or flooded with logins."""
    path = wtmp(tmp_path, entry(SHUTDOWN, ALIVE_S + 5))
    assert last_boot.read_wtmp(tmp_path / "none", ALIVE_S * S, "x86_64") == "absent"
    assert last_boot.read_wtmp(path, ALIVE_S * S, "vax") == "absent"
    assert last_boot.read_wtmp(path, 0, "x86_64") == "absent"
    torn = wtmp(tmp_path, b"torn", entry(SHUTDOWN, ALIVE_S + 5))
    assert last_boot.read_wtmp(torn, ALIVE_S * S, "x86_64") == "shutdown"
    logins = [entry(LOGIN, ALIVE_S + 1)] * last_boot.WTMP_ENTRIES_MAX
    flooded = wtmp(tmp_path, entry(SHUTDOWN, ALIVE_S + 5), *logins)
    assert last_boot.read_wtmp(flooded, ALIVE_S * S, "x86_64") == "absent"


# --- the kernel's crash store


def put(path: Path, data: bytes, at_s: float = ALIVE_S + 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (at_s, at_s))


def test_why_the_kernel_wrote_a_record(tmp_path: Path) -> None:
    """The first line has the reason; the worst counts; records before the last sign of life do not."""

    def read() -> str:
        return last_boot.read_crash(tmp_path, ALIVE_S * S)

    store = tmp_path / PSTORE
    assert read() == "none"
    put(store / "dmesg-efi-1", b"Panic#1 Part1\n<0>[ 1.0] Kernel panic", ALIVE_S - 1000)
    put(store / "pmsg-ramoops-0", b"Panic#1 Part1\nsomebody's words")
    put(store / "dmesg-efi-2", b"Panic of another kind")
    assert read() == "none"
    put(store / "dmesg-efi-3", b"Shutdown#2 Part1\n<6>[ 2.0] reboot: Restarting system")
    assert read() == "shutdown"
    put(store / "dmesg-efi-3", b"Restart#2 Part1\n<6>[ 2.0]")
    assert read() == "shutdown"
    put(store / "dmesg-efi-4", b"Emergency#2 Part1\n<6>[ 2.0] sysrq: Resetting")
    assert read() == "emergency"
    put(store / "dmesg-efi-5", b"Oops#3 Part1\n<4>[ 2.0] Oops: 0002")
    assert read() == "oops"
    put(tmp_path / last_boot.PSTORE_ARCHIVE / "1800000001" / "001" / "dmesg-efi-6", b"Panic#4 Part1\n<0>")
    assert read() == "panic"


# --- the system journal: the real program is in tests/machine


def journalctl(tmp_path: Path, script: str) -> tuple[str, ...]:
    path = tmp_path / "journalctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return (str(path),)


def test_a_system_journal_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing program, no entry of that boot; failing or garbled output."""
    assert last_boot.read_journal(NO_PROGRAM, "b1") == last_boot.LogEnd()
    assert last_boot.read_journal(journalctl(tmp_path, "exit 0"), "b1") == last_boot.LogEnd()
    for script in ("exit 1", "echo not json", 'echo "[]"', """echo '{"__MONOTONIC_TIMESTAMP": "x"}'"""):
        with pytest.raises(ValueError):
            last_boot.read_journal(journalctl(tmp_path, script), "b1")


#: Selects as journalctl does: all fields of a list, or all of the list behind a plus.
SELECTS = """
import json, pathlib, sys
lists, count = [[]], 0
for word in sys.argv[1:]:
    name, _, value = word.partition("=")
    if word == "+":
        lists.append([])
    elif name == "--lines":
        count = int(value)
    elif name.strip("-") == name:
        lists[-1].append((name, value))
entries = json.loads(pathlib.Path(sys.argv[0]).with_name("entries.json").read_text())
found = [each for each in entries if any(all(each.get(k) == v for k, v in asked) for asked in lists)]
for each in found[-count:]:
    print(json.dumps(each))
"""
SYSTEMD, LOGIND = {"_PID": "1"}, {"_PID": "700", "_SYSTEMD_UNIT": "systemd-logind.service"}
REACHED = {"MESSAGE_ID": last_boot.UNIT_STARTED, "UNIT": last_boot.SHUTDOWN_UNIT}
LOCKUP = {"PRIORITY": "0", "MESSAGE": "watchdog: BUG: soft lockup - CPU#1 stuck"}
KEY, STOP = {"MESSAGE_ID": last_boot.POWER_KEYS[1]}, {"MESSAGE_ID": last_boot.JOURNAL_STOP}


def read_entries(tmp_path: Path, *entries: tuple[int, dict[str, str]]) -> last_boot.LogEnd:
    """Of a journal with these entries, each a number of seconds after the start."""
    made = []
    for at_s, fields in entries:
        times = {"__MONOTONIC_TIMESTAMP": f"{at_s * 1_000_000}", "__REALTIME_TIMESTAMP": f"{at_s}"}
        made.append({"_BOOT_ID": "b1", "_UID": "0", "_TRANSPORT": "journal", **times, **fields})
    (tmp_path / "entries.json").write_text(json.dumps(made))
    (tmp_path / "journalctl").write_text(SELECTS)
    return last_boot.read_journal((sys.executable, str(tmp_path / "journalctl")), "b1")


def test_what_was_long_before_the_end_does_not_count(tmp_path: Path) -> None:
    """A soft reboot reached the shutdown target in the same boot; a kernel survived an earlier hang."""
    kernel = {"_TRANSPORT": "kernel"}
    for at_s, counts in ((1000, True), (100, False)):
        found = read_entries(tmp_path, (at_s, SYSTEMD | REACHED), (at_s, kernel | LOCKUP), (1001, {}))
        assert found == last_boot.LogEnd("shutdown" if counts else "no-shutdown", counts, False, 1_001_000)


def test_a_local_user_forges_no_end(tmp_path: Path) -> None:
    """Any user may log any message id, unit and priority. Only the sender that journald saw counts."""
    key, stop = LOGIND | KEY, {"_TRANSPORT": "driver"} | STOP
    assert read_entries(tmp_path, (10, key), (11, stop)) == last_boot.LogEnd("stopped", False, True, 11_000)
    user = {"_UID": "65534", "_SYSTEMD_UNIT": "user@65534.service"}
    # More than are read: they must not hide systemd's own entry.
    forged = [(11, each | user) for each in (REACHED, LOCKUP, KEY, STOP) for _ in range(100)]
    assert read_entries(tmp_path, (10, {}), *forged) == last_boot.LogEnd("no-shutdown", False, False, 11_000)
    # In a container of its own root, its systemd is process 1 there and not here.
    inside = [(11, each | {"_PID": "4001"}) for each in (REACHED, KEY, STOP)]
    assert read_entries(tmp_path, *inside).end == "no-shutdown"
    assert read_entries(tmp_path, (10, SYSTEMD | REACHED), *forged).end == "shutdown"


# --- the edge


def test_the_sign_of_life_is_of_one_boot(tmp_path: Path) -> None:
    """Another boot's sign of life, or a damaged one, does not count."""
    folder = tmp_path / "node"
    assert last_boot.alive_wall_ns(folder, "b1") == 0
    last_boot.show_alive(folder, "b1")
    assert last_boot.alive_wall_ns(folder, "b1") > 0
    assert last_boot.alive_wall_ns(folder, "b2") == 0
    os.utime(folder / last_boot.ALIVE_NAME, (ALIVE_S, ALIVE_S))
    assert last_boot.alive_wall_ns(folder, "b1") == ALIVE_S * S
    last_boot.show_alive(folder, "b1")
    assert last_boot.alive_wall_ns(folder, "b1") not in (0, ALIVE_S * S)
    last_boot.show_alive(folder, "b2")
    assert (last_boot.alive_wall_ns(folder, "b1"), last_boot.alive_wall_ns(folder, "b2") > 0) == (0, True)
    assert [each.name for each in folder.iterdir()] == [last_boot.ALIVE_NAME]


@pytest.mark.parametrize("arms", [True, False])
async def test_read_once_armed_and_alive_each_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arms: bool
) -> None:
    """No read happens before arming. A daemon that never arms reads a little later."""
    monkeypatch.setattr(last_boot, "ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(last_boot, "UNARMED_SECONDS", 3600.0 if arms else 0.01)
    folder, outbox = tmp_path / "node", Outbox()
    edge = last_boot.LastBootEdge(folder, "b2", "b1", last_boot.Machine(tmp_path, NO_PROGRAM))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, outbox)
        await trio.testing.wait_all_tasks_blocked()
        if arms:
            assert outbox.facts == []
            edge.prewarm()
        assert await outbox.wait_for(LastBootRead) == [LastBootRead(boot_id="b1")]
        await until(lambda: last_boot.alive_wall_ns(folder, "b2") > 0, "no sign of life")
        for _ in range(2):
            os.utime(folder / last_boot.ALIVE_NAME, (1, 1))
            await until(lambda: last_boot.alive_wall_ns(folder, "b2") > S, "no sign of life")
        edge.detach()
        nursery.cancel_scope.cancel()
    assert len(outbox.facts) == 1
