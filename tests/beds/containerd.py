"""A real containerd with our pods, separate from the machine's own.

It runs in a holder's mount and network namespace, on its own paths, subnet and cgroup. Pods are created
through CRI with a kubelet's labels and annotations. Needs root and Debian's ``containerd``, ``runc``,
``containernetworking-plugins`` and ``busybox-static``.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.beds.inside import PROJECT, die_with_parent, lacking
from tests.waiting import WATCHDOG_SECONDS, until_sync

CNI = Path("/usr/lib/cni")
NEEDS = ("containerd", "ctr", "runc", "unshare", "nsenter", "/bin/busybox", "/usr/lib/cni/ptp")
IMAGE = "docker.io/library/busybox:ebbtide"
#: The same image with SIGUSR1 as stop signal.
USR1_IMAGE = "docker.io/library/busybox:usr1"
LINKS = ("sh", "sleep", "cat", "true", "false", "touch", "httpd", "nc", "kill", "echo", "mkdir", "wget")

#: ``restrict_oom_score_adj``: runc may not lower the score without CAP_SYS_RESOURCE.
CONFIG = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{folder}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  sandbox_image = "{image}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
"""

CONFLIST = {
    "cniVersion": "0.3.1",
    "name": "ebbtide",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.177.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}

NAMESPACES = ("unshare", "--mount", "--net", "--propagation", "private", "--")

#: The holder mounts tmpfs for containerd and CNI, then waits for its input's end.
SETUP = (
    "set -e; mount -t tmpfs tmpfs /run; mkdir -p /run/netns; mount -t tmpfs tmpfs /var/lib;"
    ' ip link set lo up; echo ready; read -r never || true; exec "$@"'
)


def missing() -> str:
    """Why the bed is unavailable; empty if available."""
    return lacking(NEEDS)


class Containerd:
    """``folder`` is short: socket paths are limited. ``cgroup``: the parent of all pods' cgroups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "c.sock"
        self.cgroup = f"/{folder.name}"
        self._log = (folder / "containerd.log").open("ab")
        clean = [sys.executable, "-m", "tests.beds.containerd_cleaning", str(folder)]
        self._holder = subprocess.Popen(
            [*NAMESPACES, "sh", "-c", SETUP, "sh", *clean],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "cni").mkdir()
        (folder / "cni" / "10-ebbtide.conflist").write_text(json.dumps(CONFLIST))
        text = CONFIG.format(folder=folder, image=IMAGE, snapshotter="native")
        (folder / "config.toml").write_text(text)

    @property
    def enter(self) -> list[str]:
        """A command prefix that enters the bed's namespaces."""
        return ["nsenter", "-t", str(self._holder.pid), "-m", "-n", "--"]

    @property
    def network(self) -> str:
        """The bed's network namespace, as a file."""
        return f"/proc/{self._holder.pid}/ns/net"

    def start(self) -> None:
        """Start containerd and wait until it answers on CRI."""
        self.process = subprocess.Popen(
            [*self.enter, "containerd", "-c", str(self.folder / "config.toml")],
            stdout=self._log,
            stderr=self._log,
            preexec_fn=die_with_parent,
        )
        until_sync(lambda: self._ctr("version").returncode == 0, "containerd does not answer")

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End containerd alone: shims and containers live on."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(WATCHDOG_SECONDS)
            self.process = None

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        """SIGSTOP containerd: it accepts connections and reads their requests afterwards."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = [*self.enter, "ctr", "-a", str(self.socket), "-n", "k8s.io", *words]
        return subprocess.run(command, capture_output=True, timeout=WATCHDOG_SECONDS)

    def load_image(self) -> None:
        archive = self.folder / "image.tar"
        write_image(archive)
        done = self._ctr("images", "import", "--snapshotter", "native", str(archive))
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        """End all processes of the namespaces; remove the cgroups and the folder."""
        self.stop()
        self._log.close()
        self._holder.communicate(timeout=WATCHDOG_SECONDS)
        assert self._holder.returncode == 0, "something of the bed stays"
        shutil.rmtree(self.folder, ignore_errors=True)


def write_image(archive: Path) -> None:
    """A docker archive of two images with one layer: static busybox and its links."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        files.add("/bin/busybox", "bin/busybox")
        for name in LINKS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            files.addfile(link)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o777
        files.addfile(folder)
    data = layer.getvalue()
    contents, manifest = {"layer.tar": data}, []
    for name, more in ((IMAGE, {}), (USR1_IMAGE, {"StopSignal": "SIGUSR1"})):
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"], **more},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(data)}"]},
        }
        file = f"config-{len(manifest)}.json"
        contents[file] = json.dumps(config).encode()
        manifest.append({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]})
    contents["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(archive, "w") as files:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            files.addfile(info, io.BytesIO(content))


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def containerd() -> Iterator[Containerd]:
    """A started containerd with its image; removed completely afterwards."""
    bed = Containerd(Path(tempfile.mkdtemp(prefix="ebc-", dir="/tmp")))
    try:
        bed.start()
        bed.load_image()
        yield bed
    finally:
        bed.close()
