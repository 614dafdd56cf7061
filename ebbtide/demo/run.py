"""The demo's plot: pods come up, the power goes off, a late pod comes, the lock is released.

It is the real daemon with the real process edge and the real journal; only logind is its own. Manifests,
configuration and journal stand in a folder of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import trio

from ebbtide.actors.edges.embedded_logind import EmbeddedLogindEdge
from ebbtide.actors.edges.linux.kill_tree import Marker, ProcessScanner, kill_exactly
from ebbtide.actors.interfaces import Tell
from ebbtide.config import load
from ebbtide.daemon import Daemon, daemon_with_embedded_logind
from ebbtide.events.base import Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodRejected, WaveStarted
from ebbtide.events.disk import RESERVE_NAME
from ebbtide.events.facts import ContainerStarted, PodAppeared
from ebbtide.events.reader import History
from ebbtide.events.record.fold import shutdown_records
from ebbtide.events.record.model import ShutdownRecord
from ebbtide.options import RunOptions
from ebbtide.status import DaemonStatus

# The demo's stage: a folder of its own with the manifests, the configuration, and the journal.


#: The port that ``web-0`` serves its hook on, as its manifest has it.
WEB_PORT = 47311

DEMO_FILES = files("ebbtide.demo")


class DemoFolder(NamedTuple):
    """``root`` goes with the machine's temporary files; ``late`` is brought into ``pods`` in mid-shutdown."""

    root: Path
    pods: Path
    late: Path
    config: Path
    journal: Path
    runtime: Path


def make_demo_folder(journal: Path | None) -> DemoFolder:
    """Write everything into a fresh folder. Raises OSError.

    The pods' ``python3`` is the one that runs the demo.
    """
    root = Path(tempfile.mkdtemp(prefix="ebbtide-demo-"))
    stage = DemoFolder(
        root,
        root / "pods",
        root / "late-0.yaml",
        root / "config.yaml",
        journal or root / "journal",
        root / "run",
    )
    stage.pods.mkdir()
    port = _free_port()
    for manifest in (DEMO_FILES / "pods").iterdir():
        text = manifest.read_text(encoding="utf-8").replace(str(WEB_PORT), str(port))
        (stage.pods / manifest.name).write_text(text, encoding="utf-8")
    for source, target in (("late/late-0.yaml", stage.late), ("config.yaml", stage.config)):
        target.write_text((DEMO_FILES / source).read_text(encoding="utf-8"), encoding="utf-8")
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    return stage


def bring_late_pod(stage: DemoFolder) -> None:
    """A manifest appears in the watched folder."""
    os.rename(stage.late, stage.pods / stage.late.name)


def _free_port() -> int:
    """The manifest's own port, or any other where that one is taken."""
    for port in (WEB_PORT, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    return WEB_PORT


# The demo's plot: pods come up, the power goes off, a late pod knocks, the machine is let go.
#
# It is the real daemon with the real process edge and the real journal; only logind is its own.


#: Time to read who is there, before the power goes off.
PAUSE_SECONDS = 1.5
#: A machine on which twelve small programs are not up by then has other worries.
UP_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.05
#: When the late pod knocks: the number of the wave that has just begun.
LATE_WAVE = 1
#: An interrupted demo takes its pods with it: looks until none is left.
KILL_ROUNDS_MAX = 20

#: What ends a demo early, and how soon the daemon's own handlers of it are there.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LISTEN_SECONDS = 0.001

#: Draws the status at this monotonic time; called some ten times a second.
DrawFunction = Callable[[DaemonStatus, int], None]


class DemoResult(NamedTuple):
    """How it went; ``whole``: the machine was let go, nothing interrupted it. ``ended_by``: what did.

    ``shutdown`` None: the demo ended before it began.
    """

    shutdown: ShutdownRecord | None
    trace_id: str
    whole: bool
    ended_by: signal.Signals | None = None


async def run_demo(
    stage: DemoFolder, say: Callable[[str], None], tell: Tell, draw: DrawFunction
) -> DemoResult:
    """Run the whole plot. ``say`` gets the director's words, ``tell`` the daemon's lines.

    Raises what `ebbtide.daemon.daemon_with_embedded_logind` raises.
    """
    logind = EmbeddedLogindEdge()
    options = RunOptions(
        config=(stage.config,), pods=stage.pods, journal=stage.journal, runtime=stage.runtime, capture_lines=2
    )
    daemon = await daemon_with_embedded_logind(options, load(options.config), logind, tell)
    pods, caught = PodsUp(), list[signal.Signals]()
    daemon.sequencer.observers += [pods.fold, _late_pod_observer(stage, say)]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_draw_forever, daemon, draw)
            nursery.start_soon(_direct_until_signal, caught, partial(_direct, daemon, logind, pods, say))
            await daemon.run()
            nursery.cancel_scope.cancel()
    finally:
        kill_remaining(stage)
        (stage.journal / RESERVE_NAME).unlink(missing_ok=True)
    shutdowns = list(shutdown_records(History([DirectorySource(stage.journal)])))
    shutdown = shutdowns[-1] if shutdowns else None
    return DemoResult(shutdown, daemon.trace_id, logind.released.is_set(), *caught)


class PodsUp:
    """Which containers there are, and which of them have been started."""

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


async def _direct_until_signal(caught: list[signal.Signals], direct: Callable[[], Awaitable[None]]) -> None:
    """Direct until the end, or until a signal says otherwise; then the daemon is stopped as it always is.

    To a daemon SIGHUP means to read its configuration again; here it means that the terminal has gone. So
    signals are taken over from the daemon as soon as it listens to them, and given back for its stop.
    """
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        await trio.sleep(LISTEN_SECONDS)
    with trio.open_signal_receiver(*ENDING_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_catch_signal, signals, caught, nursery.cancel_scope)
            await direct()
            nursery.cancel_scope.cancel()
    os.kill(os.getpid(), signal.SIGTERM)


async def _catch_signal(
    signals: AsyncIterator[int], caught: list[signal.Signals], scope: trio.CancelScope
) -> None:
    async for number in signals:
        caught[:] = [signal.Signals(number)]
        scope.cancel()


async def _direct(
    daemon: Daemon, logind: EmbeddedLogindEdge, pods: PodsUp, say: Callable[[str], None]
) -> None:
    """What happens when, on this stage."""
    with trio.move_on_after(UP_SECONDS_MAX):
        while not (pods.all_up and daemon.status.armed and daemon.status.sufficient):
            await trio.sleep(LOOK_SECONDS)
    say(f"{len(pods.containers)} pods are up, the delay lock is held. Now the power goes off.")
    await trio.sleep(PAUSE_SECONDS)
    await logind.begin("poweroff")
    await logind.released.wait()


def _late_pod_observer(stage: DemoFolder, say: Callable[[str], None]) -> Callable[[Sequence[Record]], None]:
    def look(records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record.event, WaveStarted) and record.event.wave == LATE_WAVE:
                bring_late_pod(stage)
            elif isinstance(record.event, PodRejected):
                say(f"A manifest appeared while the node goes down: {record.event.label} is turned away.")

    return look


async def _draw_forever(daemon: Daemon, draw: DrawFunction) -> None:
    while True:
        draw(daemon.status, time.monotonic_ns())
        await trio.sleep(LOOK_SECONDS * 2)


def kill_remaining(stage: DemoFolder) -> None:
    """End what the demo has started and not ended: after Ctrl-C, or when the budget was over."""
    scanner = ProcessScanner(Marker(stage.runtime / "process"))
    for _ in range(KILL_ROUNDS_MAX):
        ours = [item for item in scanner.look_now() if item.mark is not None]
        if not ours:
            return
        for item in ours:
            kill_exactly(item.stat.pid, item.stat.start_ticks)
        time.sleep(LOOK_SECONDS)
