"""A process beside the daemon, started when there is something to send.

What it sends it finds by itself: nothing of it passes through the daemon, which tells it a few words, hears
its reports, and starts it again when it is due. `tracing` and `shipping.edge` say what these are.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from contextlib import suppress

import trio

from ebbtide.actors.interfaces import Outlet, Tell
from ebbtide.otel.delivery.destination import EXIT_DONE, EXIT_KEPT, EXIT_WRONG, LINE_BYTES_MAX

#: After a start the daemon's own work goes first.
AFTER_START_SECONDS = 2.0
#: A back end that refused, or was not there for long, is tried again so much later.
AGAIN_SECONDS = 600.0
#: A process that crashed is started again at once only so often; then it waits like the others.
CRASHES_MAX = 3
#: Exit codes of one that has said what it has to say; any other is a crash.
FINAL_EXIT_CODES = (EXIT_DONE, EXIT_KEPT, EXIT_WRONG)

#: Not for a child: it is not the service.
PRIVATE_VARIABLES = ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM")


def environment_of_children(without: tuple[str, ...] = ()) -> dict[str, str]:
    """Of a process that is not the service; ``without``: beginnings of more names that it does not get."""
    return {k: v for k, v in os.environ.items() if not k.startswith(PRIVATE_VARIABLES + without)}


class SideProcess:
    """A process beside the daemon, while it is wanted. A subclass says what it is told (`_send`), and what
    becomes of its reports (`_hear`) and of its end (`_over`).
    """

    def __init__(self, module: str, name: str, tell: Tell) -> None:
        self._module, self._name, self._tell = module, name, tell
        self._wanted = trio.Event()
        self._delay_seconds = AFTER_START_SECONDS
        self._process: trio.Process | None = None
        self._saying = trio.Lock()

    def want(self, delay_seconds: float = AFTER_START_SECONDS) -> None:
        """There may be something to send; the process finds out, moves its cursor on, and goes."""
        self._delay_seconds = delay_seconds
        self._wanted.set()

    async def run(self, outlet: Outlet) -> None:
        """Keep the process running while it is wanted, until cancelled. It outlives us by some seconds."""
        crashes, again_seconds = 0, math.inf
        while True:
            with trio.move_on_after(again_seconds):
                await self._wanted.wait()
                await trio.sleep(self._delay_seconds)
            await self._until_free()
            # Before it lives: what is wanted while it does, it may have looked for already.
            self._wanted = trio.Event()
            code = await self._live()
            # Done: nothing to do until somebody wants it. One that has kept something waits for its back end.
            # One that crashed is tried at once, each time a little later, and only so often: it would meet
            # the same records each time.
            crashes = 0 if code in FINAL_EXIT_CODES else crashes + 1
            again_seconds = math.inf if code == EXIT_DONE else AGAIN_SECONDS
            if 0 < crashes <= CRASHES_MAX:
                self.want(AFTER_START_SECONDS * crashes)

    async def _live(self) -> int:
        """One process, from its start to its end; its exit code."""
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-P", "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment(),
                # Or Ctrl-C would end it with us, and what it has still to send would wait for the next start.
                start_new_session=True,
            )
        except OSError as error:
            self._tell(4, f"{self._name}: the process cannot be started: {error.strerror}")
            return EXIT_KEPT
        self._process = process
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                assert process.stdout is not None
                buffer = b""
                async for chunk in process.stdout:
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    # Of a line that never ends the rest is no report, and must not fill our memory.
                    buffer = buffer[-LINE_BYTES_MAX:]
                    for line in lines:
                        self._hear(line)
                nursery.cancel_scope.cancel()
            # Its output has ended, so it ends: nothing that it said is lost by asking for its exit
            # code only now.
            return await process.wait()
        finally:
            self._process = None
            self._over()
            # Closed by us, not by the collector of garbage: the end of its input is how it learns
            # that we leave.
            with trio.CancelScope(shield=True):
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await trio.aclose_forcefully(stream)

    def _kill(self) -> None:
        """At once, whatever it does. Its end counts as a crash."""
        if self._process is not None:
            self._process.kill()

    async def _say(self, message: bytes) -> None:
        """A process that does not read holds only those who have something to say to it."""
        # One at a time: a line that goes out in two writes must not have another one in its middle.
        async with self._saying:
            if self._process is not None and self._process.stdin is not None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._process.stdin.send_all(message)

    def _environment(self) -> dict[str, str]:
        return environment_of_children()

    async def _until_free(self) -> None:
        """Until one may be started."""

    async def _send(self) -> None:
        """The job, and what comes after it; cancelled when the process has ended."""
        raise NotImplementedError

    def _hear(self, line: bytes) -> None:
        """One report of the process's."""
        raise NotImplementedError

    def _over(self) -> None:
        """The process has ended."""
