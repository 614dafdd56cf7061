"""Two runs of a shutdown side by side, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ebbtide.cli.common.output import NarrowTable, pairs
from ebbtide.cli.common.selection import episode_heading, outcomes_text
from ebbtide.events.record.format import document, json_object, visible
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord, WaveRecord, took_ns
from ebbtide.events.units import json_seconds, span
from ebbtide.replay.whatif.verdicts import PodChange
from ebbtide.replay.whatif.whatif_run import Comparison, Interval, Outline, PodSide, WaveSide

WHAT_IF_VERSION = 2
#: The fields that keep their names.
_OF_RUN = ("outcome", "grant_ns", "budget_ns", "total_ns")
CHANGES: tuple[PodChange, ...] = ("saved", "perhaps-saved", "lost", "perhaps-lost")
_POD_HEADINGS = (
    *("POD", "WAVE", "GRACE", "TOOK", "OUTCOME", "NOW GRACE", "NOW TOOK", "NOW OUTCOME"),
    *("NEEDED", "EVIDENCE", "CHANGE"),
)
_WAVE_HEADINGS = ("PRIORITY", "PERIOD", "TOOK", "OUTCOME", "NOW PERIOD", "NOW TOOK", "NOW OUTCOME")
_NUMBERS = ("PRIORITY", "PERIOD", "WAVE", "GRACE", "TOOK", "NOW PERIOD", "NOW GRACE", "NOW TOOK", "NEEDED")


def what_if_tables(shutdown: ShutdownRecord, words: Sequence[str], found: Comparison) -> RenderableType:
    title = f"shutdown {shutdown.id}, decided again with {', '.join(words)}"
    # Two equal tables would suggest a difference.
    if found.is_same:
        return Group(Text(visible(title)), Text("no change: every event as recorded, at its time"))
    remarks = [Text(visible(f"{code}: {text}"), style="yellow") for code, text in found.assumptions]
    # Only for pods with a possible change.
    whys = [
        Text(visible(f"{side.pod.label}: {side.support.why}"), style="dim")
        for side in found.pods
        if side.support.why
        and (side.change != "same" or side.outcomes[0] != side.outcomes[1] or not side.then)
    ]
    counts = (_recorded(shutdown), _outcomes(found.best), _outcomes(found.worst))
    then, best, worst = (outcomes_text(each) or "no pods" for each in counts)
    fates = {pod.uid: pod.fate for pod in shutdown.pods}
    totals = [
        ("total", f"{_time_text(found.then.total_ns)} -> {_interval_text(found.total)}"),
        ("granted", f"{span(found.then.grant_ns)} -> {span(found.worst.grant_ns)}"),
        ("pods then", then),
        ("pods now" if best == worst else "pods now, best case", best),
        ("pods now, worst case", "" if best == worst else worst),
    ]
    for change in CHANGES:
        pods = found.changed(change)
        # The uncertain ones only where there are any.
        if pods or change in ("saved", "lost"):
            names = ", ".join(pod.pod.label for pod in pods) or "none"
            expected = sum(pod.chance_percent or 0 for pod in pods) / 100
            names += f" ({expected:.1f} expected)" if change.startswith("perhaps") else ""
            totals.append((change.replace("-", " "), names))
    return Group(
        Text(visible(title)),
        Text(""),
        pairs(totals),
        Text(""),
        NarrowTable(_WAVE_HEADINGS, map(_wave_row, found.waves), right=_NUMBERS),
        Text(""),
        NarrowTable(_POD_HEADINGS, [_pod_row(side, fates) for side in found.pods], right=_NUMBERS),
        *([Text("")] if whys or remarks else []),
        *whys,
        *remarks,
    )


def _recorded(shutdown: ShutdownRecord) -> dict[str, int]:
    return dict(sorted(shutdown.summary.pods.items()))


def _outcomes(run: Outline) -> dict[str, int]:
    outcomes = [_fate(line) for line in run.pods.values()]
    return {name: outcomes.count(name) for name in sorted(dict.fromkeys(outcomes))}


def _wave_row(wave: WaveSide) -> tuple[str, ...]:
    def of(value: Callable[[WaveRecord], int | None]) -> Interval:
        return Interval(*(None if line is None else value(line) for line in (wave.best, wave.worst)))

    # The record does not decide between both runs.
    names = dict.fromkeys(line.outcome if line else "-" for line in (wave.best, wave.worst))
    return (
        str(wave.priority),
        "-" if wave.then is None else _time_text(wave.then.period_ns),
        "-" if wave.then is None else _time_text(took_ns(wave.then)),
        "-" if wave.then is None else wave.then.outcome,
        _interval_text(of(lambda line: line.period_ns)),
        _interval_text(of(took_ns)),
        " or ".join(names),
    )


def _pod_row(side: PodSide, fates: Mapping[str, str]) -> tuple[str, ...]:
    then, now = side.then, side.best or side.pod
    was = "-" if then is None else str(then.wave)
    # Between a graceful best and a worst where SIGKILL fails, a kill is possible.
    best, worst = _fate(side.best), _fate(side.worst)
    between = "killed" if (best, worst) == ("graceful", "failed") else best
    first, *others = dict.fromkeys((best, between, worst))
    chance = "" if side.chance_percent is None else f" {side.chance_percent} %"
    return (
        side.pod.label,
        was if then is not None and then.wave == now.wave else f"{was} -> {now.wave}",
        "-" if then is None else _time_text(then.grace_ns),
        "-" if then is None else _time_text(took_ns(then)),
        "-" if then is None else fates.get(then.uid, "unknown"),
        _interval_text(side.now(lambda pod: pod.grace_ns)),
        _interval_text(side.now(took_ns)),
        ", ".join((first, *others[:-1])) + (f" or {others[-1]}" if others else ""),
        "-" if side.need is None else f"{'>' if side.need.at_least else ''}{span(side.need.ns)}",
        side.support.level,
        "" if side.change == "same" else side.change + chance,
    )


def _fate(line: PodRecord | None) -> str:
    """``open``: its stop had begun at the run's end; ``not stopped``: it had not."""
    if line is None:
        return "-"
    return line.outcome or ("not stopped" if line.began_ns is None else "open")


def _time_text(ns: int | None) -> str:
    return "-" if ns is None else span(ns)


def _interval_text(times: Interval) -> str:
    """Both ends only where their texts differ; ``?``: without a bound."""
    if times == (0, None):
        return "?"
    low, high = (_time_text(each) for each in times.bounds)
    return low if low == high else f"{low} … {high}"


def what_if_document(shutdown: ShutdownRecord, words: Sequence[str], found: Comparison) -> dict[str, Any]:
    """``then`` is on record, ``best`` and ``worst`` are the two runs. ``saved`` and ``lost`` are certain on
    this evidence, ``perhapsSaved`` and ``perhapsLost`` are not: UIDs. ``expectedSaved`` and ``expectedLost``
    count the certain ones, and the chances of the others.
    """
    then, best, worst = found.then, found.best, found.worst
    counts = (_recorded(shutdown), _outcomes(best), _outcomes(worst))
    runs = dict(zip(("then", "best", "worst"), zip((then, best, worst), counts, strict=True), strict=True))
    totals_ns = (found.then.total_ns, *found.total.bounds)
    return document(
        "WhatIf",
        WHAT_IF_VERSION,
        episode=episode_heading(shutdown),
        changed=words,
        same=found.is_same,
        **{
            name: json_object({each: getattr(run, each) for each in _OF_RUN} | {"pods": pods})
            for name, (run, pods) in runs.items()
        },
        total=dict(zip(("then", "low", "high"), map(json_seconds, totals_ns), strict=True)),
        **{each.replace("-", "_"): [side.pod.uid for side in found.changed(each)] for each in CHANGES},
        expected_saved=found.expected_percent("saved") / 100,
        expected_lost=found.expected_percent("lost") / 100,
        waves=found.waves,
        pods=list(map(_shown_pod, found.pods)),
        assumptions=[{"code": code, "message": text} for code, text in found.assumptions],
    )


def _shown_pod(side: PodSide) -> dict[str, Any]:
    need = side.need
    fields = {each: getattr(side.pod, each) for each in ("namespace", "name", "uid")}
    fields |= {"then": side.then, "best": side.best, "worst": side.worst}
    fields["needed"] = need and {"seconds": json_seconds(need.ns), "atLeast": need.at_least}
    fields |= {"evidence": side.support.level, "why": side.support.why, "change": side.change}
    return fields | {"chance": None if side.chance_percent is None else side.chance_percent / 100}
