"""Which processes belong to a tree, and killing trees."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.linux import proc, processes

SMALL = st.integers(min_value=1, max_value=12)


@st.composite
def looks(draw: st.DrawFn) -> list[proc.ProcessStat]:
    pids = draw(st.lists(SMALL, unique=True))
    state = st.sampled_from("SZ")
    return [
        proc.ProcessStat(pid, "x", draw(state), draw(SMALL), draw(SMALL), draw(SMALL), draw(SMALL))
        for pid in pids
    ]


@given(looks(), st.lists(st.builds(processes.TreeRoot, SMALL, SMALL)))
def test_a_tree_is_the_smallest_set_that_is_closed(
    look: list[proc.ProcessStat], roots: list[processes.TreeRoot]
) -> None:
    """The members equal a slow fixed point of the rules, without zombies."""
    exact = {(stat.pid, stat.start_ticks) for stat in look}
    alive = {root.pid for root in roots if (root.pid, root.start_ticks) in exact}
    wanted = {stat.pid for stat in look if alive & {stat.pid, stat.session, stat.group}}
    while more := {stat.pid for stat in look if stat.parent_pid in wanted} - wanted:
        wanted |= more
    found = processes.tree_members(look, roots)
    assert {stat.pid for stat in found} == {
        stat.pid for stat in look if stat.pid in wanted and stat.state != "Z"
    }


def test_kill_exactly_spares_a_number_s_new_owner() -> None:
    """Another start time protects the PID's new owner; PID 0 matches no process."""
    child = subprocess.Popen(["sleep", "1000"])
    stat = proc.read_stat(child.pid)
    assert stat is not None
    processes.kill_exactly(child.pid, stat.start_ticks + 1)
    processes.kill_exactly(0, 0)
    assert child.poll() is None
    processes.kill_exactly(child.pid, stat.start_ticks)
    assert child.wait() == -9
    processes.kill_exactly(child.pid, stat.start_ticks)


@pytest.mark.parametrize(("broken", "looks_max"), [(False, 3), (True, 2)], ids=["works", "breaks"])
async def test_trees_are_killed_together(
    monkeypatch: pytest.MonkeyPatch, broken: bool, looks_max: int
) -> None:
    """One look serves all parallel orders. Without a descriptor for it, the first processes die by PID."""
    looks, real, killer = list[None](), proc.all_pids, processes.TreeKiller()

    def counted() -> list[int]:
        looks.append(None)
        if broken:
            raise OSError(errno.EMFILE, "too many open files")
        return real()

    monkeypatch.setattr(proc, "all_pids", counted)
    children = [subprocess.Popen(["sleep", "1000"]) for _ in range(20)]
    stats = [stat for child in children if (stat := proc.read_stat(child.pid)) is not None]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(killer.run)
        async with trio.open_nursery() as orders:
            for stat in stats:
                orders.start_soon(killer.kill, processes.TreeRoot(stat.pid, stat.start_ticks))
        nursery.cancel_scope.cancel()
    assert [child.wait() for child in children] == [-9] * 20
    assert len(looks) <= looks_max


async def test_a_fork_bomb_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run between two looks."""
    looks, killer = list[None](), processes.TreeKiller()

    def finds_more(roots: object, known: object) -> bool:
        looks.append(None)
        return True

    monkeypatch.setattr(processes, "kill_new", finds_more)
    async with trio.open_nursery() as nursery:
        killer.kill_soon(processes.TreeRoot(1, 1))
        nursery.start_soon(killer.run)
        while not looks:
            await trio.lowlevel.checkpoint()
        assert len(looks) < processes.LOOKS_MAX
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
    """Hybrid and unified hierarchies, bind mounts, and groups outside the mount."""
    assert processes.delegated_group(mounts, own) == (Path(wanted) if wanted else None)
