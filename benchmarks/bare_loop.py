"""The least that a shutdown of processes can cost: signal all of a wave, wait for all, wave after wave.

No journal, no decisions, no hooks, no reports: pidfds, one epoll set and `waitid`. Ebbtide's figures stand
beside this loop's, measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

#: Ready is said by closing standard output, so that no program is signalled before its handler stands.
AT_ONCE = ("sh", "-c", "exec >&-; exec sleep 3600")
SLOW = "trap 'kill $!; sleep {seconds}; exit 0' TERM; exec >&-; sleep 3600 & wait"

WAVES = 3


def programs(count: int, seconds: float) -> list[Sequence[str]]:
    """``count`` command lines that need this long to end after SIGTERM; 0: they end at once."""
    slow = ("sh", "-c", SLOW.format(seconds=seconds))
    return [slow if seconds else AT_ONCE] * count


def start(commands: Sequence[Sequence[str]]) -> list[int]:
    """Start them all; their pidfds, once each is ready for its signal."""
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for command in commands
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.read()
        child.stdout.close()
        child.returncode = 0
    return [os.pidfd_open(child.pid) for child in children]


def end_wave(pidfds: Sequence[int]) -> None:
    """SIGTERM to all, and wait for all."""
    with select.epoll() as epoll:
        for pidfd in pidfds:
            epoll.register(pidfd, select.EPOLLIN)
        for pidfd in pidfds:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        left = len(pidfds)
        while left:
            for pidfd, _ in epoll.poll():
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
                epoll.unregister(pidfd)
                os.close(pidfd)
                left -= 1


def measure(
    count: int, seconds: float, waves: int = WAVES, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Seconds each wave took, for ``count`` processes in all."""
    pidfds = start(programs(count, seconds))
    taken = []
    for wave in range(waves):
        began = clock()
        end_wave(pidfds[wave::waves])
        taken.append(clock() - began)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description="The bare loop: signal and wait, wave by wave.")
    parser.add_argument("--count", type=int, default=300, help="processes in all (default 300)")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="what each needs after SIGTERM (default 0)"
    )
    arguments = parser.parse_args()
    taken = measure(arguments.count, arguments.seconds)
    for wave, seconds in enumerate(taken):
        print(f"wave {wave}: {seconds:.4f} s")
    print(f"total: {sum(taken):.4f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
