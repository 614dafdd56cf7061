"""What the demo shows: the live view of waves and pods, and the last page with every pod's outcome and why.

The live view is one frame from the daemon's status; the last page is made from the shutdown's record.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ebbtide.cli.common.output import STYLES, headline_text
from ebbtide.daemon_status import DaemonStatus, PodStatus, WaveStatus
from ebbtide.events.record.format import visible
from ebbtide.events.record.shutdown_record import AutopsyRecord, PodRecord, ShutdownRecord, pod_end_ns
from ebbtide.events.units import json_seconds, span, span_s
from ebbtide.events.values import ProcessReport

#: With it a wave's row fits into 80 columns.
BAR_WIDTH = 14


class PhaseLook(NamedTuple):
    """How a pod's phase is drawn."""

    mark: str
    style: str


WAITING, AT_WORK = PhaseLook("○", "dim"), PhaseLook("●", "cyan")
PHASE_LOOKS = {
    "waiting": WAITING,
    "SIGKILL": PhaseLook("●", "bold red"),
    "graceful": PhaseLook("✔", "green"),
    "spared": PhaseLook("✔", "cyan"),
    "killed": PhaseLook("✘", "red"),
    "failed": PhaseLook("✘", "bold red"),
    "unknown": PhaseLook("?", "yellow"),
}
ENDED_PHASES = frozenset(PHASE_LOOKS) - {"waiting", "SIGKILL"}


#: The lines above the waves and below them.
OTHER_ROWS = 3


def live_frame(status: DaemonStatus, now_ns: int, rows: int | None = None) -> RenderableType:
    """One frame; ``now_ns`` is the monotonic clock. ``rows``: how many lines there are; None: enough."""
    # Least widths, or the columns would jump each time that a longer phase comes or goes.
    body = Table.grid(padding=(0, 1), expand=True)
    body.add_column(no_wrap=True, min_width=22)
    body.add_column(no_wrap=True, min_width=19)
    body.add_column(no_wrap=True, justify="right", min_width=6)
    body.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    by_wave = {
        wave.wave: [pod for pod in status.pods.values() if pod.wave == wave.wave]
        for wave in status.waves.values()
    }
    for number, shown in fitting_pods(status, by_wave, rows).items():
        body.add_row(*_wave_cells(status.waves[number], by_wave[number], now_ns))
        for pod in shown:
            body.add_row(*_pod_cells(pod, now_ns))
        more = len(by_wave[number]) - len(shown)
        if shown and more:
            body.add_row(Text(f"  and {more} more", style="dim"))
    # The last line is for what the terminal writes itself: behind one that is full its ^C would begin
    # another, and the view would be drawn a line too low from then on.
    return Group(_frame_head(status, now_ns), body, Text(" "))


def fitting_pods(
    status: DaemonStatus, by_wave: dict[int, list[PodStatus]], rows: int | None
) -> dict[int, list[PodStatus]]:
    """Which waves and which of their pods fit: a view that is longer than its terminal cannot be drawn in
    place, and what it cuts off is its end.
    """
    shown = {wave: list(pods) for wave, pods in by_wave.items()}

    def missing() -> int:
        hidden = sum(0 < len(pods) < len(by_wave[wave]) for wave, pods in shown.items())
        lines = OTHER_ROWS + sum(1 + len(pods) for pods in shown.values()) + hidden
        return 0 if rows is None else max(0, lines - rows)

    over = [wave for wave in shown if status.waves[wave].ended_ns]
    waiting = [wave for wave in reversed(shown) if status.waves[wave].phase == "waiting"]
    running = [wave for wave in shown if wave not in over and wave not in waiting]
    # What has ended goes first, then what comes last: their waves say how many pods they have.
    for wave in (*over, *waiting):
        if missing():
            shown[wave] = []
    for wave in running:
        # Of the wave that runs those that are still at work stay longest.
        shown[wave].sort(key=lambda pod: pod.phase in ENDED_PHASES)
        while missing() and len(shown[wave]) > 1:
            shown[wave].pop()
        by_place = {id(pod): place for place, pod in enumerate(by_wave[wave])}
        shown[wave].sort(key=lambda pod: by_place[id(pod)])
    for wave in (*over, *waiting):
        if missing() and len(shown) > 1:
            del shown[wave]
    return shown


def _frame_head(status: DaemonStatus, now_ns: int) -> RenderableType:
    budget_ns = max(1, status.deadline_ns - status.began_ns)
    # The view is drawn for a moment longer than the shutdown: what was left then stays.
    end_ns = status.released_ns or now_ns
    used_ns = min(max(0, end_ns - status.began_ns), budget_ns)
    ended = sum(pod.phase in ENDED_PHASES for pod in status.pods.values())
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, justify="right")
    left = f"{_seconds(budget_ns - used_ns)} of {_seconds(budget_ns)} left"
    title = Text.assemble(
        (status.kind or "shutdown", "bold"),
        f"  {ended} of {len(status.pods)} pods in {len(status.waves)} waves",
    )
    head.add_row(title, Text(f"released, {left}" if status.released_ns else left, style="bold"))
    return Group(
        head, ProgressBar(total=budget_ns, completed=budget_ns - used_ns, complete_style="blue"), Text()
    )


def _wave_cells(wave: WaveStatus, pods: list[PodStatus], now_ns: int) -> Iterator[RenderableType]:
    ended = sum(pod.phase in ENDED_PHASES for pod in pods)
    waiting = wave.phase == "waiting"
    style = "dim" if waiting else "bold"
    yield Text(f"wave {wave.wave}", style=style)
    yield Text(f"priority {wave.priority}" if waiting or pods else "no pods", style="dim")
    yield Text(f"{ended}/{len(pods)}", style=style)
    period = _seconds(wave.period_ns)
    if waiting:
        yield Text(f"{period}, waiting", style="dim")
    elif wave.ended_ns:
        took = _seconds(wave.ended_ns - wave.began_ns)
        yield Text(
            f"{wave.phase} after {took} of {period}", style="green" if wave.phase == "complete" else "yellow"
        )
    else:
        # At least 1: a bar of no length divides by it.
        total_ns = max(1, wave.deadline_ns - wave.began_ns)
        used_ns = min(max(0, now_ns - wave.began_ns), total_ns)
        cell = Table.grid(padding=(0, 1))
        cell.add_column(no_wrap=True)
        cell.add_column(no_wrap=True)
        bar = ProgressBar(total=total_ns, completed=used_ns, width=BAR_WIDTH, complete_style="cyan")
        cell.add_row(bar, Text(f"{_seconds(used_ns)} of {_seconds(total_ns)}"))
        yield cell


def _pod_cells(pod: PodStatus, now_ns: int) -> Iterator[RenderableType]:
    look = PHASE_LOOKS.get(pod.phase, AT_WORK)
    at_work = pod.phase not in ENDED_PHASES and pod.began_ns > 0
    took_ns = now_ns - pod.began_ns if at_work else pod.elapsed_ns
    yield Text.assemble(
        ("  " + look.mark, look.style), (f" {visible(pod.label)}", "dim" if look is WAITING else "")
    )
    yield Text(pod.phase, style=look.style)
    yield Text("" if look is WAITING else _seconds(took_ns))
    yield Text(visible(pod.reason) or f"grace {span_s(pod.grace_seconds)}", style="dim")


def _seconds(ns: int) -> str:
    return span(max(0, ns))


# --- the last page: every pod's outcome and why, the autopsies, and where to look further ---------


class PodRow(NamedTuple):
    """One pod's fate. ``wave`` and ``grace_seconds`` are None for a pod that was turned away."""

    pod: str
    wave: int | None
    grace_seconds: int | None
    outcome: str
    took_ns: int
    why: str


def pod_rows(shutdown: ShutdownRecord) -> list[PodRow]:
    """In the order of the waves; those that were turned away last."""
    rows = []
    by_uid = {pod.uid: pod for pod in shutdown.pods}
    for pod in (by_uid[uid] for wave in shutdown.waves for uid in wave.pods):
        outcome, took_ns = pod.outcome or "unknown", 0
        why = ["not ended when the machine was let go"]
        if pod.outcome is not None:
            took_ns = 0 if pod.began_ns is None else pod_end_ns(pod, shutdown) - pod.began_ns
            why = [pod.reason, *(text for _, text in sorted(_pod_notes(pod)))]
            asked = pod.wanted_grace_seconds
            if asked is not None and asked > pod.grace_seconds:
                why.append(f"asked for {span_s(asked)}, its wave has {span_s(pod.grace_seconds)}")
        rows.append(PodRow(pod.label, pod.wave, pod.grace_seconds, outcome, took_ns, "; ".join(why)))
    rejected = (pod for pod in shutdown.pods if pod.outcome == "rejected")
    return rows + [PodRow(pod.label, None, None, "rejected", 0, pod.reason) for pod in rejected]


def _pod_notes(pod: PodRecord) -> Iterator[tuple[int, str]]:
    """What its reason does not say, and when it happened: a hook that failed is in the reason already."""
    for hook in pod.hooks:
        if hook.result == "done" and hook.ended_ns is not None:
            early = f" ended early, {hook.reason}" if hook.early else ""
            took = _seconds(hook.ended_ns - hook.began_ns)
            yield hook.ended_ns, f"preStop {hook.kind} {took}{early}"
    for container in pod.containers:
        if container.signalled_ns is not None and container.stop_signal != "SIGTERM":
            yield container.signalled_ns, f"stopped with {container.stop_signal}"
    exits = sorted(
        (each.exited_ns, each.name, each.sidecar) for each in pod.containers if each.exited_ns is not None
    )
    # Sidecars are stopped after the containers that they serve, so what one took counts from the exit before.
    for (before_ns, _, _), (exited_ns, name, sidecar) in pairwise(exits):
        if sidecar:
            yield exited_ns, f"sidecar {name} ended {_seconds(exited_ns - before_ns)} after the rest"


DEMO_VERSION = 1

MEANT_TO_END = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP")

#: Where to look further, with the option that names the journal added.
NEXT_COMMANDS = (
    ("what happened, line by line", "replay timeline"),
    ("where the time went", "replay blame"),
    ("one pod's story", "replay timeline --pod legacy-0"),
    ("a page for the browser", "replay report -o report.html"),
    ("every event, and what caused it", "journal show"),
    ("the shutdown in one line", "journal ls"),
    ("the same again, from its facts", "replay verify"),
)


class NextCommands:
    """What to look at next: commands beside their meaning, or below it where a line has no room for both."""

    def __init__(self, journal: Path, program: str) -> None:
        self._rows = [
            (meaning, shlex.join((program, *command.split(), "--journal", str(journal))))
            for meaning, command in NEXT_COMMANDS
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(len(meaning) for meaning, _ in self._rows)
        fits = width + 4 + max(len(whole) for _, whole in self._rows) <= options.max_width
        for meaning, whole in self._rows:
            lead = f"  {meaning:<{width}}  " if fits else f"  {meaning}\n    "
            line = Text.assemble(lead, (whole, "cyan"))
            # A command that is broken into two lines cannot be copied.
            line.no_wrap, line.overflow = True, "ignore"
            yield line


def last_page(shutdown: ShutdownRecord, trace_id: str, journal: Path, program: str) -> RenderableType:
    """The last page, for people."""
    rows = pod_rows(shutdown)
    parts: list[RenderableType] = [Text(), _pods_table(rows), Text()]
    taken = [(autopsy.at_ns, pod.label, autopsy) for pod in shutdown.pods for autopsy in pod.autopsies]
    for _, label, autopsy in sorted(taken, key=lambda each: each[0]):
        parts += [*_autopsy_texts(label, autopsy), Text()]
    parts += [headline_text(shutdown), Text(f"trace id {trace_id}"), Text()]
    parts.append(Text("Look further:", style="bold"))
    return Group(*parts, NextCommands(journal, program))


def last_page_json(shutdown: ShutdownRecord, trace_id: str, journal: Path) -> dict[str, Any]:
    """``kind: Demo``; seconds from the signal to the release."""
    return {
        "kind": "Demo",
        "version": DEMO_VERSION,
        "shutdown": shutdown.kind,
        "seconds": json_seconds(shutdown.ended_ns or 0),
        "traceId": trace_id,
        "journal": str(journal),
        "pods": [
            {
                "pod": row.pod,
                "wave": row.wave,
                "graceSeconds": row.grace_seconds,
                "outcome": row.outcome,
                "seconds": json_seconds(row.took_ns),
                "why": row.why,
            }
            for row in pod_rows(shutdown)
        ],
    }


def _pods_table(rows: list[PodRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("POD", "WAVE", "GRACE", "OUTCOME", "TOOK", "WHY"):
        right = heading in ("WAVE", "GRACE", "TOOK")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "WHY")
    for row in rows:
        outcome = Text(row.outcome, style=STYLES.get(row.outcome, ""))
        table.add_row(
            Text(visible(row.pod)),
            "-" if row.wave is None else str(row.wave),
            "-" if row.grace_seconds is None else span_s(row.grace_seconds),
            outcome,
            "-" if row.wave is None else span(row.took_ns),
            Text(visible(row.why)),
        )
    return table


def _autopsy_texts(label: str, autopsy: AutopsyRecord) -> Iterator[RenderableType]:
    """What a straggler was doing, its processes as a tree."""
    name = f"{label}, container {autopsy.container}"
    yield Text(f"Autopsy of {visible(name)}, just before SIGKILL:", style="bold")
    depths: dict[int, int] = {}
    for process in autopsy.processes:  # parents before their children
        depths[process.pid] = depths.get(process.parent_pid, -1) + 1
        # Padded, not blanks in the text: the rest of a long line stands below its begin.
        indent = (0, 0, 0, 2 + 2 * depths[process.pid])
        yield Padding(Text(visible(_process_text(process))), indent, expand=False)
    for line in autopsy.last_lines:
        yield Text(f"  its last words: {visible(line)}", style="italic")


def _process_text(process: ProcessReport) -> str:
    where = f" in {process.wait_channel}" if process.wait_channel else ""
    plural = "" if process.connections == 1 else "s"
    open_ = f", {process.connections} open connection{plural}" if process.connections else ""
    # By name only the signals that are meant to end a program: SIGPIPE, say, is ignored by half
    # of all programs.
    meant = [name for name in process.signals_ignored if name in MEANT_TO_END]
    others = len(process.signals_ignored) - len(meant)
    more = f" and {others} others" if others else ""
    ignored = f", ignores {' '.join(meant)}{more}" if meant else ""
    return f"{process.command} ({process.pid}) {process.state}{where}{open_}{ignored}"
