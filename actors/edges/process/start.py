"""Starting a pod as local processes: init containers to their end, sidecars in their turn, then the others.

All or nothing: what cannot be started takes the rest of its pod along. A pod that is asked to stop before
it is up goes no further.

Each process has a session of its own, marks in its environment, and its output in a file, or nowhere where
nobody will read it. The daemon's death must not touch it: no pipe to the daemon (a broken one would kill it),
no death signal, no terminal. The files lie in memory, because a disk that hangs holds who writes there in
a state in which no signal ends it. They are bounded without any part of the daemon between the pod and its
file: what grows too large loses its oldest blocks (a hole is punched into the file's begin, which keeps the
newest lines and disturbs no writer), or, where the file system cannot do that, the file is emptied, and a
writer that appends goes on at the new end.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.exits import Child, ExitStatus, ExitWatch, reap
from ebbtide.actors.edges.linux.kill_tree import Cgroups, Mark, Marker, TreeKiller, TreeRoot
from ebbtide.actors.edges.pod_spec import ContainerSpec
from ebbtide.actors.edges.process.process_pods import (
    ContainerEntry,
    PodEntry,
    PodRecords,
    file_name,
    output_name,
)
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events.base import Fact
from ebbtide.events.facts import ContainerExited, ContainerStarted

#: What the reference's runtime reports for a container that could not be started.
CANNOT_START_CODE = 128
STOPPED_BEFORE_START = "asked to stop before it was started"


class PodStarter:
    """Starts pods and sees to the ends of their containers."""

    def __init__(
        self,
        marker: Marker,
        records: PodRecords,
        output: OutputFiles,
        watch: ExitWatch,
        killer: TreeKiller,
        cgroups: Cgroups | None,
    ) -> None:
        self._marker = marker
        self._records = records
        self._output = output
        self._watch = watch
        self._killer = killer
        self._cgroups = cgroups

    async def start(self, pod: PodEntry, outlet: Outlet) -> Ending:
        """Start what is not started yet. Never raises but for cancellation."""
        pod.starting = True
        try:
            # Before anything runs: what runs without a record is found by its marks.
            self.remember(pod)
            failure = await self._start_all(pod, outlet)
        except trio.Cancelled:
            # Cancelled by order, and not because the daemon goes: half a pod is of no use to anybody.
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
        """Why it failed; empty when all run."""
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
                    self.remember(entry.pod)
                    await outlet.put(
                        ContainerStarted(uid=entry.key[0], container=entry.key[1], pid=entry.pid)
                    )
                finally:
                    # Only now: its end must not be reported before its start.
                    self.follow(entry)
        return ""

    async def _run_init(self, pod: PodEntry, spec: ContainerSpec) -> str:
        entry = pod.init = ContainerEntry(pod, spec)
        # Nothing of an init container is reported: it is no container that a shutdown stops.
        entry.ended = trio.Event()
        self._spawn(entry)
        self.follow(entry)
        await entry.ended.wait()
        pod.init = None
        if pod.stopping:
            return STOPPED_BEFORE_START
        if entry.end.exit_code:
            return f"init container {spec.name} ended with exit code {entry.end.exit_code}"
        return f"init container {spec.name} ended by {entry.end.signal}" if entry.end.signal else ""

    async def end_earlier(self, pod: PodEntry) -> None:
        """Before a start is taken up again, or what it starts may run: an init container of the earlier
        daemon may still run, and init containers may be run again (Kubernetes says so), but not twice at a
        time. The same goes for what has a waiting container's marks and was not adopted: it may have changed
        its user.
        """
        waiting = [name for name, entry in pod.containers.items() if entry.phase == "waiting"]
        if waiting:
            names = waiting + [spec.name for spec in pod.spec.init if not spec.sidecar]
            await self._killer.kill_now({(pod.pod.uid, name): TreeRoot() for name in names})

    def _spawn(self, entry: ContainerEntry) -> None:
        """Raises CannotStart, OSError."""
        uid, name = entry.key
        if self._cgroups is not None:
            entry.group = self._cgroups.make(f"{file_name(uid)}.{file_name(name)}")
        environ = self._marker.environ(Mark(uid, name, entry.pod.order), entry.spec.env)
        output = self._output.open(output_name(uid, name))
        try:
            child: Child = spawn(entry.spec.argv, environ, entry.spec.working_dir, output, entry.group)
        except CannotStart as error:
            raise CannotStart(f"container {name}: {error}") from error
        finally:
            os.close(output)
        entry.begin(*child)

    def remember(self, pod: PodEntry) -> None:
        """Keep what runs for the daemon's next life. Raises OSError."""
        running = tuple(entry.record() for entry in pod.containers.values() if entry.pid)
        self._records.store(pod.order, pod.pod, pod.spec, running, pod.stopping)

    def follow(self, entry: ContainerEntry) -> None:
        """See to the container's end."""
        self._watch.add(entry.pidfd, lambda: self._ended(entry), child=entry.child)

    def _ended(self, entry: ContainerEntry) -> Fact | None:
        if entry.child:
            # Before it is waited for: until then nobody else can have its number. A program that changed its
            # user is not ours to signal; its marks are not readable for us either.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(entry.pid, signal.SIGKILL)
        end = reap(entry.pidfd) or ExitStatus()
        entry.finish(end)
        if not self._killer.closed:
            self._killer.leftovers(entry.key, entry.group)
        return None if entry.ended is not None else exited_fact(entry)

    def drop_waiting(self, pod: PodEntry, code: int | None) -> list[Fact]:
        """What was not started never will be."""
        facts: list[Fact] = []
        for entry in pod.containers.values():
            if entry.phase == "waiting":
                entry.finish(ExitStatus(exit_code=code))
                facts.append(exited_fact(entry))
        return facts

    def _kill(self, pod: PodEntry) -> None:
        running = [entry for entry in pod.containers.values() if entry.phase == "running"]
        for entry in running + ([pod.init] if pod.init is not None else []):
            self._killer.kill_soon(entry.key, TreeRoot(entry.pid, entry.start_ticks), entry.group)


def exited_fact(entry: ContainerEntry) -> ContainerExited:
    """The fact of a container's end."""
    uid, name = entry.key
    end = entry.end
    return ContainerExited(
        uid=uid, container=name, exit_code=end.exit_code, signal=end.signal, gone=entry.gone
    )


#: One descriptor a container, and some for the daemon itself.
FILE_LIMIT_WANTED = 65_536

#: Enter the group, then become the program: what it forks later is in the group as well. A group that
#: cannot be entered must not keep the program from starting.
ENTER_GROUP = 'echo 0 >"$0" 2>/dev/null; exec "$@"'

NO_COMMAND = "no command is given"


class CannotStart(Exception):
    """A process could not be started; the text says why and names the program or folder to look at."""


def raise_file_limit() -> None:
    """Make room for a pidfd a container. The pods get the limit that we were started with."""
    global _own_limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_LIMIT_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILE_LIMIT_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _own_limit = (soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_own_limit: tuple[int, int] | None = None


#: Python ignores these itself, and `subprocess` gives a child their defaults.
RESTORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


@contextmanager
def default_signals() -> Iterator[None]:
    """Give the processes started in this block default signal dispositions and an empty mask.

    A shell without job control (``nohup ... &``) starts us with SIGINT and SIGQUIT ignored. A child inherits
    an ignored signal, but not a handler. So each ignored signal gets a handler that does nothing, and no code
    of ours runs in the child. Only the main thread can set handlers; in other threads only the mask changes.
    Emptying the mask delivers the signals that our parent blocked and that are pending.
    """
    ignored: list[int] = []
    if threading.current_thread() is threading.main_thread():
        numbers = signal.valid_signals() - RESTORED_BY_PYTHON
        ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        for number in ignored:
            signal.signal(number, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, output: int, group: str = "") -> Child:
    """Start ``argv``; ``group`` is a cgroup's folder. Raises CannotStart."""
    command = list(argv)
    if group:
        # Through a shell a missing program would only show as its exit code, so it is looked for first.
        if not argv:
            raise CannotStart(NO_COMMAND)
        name = argv[0]
        path = os.path.join(cwd, name) if "/" in name else name
        if shutil.which(path, path=env.get("PATH")) is None:
            raise CannotStart(f"{name}: not found, or not executable")
        command = ["/bin/sh", "-c", ENTER_GROUP, f"{group}/cgroup.procs", *argv]
    try:
        with default_signals():
            popen = subprocess.Popen(
                command,
                env=dict(env),
                cwd=cwd or None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A signal that is meant for the daemon's group must not reach a pod, nor one for the pod's
                # us. And a session that its first process leads is how its tree is found again.
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
    # The end is waited for through the pidfd; Popen must not wait for the number on its own.
    popen.returncode = 0
    if _own_limit is not None:
        # From outside, so that no code of ours runs in the child; it sees our limit for some microseconds.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _own_limit)
    stat = proc.read_stat(pid)
    return Child(pid, os.pidfd_open(pid), stat.start_ticks if stat else 0)


#: Kept of each container's output, and the size at which that is looked after.
KEEP_BYTES = 64 * 1024
TRIM_BYTES = 4 * KEEP_BYTES
#: How often sizes are looked at: a program that only writes fills some 100 MB of memory in this time, and a
#: look at a hundred files takes a thousandth of a processor.
TRIM_SECONDS = 0.1
#: The same where there are no files; those of a daemon that kept output may lie there, and are written to.
TRIM_IDLE_SECONDS = 10
#: One line of an autopsy; longer ones are cut.
OUTPUT_LINE_BYTES_MAX = 256

KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02
#: Holes are punched in whole blocks; a part of one would be written with zeros and give nothing back.
BLOCK_BYTES = 4096


class OutputFiles:
    """The output files of one state directory. ``kept`` False: output of what is started goes nowhere."""

    def __init__(self, folder: Path, *, kept: bool = True) -> None:
        self._folder = folder
        self._kept = kept
        self._punch = _punch_hole

    def open(self, name: str) -> int:
        """A descriptor for a new process's output. Raises OSError."""
        if not self._kept:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._folder / name, flags, 0o600)

    def tail(self, name: str, lines: int) -> tuple[str, ...]:
        """The newest lines, each at most `OUTPUT_LINE_BYTES_MAX` bytes; empty when there is no output."""
        if lines <= 0:
            return ()
        try:
            with open(self._folder / name, "rb") as file:
                # Enough bytes for so many lines of the largest size; a file that was cut begins with zeros.
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - (lines + 1) * OUTPUT_LINE_BYTES_MAX))
                found = file.read().replace(b"\0", b"").splitlines()[-lines:]
        except OSError:
            return ()
        return tuple(line[:OUTPUT_LINE_BYTES_MAX].decode(errors="replace") for line in found)

    def trim(self) -> bool:
        """Cut what has grown too large, as far as the file system lets us. Whether there may be more soon."""
        found = self._kept
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                found = True
                with suppress(OSError):
                    # st_blocks counts what is really kept, in units of 512 bytes.
                    if entry.stat().st_blocks * 512 > TRIM_BYTES:
                        fd = os.open(entry.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                        try:
                            end = (os.fstat(fd).st_size - KEEP_BYTES) // BLOCK_BYTES * BLOCK_BYTES
                            if not self._punch(fd, end):
                                os.ftruncate(fd, 0)
                        finally:
                            os.close(fd)
        return found

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / name)


def _punch_hole(fd: int, length: int) -> bool:
    """Give the first ``length`` bytes back to the file system; they read as zeros from then on."""
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = libc.fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    return bool(fallocate(fd, KEEP_SIZE_AND_PUNCH_HOLE, 0, length) == 0)
