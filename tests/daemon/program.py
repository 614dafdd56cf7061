"""A pod's program in the daemon's tests: it records its events with times.

``program.py TRACE [ignore] [after=SECONDS] [code=N]`` is a container, with ``hook=SECONDS`` a hook. A trace
line is ``NANOSECONDS WHAT PID`` (CLOCK_MONOTONIC, equal for all processes).
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main(trace: str, *words: str) -> int:
    options = dict(word.partition("=")[::2] for word in words)
    note = Notes(trace)
    if "hook" in options:
        note("hook")
        time.sleep(float(options["hook"]))
        note("hooked")
        return 0
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    note("up")
    if "ignore" in options:
        while True:
            signal.sigwait([signal.SIGTERM])
            note("TERM")
    signal.sigwait([signal.SIGTERM])
    note("TERM")
    end = time.monotonic() + float(options.get("after", 0))
    while (left := end - time.monotonic()) > 0:
        if signal.sigtimedwait([signal.SIGTERM], left) is not None:
            note("TERM")
    note("gone")
    return int(options.get("code", 0))


class Notes:
    def __init__(self, trace: str) -> None:
        self._trace = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, what: str) -> None:
        os.write(self._trace, b"%d %s %d\n" % (time.monotonic_ns(), what.encode(), os.getpid()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
