"""PID 1 of the namespace of a daemon under test and its pods.

Its end ends everything in the namespace, even after a killed test. It reaps orphans until its input ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    signal.signal(signal.SIGCHLD, lambda number, frame: _reap())
    print("up", flush=True)
    sys.stdin.read()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
