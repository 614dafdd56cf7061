"""How a process ended: from the kernel's wait for an own child, from the pidfd itself for another's.

An adopted pod (its daemon died) is somebody else's child, and its exit code goes to that somebody. Since
Linux 6.15 a pidfd still tells it once the process has been waited for; on older kernels it stays unknown.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from typing import NamedTuple

import trio

from actors.edges.process.signals import signal_name
from events.base import NS_PER_SECOND

#: A process of another parent tells its exit code only when that has waited for it: so long we wait for that.
PARENT_NS_MAX = 20_000_000
LOOK_AGAIN_SECONDS = 0.002

#: ``struct pidfd_info`` of ``linux/pidfd.h`` in its first size: a mask of 64 bits, ids, the exit code.
INFO_BYTES = 64
INFO_EXIT = 1 << 3
#: ``_IOWR(0xFF, 11, struct pidfd_info)``
PIDFD_GET_INFO = 3 << 30 | INFO_BYTES << 16 | 0xFF << 8 | 11
MASK = struct.Struct("=Q")
EXIT_CODE = struct.Struct("=i")


class End(NamedTuple):
    """How a process ended. Both empty: nobody could say."""

    exit_code: int | None = None
    signal: str = ""


def end_of_status(status: int) -> End:
    """From a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return End(exit_code=code) if code >= 0 else End(signal=signal_name(-code))


def reap(pidfd: int) -> End | None:
    """Wait for an own child that has ended, without blocking; None: it runs. Another's child: what its
    pidfd tells.
    """
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return told(pidfd)
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return End(exit_code=found.si_status)
    return End(signal=signal_name(found.si_status))


async def reap_soon(pidfd: int) -> End:
    """`reap` for a process that has ended; another's child gets a moment to be waited for."""
    poll = select.poll()
    poll.register(pidfd, 0)
    end = reap(pidfd)
    with trio.move_on_after(PARENT_NS_MAX / NS_PER_SECOND):
        while end == End() and not poll.poll(0):
            await trio.sleep(LOOK_AGAIN_SECONDS)
    return end if end not in (None, End()) else told(pidfd)


def told(pidfd: int) -> End:
    """What the pidfd of a process that was waited for tells; empty on older kernels."""
    info = bytearray(INFO_BYTES)
    MASK.pack_into(info, 0, INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, info)
    except OSError:
        return End()
    if not MASK.unpack_from(info)[0] & INFO_EXIT:
        return End()
    return end_of_status(EXIT_CODE.unpack_from(info, INFO_BYTES - EXIT_CODE.size)[0])
