"""Which mounts are volumes in use: by the kernel's table alone."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.edges.kubelet.mounts import MOUNTS_MAX, OWN_PLUGINS, Mount, mounted, parse

ROOT = PurePosixPath("/var/lib/kubelet")


def line(path: str, device: str = "8:16", kind: str = "ext4") -> str:
    return f"100 1 {device} / {path} rw,relatime shared:1 - {kind} /dev/sdb rw\n"


def used(*lines: str) -> tuple[tuple[str, str], ...]:
    return mounted(parse("".join((line("/", "8:1"), *lines))), ROOT)


@pytest.mark.parametrize("plugin", ["kubernetes.io~csi", "kubernetes.io~nfs", "kubernetes.io~local-volume"])
def test_a_pods_volume_is_in_use(plugin: str) -> None:
    """A volume of a plugin whose volumes others may have is named with its pod."""
    assert used(line(f"{ROOT}/pods/u1/volumes/{plugin}/data/mount")) == (("u1", "data"),)


@pytest.mark.parametrize("plugin", OWN_PLUGINS)
def test_what_dies_with_the_boot_holds_nobody(plugin: str) -> None:
    """Memory and projected files are nobody else's."""
    assert used(line(f"{ROOT}/pods/u1/volumes/{plugin}/token", "0:50", "tmpfs")) == ()


def test_block_devices_and_drivers_mounts() -> None:
    """A raw device counts as well, and so does what a driver keeps mounted for all pods of the node."""
    shared = f"{ROOT}/plugins/kubernetes.io/csi/disk.example/0a1b/globalmount"
    found = used(line(f"{ROOT}/pods/u2/volumeDevices/kubernetes.io~csi/raw", "0:6", "devtmpfs"), line(shared))
    assert found == (("u2", "raw"), ("", shared))


def test_subpaths_count_where_they_hold_a_volume() -> None:
    """Their plugin is not in their path: one on the kubelet's own disk, or in memory, is no volume's."""
    place = f"{ROOT}/pods/u3/volume-subpaths"
    assert used(line(f"{place}/data/main/0"), line(f"{place}/data/main/1")) == (("u3", "data"),)
    assert used(line(f"{place}/scratch/main/0", "8:1")) == ()
    assert used(line(f"{place}/token/main/0", "0:50", "tmpfs")) == ()
    own_disk = line(str(ROOT), "8:32")
    assert used(own_disk, line(f"{place}/scratch/main/0", "8:32")) == ()


def test_other_mounts_are_nothing_to_us() -> None:
    """The kubelet's folder itself, its folder of plugins, and everything elsewhere."""
    assert (
        used(line(str(ROOT)), line(f"{ROOT}/plugins"), line("/var/lib/kubelet2/pods/u/volumes/x~y/z")) == ()
    )
    assert used(line("/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs")) == ()


def test_names_with_spaces() -> None:
    """The kernel escapes them; the journal has them as they are."""
    assert used(line(f"{ROOT}/pods/u1/volumes/kubernetes.io~nfs/my\\040data")) == (("u1", "my data"),)


def test_a_volume_is_named_once_and_the_list_is_bounded() -> None:
    """A table full of mounts makes a record that can be written."""
    twice = line(f"{ROOT}/pods/u1/volumes/kubernetes.io~nfs/data")
    assert used(twice, twice) == (("u1", "data"),)
    many = [line(f"{ROOT}/pods/u{number}/volumes/kubernetes.io~nfs/data") for number in range(3000)]
    assert len(used(*many)) == MOUNTS_MAX


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_any_table_is_read(text: str) -> None:
    """Lines that are none are passed over."""
    for mount in parse(text):
        assert isinstance(mount, Mount)
    assert mounted(parse(text), ROOT) == tuple(dict.fromkeys(mounted(parse(text), ROOT)))
