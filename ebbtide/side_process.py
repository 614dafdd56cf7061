"""Follower processes beside the daemon (`ebbtide.follower`): their life and their messages.

`tracing` and `shipping.shipping_edge` decide when to start one, and use the reports.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import trio

from ebbtide.actors.interfaces import Edge, Effect, Outlet, Tell
from ebbtide.events.base import Order
from ebbtide.otel.destination import Destination
from ebbtide.otel.metric_table import ShippingState
from ebbtide.shipping.shipping_destination import Store

# The messages: one JSON object a line, over the follower's own pipes. The first line is its job, which has
# headers: other processes could read an argument or a variable.


#: All is sent; some is kept; the job cannot be done. sysexits.h: an interpreter that fails ends with 1.
EXIT_DONE, EXIT_KEPT, EXIT_WRONG = 0, 75, 78
#: A job with long headers fits.
LINE_BYTES_MAX = 256 * 1024


class OtlpJob(msgspec.Struct, frozen=True, kw_only=True, tag="otlp"):
    """``locations``: where the journal may be. The first that can be written has the cursor."""

    destination: Destination
    locations: tuple[str, ...]


class StoreJob(msgspec.Struct, frozen=True, kw_only=True, tag="store"):
    store: Store
    locations: tuple[str, ...]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """``durable``: the disk has confirmed all up to this record. ``flush``: answer with this ``number`` once
    its spans have arrived.
    """

    durable: int
    flush: bool = False
    number: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``text`` is a line for the log, unless one of these is set. ``flushed``: the flush with this ``number``
    is over; ``text``: why not all has arrived. ``well``: whether the back end answers; ``text``: why not.
    """

    text: str = ""
    level: int = 6
    flushed: bool = False
    number: int = 0
    well: bool | None = None
    shipping: ShippingState | None = None


def encode_line(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


#: The daemon's own start goes first.
AFTER_START_SECONDS = 2.0
#: After a back end refused, or did not answer.
AGAIN_SECONDS = 600.0
#: Quick restarts after crashes; then it waits like the others.
CRASHES_MAX = 3
#: A child is not the service.
PRIVATE_VARIABLES = ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM")
#: Where the kernel looks first when memory is short (proc(5)).
OOM_SCORE = "900"


def environment_of_children(without: tuple[str, ...] = ()) -> dict[str, str]:
    """``without``: further prefixes of names to leave out."""
    return {k: v for k, v in os.environ.items() if not k.startswith(PRIVATE_VARIABLES + without)}


def lower_priority(memory_bytes_max: int) -> None:
    """Of this process, which is then the first to be killed when memory is short."""
    # A system call filter may refuse these. The limit is for a library that leaks: the process's work can be
    # done again.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes_max, memory_bytes_max))


class SideProcess(Edge):
    def __init__(self, name: str, tell: Tell) -> None:
        self.effects: Mapping[type[Order], Effect] = {}
        self._name, self._tell = name, tell
        self._wanted = trio.Event()
        self._delay_seconds = AFTER_START_SECONDS
        self._process: trio.Process | None = None
        self._writing = trio.Lock()

    def want(self, delay_seconds: float = AFTER_START_SECONDS) -> None:
        """There may be something to send: start the process after the delay."""
        self._delay_seconds = delay_seconds
        self._wanted.set()

    async def run(self, outlet: Outlet) -> None:
        """The process outlives a cancellation by some seconds."""
        crashes, again_seconds = 0, math.inf
        while True:
            with trio.move_on_after(again_seconds):
                await self._wanted.wait()
                await trio.sleep(self._delay_seconds)
            await self._until_free()
            # Before it lives: a wish during its life may come after its look.
            self._wanted = trio.Event()
            code = await self._live()
            # Retry a crash soon, but not for ever: the next process meets the same records.
            crashes = 0 if code in (EXIT_DONE, EXIT_KEPT, EXIT_WRONG) else crashes + 1
            again_seconds = math.inf if code == EXIT_DONE else AGAIN_SECONDS
            if 0 < crashes <= CRASHES_MAX:
                self.want(AFTER_START_SECONDS * crashes)

    async def _live(self) -> int:
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-P", "-m", "ebbtide.follower"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment(),
                # Or Ctrl-C would end it with us.
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
                    # An endless line must not fill our memory.
                    buffer = buffer[-LINE_BYTES_MAX:]
                    for line in lines:
                        with suppress(ValueError):
                            self._reported(msgspec.json.decode(line, type=Report))
                nursery.cancel_scope.cancel()
            return await process.wait()
        finally:
            self._process = None
            self._over()
            # The end of its input shows that we leave.
            with trio.CancelScope(shield=True):
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await trio.aclose_forcefully(stream)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def _write(self, message: msgspec.Struct) -> None:
        # A line may take two writes.
        async with self._writing:
            if self._process is not None and self._process.stdin is not None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._process.stdin.send_all(encode_line(message))

    def _environment(self) -> dict[str, str]:
        return environment_of_children()

    async def _until_free(self) -> None:
        """Until a process may be started."""

    async def _send(self) -> None:
        """The job, then requests; cancelled when the process has ended."""
        raise NotImplementedError

    def _reported(self, report: Report) -> None:
        raise NotImplementedError

    def _over(self) -> None:
        """The process has ended."""
