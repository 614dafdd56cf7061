"""The whole daemon as a process, with the real logind, a service manager, and pods.

Daemon and pods run in a process namespace inside the logind bed, with files in its folder, so nothing
outlives a test. `Rig` acts as the service manager: it starts the daemon, keeps its descriptors for the next
one, and reads journal, log and pod traces. At the end every journal is replayed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import trio

from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import Armed, GrantAssessed
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer
from tests.beds.inside import die_with_parent
from tests.beds.logind import LogindBed, logind_bed
from tests.beds.notify import NotifyBed, serving
from tests.waiting import until

HERE = Path(__file__).parent
PROGRAM = (sys.executable, "-I", "-S", str(HERE / "program.py"))
EBBTIDE = (sys.executable, "-c", "import sys, ebbtide.cli as cli; sys.exit(cli.main())")
LOCK_NAME = "ebbtide-lock"

E = TypeVar("E", bound=Event)


class Mark(NamedTuple):
    """A line of a pod's trace: up, hook, hooked, TERM, gone."""

    at_ns: int
    what: str
    pid: int


class Store(NotifyBed):
    """A service manager that can hang: it then neither removes nor confirms."""

    stuck = False

    def _take(self, message: dict[str, str], descriptors: list[int]) -> None:
        if self.stuck and ("FDSTOREREMOVE" in message or "BARRIER" in message):
            self._unanswered.extend(descriptors)
            self.said.append(message)
            return
        super()._take(message, descriptors)


def configuration(periods: dict[int, int], **fields: Any) -> str:
    """Waves by priority in seconds; other fields by option name."""
    waves = [
        {"priority": priority, "shutdownGracePeriodSeconds": seconds} for priority, seconds in periods.items()
    ]
    kind = {"apiVersion": "ebbtide/v1alpha1", "kind": "EbbtideConfiguration"}
    return json.dumps({**kind, "shutdownGracePeriodByPodPriority": waves, **fields})


def manifest(
    name: str, program: Sequence[str], words: Sequence[str], priority: int, grace: int, hook: float | None
) -> str:
    """A pod whose container runs `tests.daemon.program` with ``words``; ``hook``: its seconds."""
    container: dict[str, Any] = {"name": "main", "image": "x", "command": [*program, *words]}
    if hook is not None:
        container["lifecycle"] = {"preStop": {"exec": {"command": [*program, f"hook={hook}"]}}}
    spec = {"priority": priority, "terminationGracePeriodSeconds": grace, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


class Rig:
    """``folder`` has the pods, traces, configuration, journal and runtime files."""

    def __init__(self, bed: LogindBed, folder: Path, store: Store, holder: subprocess.Popen[str]) -> None:
        self.bed = bed
        self.folder = folder
        self.store = store
        self.pods = folder / "pods"
        self.journal = folder / "journal"
        self.fallback = folder / "fallback"
        self.runtime = folder / "run"
        self.config = folder / "config.yaml"
        self.process: subprocess.Popen[bytes] | None = None
        self._inits = _children(holder.pid)
        for made in (self.pods, folder / "traces"):
            made.mkdir()
        self.configure({0: 3})

    # --- what the daemon is given

    def configure(self, periods: dict[int, int], **fields: Any) -> None:
        """Waves by priority, in seconds; other fields by the configuration's own names."""
        defaults = {"reserve": "1s", "journalFallbacks": [str(self.fallback)]}
        self.config.write_text(configuration(periods, **(defaults | fields)))

    def pod(
        self, name: str, *words: str, priority: int = 0, grace: int = 30, hook: float | None = None
    ) -> None:
        """The manifest of such a pod (`manifest`)."""
        program = (*PROGRAM, str(self.folder / "traces" / name))
        written = self.folder / "new.json"
        written.write_text(manifest(name, program, words, priority, grace, hook))
        written.rename(self.pods / f"{name}.yaml")

    # --- its life

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "-t", str(self._inits[0]), "-m", "-p", "--"]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": self.bed.address}

    @property
    def argv(self) -> list[str]:
        paths = {
            "--pods": self.pods,
            "--config": self.config,
            "--journal": self.journal,
            "--runtime": self.runtime,
        }
        words = [str(word) for pair in paths.items() for word in pair]
        return [*EBBTIDE, "run", "--mode", "process", *words]

    def launch(self, log: int | None = None) -> None:
        """Start like the service manager, with the stored descriptors; ``log``: its stderr."""
        passed = {name: self.store.pass_on(name) for name in self.store.store}
        fds = [fd for descriptors in passed.values() for fd in descriptors]
        names = [name for name, descriptors in passed.items() for _ in descriptors]
        environment = self.environment | {
            "NOTIFY_SOCKET": self.store.address,
            "LISTEN_FDS": str(len(fds)),
            "LISTEN_FDNAMES": ":".join(names),
        }
        ours, theirs = socket.socketpair()
        become = (sys.executable, "-I", "-S", str(HERE / "launch.py"), str(theirs.fileno()), str(len(fds)))
        with ours, theirs, open(self.folder / "log", "ab") as file:
            socket.send_fds(ours, [b"."], fds)
            self.process = subprocess.Popen(
                [*self.enter, *become, *self.argv],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file if log is None else log,
                preexec_fn=die_with_parent,
                cwd=HERE.parents[1],
            )
        for fd in fds:
            os.close(fd)

    async def start(self, until: str = "armed") -> None:
        """Launch, and wait for this status prefix and every pod.

        "Armed" in the status may precede its record, so wait for the record too.
        """
        before, armed = len(self.store.said), len(self.records(Armed))
        self.launch()
        await self.status(until, before)
        await self.ready(before)
        if until == "armed":
            await self._until(lambda: len(self.records(Armed)) > armed, "Armed on record")

    async def granted(self) -> None:
        """Wait for logind's grant."""
        await self.recorded(GrantAssessed, sufficient=True)

    async def ready(self, since: int = 0) -> None:
        await self._until(lambda: any("READY" in said for said in self.store.said[since:]), "READY")

    async def status(self, text: str, since: int = 0) -> None:
        """Wait for this status prefix."""

        def shown() -> bool:
            lines = [said["STATUS"] for said in self.store.said[since:] if "STATUS" in said]
            return bool(lines) and lines[-1].startswith(text)

        await self._until(shown, f"status {text!r}")

    @property
    def pid(self) -> int:
        """The daemon's process id outside of its namespace."""
        assert self.process is not None
        return _children(self.process.pid)[0]

    @property
    def own_pid(self) -> int:
        """The daemon's process id as it knows it."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        if number == signal.SIGCONT:
            self.wake()

    def wake(self) -> None:
        """A helper inside the namespace stops with the daemon and could not see its end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL, and seen to be gone."""
        self.signal(signal.SIGKILL)
        await self.left()

    async def left(self) -> int:
        """Wait for the daemon's exit; its code (negative: a signal)."""
        process = self.process
        assert process is not None

        def gone() -> bool:
            self.wake()
            return process.poll() is not None

        await self._until(gone, "the daemon to leave")
        return int(process.returncode)

    async def ebbtide(self, *words: str) -> str:
        """Run an operator's command; its output. Raises CalledProcessError."""
        argv = [*self.enter, *EBBTIDE, *words, "--runtime", str(self.runtime)]
        done = await trio.run_process(argv, env=self.environment, capture_stdout=True, cwd=HERE.parents[1])
        return done.stdout.decode()

    async def stop(self) -> int:
        """Stop the unit: its descriptors are released after its exit. The exit code."""
        self.signal(signal.SIGTERM)
        code = await self.left()
        self.store.close()
        return code

    # --- what is to be seen

    async def counted(self, event: type[E], count: int) -> None:
        """Wait until the journal has so many of these. Raises AssertionError on fewer or more."""
        await self._until(lambda: len(self.events(event)) >= count, f"{count} {event.__name__}")
        assert len(self.events(event)) == count

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        await until(holds, lambda: f"{what}; the log:\n{self.log()}")

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def trace(self, pod: str, what: str = "") -> list[Mark]:
        """The trace of a pod's processes."""
        return marks_in(self.folder / "traces" / pod, what)

    async def traced(self, pod: str, what: str = "up", times: int = 1) -> Mark:
        await self._until(lambda: len(self.trace(pod, what)) >= times, f"{what} of {pod}")
        return self.trace(pod, what)[times - 1]

    async def up(self, *pods: str) -> None:
        for pod in pods:
            await self.traced(pod)

    def lives(self, pod: str) -> bool:
        """Does the pod's first process run?"""
        pid = self.trace(pod, "up")[0].pid
        status = Path(f"/proc/{self._inits[0]}/root/proc/{pid}/stat")
        try:
            return status.read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    async def ended(self, pod: str) -> None:
        await self._until(lambda: not self.lives(pod), f"the end of {pod}")

    @property
    def locations(self) -> list[Path]:
        """The journal's locations in the daemon's view: a test may have mounted one."""
        root = Path(f"/proc/{self._inits[0]}/root")
        return [root / path.relative_to("/") for path in (self.journal, self.fallback)]

    def records(self, *kinds: type[E]) -> list[Record]:
        """Records of these types in all locations."""
        sources = [DirectorySource(path) for path in self.locations]
        return [record for record in History(sources).records() if isinstance(record.event, kinds or Event)]

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.records(kind) if isinstance(record.event, kind)]

    async def recorded(self, event: type[E], **fields: Any) -> Record:
        """Wait for such an event; its last record."""
        found: list[Record] = []

        def holds() -> bool:
            found[:] = [
                record
                for record in self.records(event)
                if all(getattr(record.event, name) == value for name, value in fields.items())
            ]
            return bool(found)

        await self._until(holds, f"{event.__name__} {fields}")
        return found[-1]


def marks_in(path: Path, what: str = "") -> list[Mark]:
    """A trace's lines, or those of that kind."""
    lines = path.read_text().splitlines() if path.exists() else []
    marks = [Mark(int(at), said, int(pid)) for at, said, pid in map(str.split, lines)]
    return [mark for mark in marks if what in ("", mark.what)]


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def replay(*folders: Path) -> int:
    """Replay every journal below these folders; the number of events. Fails at a divergence."""
    events = 0
    sources = [DirectorySource(path) for path in folders if path.is_dir()]
    for journal in sorted(
        {name.removesuffix(".ebj").rpartition("-")[2] for source in sources for name in _segments(source)}
    ):
        replayer = Replayer()
        replayer.feed(History(sources, journal=journal).raw())
        divergence = replayer.finish()
        assert divergence is None, f"replay of journal {journal} diverged: {divergence}"
        events += replayer.events
    return events


def _segments(source: DirectorySource) -> list[str]:
    return [file.name for file in source.files() if file.name.endswith(".ebj")]


@contextlib.asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """A rig on a fresh bed. Finally ends every process and replays the journals."""
    async with logind_bed() as bed:
        folder = bed.folder / "rig"
        folder.mkdir()
        async with serving(Store(folder / "notify")) as store:
            holder = _holder(bed)
            made = Rig(bed, folder, store, holder)
            try:
                yield made
                # Freeze the journal before its replay.
                if made.process is not None and made.process.poll() is None:
                    await made.kill()
                replay(*made.locations)
            finally:
                _end(holder, made)


def _holder(bed: LogindBed) -> subprocess.Popen[str]:
    """Without control groups, which would outlive a killed test."""
    separate = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    without_groups = ["sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"']
    holder = subprocess.Popen(
        [*bed.enter, *separate, *without_groups, sys.executable, "-I", "-S", str(HERE / "holder.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    return holder


def _end(holder: subprocess.Popen[str], made: Rig) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.close()
    made.wake()
    holder.wait()
    holder.stdout.close()
    if made.process is not None:
        made.process.wait()
