"""Ebbtide on a whole machine: the built wheel, the shipped unit, a normal systemd."""

from __future__ import annotations

import json
import time

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.facts import AutopsyTaken, DaemonStarted, PodAppeared, ScheduleRead, SettingsRejected
from tests.beds.machine import Machine
from tests.beds.rootfs import SOFT_REBOOTS, SUITES
from tests.machine.node import UNITS, Node
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.machine]

#: A machine without a free processor is slow, not broken.
PATIENT = """[Service]
Environment=EBBTIDE_BOUNDS_FACTOR=10
WatchdogSec=10min
TimeoutStartSec=10min
"""
#: Only the mode: pods run in the daemon's sandbox.
SANDBOXED = """[Service]
ExecStart=
ExecStart=/usr/local/bin/ebbtide run --mode process --pods /etc/ebbtide/pods
ReadWritePaths=/var/lib/pods
"""
#: The lowest possible; systemd 252 counts slightly differently.
EXPOSURE_MAX = 2.8
INHIBITORS = ("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1")
MANAGER = "org.freedesktop.login1.Manager"


@pytest.fixture
async def node(machine: Machine) -> Node:
    """Installed, with two pods in two waves; off."""
    made = Node(machine)
    made.install()
    made.configure({0: 6, 1000: 6})
    made.pod("web", "after=1", hook=1)
    made.pod("db", "after=1", priority=1000)
    return made


async def booted(node: Node) -> None:
    """Armed, with both pods and the whole grant: with less, web has no time for its hook."""
    await node.machine.boot()
    await node.armed("web", "db")
    await until(lambda: any(each.sufficient for each in node.events(d.GrantAssessed)[-1:]), "no full grant")


def waited_for_us(node: Node, kind: str) -> None:
    """Each pod ended in order, and the release is on the disk."""
    assert [mark.what for mark in node.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [mark.what for mark in node.trace("db")] == ["up", "TERM", "gone"]
    assert node.trace("web")[-1].at_ns < node.trace("db")[1].at_ns
    assert [began.kind for began in node.events(d.ShutdownBegan)] == [kind]
    assert len(node.events(d.ReleaseLock)) == 1
    assert node.events(d.PodsEnded)[-1].unfinished == ()
    assert node.replays() > 0


async def until_recorded(node: Node, count: int) -> list[ScheduleRead]:
    """Wait until the journal has so many schedules."""
    await until(lambda: len(node.events(ScheduleRead)) >= count, f"no {count} schedules")
    return node.events(ScheduleRead)


async def lock_holders(node: Node) -> str:
    return (await node.machine.run(*INHIBITORS, MANAGER, "ListInhibitors")).stdout


@pytest.mark.gate
@pytest.mark.parametrize("machine", SUITES[:1], indirect=True)
async def test_poweroff_waits_and_the_next_boot_says_complete(node: Node) -> None:
    """`systemctl poweroff` waits for our lock, and both waves end first; the next boot finds the journal and
    says how it ended. Each wave and pod has ten minutes: a slow machine changes no fate.

    The system's journal finds its lines by pod.
    """
    node.machine.write(f"{UNITS}/ebbtide.service.d/patient.conf", PATIENT)
    node.configure({0: 600, 1000: 600})
    node.pod("web", "after=1", hook=1, grace_seconds=600)
    node.pod("db", "after=1", priority=1000, grace_seconds=600)
    await booted(node)
    await node.machine.run("systemctl", "poweroff")
    assert await node.machine.wait_left() == 0
    waited_for_us(node, "poweroff")
    await booted(node)
    lines = (await node.machine.system_log("EBBTIDE_POD=default/web", "-o", "json")).splitlines()
    (ended,) = (line for line in map(json.loads, lines) if line["EBBTIDE_EVENT"] == "PodEnded")
    assert ended["EBBTIDE_TRACE_ID"] == await trace_of_the_last(node)
    assert ended["_SYSTEMD_UNIT"] == "ebbtide.service"
    assert [closed.outcome for closed in node.events(d.EpisodeClosed)] == ["complete"]
    assert "last shutdown: complete" in await node.log()
    await node.machine.pull_the_plug()


async def trace_of_the_last(node: Node) -> str:
    shown = await node.machine.run("/usr/local/bin/ebbtide", "journal", "ls", "-o", "json")
    return str(json.loads(shown.stdout)["episodes"][-1]["traceId"])


@pytest.mark.parametrize("machine", [SOFT_REBOOTS], indirect=True)
async def test_a_soft_reboot_waits_and_is_another_userspace(node: Node) -> None:
    """`systemctl soft-reboot` (254 and later) waits too; the new userspace reports the old one's end."""
    await booted(node)
    before = node.machine.init
    await node.machine.run("systemctl", "soft-reboot")
    await until(lambda: len(node.trace("db", "up")) >= 2, "db is not up again")
    await node.machine.wait_booted()
    await node.armed()
    assert node.machine.init == before
    assert [began.kind for began in node.events(d.ShutdownBegan)] == ["soft-reboot"]
    assert [mark.what for mark in node.trace("web")] == ["up", "hook", "hooked", "TERM", "gone", "up"]
    assert [closed.outcome for closed in node.events(d.EpisodeClosed)] == ["complete"]
    started = node.events(DaemonStarted)
    assert started[0].boot_id == started[-1].boot_id
    assert started[0].userspace_id != started[-1].userspace_id
    await node.machine.pull_the_plug()


async def test_a_scheduled_shutdown_is_known_cancelled_and_kept(node: Node) -> None:
    """`shutdown +1` and `shutdown -c` are recorded with the requester; a due schedule waits."""
    await booted(node)
    await node.machine.run("shutdown", "+1", "new kernel")
    (scheduled,) = await until_recorded(node, 1)
    assert (scheduled.kind, scheduled.uid, scheduled.wall_message) == ("poweroff", 0, "new kernel")
    await node.machine.run("shutdown", "-c")
    assert (await until_recorded(node, 2))[-1].at_wall_ns == 0
    assert node.events(d.ShutdownBegan) == []
    due_us = time.time_ns() // 1000 + 2_000_000
    await node.machine.run(*INHIBITORS, MANAGER, "ScheduleShutdown", "st", "poweroff", str(due_us))
    assert await node.machine.wait_left() == 0
    waited_for_us(node, "poweroff")


async def test_bypassing_logind_ends_the_pods_in_overtime(node: Node) -> None:
    """Without logind's signal, SIGTERM is the first notice, and the waves still run."""
    await booted(node)
    bypass = ("start", "poweroff.target", "--job-mode=replace-irreversibly", "--no-block")
    await node.machine.run("systemctl", *bypass)
    assert await node.machine.wait_left() == 0
    waited_for_us(node, "unknown")
    assert [detected.overtime for detected in node.events(d.ShutdownDetected)] == [True]


async def test_force_ends_in_overtime_as_well(node: Node) -> None:
    """`systemctl --force poweroff` signals all at once; the daemon stays until its pods end."""
    await booted(node)
    await node.machine.run("systemctl", "--force", "poweroff", check=False)
    assert await node.machine.wait_left() == 0
    assert [detected.overtime for detected in node.events(d.ShutdownDetected)] == [True]
    assert {event.outcome for event in node.events(d.PodEnded)} == {"graceful"}
    assert [node.trace(pod)[-1].what for pod in ("web", "db")] == ["gone", "gone"]
    assert len(node.events(d.ReleaseLock)) == 1
    assert node.replays() > 0


async def test_a_hung_daemon_does_not_cost_the_shutdown(node: Node) -> None:
    """systemd kills the stopped daemon; the next one gets the lock and continues."""
    node.configure({0: 14, 1000: 6})
    node.pod("mail", hook=2)
    await booted(node)
    await until(lambda: node.trace("mail", "up"), "mail is not up")
    await node.machine.run("systemctl", "poweroff")
    await until(lambda: node.trace("mail", "hook"), "no hook")
    await node.machine.run("systemctl", "kill", "--signal=STOP", "--kill-who=main", "ebbtide")
    assert await node.machine.wait_left() == 0
    waited_for_us(node, "poweroff")
    assert [mark.what for mark in node.trace("mail")] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [started.lock_inherited for started in node.events(DaemonStarted)] == [False, True]
    assert {event.outcome for event in node.events(d.PodEnded)} == {"graceful"}


async def test_the_unit_restarts_without_its_pods(node: Node) -> None:
    """Stop, start and kill spare the pods; a killed daemon's lock stays."""
    await booted(node)
    await node.machine.run("systemctl", "restart", "ebbtide")
    await node.armed()
    before = await node.machine.run("systemctl", "show", "-P", "MainPID", "ebbtide")
    await node.machine.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", "ebbtide")
    assert '"ebbtide"' in await lock_holders(node)
    await until(lambda: len(node.events(DaemonStarted)) >= 3, "no third start")
    await node.armed()
    assert [started.lock_inherited for started in node.events(DaemonStarted)][1:] == [True, True]
    assert before.stdout != (await node.machine.run("systemctl", "show", "-P", "MainPID", "ebbtide")).stdout
    assert [len(node.trace(pod)) for pod in ("web", "db")] == [1, 1]
    # With the unit's state folders it survives a logind restart too.
    await node.machine.run("systemctl", "restart", "systemd-logind")
    await node.armed()
    assert (await lock_holders(node)).count('"ebbtide"') == 1
    await node.machine.run("systemctl", "stop", "ebbtide")
    assert '"ebbtide"' not in await lock_holders(node)
    assert [len(node.trace(pod)) for pod in ("web", "db")] == [1, 1]
    for pod in ("web", "db"):
        await node.machine.run("sh", "-c", f"kill -0 {node.trace(pod)[0].pid}")
    # Their records stay: the next daemon does not start them again.
    starts = len(node.events(DaemonStarted))
    await node.machine.run("systemctl", "start", "ebbtide")
    await until(lambda: len(node.events(DaemonStarted)) == starts + 1, "no start")
    await node.armed()
    assert len(node.events(PodAppeared)) == 2
    assert [len(node.trace(pod)) for pod in ("web", "db")] == [1, 1]
    await node.machine.pull_the_plug()


async def test_the_sandbox_lets_the_daemon_do_its_work(machine: Machine) -> None:
    """In the shipped sandbox it raises the grant, reloads, runs hooks, examines and kills a straggler."""
    node = Node(machine)
    node.install(SANDBOXED)
    node.configure({0: 6, 1000: 3})
    node.pod("web", hook=0.5)
    node.pod("db", "ignore", priority=1000)
    await booted(node)
    verified = await machine.run(
        "systemd-analyze", "verify", "/etc/systemd/system/ebbtide.service", check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    assert await exposure(node) <= EXPOSURE_MAX
    machine.write("/etc/ebbtide/config.yaml", "kind: Nonsense")
    await machine.run("systemctl", "reload", "ebbtide")
    await until(lambda: node.events(SettingsRejected), "nothing is rejected")
    await machine.run("systemctl", "poweroff")
    assert await machine.wait_left() == 0
    assert [mark.what for mark in node.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [began.grant_ns for began in node.events(d.ShutdownBegan)] == [14_000_000_000]
    assert [event.outcome for event in node.events(d.PodEnded)] == ["graceful", "killed"]
    (autopsy,) = node.events(AutopsyTaken)
    assert autopsy.processes[0].command == "python3"
    assert autopsy.processes[0].state == "sleeping"
    assert node.replays() > 0


async def exposure(node: Node) -> float:
    """The unit's exposure by `systemd-analyze security`, 0 to 10."""
    said = await node.machine.run("systemd-analyze", "security", "--no-pager", "ebbtide", check=False)
    line = next(line for line in said.stdout.splitlines() if "Overall exposure level" in line)
    return float(line.partition("service: ")[2].split()[0])
