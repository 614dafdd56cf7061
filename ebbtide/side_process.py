"""A process beside the daemon that sends data from the journal.

It finds the data itself. The daemon sends it short messages, reads its reports, and restarts it when due.
`tracing` and `shipping_edge` define these.
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
#: The delay before a new try at a back end that refused or was down.
AGAIN_SECONDS = 600.0
#: Crashes with an immediate restart; later ones wait.
CRASHES_MAX = 3
#: Exit codes with a report; any other is a crash.
FINAL_EXIT_CODES = (EXIT_DONE, EXIT_KEPT, EXIT_WRONG)

#: Variables of the service, not for a child.
PRIVATE_VARIABLES = ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM")


def environment_of_children(without: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment of a child; ``without``: beginnings of more names to remove."""
    return {k: v for k, v in os.environ.items() if not k.startswith(PRIVATE_VARIABLES + without)}


class SideProcess:
    """A process beside the daemon, while it is wanted. A subclass defines its messages (`_send`), and the
    handling of its reports (`_hear`) and of its end (`_over`).
    """

    def __init__(self, module: str, name: str, tell: Tell) -> None:
        self._module, self._name, self._tell = module, name, tell
        self._wanted = trio.Event()
        self._delay_seconds = AFTER_START_SECONDS
        self._process: trio.Process | None = None
        self._saying = trio.Lock()

    def want(self, delay_seconds: float = AFTER_START_SECONDS) -> None:
        """There may be data: the process looks, moves its cursor, and ends."""
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
            # Before the start: the process may already have looked when a later request comes.
            self._wanted = trio.Event()
            code = await self._live()
            # Done: wait for the next request. If it kept data: wait for its back end. After a crash: retry
            # with a growing delay, and only a few times, because it meets the same records again.
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
                # Otherwise Ctrl-C would end it with us, and the rest would wait for the next start.
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
                    # An endless line must not fill our memory; its rest is not a report.
                    buffer = buffer[-LINE_BYTES_MAX:]
                    for line in lines:
                        self._hear(line)
                nursery.cancel_scope.cancel()
            # The end of its output means its end: no report is lost by reading the exit code now.
            return await process.wait()
        finally:
            self._process = None
            self._over()
            # Close it here, not in the garbage collector: the end of its input tells the process that we
            # leave.
            with trio.CancelScope(shield=True):
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await trio.aclose_forcefully(stream)

    def _kill(self) -> None:
        """Kill it now. Its end counts as a crash."""
        if self._process is not None:
            self._process.kill()

    async def _say(self, message: bytes) -> None:
        """A process that does not read delays only its own messages."""
        # One at a time: a line in two writes must stay together.
        async with self._saying:
            if self._process is not None and self._process.stdin is not None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._process.stdin.send_all(message)

    def _environment(self) -> dict[str, str]:
        return environment_of_children()

    async def _until_free(self) -> None:
        """Until a start is allowed."""

    async def _send(self) -> None:
        """The job and later messages; cancelled at the end of the process."""
        raise NotImplementedError

    def _hear(self, line: bytes) -> None:
        """One report of the process."""
        raise NotImplementedError

    def _over(self) -> None:
        """The process has ended."""
