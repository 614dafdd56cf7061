"""Rule 5: the lock in the service manager's store, its duplicates, and the proof that it is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.edges.logind import LogindEdge
from actors.edges.service import LOCK_NAME, ServiceManager
from events.decisions import Arm, Disarm, ReleaseLock
from events.facts import BusLost, PrepareForShutdown
from tests.beds.logind import LogindBed
from tests.beds.notify import notify_bed
from tests.logind.conftest import running

pytestmark = pytest.mark.root


async def test_the_lock_is_stored_without_polling(bed: LogindBed, tmp_path: Path) -> None:
    """Rule 5: FDSTORE, the name, and FDPOLL=0, with one descriptor."""
    async with notify_bed(tmp_path) as manager:
        service = ServiceManager(manager.address)
        async with running(LogindEdge(bed.address, root=bed.root, service=service)) as rig:
            await rig.do(Arm(key="a"))
            said = await manager.wait("FDSTORE")
            assert said == {"FDSTORE": "1", "FDNAME": LOCK_NAME, "FDPOLL": "0"}
            assert len(manager.store[LOCK_NAME]) == 1


async def test_closing_one_of_two_duplicates_releases_nothing(bed: LogindBed, tmp_path: Path) -> None:
    """Rule 5: our process dies, the store's duplicate goes on to hold the machine."""
    async with notify_bed(tmp_path) as manager:
        edge = LogindEdge(bed.address, root=bed.root, service=ServiceManager(manager.address))
        async with running(edge) as rig:
            await rig.do(Arm(key="a"))
            await manager.wait("FDSTORE")
            rig.die()
            assert len(await bed.ours()) == 1
        manager.close()
        assert await bed.none_of_ours()


async def test_an_inherited_lock_counts(bed: LogindBed, tmp_path: Path) -> None:
    """Rule 5: after a crash in a shutdown, when no lock can be had, the kept one is found good and used."""
    async with notify_bed(tmp_path) as manager:
        service = ServiceManager(manager.address)
        async with running(LogindEdge(bed.address, root=bed.root, service=service)) as rig:
            await rig.do(Arm(key="a"))
            await manager.wait("FDSTORE")
            await bed.power_off()
            await rig.facts.wait(PrepareForShutdown)
            rig.die()
        inherited = manager.pass_on(LOCK_NAME)
        edge = LogindEdge(bed.address, root=bed.root, service=service, lock_fds=inherited)
        async with running(edge) as rig:
            assert (await rig.do(Arm(key="b"))).result == "done"
            assert len(await bed.ours()) == 1
            assert await bed.starts() == []
            assert (await rig.do(ReleaseLock(key="r"))).result == "done"
            await bed.started()
            assert manager.store == {}
    assert await bed.none_of_ours()


async def test_the_store_gives_up_its_copy_before_we_close_ours(bed: LogindBed, tmp_path: Path) -> None:
    """Release: FDSTOREREMOVE, BARRIER, and only then our own descriptor."""
    async with notify_bed(tmp_path) as manager:
        service = ServiceManager(manager.address)
        async with running(LogindEdge(bed.address, root=bed.root, service=service)) as rig:
            await rig.do(Arm(key="a"))
            await rig.do(ReleaseLock(key="r"))
        assert [set(message) for message in manager.said] == [
            {"FDSTORE", "FDNAME", "FDPOLL"},
            {"FDSTOREREMOVE", "FDNAME"},
            {"BARRIER"},
        ]


async def test_a_service_manager_that_does_not_confirm(bed: LogindBed, tmp_path: Path) -> None:
    """Our own descriptor is closed all the same, and the outcome says what may still hold the machine."""
    async with notify_bed(tmp_path) as manager:
        manager.answers_barriers = False
        service = ServiceManager(manager.address)
        async with running(LogindEdge(bed.address, root=bed.root, service=service)) as rig:
            await rig.do(Arm(key="a"))
            ending = await rig.do(Disarm(key="d"))
            assert ending.result == "failed"
            assert ending.reason.startswith("the service manager did not confirm")
            assert not rig.edge.lock_held
        assert await bed.none_of_ours()


async def test_a_new_lock_replaces_the_stored_one(bed: LogindBed, tmp_path: Path) -> None:
    """A dead lock does not stay in the store beside the new one."""
    async with notify_bed(tmp_path) as manager:
        service = ServiceManager(manager.address)
        async with running(LogindEdge(bed.address, root=bed.root, service=service)) as rig:
            await rig.do(Arm(key="a"))
            await bed.restart_logind(clean=True)
            await rig.facts.wait(BusLost)
            await rig.do(Arm(key="b"))
            await service.barrier()
            assert len(manager.store[LOCK_NAME]) == 1
            rig.die()
            assert len(await bed.ours()) == 1


async def test_the_lock_is_not_inherited_by_children(bed: LogindBed) -> None:
    """A pod's process that held a duplicate would hold the machine: the descriptor is close-on-exec."""
    before = set(os.listdir("/proc/self/fd"))
    async with running(LogindEdge(bed.address, root=bed.root)) as rig:
        await rig.do(Arm(key="a"))
        opened = set(os.listdir("/proc/self/fd")) - before
        inheritable = [number for number in opened if _is_inheritable(int(number))]
    assert inheritable == []


def _is_inheritable(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False
