"""An advice as tables and as JSON."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ebbtide.cli.common.output import NarrowTable
from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible
from ebbtide.events.units import span, span_s
from ebbtide.replay.advise import Advice, WaveAdvice
from ebbtide.replay.survival import Survival

ADVICE_VERSION = 2
_WAVES = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", "KILLED", "P50", "P95", "MAX", "WHY")
_WORKLOADS = ("WORKLOAD", "PRIORITY", "STOPS", "KILLED", "P50", "P95", "MAX", "ASKS", "VERDICT")
_NUMBERS = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", "KILLED", "P50", "P95", "MAX", "ASKS")


def advice_tables(advice: Advice) -> RenderableType:
    """Waves, workloads, and those that no period can save; the configuration follows below."""
    stops = plural(sum(wave.times.stops for wave in advice.waves), "stop")
    sentence = f"from {plural(advice.shutdowns, 'shutdown')} of {plural(advice.nodes, 'node')}: {stops}"
    workloads = (
        (
            each.name,
            str(advice.waves[each.wave].priority),
            *_times_cells(each.times),
            "-" if each.wanted_seconds is None else span_s(each.wanted_seconds),
            each.verdict,
        )
        for each in advice.workloads
    )
    problems = [
        Text(visible(f"{each.name} {each.problem}"), style="yellow")
        for each in advice.workloads
        if each.problem
    ]
    return Group(
        Text(sentence),
        Text(""),
        NarrowTable(_WAVES, map(_wave_row, advice.waves), right=_NUMBERS, spare=("WHY", "P50")),
        Text(""),
        NarrowTable(_WORKLOADS, workloads, right=_NUMBERS, spare=("PRIORITY", "P50", "STOPS")),
        *([Text(""), Text("no period can save on this evidence:"), *problems] if problems else []),
        Text(""),
        Text("to paste:", style="dim"),
    )


def _wave_row(wave: WaveAdvice) -> tuple[str, ...]:
    return (
        str(wave.priority),
        span_s(wave.configured_seconds),
        span_s(wave.seconds),
        *_times_cells(wave.times, str(wave.left_out)),
        wave.why,
    )


def _times_cells(times: Survival, *beside_stops: str) -> tuple[str, ...]:
    # Beyond the longest stop that ended by itself there is no evidence.
    unknown = "not reached" if times.stops else "-"
    return (
        str(times.stops),
        *beside_stops,
        str(times.censored),
        *(unknown if each is None else span(each) for each in (times.p50_ns, times.p95_ns, times.max_ns)),
    )
