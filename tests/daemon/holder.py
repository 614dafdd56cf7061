"""The first process of the namespace in which a daemon under test lives, with all its pods.

A process namespace ends as one: whatever a test leaves running, also a test that was killed, goes with this
process. Until its input ends it only waits for orphans, as a machine's first process does.
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
