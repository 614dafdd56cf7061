"""The daemon under its supervisor on the real logind: `ebbtide run --keep-lock`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ebbtide.events.decisions import Armed, ReleaseLock, Resumed, ShutdownBegan
from ebbtide.events.facts import DaemonStarted, OrderEnded
from tests.daemon.rig import Rig
from tests.waiting import until

pytestmark = pytest.mark.root


@pytest.fixture
async def kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A rig whose process is the supervisor."""
    monkeypatch.setattr(Rig, "argv", [*rig.argv, "--keep-lock"])
    return rig


def only_child(pid: int) -> int:
    (child,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return child


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def test_the_lock_outlives_a_killed_daemon(kept: Rig) -> None:
    """Rule 5: after a kill logind waits; the next daemon resumes and releases."""
    kept.configure({0: 60})
    kept.pod("web", "after=2")
    kept.launch()
    await kept.recorded(Armed)
    await kept.up("web")
    supervisor = kept.pid
    first = only_child(supervisor)
    await kept.bed.power_off()
    await kept.traced("web", "TERM")
    # A kill before the recorded outcome would repeat the signal.
    await until(
        lambda: any(ended.key.startswith("HookActor/stop") for ended in kept.events(OrderEnded)), "the stop"
    )
    os.kill(supervisor, signal.SIGSTOP)  # or the next daemon could be there before anyone looks
    os.kill(first, signal.SIGKILL)
    await until(lambda: is_zombie(first), "the daemon's end")
    assert [row.who for row in await kept.bed.ours()] == ["ebbtide"]
    assert await kept.bed.starts() == []
    os.kill(supervisor, signal.SIGCONT)
    await kept.recorded(Resumed, action="resume")
    assert only_child(supervisor) != first
    assert [event.lock_inherited for event in kept.events(DaemonStarted)] == [False, True]
    _, let_go_ns = await kept.bed.started()
    web = kept.trace("web")
    assert [mark.what for mark in web] == ["up", "TERM", "gone"]
    assert web[-1].at_ns < let_go_ns
    assert await kept.bed.none_of_ours()
    assert len(kept.events(ShutdownBegan)) == 1
    assert len(kept.events(ReleaseLock)) == 1
