"""Printing a what-if: both runs side by side, in tables for people and as one document for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ebbtide.cli.output import pairs
from ebbtide.cli.replaying.fitting import Fitting
from ebbtide.cli.replaying.told import seconds, shutdown_document
from ebbtide.text import visible
from replay.account.model import Account
from replay.account.words import span
from replay.whatif.compare import Change, Comparison, PodSide, Span, WaveSide
from replay.whatif.outline import Outline, PodLine, WaveLine

WHAT_IF_VERSION = 1

CHANGES: tuple[Change, ...] = ("saved", "perhaps-saved", "lost", "perhaps-lost")

_POD_HEADINGS = (
    *("POD", "WAVE", "GRACE", "TOOK", "OUTCOME", "NOW GRACE", "NOW TOOK", "NOW OUTCOME"),
    *("NEEDED", "EVIDENCE", "CHANGE"),
)
_WAVE_HEADINGS = ("PRIORITY", "PERIOD", "TOOK", "OUTCOME", "NOW PERIOD", "NOW TOOK", "NOW OUTCOME")
_NUMBERS = ("PRIORITY", "PERIOD", "WAVE", "GRACE", "TOOK", "NOW PERIOD", "NOW GRACE", "NOW TOOK", "NEEDED")


# --- tables ------------------------------------------------------------------------------------


def tables(account: Account, words: Sequence[str], found: Comparison) -> RenderableType:
    """Totals, the waves, the pods, and what was assumed."""
    title = f"shutdown {account.id}, decided again with {', '.join(words)}"
    if found.is_same:
        return Group(Text(visible(title)), Text("nothing changes: every event as recorded, at its time"))
    remarks = [Text(visible(f"{code}: {text}"), style="yellow") for code, text in found.assumptions]
    whys = [Text(visible(text), style="dim") for text in _whys(found)]
    return Group(
        Text(visible(title)),
        Text(""),
        pairs(_totals(found)),
        Text(""),
        Fitting(_WAVE_HEADINGS, map(_wave_row, found.waves), right=_NUMBERS),
        Text(""),
        Fitting(_POD_HEADINGS, map(_pod_row, found.pods), right=_NUMBERS),
        *([Text("")] if whys or remarks else []),
        *whys,
        *remarks,
    )


def _totals(found: Comparison) -> Iterator[tuple[str, str]]:
    then = found.then.total_ns
    yield "total", f"{_time(then)} -> {_interval(found.total)}"
    yield "granted", f"{span(found.then.grant_ns)} -> {span(found.grim.grant_ns)}"
    hopeful, grim = _counts(found.hopeful), _counts(found.grim)
    yield "pods", f"{_counts(found.then)} -> {hopeful if hopeful == grim else f'{hopeful}, or {grim}'}"
    for change in CHANGES:
        pods = found.changed(change)
        if pods or change in ("saved", "lost"):
            yield change.replace("-", " "), ", ".join(pod.line.pod.label for pod in pods) or "none"


def _counts(run: Outline) -> str:
    outcomes = [_fate(line) for line in run.pods.values()]
    return (
        ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(dict.fromkeys(outcomes))) or "no pods"
    )


def _wave_row(wave: WaveSide) -> tuple[str, ...]:
    def of(value: Callable[[WaveLine], int | None]) -> Span:
        return Span(*(None if line is None else value(line) for line in (wave.hopeful, wave.grim)))

    names = dict.fromkeys(line.outcome if line else "-" for line in (wave.hopeful, wave.grim))
    return (
        str(wave.priority),
        "-" if wave.then is None else span(wave.then.period_ns),
        "-" if wave.then is None else _time(_wave_took(wave.then)),
        "-" if wave.then is None else wave.then.outcome,
        _interval(of(lambda line: line.period_ns)),
        _interval(of(_wave_took)),
        " or ".join(names),
    )


def _wave_took(line: WaveLine) -> int | None:
    return None if line.began_ns is None or line.ended_ns is None else line.ended_ns - line.began_ns


def _pod_row(side: PodSide) -> tuple[str, ...]:
    then, line = side.then, side.hopeful or side.line
    return (
        side.line.pod.label,
        _wave(then, line),
        "-" if then is None else span(then.grace_ns),
        "-" if then is None else _time(then.took_ns),
        _fate(then),
        _interval(side.now(lambda line: line.grace_ns)),
        _interval(side.now(lambda line: line.took_ns)),
        _fates(side),
        "-" if side.need is None else f"{'>' if side.need.at_least else ''}{span(side.need.ns)}",
        side.support.level,
        "" if side.change == "same" else side.change,
    )


def _wave(then: PodLine | None, now: PodLine) -> str:
    """Both only where they differ."""
    was = "-" if then is None else str(then.wave)
    return was if then is not None and then.wave == now.wave else f"{was} -> {now.wave}"


def _whys(found: Comparison) -> Iterator[str]:
    for side in found.pods:
        if side.support.why and (
            side.change != "same" or side.outcomes[0] != side.outcomes[1] or not side.then
        ):
            yield f"{side.line.pod.label}: {side.support.why}"


def _fates(side: PodSide) -> str:
    """Who ends by itself at best, and at worst not even after SIGKILL, may well be killed."""
    best, worst = _fate(side.hopeful), _fate(side.grim)
    between = "killed" if (best, worst) == ("graceful", "failed") else best
    first, *others = dict.fromkeys((best, between, worst))
    return ", ".join((first, *others[:-1])) + (f" or {others[-1]}" if others else "")


def _fate(line: PodLine | None) -> str:
    """``open``: its stop had begun when the run was over; ``not stopped``: it had not."""
    if line is None:
        return "-"
    return line.outcome or ("not stopped" if line.began_ns is None else "open")


def _time(ns: int | None) -> str:
    return "-" if ns is None else span(ns)


def _interval(times: Span) -> str:
    """Both ends only where they are told apart by what people read."""
    low, high = (_time(each) for each in times.bounds)
    return low if low == high else f"{low} … {high}"


# --- one document ------------------------------------------------------------------------------


def document(account: Account, words: Sequence[str], found: Comparison) -> dict[str, Any]:
    """Times in seconds. ``now`` has each value as ``low`` and ``high``; outcomes as ``best`` and ``worst``.

    ``saved`` and ``lost`` are certain on this evidence, ``perhapsSaved`` and ``perhapsLost`` are not: UIDs.
    """
    low, high = found.total.bounds
    return {
        "kind": "WhatIf",
        "version": WHAT_IF_VERSION,
        "episode": shutdown_document(account),
        "changed": list(words),
        "same": found.is_same,
        "then": _run_json(found.then),
        "now": {"best": _run_json(found.hopeful), "worst": _run_json(found.grim)},
        "totalSeconds": {"then": seconds(found.then.total_ns), "low": seconds(low), "high": seconds(high)},
        **{_camel(change): [side.line.pod.uid for side in found.changed(change)] for change in CHANGES},
        "waves": [_wave_json(wave) for wave in found.waves],
        "pods": [_pod_json(side) for side in found.pods],
        "assumptions": [{"code": code, "message": text} for code, text in found.assumptions],
    }


def _camel(change: Change) -> str:
    first, _, rest = change.partition("-")
    return first + rest.capitalize()


def _run_json(run: Outline) -> dict[str, Any]:
    outcomes = [_fate(line) for line in run.pods.values()]
    return {
        "outcome": run.outcome,
        "grantSeconds": seconds(run.grant_ns),
        "budgetSeconds": seconds(run.budget_ns),
        "totalSeconds": seconds(run.total_ns),
        "pods": {name: outcomes.count(name) for name in sorted(dict.fromkeys(outcomes))},
    }


def _wave_json(wave: WaveSide) -> dict[str, Any]:
    best, worst = _wave_side(wave.hopeful), _wave_side(wave.grim)
    return {"priority": wave.priority, "then": _wave_side(wave.then), "now": {"best": best, "worst": worst}}


def _wave_side(line: WaveLine | None) -> dict[str, Any] | None:
    if line is None:
        return None
    return {
        "wave": line.wave,
        "periodSeconds": seconds(line.period_ns),
        "pods": line.pods,
        "beganSeconds": seconds(line.began_ns),
        "endedSeconds": seconds(line.ended_ns),
        "outcome": line.outcome,
    }


def _pod_json(side: PodSide) -> dict[str, Any]:
    pod, need = side.line.pod, side.need
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "then": _pod_side(side.then),
        "now": {"best": _pod_side(side.hopeful), "worst": _pod_side(side.grim)},
        "needed": need and {"seconds": seconds(need.ns), "atLeast": need.at_least},
        "evidence": side.support.level,
        "why": side.support.why,
        "change": side.change,
    }


def _pod_side(line: PodLine | None) -> dict[str, Any] | None:
    if line is None:
        return None
    return {
        "wave": line.wave,
        "graceSeconds": seconds(line.grace_ns),
        "beganSeconds": seconds(line.began_ns),
        "killedSeconds": seconds(line.killed_ns),
        "endedSeconds": seconds(line.ended_ns),
        "outcome": line.outcome,
        "reason": line.reason,
    }
