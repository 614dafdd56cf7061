"""The process edge's pods: in memory, on disk for the next daemon, and how they start.

Each running pod has a file with its processes and its specification: a hook must run even after its manifest
has changed. The file may hold secrets, so only the owner can read the folder. A reboot makes it void, so it
is not synced.

The daemon's death must not touch a process: it leads its own session, without a pipe to the daemon, a death
signal, or a terminal. Its output goes to a file in memory: a hung disk would keep a writer from ending.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import trio

from ebbtide.actors.edges.linux import proc, processes
from ebbtide.actors.edges.linux.proc import boot_id_with_dashes
from ebbtide.actors.edges.pod_spec import ContainerSpec, ProcessSpec
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events.base import Fact
from ebbtide.events.facts import ContainerExited, ContainerStarted
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.values import Pod

ContainerPhase = Literal["waiting", "running", "ended"]


class ContainerEntry(msgspec.Struct, eq=False):
    """``begun``: it may run, so it is in the record, at first without a process. ``child`` False: adopted, so
    another process gets its exit code. ``gone``: it ended while no daemon ran. ``ended``: only for init
    containers.
    """

    pod: PodEntry
    spec: ContainerSpec
    phase: ContainerPhase = "waiting"
    pid: int = 0
    pidfd: int = -1
    start_ticks: int = 0
    group: str = ""
    begun: bool = False
    child: bool = True
    gone: bool = False
    end: processes.ExitStatus = processes.ExitStatus()
    ended: trio.Event | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.pod.pod.uid, self.spec.name)

    @property
    def root(self) -> processes.TreeRoot:
        return processes.TreeRoot(self.pid, self.start_ticks)

    def begin(self, pid: int, pidfd: int, start_ticks: int) -> None:
        self.begun, self.pid, self.pidfd, self.start_ticks = True, pid, pidfd, start_ticks
        self.phase = "running"

    def finish(self, end: processes.ExitStatus) -> None:
        """The first process has ended, or will never start."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1
        self.phase = "ended"
        self.end = end
        if self.ended is not None:
            self.ended.set()

    def exited(self) -> ContainerExited:
        uid, name = self.key
        return ContainerExited(
            uid=uid, container=name, exit_code=self.end.exit_code, signal=self.end.signal, gone=self.gone
        )

    def record(self) -> ProcessRecord:
        return ProcessRecord(
            name=self.spec.name, pid=self.pid, start_ticks=self.start_ticks, group=self.group
        )


class PodEntry(msgspec.Struct, eq=False):
    """``containers``: main containers and sidecars. ``init``: the plain init container that runs now.
    ``order``: the key of the pod's start; empty: not begun. ``stopping``: no more of this pod starts.
    ``recovered``: an earlier daemon began it, and no manifest has named it yet.
    """

    pod: Pod
    spec: ProcessSpec
    path: str = ""
    order: str = ""
    containers: dict[str, ContainerEntry] = {}
    init: ContainerEntry | None = None
    #: Hooks that have begun, by their orders' keys.
    hooks: dict[str, ProcessRecord] = {}
    starting: bool = False
    stopping: bool = False
    recovered: bool = False

    def __post_init__(self) -> None:
        self.containers = {item.name: ContainerEntry(self, item) for item in self.spec.lasting}

    @property
    def begun(self) -> bool:
        return bool(self.order)

    @property
    def over(self) -> bool:
        return self.begun and all(item.phase == "ended" for item in self.containers.values())

    def view(self) -> Pod:
        """A waiting container has to be stopped too, so it counts as running."""
        running = {name for name, entry in self.containers.items() if entry.phase != "ended"}
        containers = tuple(
            msgspec.structs.replace(item, running=item.name in running) for item in self.pod.containers
        )
        return msgspec.structs.replace(self.pod, containers=containers)


class PodTable:
    def __init__(self) -> None:
        self.pods: dict[str, PodEntry] = {}

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        pod = self.pods.get(uid)
        return pod.containers.get(container) if pod is not None else None

    def active(self) -> list[Pod]:
        return [entry.view() for entry in self.pods.values() if entry.begun and not entry.over]


RECORD_VERSION = 2
#: Any other UID is hashed.
PLAIN_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``name``: the container's; a hook's is its order's key. ``pid`` 0: the daemon was about to start it."""

    name: str
    pid: int
    start_ticks: int
    group: str = ""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Unlisted containers have not started, and with ``stopping`` never will."""

    version: int
    boot_id: str
    order: str
    pod: Pod
    spec: ProcessSpec
    containers: tuple[ProcessRecord, ...] = ()
    init: ProcessRecord | None = None
    hooks: tuple[ProcessRecord, ...] = ()
    stopping: bool = False


def file_name(text: str) -> str:
    return text if PLAIN_FILE_NAME.fullmatch(text) else hashlib.sha256(os.fsencode(text)).hexdigest()


def output_name(uid: str, container: str) -> str:
    return f"{file_name(uid)}.{file_name(container)}"


class PodRecords:
    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id

    def store(self, entry: PodEntry) -> None:
        """Raises OSError."""
        record = PodRecord(
            version=RECORD_VERSION,
            boot_id=self._boot_id,
            order=entry.order,
            pod=entry.pod,
            spec=entry.spec,
            containers=tuple(each.record() for each in entry.containers.values() if each.begun),
            init=entry.init.record() if entry.init is not None else None,
            hooks=tuple(entry.hooks.values()),
            stopping=entry.stopping,
        )
        write_atomically(self._folder / file_name(entry.pod.uid), msgspec.msgpack.encode(record))

    def load(self) -> list[PodRecord]:
        """Oldest first. Removes unusable files."""
        found = []
        ages = {}
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    ages[entry.path] = entry.stat().st_mtime_ns
        for path in sorted(ages, key=lambda path: ages[path]):
            with suppress(OSError, ValueError):  # what msgspec raises is a ValueError, and so is bad UTF-8
                record = msgspec.msgpack.decode(read_own(Path(path)), type=PodRecord)
                # Another boot reuses the numbers; another version's fields may differ.
                if (record.version, record.boot_id) == (RECORD_VERSION, self._boot_id):
                    found.append(record)
                    continue
            with suppress(OSError):
                os.unlink(path)
        return found

    def remove(self, uid: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / file_name(uid))


def kill_recorded(folder: Path) -> None:
    """SIGKILL to all trees that this boot's records name."""
    records = PodRecords(folder, boot_id_with_dashes()).load()
    processes.kill_trees(
        [root_of(each) for record in records for each in (*record.containers, *record.hooks, record.init)]
    )


def root_of(record: ProcessRecord | None) -> processes.TreeRoot:
    return processes.TreeRoot() if record is None else processes.TreeRoot(record.pid, record.start_ticks)


#: As a container runtime reports it.
CANNOT_START_CODE = 128
STOPPED_BEFORE_START = "asked to stop before it was started"


class PodStarter:
    def __init__(
        self,
        records: PodRecords,
        output: OutputFiles,
        watch: processes.ExitWatch,
        killer: processes.TreeKiller,
        cgroups: processes.Cgroups | None,
    ) -> None:
        self._records = records
        self._output = output
        self._watch = watch
        self._killer = killer
        self._cgroups = cgroups

    async def start(self, pod: PodEntry, outlet: Outlet) -> Ending:
        """Start the rest, or end what was begun. Raises only cancellation."""
        pod.starting = True
        try:
            failure = await self._start_all(pod, outlet)
        except trio.Cancelled:
            # By an order, not with the daemon: half a pod is useless.
            if not self._killer.closed:
                self._kill(pod)
            raise
        except (CannotStart, OSError) as error:
            failure = str(error)
        finally:
            pod.starting = False
        if not failure:
            return Ending()
        self._kill(pod)
        facts = self.drop_waiting(pod, None if pod.stopping else CANNOT_START_CODE)
        self._records.remove(pod.pod.uid)
        if facts:
            await outlet.put(*facts)
        return Ending("cancelled" if pod.stopping else "failed", failure)

    async def _start_all(self, pod: PodEntry, outlet: Outlet) -> str:
        """Returns why it failed; empty: all run."""
        self._records.store(pod)
        for spec in pod.spec.init + pod.spec.containers:
            if pod.stopping:
                return STOPPED_BEFORE_START
            entry = pod.containers.get(spec.name)
            if entry is None:
                failure = await self._run_init(pod, spec)
                if failure:
                    return failure
            elif entry.phase == "waiting":
                self._spawn(entry)
                try:
                    self._records.store(pod)
                    await outlet.put(
                        ContainerStarted(uid=entry.key[0], container=entry.key[1], pid=entry.pid)
                    )
                finally:
                    # The end must not be reported before the start.
                    self.follow(entry)
        return ""

    async def _run_init(self, pod: PodEntry, spec: ContainerSpec) -> str:
        entry = ContainerEntry(pod, spec)
        # A shutdown does not stop init containers, so they are not reported.
        entry.ended = trio.Event()
        pod.init = entry
        self._spawn(entry)
        self.follow(entry)
        self._records.store(pod)
        await entry.ended.wait()
        pod.init = None
        if pod.stopping:
            return STOPPED_BEFORE_START
        if entry.end.exit_code:
            return f"init container {spec.name} ended with exit code {entry.end.exit_code}"
        return f"init container {spec.name} ended by {entry.end.signal}" if entry.end.signal else ""

    def _spawn(self, entry: ContainerEntry) -> None:
        uid, name = entry.key
        if self._cgroups is not None:
            entry.group = self._cgroups.make(f"{file_name(uid)}.{file_name(name)}")
        # Before the start: a daemon that dies now must not cause a second copy.
        entry.begun = True
        self._records.store(entry.pod)
        output = self._output.open(output_name(uid, name))
        try:
            child = spawn(
                entry.spec.argv, environ_of(entry.spec.env), entry.spec.working_dir, output, entry.group
            )
        except CannotStart as error:
            raise CannotStart(f"container {name}: {error}") from error
        finally:
            os.close(output)
        entry.begin(*child)

    def follow(self, entry: ContainerEntry) -> None:
        self._watch.add(entry.pidfd, lambda: self._ended(entry), child=entry.child)

    async def _ended(self, entry: ContainerEntry) -> Fact | None:
        # No new process gets a pid while a group with this number lives. So if another process has this pid
        # (an adopted container was reaped), the group is gone.
        stat = proc.read_stat(entry.pid)
        if stat is None or stat.start_ticks == entry.start_ticks:
            # We may not signal a program that changed its user.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(entry.pid, signal.SIGKILL)
        if not self._killer.closed:
            # Before the reaping: afterwards no look finds the rest of its session.
            await self._killer.kill(entry.root, entry.group)
        entry.finish(processes.reap(entry.pidfd) or processes.ExitStatus())
        return None if entry.ended is not None else entry.exited()

    def drop_waiting(self, pod: PodEntry, code: int | None) -> list[Fact]:
        facts: list[Fact] = []
        for entry in pod.containers.values():
            if entry.phase == "waiting":
                entry.finish(processes.ExitStatus(exit_code=code))
                facts.append(entry.exited())
        return facts

    def _kill(self, pod: PodEntry) -> None:
        running = [entry for entry in pod.containers.values() if entry.phase == "running"]
        for entry in running + ([pod.init] if pod.init is not None else []):
            self._killer.kill_soon(entry.root, entry.group)


#: One descriptor per container, and some for the daemon.
FILE_LIMIT_WANTED = 65_536

#: The program's children join too. A group that refuses must not prevent the start.
ENTER_GROUP = 'echo 0 >"$0" 2>/dev/null; exec "$@"'

NO_COMMAND = "no command is given"

#: From the daemon's environment.
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CannotStart(Exception):
    """The text names the program or folder to look at."""


def environ_of(own: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    return {"PATH": PATH_DEFAULT} | inherited | {**own}


def raise_file_limit() -> None:
    """For a pidfd per container. Pods keep our original limit."""
    global _own_limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_LIMIT_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILE_LIMIT_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _own_limit = (soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_own_limit: tuple[int, int] | None = None


#: Python ignores these itself, and `subprocess` restores them.
RESTORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


def ignore_by_handlers() -> None:
    """A child inherits ignored signals (``nohup``) and blocked ones (some supervisors), but no handler. Pods
    need the defaults. On the main thread.
    """
    for number in signal.valid_signals() - RESTORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def spawn(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, output: int, group: str = ""
) -> processes.Child:
    """``group``: a cgroup's folder. Raises CannotStart."""
    command = list(argv)
    if group:
        # Through a shell a missing program would only be an exit code.
        if not argv:
            raise CannotStart(NO_COMMAND)
        name = argv[0]
        path = os.path.join(cwd, name) if "/" in name else name
        if shutil.which(path, path=env.get("PATH")) is None:
            raise CannotStart(f"{name}: not found, or not executable")
        # A shell may drop variables that it cannot name, such as `a.b`.
        unnamed = [
            f"{key}={value}" for key, value in env.items() if not (key.isascii() and key.isidentifier())
        ]
        through = ["/usr/bin/env", *unnamed] if unnamed else []
        command = ["/bin/sh", "-c", ENTER_GROUP, f"{group}/cgroup.procs", *through, *argv]
    try:
        popen = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd or None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # A signal to the daemon's group must not reach a pod, nor the reverse.
            start_new_session=True,
        )
    except OSError as error:
        name = error.filename or (argv[0] if argv else "")
        raise CannotStart(f"{name}: {error.strerror}") from error
    except IndexError as error:
        raise CannotStart(NO_COMMAND) from error
    except ValueError as error:
        raise CannotStart(str(error)) from error
    pid = popen.pid
    # The pidfd sees the end; Popen must not wait for the number.
    popen.returncode = 0
    if _own_limit is not None:
        # From outside: none of our code must run in the child. It has our limit for some microseconds.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _own_limit)
    stat = proc.read_stat(pid)
    return processes.Child(pid, os.pidfd_open(pid), stat.start_ticks if stat else 0)


#: A larger output is emptied.
OUTPUT_BYTES_MAX = 256 * 1024
#: A program that only writes fills some 100 MB in this time.
TRIM_SECONDS = 0.1
#: Without own files: an earlier daemon's may exist.
TRIM_IDLE_SECONDS = 10
#: Longer lines of an autopsy are cut.
OUTPUT_LINE_BYTES_MAX = 256


class OutputFiles:
    """``kept`` False: output goes nowhere."""

    def __init__(self, folder: Path, *, kept: bool = True) -> None:
        self._folder = folder
        self._kept = kept

    def open(self, name: str) -> int:
        """Raises OSError."""
        if not self._kept:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._folder / name, flags, 0o600)

    def tail(self, name: str, lines: int) -> tuple[str, ...]:
        if lines <= 0:
            return ()
        try:
            with open(self._folder / name, "rb") as file:
                # Enough for the largest lines.
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - (lines + 1) * OUTPUT_LINE_BYTES_MAX))
                found = file.read().splitlines()[-lines:]
        except OSError:
            return ()
        return tuple(line[:OUTPUT_LINE_BYTES_MAX].decode(errors="replace") for line in found)

    def trim(self) -> bool:
        """True: there may be more soon."""
        found = self._kept
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                found = True
                with suppress(OSError):
                    if entry.stat().st_size > OUTPUT_BYTES_MAX:
                        os.truncate(entry.path, 0)
        return found

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / name)
