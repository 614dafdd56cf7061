"""What is kept of a running pod for the daemon's next life: which processes, and how it was launched.

One small file a pod, replaced atomically. It means nothing after a reboot, so it is not synced, and the
folder belongs on a file system that goes with the boot. It holds the launch specification (a hook must
still run when the manifest has changed), so the folder is readable for its owner only.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from actors.edges.process.spec import ProcessSpec
from events.model import Pod

RECORD_VERSION = 1
#: A UID that is fit to be a file name stays readable; any other is hashed.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The first process of a container, and its cgroup where it has one."""

    name: str
    pid: int
    start_ticks: int
    group: str = ""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that was begun in this boot. Containers that are not listed were not started yet, and never
    will be when it was told to stop (``stopping``).
    """

    version: int
    boot_id: str
    order: str
    pod: Pod
    spec: ProcessSpec
    containers: tuple[ContainerRecord, ...] = ()
    stopping: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PodRecord)
#: The temporary files that are being written. The lock is for this set alone, and held over no write.
_temporaries: set[Path] = set()
_choosing = threading.Lock()


def file_name(text: str) -> str:
    """A file name for a UID or a container's name."""
    return text if PLAIN_NAME.fullmatch(text) else hashlib.sha256(os.fsencode(text)).hexdigest()


def output_name(uid: str, container: str) -> str:
    """The name of a container's output file."""
    return f"{file_name(uid)}.{file_name(container)}"


class Records:
    """The records of one state directory."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id

    def store(
        self,
        order: str,
        pod: Pod,
        spec: ProcessSpec,
        containers: tuple[ContainerRecord, ...],
        stopping: bool = False,
    ) -> None:
        """Raises OSError."""
        record = PodRecord(
            version=RECORD_VERSION,
            boot_id=self._boot_id,
            order=order,
            pod=pod,
            spec=spec,
            containers=containers,
            stopping=stopping,
        )
        write_atomically(self._folder / file_name(pod.uid), _encoder.encode(record))

    def load(self) -> list[PodRecord]:
        """Every record of this boot, oldest first; what cannot be used is removed."""
        found = []
        for path in _by_age(self._folder):
            record = _read(path)
            if record is None or record.version != RECORD_VERSION or record.boot_id != self._boot_id:
                with suppress(OSError):
                    os.unlink(path)
            else:
                found.append(record)
        return found

    def remove(self, uid: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / file_name(uid))


def _by_age(folder: Path) -> list[str]:
    """The paths of a folder's files, oldest first; none where it cannot be read: then marks must do."""
    ages = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                ages[entry.path] = entry.stat().st_mtime_ns
    return sorted(ages, key=lambda path: ages[path])


def _read(path: str) -> PodRecord | None:
    try:
        return _decoder.decode(Path(path).read_bytes())
    except (OSError, ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
        return None


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Old content or new, never half of it; readable for the owner only. Raises OSError.

    Two writers at a time are let alone by each other, and the last to finish stands.
    """
    with _temporary(path) as temporary:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A name beside this one that no other thread writes to; the first, so that what a crash leaves is
    written over by the next.
    """
    with _choosing:
        names = (path.with_name(f".{path.name}.{number}.new") for number in itertools.count())
        chosen = next(name for name in names if name not in _temporaries)
        _temporaries.add(chosen)
    try:
        yield chosen
    finally:
        with _choosing:
            _temporaries.discard(chosen)
