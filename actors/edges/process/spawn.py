"""Starting one local process: a session of its own, marks in its environment, output to a file.

The daemon's death must not touch it: no pipe to the daemon (a broken one would kill it), no death signal,
no terminal.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from actors.edges.process import proc

#: One descriptor a container, and some for the daemon itself.
FILES_WANTED = 65_536

#: Enter the group, then become the program: what it forks later is in the group as well. A group that
#: cannot be entered must not keep the program from starting.
ENTER_GROUP = 'echo 0 >"$0" 2>/dev/null; exec "$@"'

NO_COMMAND = "no command is given"


class CannotStart(Exception):
    """A process could not be started; the text says why and names the program or folder to look at."""


class Child(NamedTuple):
    """A running child. ``pidfd`` is the caller's to close."""

    pid: int
    pidfd: int
    start_ticks: int


def raise_file_limit() -> None:
    """Make room for a pidfd a container. The pods get the limit that we were started with."""
    global _own_limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _own_limit = (soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_own_limit: tuple[int, int] | None = None


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, output: int, group: str = "") -> Child:
    """Start ``argv``; ``group`` is a cgroup's folder. Raises CannotStart."""
    command = _entering(argv, env, cwd, group) if group else list(argv)
    try:
        popen = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd or None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        raise CannotStart(_why(error, argv)) from error
    return _child(popen)


def _child(popen: subprocess.Popen[bytes]) -> Child:
    pid = popen.pid
    # The end is waited for through the pidfd; Popen must not wait for the number on its own.
    popen.returncode = 0
    if _own_limit is not None:
        # From outside, so that no code of ours runs in the child; it sees our limit for some microseconds.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _own_limit)
    stat = proc.read_stat(pid)
    return Child(pid, os.pidfd_open(pid), stat.start_ticks if stat else 0)


def _entering(argv: Sequence[str], env: Mapping[str, str], cwd: str, group: str) -> list[str]:
    """Through a shell a missing program would only show as its exit code, so it is looked for first."""
    if not argv:
        raise CannotStart(NO_COMMAND)
    name = argv[0]
    place = os.path.join(cwd, name) if "/" in name else name
    if shutil.which(place, path=env.get("PATH")) is None:
        raise CannotStart(f"{name}: not found, or not executable")
    return ["/bin/sh", "-c", ENTER_GROUP, f"{group}/cgroup.procs", *argv]


def _why(error: Exception, argv: Sequence[str]) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or (argv[0] if argv else '')}: {error.strerror}"
    return NO_COMMAND if isinstance(error, IndexError) else str(error)
