"""The demo: pods come up, the power goes off, a late pod comes, the lock is released.

It is the real daemon with the real process edge and the real journal; only logind is its own. Manifests,
configuration and journal stand in a folder of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, NoReturn

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
from ebbtide.modes import process_token
from ebbtide.options import RunOptions
from ebbtide.status import DaemonStatus

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
    pods, late, config = root / "pods", root / "late-0.yaml", root / "config.yaml"
    folder = DemoFolder(root, pods, late, config, journal or root / "journal", root / "run")
    folder.pods.mkdir()
    # The manifest's own port, or any other where that one is taken: two demos may run at once.
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", WEB_PORT))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for manifest in (DEMO_FILES / "pods").iterdir():
        text = manifest.read_text(encoding="utf-8").replace(str(WEB_PORT), str(port))
        (folder.pods / manifest.name).write_text(text, encoding="utf-8")
    for source, target in (("late/late-0.yaml", folder.late), ("config.yaml", folder.config)):
        target.write_text((DEMO_FILES / source).read_text(encoding="utf-8"), encoding="utf-8")
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    return folder


def bring_late_pod(folder: DemoFolder) -> None:
    """A manifest appears in the watched folder."""
    os.rename(folder.late, folder.pods / folder.late.name)


@contextmanager
def cleaned_up_if_killed(folder: DemoFolder) -> Iterator[None]:
    """Where this process is killed outright, a child of it ends the demo's pods and removes its folder; the
    journal stays where it stands elsewhere. To be entered while there are no threads.
    """
    # A pipe tells the child: its other end closes with this process, however that ends. A signal at its
    # parent's death would end the pods' first processes alone, and not what they have started.
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(write_end)
        _clean_up_after(read_end, folder)
    os.close(read_end)
    try:
        yield
    finally:
        # An end in order has seen to its pods.
        with suppress(OSError):
            os.write(write_end, b".")
        os.close(write_end)
        os.waitpid(child, 0)


def _clean_up_after(read_end: int, folder: DemoFolder) -> NoReturn:
    try:
        # Away from the terminal, whose Ctrl-C is for the demo, and from its pipes, whose readers wait for
        # their end.
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        if not os.read(read_end, 1):
            kill_remaining(folder)
            (folder.journal / RESERVE_NAME).unlink(missing_ok=True)
            shutil.rmtree(folder.root, ignore_errors=True)
    finally:
        os._exit(0)


#: Time to read who is there, before the power goes off.
PAUSE_SECONDS = 1.5
#: A machine on which twelve small programs are not up by then has other worries.
UP_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.05
#: When the late pod comes: the number of the wave that has just begun.
LATE_WAVE = 1
#: An interrupted demo takes its pods with it: looks until none is left.
KILL_ROUNDS_MAX = 20

#: What ends a demo early, and how soon the daemon's own handlers of it are there.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LISTEN_SECONDS = 0.001

#: Draws the status at this monotonic time; called some ten times a second.
DrawFunction = Callable[[DaemonStatus, int], None]


class DemoResult(NamedTuple):
    """How it went; ``whole``: the lock was released, nothing interrupted it. ``ended_by``: what did.

    ``shutdown`` None: the demo ended before it began.
    """

    shutdown: ShutdownRecord | None
    trace_id: str
    whole: bool
    ended_by: signal.Signals | None = None


async def run_demo(
    folder: DemoFolder, say: Callable[[str], None], tell: Tell, draw: DrawFunction
) -> DemoResult:
    """Run all of it. ``say`` gets what the demo has to say, ``tell`` the daemon's lines.

    Raises what `ebbtide.daemon.daemon_with_embedded_logind` raises.
    """
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
                bring_late_pod(folder)
            elif isinstance(event, PodRejected):
                say(f"A manifest appeared while the node goes down: {event.label} is turned away.")

    daemon.sequencer.observers += [pods.fold, bring_and_report_late_pod]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_draw_forever, daemon, draw)
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


async def _run_until_signal(caught: list[signal.Signals], script: Callable[[], Awaitable[None]]) -> None:
    """Until the end, or until a signal says otherwise; then the daemon is stopped as it always is."""
    # To a daemon SIGHUP means to read its configuration again; here it means that the terminal has gone. So
    # signals are taken over from the daemon as soon as it listens to them (taken before that, they would be
    # taken over by it), and given back for its stop.
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        await trio.sleep(LISTEN_SECONDS)
    with trio.open_signal_receiver(*ENDING_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_catch_signal, signals, caught, nursery.cancel_scope)
            await script()
            nursery.cancel_scope.cancel()
    os.kill(os.getpid(), signal.SIGTERM)


async def _catch_signal(
    signals: AsyncIterator[int], caught: list[signal.Signals], scope: trio.CancelScope
) -> None:
    async for number in signals:
        caught[:] = [signal.Signals(number)]
        scope.cancel()


async def _power_off(
    daemon: Daemon, logind: EmbeddedLogindEdge, pods: PodsUp, say: Callable[[str], None]
) -> None:
    """What happens when: the power goes off once everything is up."""
    with trio.move_on_after(UP_SECONDS_MAX):
        while not (pods.all_up and daemon.status.armed and daemon.status.sufficient):
            await trio.sleep(LOOK_SECONDS)
    say(f"{len(pods.containers)} pods are up, the delay lock is held. Now the power goes off.")
    await trio.sleep(PAUSE_SECONDS)
    await logind.begin("poweroff")
    await logind.released.wait()


async def _draw_forever(daemon: Daemon, draw: DrawFunction) -> None:
    while True:
        draw(daemon.status, time.monotonic_ns())
        await trio.sleep(LOOK_SECONDS * 2)


def kill_remaining(folder: DemoFolder) -> None:
    """End what the demo has started and not ended: after Ctrl-C, or when the budget was over."""
    # In rounds: what is killed may have started a child in the meantime, which is found by the same mark.
    scanner = ProcessScanner(Marker(folder.runtime / "process", process_token(folder.journal)))
    for _ in range(KILL_ROUNDS_MAX):
        ours = [item for item in scanner.look_now() if item.mark is not None]
        if not ours:
            return
        for item in ours:
            kill_exactly(item.stat.pid, item.stat.start_ticks)
        time.sleep(LOOK_SECONDS)
