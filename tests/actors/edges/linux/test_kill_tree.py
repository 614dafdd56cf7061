"""Which processes belong to a tree, told from one look; and looks that a hung process cannot hold."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.kill_tree import (
    GAP_NS,
    Mark,
    Marker,
    ProcessScanner,
    ScannedProcess,
    TreeKey,
    TreeKiller,
    TreeRoot,
    delegated_group,
    kill_exactly,
    tree_keys,
    tree_members,
)
from tests.waiting import WATCHDOG_SECONDS, until

KEYS = [("p", "a"), ("p", "b"), ("q", "a")]
SMALL = st.integers(min_value=1, max_value=12)
MARKS = st.none() | st.sampled_from(KEYS).map(lambda key: Mark(*key, "order"))


@st.composite
def looks(draw: st.DrawFn) -> list[ScannedProcess]:
    pids = draw(st.lists(SMALL, unique=True))
    return [
        ScannedProcess(
            proc.ProcessStat(
                pid, "x", draw(st.sampled_from("SZ")), draw(SMALL), draw(SMALL), draw(SMALL), draw(SMALL)
            ),
            draw(MARKS),
        )
        for pid in pids
    ]


ROOTS = st.dictionaries(st.sampled_from([*KEYS, ("", "order")]), st.builds(TreeRoot, SMALL, SMALL))


@given(looks(), ROOTS)
def test_a_tree_is_the_smallest_set_that_is_closed(
    look: list[ScannedProcess], roots: dict[TreeKey, TreeRoot]
) -> None:
    """Members are exactly what a slow fixed point over the same rules gives, zombies left out."""
    exact = {(item.pid, item.stat.start_ticks) for item in look}
    alive = {root.pid for root in roots.values() if (root.pid, root.start_ticks) in exact}
    wanted = {
        item.pid
        for item in look
        if alive & {item.pid, item.stat.session, item.stat.group} or roots.keys() & set(tree_keys(item))
    }
    while more := {item.pid for item in look if item.stat.parent_pid in wanted} - wanted:
        wanted |= more
    found = tree_members(look, roots)
    assert {item.pid for item in found} == {
        item.pid for item in look if item.pid in wanted and item.stat.state != "Z"
    }


def test_kill_exactly_spares_a_number_s_new_owner() -> None:
    """A start time that does not fit saves whoever has the number now; number 0 is nobody."""
    child = subprocess.Popen(["sleep", "1000"])
    stat = proc.read_stat(child.pid)
    assert stat is not None
    kill_exactly(child.pid, stat.start_ticks + 1)
    kill_exactly(0, 0)
    assert child.poll() is None
    kill_exactly(child.pid, stat.start_ticks)
    assert child.wait() == -9
    kill_exactly(child.pid, stat.start_ticks)


async def test_a_look_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs its readers costs one bounded wait; then looks go on without marks."""
    release = threading.Event()
    scanner = ProcessScanner(Marker(tmp_path))
    real = scanner.look_now

    calls = []

    def hang() -> list[ScannedProcess]:
        calls.append(release.wait(WATCHDOG_SECONDS))
        return real()

    monkeypatch.setattr(scanner, "look_now", hang)
    try:
        first = await scanner.look(0.05)
        second = await scanner.look()
        for look in (first, second):
            assert os.getpid() in {item.pid for item in look}
            assert all(item.mark is None for item in look)
    finally:
        release.set()
    await until(lambda: calls, "no look")
    assert calls == [True]


async def test_leftovers_are_looked_for_together(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """However many containers end, looks keep a distance; an asked-for kill does not wait for that."""
    looks: list[None] = []
    scanner = ProcessScanner(Marker(Path("/nowhere")))

    async def counted() -> list[ScannedProcess]:
        looks.append(None)
        return []

    monkeypatch.setattr(scanner, "look", counted)
    sweeper = TreeKiller(scanner, lambda: int(trio.current_time() * 1_000_000_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        for number in range(20):
            sweeper.leftovers(("p", str(number)))
            await trio.sleep(0.001)
        assert len(looks) == 1
        asked = trio.current_time()
        await sweeper.kill(("p", "now"), TreeRoot())
        assert (len(looks), trio.current_time()) == (2, asked)
        sweeper.leftovers(("p", "last"))
        await trio.sleep(0.9 * GAP_NS / 1_000_000_000)
        assert len(looks) == 2
        await trio.sleep(0.2 * GAP_NS / 1_000_000_000)
        assert len(looks) == 3
        nursery.cancel_scope.cancel()


async def test_a_look_that_fails_ends_neither_the_sweeps_nor_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a descriptor for a look the asked-for process is killed, and its tree when looks work again."""
    scanner = ProcessScanner(Marker(Path("/nowhere")))

    def fail() -> list[int]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(proc, "all_pids", fail)
    sweeper = TreeKiller(scanner)
    child = subprocess.Popen(["sleep", "1000"])
    stat = proc.read_stat(child.pid)
    assert stat is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweeper.run)
        await sweeper.kill(("q", "a"), TreeRoot(child.pid, stat.start_ticks))
        assert child.wait() == -9
        monkeypatch.undo()
        looked = trio.Event()
        real = scanner.look

        async def look() -> list[ScannedProcess]:
            looked.set()
            return await real()

        monkeypatch.setattr(scanner, "look", look)
        await until(looked.is_set, "no look")
        nursery.cancel_scope.cancel()


MOUNTS = """\
24 1 0:20 / /sys rw - sysfs sysfs rw
36 24 0:31 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw
37 24 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
"""
BELOW = "36 24 0:31 /system.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    "mounts, own, wanted",
    [
        (MOUNTS, "1:cpu:/x\n0::/a/b\n", "/sys/fs/cgroup/unified/a/b"),
        (MOUNTS, "0::/\n", "/sys/fs/cgroup/unified"),
        (MOUNTS, "1:cpu:/x\n", None),
        ("", "0::/\n", None),
        (BELOW, "0::/system.slice/us\n", "/sys/fs/cgroup/us"),
        (BELOW, "0::/user.slice\n", None),
        (MOUNTS, "0::/../elsewhere\n", None),
    ],
)
def test_our_own_group_is_found_in_the_file_system(mounts: str, own: str, wanted: str | None) -> None:
    """Hybrid and unified hierarchies, bind mounts and groups outside of what is mounted."""
    assert delegated_group(mounts, own) == (Path(wanted) if wanted else None)
