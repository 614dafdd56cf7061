"""How a process of the daemon's that is not its work gives way to everybody."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

NICE = 19
#: Where the kernel looks first when memory is short (proc(5)): the daemon itself asks for the opposite.
OOM_SCORE = "900"


def lower_priority(memory_bytes_max: int) -> None:
    """Of this process: the lowest priority, first to go when memory is short, a limit on its own."""
    # What is refused here, by a system call filter, is no reason not to go on: the work is done all the same,
    # only less politely. The limit on memory is for a library that leaks: it ends this process, whose work
    # can be done again from the journal, and not a pod that the kernel chooses.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes_max, memory_bytes_max))
