"""An advice as tables and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ebbtide.cli.common.output import NarrowTable
from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible
from ebbtide.events.units import json_seconds, span, span_s
from ebbtide.replay.advise import (
    Advice,
    Outlook,
    Stop,
    WaveAdvice,
    configuration_to_paste,
    grant_sentences,
    left_out_sentences,
    problems,
    wave_comment,
)
from ebbtide.replay.survival import Survival

ADVICE_VERSION = 1
_WAVES = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", "KILLED", "P50", "P95", "MAX", "WHY")
_WORKLOADS = ("WORKLOAD", "PRIORITY", "STOPS", "KILLED", "P50", "P95", "MAX", "ASKS", "VERDICT")
_NUMBERS = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", "KILLED", "P50", "P95", "MAX", "ASKS")


def advice_tables(advice: Advice) -> RenderableType:
    """Waves, workloads, hopeless ones; the configuration follows below."""
    hopeless = [Text(visible(f"{each.name} {said}"), style="yellow") for each, said in problems(advice)]
    left_out = [Text(visible(said), style="yellow") for said in left_out_sentences(advice.left_out)]
    short = [Text(visible(said), style="yellow") for said in grant_sentences(advice)]
    parts: tuple[tuple[Outlook, str], ...]
    parts = (("saved", "end by themselves"), ("perhaps", "perhaps"), ("hopeless", "not"))
    stops = [f"{advice.counts[name]} {words}" for name, words in parts if advice.counts[name]]
    total = sum(advice.counts.values())
    pods = total + sum(each.pods for each in advice.left_out)
    counted = plural(total, "stop") if pods == total else f"{total} of {plural(pods, 'stop')}"
    # One shutdown has its name, so that its journal can be read for more.
    source = (
        f"{plural(advice.shutdown_count, 'shutdown')} of {plural(advice.nodes, 'node')}"
        if len(advice.shutdowns) != 1
        else f"shutdown {advice.shutdowns[0]} of {advice.workloads[0].stops[0].node}"
    )
    sentence = f"from {source}: {counted}, under these periods {', '.join(stops)}"
    workloads = (
        (
            each.name,
            str(advice.waves[each.wave].priority),
            *_survival_cells(each.survival),
            "-" if each.wanted_seconds is None else span_s(each.wanted_seconds),
            each.verdict,
        )
        for each in advice.workloads
    )
    return Group(
        Text(visible(sentence)),
        *left_out,
        Text(""),
        NarrowTable(_WAVES, map(_wave_row, advice.waves), right=_NUMBERS, spare=("WHY", "P50")),
        Text(""),
        NarrowTable(_WORKLOADS, workloads, right=_NUMBERS, spare=("PRIORITY", "P50", "STOPS")),
        *([Text(""), *short] if short else []),
        *([Text(""), Text("no period can save on this evidence:"), *hopeless] if hopeless else []),
        Text(""),
        Text("to paste:", style="dim"),
    )


def _wave_row(wave: WaveAdvice) -> tuple[str, ...]:
    return (
        str(wave.priority),
        span_s(wave.configured_seconds),
        span_s(wave.seconds),
        *_survival_cells(wave.survival, str(wave.left_out)),
        wave_comment(wave),
    )


def _survival_cells(curve: Survival, *beside_stops: str) -> tuple[str, ...]:
    times = (curve.p50_ns, curve.p95_ns, curve.longest_ns)
    # Beyond the longest stop that ended by itself there is no evidence.
    unknown = "not reached" if curve.total else "-"
    return (
        str(curve.total),
        *beside_stops,
        str(curve.censored),
        *(unknown if each is None else span(each) for each in times),
    )


def advice_document(advice: Advice) -> dict[str, Any]:
    """Times in seconds; null: not reached. Each stop is in ``saved``, ``perhaps`` or ``hopeless``."""
    return {
        "kind": "Advice",
        "version": ADVICE_VERSION,
        "shutdowns": list(advice.shutdowns),
        **what_adds_up(advice),
        "leftOut": [
            {"count": each.pods, "text": each.text, "pods": list(each.labels)} for each in advice.left_out
        ],
        **{
            name: list(map(_stop_document, getattr(advice, name)))
            for name in ("saved", "perhaps", "hopeless")
        },
    }


def what_adds_up(advice: Advice) -> dict[str, Any]:
    """The part of an advice without the names of single stops."""
    return {
        "nodes": advice.nodes,
        "requestedSeconds": advice.requested_seconds,
        "reserveSeconds": advice.reserve_seconds,
        "inhibitDelayMaxSeconds": advice.drop_in_seconds,
        "marginPercent": advice.caution.margin_percent,
        "shrinkStopsMin": advice.caution.stops_min,
        "shrinkShareMin": float(advice.caution.share_min),
        "waves": [
            {
                "priority": wave.priority,
                "configuredSeconds": wave.configured_seconds,
                "adviseSeconds": wave.seconds,
                "why": wave_comment(wave),
                "kept": wave.kept or None,
                "leftOut": wave.left_out,
                **_survival_document(wave.survival),
            }
            for wave in advice.waves
        ],
        "workloads": [
            {
                "workload": each.name,
                "priority": advice.waves[each.wave].priority,
                "verdict": each.verdict,
                "wantedSeconds": each.wanted_seconds,
                **_survival_document(each.survival),
            }
            for each in advice.workloads
        ],
        "problems": [
            {"workload": each.name, "verdict": each.verdict, "message": said}
            for each, said in problems(advice)
        ],
        "notRaised": [
            {
                "node": each.node,
                "shutdown": each.shutdown,
                "grantSeconds": json_seconds(each.grant_ns),
                "askedSeconds": json_seconds(each.asked_ns),
            }
            for each in advice.short
        ],
        "configuration": configuration_to_paste(advice),
    }


def _survival_document(curve: Survival) -> dict[str, Any]:
    names = ("p50Seconds", "p95Seconds", "maxSeconds")
    times = map(json_seconds, (curve.p50_ns, curve.p95_ns, curve.longest_ns))
    return {"stops": curve.total, "censored": curve.censored, **dict(zip(names, times, strict=True))}


def _stop_document(stop: Stop) -> dict[str, Any]:
    return {
        "shutdown": stop.shutdown,
        "journalId": stop.journal_id,
        "node": stop.node,
        "pod": stop.label,
        "uid": stop.uid,
        "seconds": json_seconds(stop.observed.ns),
        "atLeast": not stop.observed.ended,
    }
