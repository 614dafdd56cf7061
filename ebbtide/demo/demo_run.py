"""The demo's run with the real daemon and an embedded logind, its live view and its last page."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ebbtide.actors.edges.embedded_logind import EmbeddedLogindEdge
from ebbtide.actors.edges.process.process_pods import kill_recorded
from ebbtide.actors.interfaces import Tell
from ebbtide.cli.common.output import STYLES, headline_text, table
from ebbtide.config import load
from ebbtide.daemon import Daemon, daemon_with_embedded_logind
from ebbtide.daemon_status import DaemonStatus, pod_phase
from ebbtide.demo import DemoFolder
from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodRejected, WaveStarted
from ebbtide.events.disk import RESERVE_NAME
from ebbtide.events.facts import ContainerStarted, PodAppeared
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.format import document, visible
from ebbtide.events.record.shutdown_record import SIGNS, PodRecord, ShutdownRecord, WaveRecord, pod_end_ns
from ebbtide.events.units import span, span_s
from ebbtide.options import RunOptions

#: Time to read.
PAUSE_SECONDS = 1.5
UP_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.05
LATE_WAVE = 1

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LISTEN_SECONDS = 0.001

DrawFunction = Callable[[DaemonStatus, int], None]


class DemoResult(NamedTuple):
    """``whole``: the lock was released. ``shutdown``: None if none began."""

    shutdown: ShutdownRecord | None
    trace_id: str
    whole: bool
    ended_by: signal.Signals | None = None


async def run_demo(
    folder: DemoFolder, say: Callable[[str], None], tell: Tell, draw: DrawFunction
) -> DemoResult:
    """``say`` gets the demo's lines, ``tell`` the daemon's. Raises as `daemon_with_embedded_logind`."""
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
        return bool(self.containers) and len(self._started) >= sum(self.containers.values())


async def _run_until_signal(caught: list[signal.Signals], script: Callable[[], Awaitable[None]]) -> None:
    """Until the script's end or a signal; then stops the daemon."""
    # Take the signals over once the daemon has its handlers, and give them back for its stop. To a daemon
    # SIGHUP is a reload, but here the terminal has gone.
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
    with trio.move_on_after(UP_SECONDS_MAX):
        while not (pods.all_up and daemon.status.armed and daemon.status.sufficient):
            await trio.sleep(LOOK_SECONDS)
    say(f"{len(pods.containers)} pods are up, the delay lock is held. Now the power goes off.")
    await trio.sleep(PAUSE_SECONDS)
    await logind.begin("poweroff")
    await logind.released.wait()


def kill_remaining(folder: DemoFolder) -> None:
    """After Ctrl-C or the budget's end."""
    kill_recorded(folder.runtime / "process" / "pods")


#: For 80 columns.
BAR_WIDTH = 14


ENDED_PHASES = ("graceful", "spared", "killed", "failed", "unknown")
WAITING, AT_WORK = ("○", "dim"), ("●", "cyan")
LOOKS = {fate: (SIGNS[fate], STYLES[fate]) for fate in ENDED_PHASES}
LOOKS |= {"waiting": WAITING, "SIGKILL": ("●", "bold red")}


def live_frame(status: DaemonStatus, now_ns: int) -> RenderableType:
    """``now_ns``: monotonic. Only the running wave shows its pods: a frame must not be longer than the
    terminal.
    """
    # With minimum widths the columns do not jump.
    body = Table.grid(padding=(0, 1), expand=True)
    body.add_column(no_wrap=True, min_width=22)
    body.add_column(no_wrap=True, min_width=19)
    body.add_column(no_wrap=True, justify="right", min_width=6)
    body.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    at_ns = now_ns - status.began_ns
    for wave in status.shutdown.waves:
        pods = [pod for pod in status.pods.values() if pod.wave == wave.index]
        body.add_row(*_wave_cells(wave, pods, at_ns))
        for pod in pods if wave.outcome == "open" else ():
            body.add_row(*_pod_cells(pod, status.shutdown.decided_ns.get(pod.uid), at_ns))
    # The last line is for the terminal's own ^C: at the end of a full line it would begin another one, and
    # shift later frames.
    return Group(_frame_head(status, now_ns), body, Text(" "))


def _frame_head(status: DaemonStatus, now_ns: int) -> RenderableType:
    budget_ns = max(1, status.deadline_ns - status.began_ns)
    end_ns = status.released_ns or now_ns
    used_ns = min(max(0, end_ns - status.began_ns), budget_ns)
    ended = sum(pod.outcome in ENDED_PHASES for pod in status.pods.values())
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, justify="right")
    left = f"{_seconds(budget_ns - used_ns)} of {_seconds(budget_ns)} left"
    title = Text.assemble(
        (status.kind or "shutdown", "bold"),
        f"  {ended} of {len(status.pods)} pods in {len(status.shutdown.waves)} waves",
    )
    head.add_row(title, Text(f"released, {left}" if status.released_ns else left, style="bold"))
    return Group(
        head, ProgressBar(total=budget_ns, completed=budget_ns - used_ns, complete_style="blue"), Text()
    )


def _wave_cells(wave: WaveRecord, pods: list[PodRecord], at_ns: int) -> Iterator[RenderableType]:
    ended, waiting = sum(pod.outcome in ENDED_PHASES for pod in pods), wave.began_ns is None
    style = "dim" if waiting else "bold"
    yield Text(f"wave {wave.index}", style=style)
    yield Text(f"priority {wave.priority}" if waiting or pods else "no pods", style="dim")
    yield Text(f"{ended}/{len(pods)}", style=style)
    period, began_ns = _seconds(wave.planned_ns), wave.began_ns or 0
    if waiting:
        yield Text(f"{period}, waiting", style="dim")
    elif wave.ended_ns is not None:
        took = _seconds(wave.ended_ns - began_ns)
        style = "green" if wave.outcome == "complete" else "yellow"
        yield Text(f"{wave.outcome} after {took} of {period}", style=style)
    else:
        # At least 1: a bar divides by it.
        total_ns = max(1, (wave.deadline_ns or 0) - began_ns)
        used_ns = min(max(0, at_ns - began_ns), total_ns)
        cell = Table.grid(padding=(0, 1))
        cell.add_column(no_wrap=True)
        cell.add_column(no_wrap=True)
        bar = ProgressBar(total=total_ns, completed=used_ns, width=BAR_WIDTH, complete_style="cyan")
        cell.add_row(bar, Text(f"{_seconds(used_ns)} of {_seconds(total_ns)}"))
        yield cell


def _pod_cells(pod: PodRecord, ended_ns: int | None, at_ns: int) -> Iterator[RenderableType]:
    phase = pod_phase(pod)
    sign, style = look = LOOKS.get(phase, AT_WORK)
    yield Text.assemble((f"  {sign}", style), (f" {visible(pod.label)}", "dim" if look is WAITING else ""))
    yield Text(phase, style=style)
    took_ns = (at_ns if ended_ns is None else ended_ns) - (pod.began_ns or 0)
    yield Text("" if look is WAITING else _seconds(took_ns))
    yield Text(visible(pod.reason) or f"grace {span_s(pod.grace_seconds)}", style="dim")


def _seconds(ns: int) -> str:
    return span(max(0, ns))


DEMO_VERSION = 1


def demo_page(shutdown: ShutdownRecord, trace_id: str, journal: Path) -> dict[str, Any]:
    """Pods in the order of the waves, rejected ones last, without wave and grace."""
    by_uid, pods = {pod.uid: pod for pod in shutdown.pods}, []
    rejected = [pod for pod in shutdown.pods if pod.outcome == "rejected"]
    for pod in (*(by_uid[uid] for wave in shutdown.waves for uid in wave.pods), *rejected):
        planned = pod.outcome != "rejected"
        ended = pod.outcome is not None and pod.began_ns is not None
        took_ns = pod_end_ns(pod, shutdown) - (pod.began_ns or 0) if ended and planned else 0
        shown = {
            "pod": pod.label,
            "wave": pod.wave if planned else None,
            "graceSeconds": pod.grace_seconds if planned else None,
            "outcome": pod.outcome or "unknown",
            "seconds": took_ns / NS_PER_SECOND,
            "why": "not ended when the machine was released" if pod.outcome is None else pod.reason,
        }
        pods.append(shown)
    seconds = (shutdown.ended_ns or 0) / NS_PER_SECOND
    of_run = {"trace_id": trace_id, "journal": str(journal), "pods": pods}
    return document("Demo", DEMO_VERSION, shutdown=shutdown.kind, seconds=seconds, **of_run)


#: Each gets the option --journal.
NEXT_COMMANDS = (
    ("what happened, line by line", "replay timeline"),
    ("where the time went", "replay blame"),
    ("one pod's story, with its autopsy", "replay timeline --pod legacy-0"),
    ("a page for the browser", "replay report -o report.html"),
    ("every event, and its cause", "journal show"),
    ("the shutdown in one line", "journal ls"),
    ("the same again, from its facts", "replay verify"),
)


def last_page(page: dict[str, Any], shutdown: ShutdownRecord, program: str) -> RenderableType:
    rows = [
        (
            each["pod"],
            "-" if each["wave"] is None else str(each["wave"]),
            "-" if each["wave"] is None else span_s(each["graceSeconds"]),
            each["outcome"],
            "-" if each["wave"] is None else span_s(each["seconds"]),
            each["why"],
        )
        for each in page["pods"]
    ]
    headings = ("POD", "WAVE", "GRACE", "OUTCOME", "TOOK", "WHY")
    commands = []
    for meaning, command in NEXT_COMMANDS:
        whole = shlex.join((program, *command.split(), "--journal", page["journal"]))
        # A command in two lines cannot be copied.
        commands += [
            Text(f"  {meaning}:"),
            Text(f"    {whole}", style="cyan", no_wrap=True, overflow="ignore"),
        ]
    return Group(
        Text(),
        table(headings, rows, right=("WAVE", "GRACE", "TOOK")),
        Text(),
        headline_text(shutdown),
        Text(f"trace id {page['traceId']}"),
        Text(),
        Text("Look further:", style="bold"),
        *commands,
    )
