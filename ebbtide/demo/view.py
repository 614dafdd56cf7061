"""The live view: waves, their pods, and the time that is left, as one frame from the node's standing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ebbtide.standing import PodStanding, Standing, WaveStanding
from ebbtide.text import visible
from events.base import NS_PER_SECOND

#: With it a wave's row fits into 80 columns.
BAR_WIDTH = 14


class Look(NamedTuple):
    """How a pod's phase is drawn."""

    mark: str
    style: str


WAITING, AT_WORK = Look("○", "dim"), Look("●", "cyan")
LOOKS = {
    "waiting": WAITING,
    "SIGKILL": Look("●", "bold red"),
    "graceful": Look("✔", "green"),
    "spared": Look("✔", "cyan"),
    "killed": Look("✘", "red"),
    "failed": Look("✘", "bold red"),
    "unknown": Look("?", "yellow"),
}
OVER = frozenset(LOOKS) - {"waiting", "SIGKILL"}


def frame(standing: Standing, now_ns: int) -> RenderableType:
    """One frame; ``now_ns`` is the monotonic clock."""
    body = Table.grid(padding=(0, 1), expand=True)
    body.add_column(no_wrap=True, min_width=22)
    body.add_column(no_wrap=True, min_width=19)
    body.add_column(no_wrap=True, justify="right", min_width=6)
    body.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for wave in standing.waves.values():
        pods = [pod for pod in standing.pods.values() if pod.wave == wave.wave]
        body.add_row(*_wave(wave, pods, now_ns))
        for pod in pods:
            body.add_row(*_pod(pod, now_ns))
    return Group(_head(standing, now_ns), body)


def _head(standing: Standing, now_ns: int) -> RenderableType:
    budget_ns = max(1, standing.deadline_ns - standing.began_ns)
    end_ns = standing.released_ns or now_ns
    used_ns = min(max(0, end_ns - standing.began_ns), budget_ns)
    ended = sum(pod.phase in OVER for pod in standing.pods.values())
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, justify="right")
    left = f"{_seconds(budget_ns - used_ns)} of {_seconds(budget_ns)} left"
    title = Text.assemble(
        (standing.kind or "shutdown", "bold"),
        f"  {ended} of {len(standing.pods)} pods in {len(standing.waves)} waves",
    )
    head.add_row(title, Text(f"released, {left}" if standing.released_ns else left, style="bold"))
    return Group(
        head, ProgressBar(total=budget_ns, completed=budget_ns - used_ns, complete_style="blue"), Text()
    )


def _wave(wave: WaveStanding, pods: list[PodStanding], now_ns: int) -> Iterator[RenderableType]:
    ended = sum(pod.phase in OVER for pod in pods)
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
        yield _bar(wave, now_ns)


def _bar(wave: WaveStanding, now_ns: int) -> RenderableType:
    total_ns = max(1, wave.deadline_ns - wave.began_ns)
    used_ns = min(max(0, now_ns - wave.began_ns), total_ns)
    cell = Table.grid(padding=(0, 1))
    cell.add_column(no_wrap=True)
    cell.add_column(no_wrap=True)
    bar = ProgressBar(total=total_ns, completed=used_ns, width=BAR_WIDTH, complete_style="cyan")
    cell.add_row(bar, Text(f"{_seconds(used_ns)} of {_seconds(total_ns)}"))
    return cell


def _pod(pod: PodStanding, now_ns: int) -> Iterator[RenderableType]:
    look = LOOKS.get(pod.phase, AT_WORK)
    at_work = pod.phase not in OVER and pod.began_ns > 0
    took_ns = now_ns - pod.began_ns if at_work else pod.elapsed_ns
    yield Text.assemble(
        ("  " + look.mark, look.style), (f" {visible(pod.label)}", "dim" if look is WAITING else "")
    )
    yield Text(pod.phase, style=look.style)
    yield Text("" if look is WAITING else _seconds(took_ns))
    yield Text(visible(pod.reason) or f"grace {pod.grace_seconds} s", style="dim")


def _seconds(ns: int) -> str:
    return f"{max(0, ns) / NS_PER_SECOND:.1f} s"
