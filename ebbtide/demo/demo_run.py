"""The demo: pods come up, the power goes off, a late pod comes, the lock is released.

The daemon, the process edge and the journal are the real ones; only logind is embedded.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from ebbtide.actors.edges.embedded_logind import EmbeddedLogindEdge
from ebbtide.actors.edges.process.process_pods import kill_recorded
from ebbtide.actors.interfaces import Tell
from ebbtide.config import load
from ebbtide.daemon import Daemon
from ebbtide.daemon_assembly import daemon_with_embedded_logind
from ebbtide.daemon_status import DaemonStatus
from ebbtide.demo import DemoFolder
from ebbtide.events.base import Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodRejected, WaveStarted
from ebbtide.events.disk import RESERVE_NAME
from ebbtide.events.facts import ContainerStarted, PodAppeared
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.options import RunOptions

#: Time to read, before the power goes off.
PAUSE_SECONDS = 1.5
UP_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.05
#: The late pod comes when this wave begins.
LATE_WAVE = 1

#: These end a demo early.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LISTEN_SECONDS = 0.001

#: Draws the status at this monotonic time; called some ten times a second.
DrawFunction = Callable[[DaemonStatus, int], None]


class DemoResult(NamedTuple):
    """``whole``: the lock was released. ``ended_by``: a signal. ``shutdown`` None: none began."""

    shutdown: ShutdownRecord | None
    trace_id: str
    whole: bool
    ended_by: signal.Signals | None = None


async def run_demo(
    folder: DemoFolder, say: Callable[[str], None], tell: Tell, draw: DrawFunction
) -> DemoResult:
    """``say`` takes the demo's lines, ``tell`` the daemon's. Raises as `daemon_with_embedded_logind`."""
    logind = EmbeddedLogindEdge()
    options = RunOptions(
        config=(folder.config,),
        pods=folder.pods,
        journal=folder.journal,
        runtime=folder.runtime,
        capture_lines=2,
    )
    daemon = await daemon_with_embedded_logind(options, load(options.config), logind, tell)
    pods, caught = PodsUp(), list[signal.Signals]()

    def bring_and_report_late_pod(records: Sequence[Record]) -> None:
        for event in (record.event for record in records):
            if isinstance(event, WaveStarted) and event.wave == LATE_WAVE:
                # A manifest appears in the watched folder.
                os.rename(folder.late, folder.pods / folder.late.name)
            elif isinstance(event, PodRejected):
                say(f"A manifest appeared while the node goes down: {event.label} is turned away.")

    async def draw_forever() -> None:
        while True:
            draw(daemon.status, time.monotonic_ns())
            await trio.sleep(LOOK_SECONDS * 2)

    daemon.sequencer.observers += [pods.fold, bring_and_report_late_pod]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(draw_forever)
            script = partial(_power_off, daemon, logind, pods, say)
            nursery.start_soon(_run_until_signal, caught, script)
            await daemon.run()
            nursery.cancel_scope.cancel()
    finally:
        kill_remaining(folder)
        (folder.journal / RESERVE_NAME).unlink(missing_ok=True)
    shutdowns = list(shutdown_records(History([DirectorySource(folder.journal)])))
    shutdown = shutdowns[-1] if shutdowns else None
    return DemoResult(shutdown, daemon.trace_id, logind.released.is_set(), *caught)


class PodsUp:
    """The known containers, and the started ones."""

    def __init__(self) -> None:
        self.containers: dict[str, int] = {}
        self._started: dict[tuple[str, str], None] = {}

    def fold(self, records: Sequence[Record]) -> None:
        for event in (record.event for record in records):
            if isinstance(event, PodAppeared):
                self.containers[event.pod.uid] = len(event.pod.containers)
            elif isinstance(event, ContainerStarted):
                self._started[event.uid, event.container] = None

    @property
    def all_up(self) -> bool:
        """Every container of every pod that has appeared runs."""
        return bool(self.containers) and len(self._started) >= sum(self.containers.values())


async def _run_until_signal(caught: list[signal.Signals], script: Callable[[], Awaitable[None]]) -> None:
    """Until the script's end or a signal; then stops the daemon in the usual way."""
    # SIGHUP: the terminal has gone; to a daemon it means a reload. So take the signals over from the daemon
    # once it has its handlers, and give them back for its stop.
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        await trio.sleep(LISTEN_SECONDS)
    with trio.open_signal_receiver(*ENDING_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:

            async def catch() -> None:
                async for number in signals:
                    caught[:] = [signal.Signals(number)]
                    nursery.cancel_scope.cancel()

            nursery.start_soon(catch)
            await script()
            nursery.cancel_scope.cancel()
    os.kill(os.getpid(), signal.SIGTERM)


async def _power_off(
    daemon: Daemon, logind: EmbeddedLogindEdge, pods: PodsUp, say: Callable[[str], None]
) -> None:
    """Switch the power off once everything is up."""
    with trio.move_on_after(UP_SECONDS_MAX):
        while not (pods.all_up and daemon.status.armed and daemon.status.sufficient):
            await trio.sleep(LOOK_SECONDS)
    say(f"{len(pods.containers)} pods are up, the delay lock is held. Now the power goes off.")
    await trio.sleep(PAUSE_SECONDS)
    await logind.begin("poweroff")
    await logind.released.wait()


def kill_remaining(folder: DemoFolder) -> None:
    """Kill the demo's processes that are left after Ctrl-C or the budget's end."""
    kill_recorded(folder.runtime / "process" / "pods")
