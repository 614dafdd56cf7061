"""Every command beside a daemon that runs under the real logind: before, in, and after a shutdown."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import PodEnded, SendSignal
from ebbtide.events.facts import HurryRequested, NodeMeasured, ReleaseRequested
from tests.cli.test_status import STATUS, Daemon
from tests.commands import Ran
from tests.daemon.conftest import rig
from tests.daemon.rig import EBBTIDE, Rig

__all__ = ["rig"]

pytestmark = [pytest.mark.root]

ROOT = Path(__file__).parents[2]


async def ebbtide(rig: Rig, *words: object) -> Ran:
    """A command on the rig's node: its mounts, its processes, its bus."""
    command = [*rig.enter, *EBBTIDE, *map(str, words)]
    done = await trio.run_process(
        command, capture_stdout=True, capture_stderr=True, env=rig.environment, cwd=ROOT, check=False
    )
    assert isinstance(done, subprocess.CompletedProcess)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


async def answer(rig: Rig, *words: object) -> Any:
    """The JSON document that a command prints."""
    return json.loads((await ebbtide(rig, *words, "-o", "json")).out)


def doctor(rig: Rig) -> tuple[object, ...]:
    return ("doctor", "--config", rig.config, "--journal", rig.journal, "--runtime", rig.runtime)


async def test_a_healthy_node(rig: Rig) -> None:
    """Armed, nothing for the doctor to find, the budget holds, and the plan knows grant and pods."""
    rig.configure({0: 4, 1000: 2})
    rig.pod("web-0", grace=60)
    await rig.start()
    await rig.up("web-0")
    status = await answer(rig, "status", "--journal", rig.journal, "--runtime", rig.runtime)
    assert (status["running"], status["armed"], status["sufficient"]) == (True, True, True)
    await rig.bed.until("InhibitDelayMaxUSec", 7_000_000)
    found = await ebbtide(rig, *doctor(rig))
    assert found.code == 0, found
    assert "grace-beyond" in found.out
    drilled = await ebbtide(
        rig, "drill", "--config", rig.config, "--journal", rig.journal, "--runtime", rig.runtime
    )
    assert drilled.code == 0, drilled
    assert "the budget holds" in drilled.out
    # The daemon keeps it: of its journal's disk, its bus, its processes.
    await rig.recorded(NodeMeasured)
    (measured,) = rig.events(NodeMeasured)
    assert measured.sync_ns > 0
    assert measured.logind_ns > 0
    assert measured.exec_ns > 0
    status = await answer(rig, "status", "--journal", rig.journal, "--runtime", rig.runtime)
    assert status["margins"]["measured"] == measured.measured_wall_ns / NS_PER_SECOND
    plan = await answer(rig, "plan", "--config", rig.config, "--runtime", rig.runtime)
    assert (plan["grantSeconds"], plan["overrideNeeded"]) == (7, False)
    assert [pod["name"] for pod in plan["waves"][0]["pods"]] == ["web-0"]
    assert await rig.stop() == 0


async def test_the_doctor_misses_the_lock(rig: Rig) -> None:
    """A daemon that believes it is armed, and a logind that lists no lock of ours: critical."""
    rig.runtime.mkdir()
    believer = Daemon(rig.runtime / "ebbtide.sock")
    believer.answers["status"] = STATUS
    try:
        ill = await ebbtide(rig, *doctor(rig), "-o", "json")
    finally:
        believer.close()
    codes = [each["code"] for each in json.loads(ill.out)["findings"] if each["level"] == "critical"]
    assert (ill.code, codes) == (1, ["lock-missing"])


async def test_hurry_and_release_in_mid_shutdown(rig: Rig) -> None:
    """Both reach the daemon, end what they should, and stand in the journal with the asker's uid."""
    rig.configure({0: 30, 1000: 30})
    for name, priority in (("slow-0", 0), ("slow-1", 1000)):
        rig.pod(name, "ignore", priority=priority, grace=30)
    await rig.start()
    await rig.up("slow-0", "slow-1")
    none = await ebbtide(rig, "release", "--runtime", rig.runtime)
    assert (none.code, none.err.count("\n")) == (2, 1)
    await rig.bed.power_off()
    await rig.traced("slow-0", "TERM")
    status = await ebbtide(rig, "status", "--journal", rig.journal, "--runtime", rig.runtime)
    assert status.code == 0
    assert "default/slow-0" in status.out
    hurried = await ebbtide(rig, "hurry", "slow-0", "--runtime", rig.runtime)
    assert hurried.code == 0, hurried
    await rig.recorded(PodEnded, outcome="killed")
    await rig.traced("slow-1", "TERM")
    released = await ebbtide(rig, "release", "--runtime", rig.runtime)
    assert released.code == 0, released
    await rig.bed.started()
    assert [event.asked_by for event in rig.events(HurryRequested)] == [0]
    assert [event.asked_by for event in rig.events(ReleaseRequested)] == [0]
    assert len(rig.events(SendSignal)) == 2
    listed = await answer(rig, "journal", "ls", "--journal", rig.journal)
    assert listed["episodes"][0]["outcome"] == "complete"
