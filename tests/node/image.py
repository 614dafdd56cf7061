"""The node's only image, also the sandbox's: one layer with static busybox.

Packed like ``docker save``: containerd imports that, and there is no registry.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

IMAGE = "ebbtide.test/busybox:1"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
FOLDERS = ("bin", "tmp", "etc", "dev", "proc", "sys", "var", "www")
PASSWD = b"root:x:0:0:root:/:/bin/sh\n"
ENVIRONMENT = ["PATH=/bin"]
#: The sandbox runs this; it ends at once on SIGTERM.
COMMAND = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"]


def pack(target: Path) -> Path:
    """Write the archive; returns it."""
    layer = _layer()
    config = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Env": ENVIRONMENT, "Cmd": COMMAND},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "layer.tar", layer)
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return target


def _layer() -> bytes:
    busybox = shutil.which("busybox")
    assert busybox is not None, "need_packages() has looked for it"
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as layer:
        for name in FOLDERS:
            _add_entry(layer, name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755)
        _add(layer, "bin/busybox", Path(busybox).read_bytes(), 0o755)
        _add(layer, "etc/passwd", PASSWD)
        for name in names:
            if name != "busybox":
                _add_entry(layer, f"bin/{name}", tarfile.SYMTYPE, 0o777, "busybox")
    return made.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _add_entry(archive: tarfile.TarFile, name: str, kind: bytes, mode: int, link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, mode, link
    archive.addfile(entry)
