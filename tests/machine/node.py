"""Ebbtide on a whole machine as in the operator's page: wheel, unit, pods.

The wheel's dependencies are downloaded once by the lock's hashes for the machine's Python, and kept outside
the tree.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from tests.beds.inside import PROJECT
from tests.beds.machine import Machine
from tests.beds.rootfs import cache_folder, keep
from tests.daemon.rig import Mark, configuration, manifest, marks_in, replay
from tests.waiting import until

PROGRAM = "/opt/pods/program.py"
TRACES = "/var/lib/pods"
JOURNAL = "/var/lib/ebbtide/journal"
UNITS = "/etc/systemd/system"
PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
LAUNCHER = "#!/opt/ebbtide/bin/python3\nimport sys\nfrom ebbtide.cli import main\nsys.exit(main())\n"

E = TypeVar("E", bound=Event)


class Node:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    # --- putting it in

    def install(self, drop_in: str = "", lock: str = "requirements.lock") -> None:
        """``docs/operations.md`` from outside: environment, command, unit.

        ``drop_in`` replaces mode process's; ``lock``: its packages.
        """
        machine = self.machine
        python = next(machine.lower.glob("usr/bin/python3.[0-9]*")).name
        library = f"/opt/ebbtide/lib/{python}/site-packages"
        machine.write("/opt/ebbtide/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
        link = machine.place("/opt/ebbtide/bin/python3")
        link.parent.mkdir(parents=True)
        link.symlink_to("/usr/bin/python3")
        machine.copy_in(_dependencies(lock, python.removeprefix("python")), library)
        _unpack(_wheel(), machine.place(library))
        machine.write("/opt/ebbtide/bin/ebbtide", LAUNCHER, 0o755)
        command = machine.place("/usr/local/bin/ebbtide")
        command.parent.mkdir(parents=True, exist_ok=True)
        command.symlink_to("/opt/ebbtide/bin/ebbtide")
        deploy = PROJECT / "deploy/systemd"
        machine.copy_in(deploy / "ebbtide.service", f"{UNITS}/ebbtide.service")
        shipped = (deploy / "process.conf").read_text()
        machine.write(f"{UNITS}/ebbtide.service.d/process.conf", drop_in or shipped)
        wants = machine.place(f"{UNITS}/multi-user.target.wants/ebbtide.service")
        wants.parent.mkdir(parents=True, exist_ok=True)
        wants.symlink_to(f"{UNITS}/ebbtide.service")
        machine.copy_in(PROJECT / "tests/daemon/program.py", PROGRAM)
        machine.place(TRACES).mkdir(parents=True)
        machine.place("/etc/ebbtide/pods").mkdir(parents=True)

    def configure(self, periods: dict[int, int], **fields: Any) -> None:
        self.machine.write("/etc/ebbtide/config.yaml", configuration(periods, **fields))

    def pod(
        self, name: str, *words: str, priority: int = 0, hook: float | None = None, grace_seconds: int = 30
    ) -> None:
        program = ("/usr/bin/python3", "-I", "-S", PROGRAM, f"{TRACES}/{name}")
        written = manifest(name, program, words, priority, grace_seconds, hook)
        self.machine.write(f"/etc/ebbtide/pods/{name}.yaml", written)

    # --- what is to be seen

    async def armed(self, *pods: str) -> None:
        """Wait for the status line and these pods."""
        log: list[str] = []

        async def holds() -> bool:
            if await self.status() == "armed" and all(self.trace(pod, "up") for pod in pods):
                return True
            log[:] = [await self.log()]
            return False

        await until(holds, lambda: f"not armed; the unit's log:\n{log}")

    async def status(self) -> str:
        shown = await self.machine.run("systemctl", "show", "-P", "StatusText", "ebbtide")
        return shown.stdout.strip()

    async def log(self) -> str:
        """The unit's log lines, in all boots."""
        return await self.machine.system_log("-u", "ebbtide", "-o", "cat")

    def trace(self, pod: str, what: str = "") -> list[Mark]:
        """A pod's trace, also while the machine is off."""
        place = self.machine.place(f"{TRACES}/{pod}")
        return marks_in(place, what)

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.records() if isinstance(record.event, kind)]

    def records(self) -> list[Record]:
        return list(History([DirectorySource(self.machine.place(JOURNAL))]).records())

    def replays(self) -> int:
        """The number of replayed events; raises AssertionError."""
        return replay(self.machine.place(JOURNAL))


def _dependencies(name: str, version: str) -> Path:
    """The locked dependencies for that Python, unpacked and cached."""
    lock = PROJECT / name
    key = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    wanted = cache_folder() / f"dependencies-{version}-{key}"
    if not wanted.exists():
        building = Path(tempfile.mkdtemp(prefix=f"{wanted.name}.", dir=wanted.parent))
        for_python = ("--only-binary=:all:", "--python-version", version)
        _pip("install", "--require-hashes", *for_python, "--target", str(building), "-r", str(lock))
        building.chmod(0o755)
        keep(building, wanted)
    return wanted


_built: list[Path] = []


def _wheel() -> Path:
    """This tree's wheel, built once a run."""
    if not _built:
        folder = cache_folder() / "wheels"
        shutil.rmtree(folder, ignore_errors=True)
        # Else pip may make a file of this name.
        folder.mkdir(parents=True)
        _pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(PROJECT))
        _built.extend(folder.glob("ebbtide-*.whl"))
    return _built[0]


def _unpack(wheel: Path, library: Path) -> None:
    """Pure Python, with pip's result."""
    shutil.unpack_archive(wheel, library, "zip")


def _pip(*words: str) -> None:
    done = subprocess.run([*PIP, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
