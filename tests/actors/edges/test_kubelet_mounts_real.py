"""Real mounts, in a mount namespace of the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges import kubelet_unit as mounts
from ebbtide.actors.edges.kubelet_unit import KubeletEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import AwaitUnmounts, CheckMounts
from ebbtide.events.facts import MountsRead, VolumesUnmounted
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.edges.test_kubelet import NOWHERE, do

pytestmark = pytest.mark.root

UNSHARE = ("unshare", "--mount", "--propagation", "private", "--", "sh", "-c")
SECONDS_MAX = 10


class Namespace:
    """A process that keeps the namespace; ``do`` runs a command inside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._holder = subprocess.Popen(
            [*UNSHARE, "echo ready; read -r never || true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    @property
    def table(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/mountinfo")

    def do(self, *words: str) -> None:
        enter = ("nsenter", "-t", str(self._holder.pid), "-m", "--")
        subprocess.run([*enter, *words], check=True, timeout=SECONDS_MAX)

    def mount(self, place: str, kind: str = "ramfs") -> Path:
        """Mount below the root. ``ramfs`` has its own device, like a disk."""
        path = self.root / place
        path.mkdir(parents=True)
        self.do("mount", "-t", kind, "test", str(path))
        return path

    def close(self) -> None:
        self._holder.communicate(timeout=SECONDS_MAX)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Namespace]:
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("needs unshare and nsenter")
    made = Namespace(tmp_path / "kubelet")
    yield made
    made.close()


async def test_what_is_mounted_is_read(space: Namespace, tmp_path: Path) -> None:
    """Volumes with pods, driver mounts with paths, without tmpfs. Also below a link: the kernel records
    the target.
    """
    (tmp_path / "link").symlink_to(space.root)
    edge = KubeletEdge("k.service", tmp_path / "link", mount_table=space.table, address=NOWHERE)
    space.mount("pods/u1/volumes/kubernetes.io~csi/pvc-1/mount")
    space.mount("pods/u1/volumes/kubernetes.io~secret/token", "tmpfs")
    shared = space.mount("plugins/kubernetes.io/csi/disk.example/7f/globalmount")
    outbox = Outbox()
    assert await do(edge, CheckMounts(key="c"), outbox) == Ending()
    assert outbox.facts == [MountsRead(key="c", mounted=(("u1", "pvc-1"), ("", str(shared))))]


async def test_an_unmount_is_noticed(space: Namespace) -> None:
    """Volumes without a mount are reported at once, the others when unmounted."""
    edge = KubeletEdge("k.service", space.root, mount_table=space.table, address=NOWHERE)
    volume, outbox = space.mount("pods/u1/volumes/kubernetes.io~csi/pvc-1/mount"), Outbox()
    order = AwaitUnmounts(key="w", uids=("u0", "u1"), timeout_ns=SECONDS_MAX * NS_PER_SECOND)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(do, edge, order, outbox)
        await outbox.wait_for(VolumesUnmounted, uid="u0")
        await trio.sleep(3 * mounts.UNMOUNT_SECONDS)
        assert len(outbox.facts) == 1
        space.do("umount", str(volume))
        await outbox.wait_for(VolumesUnmounted, uid="u1")
