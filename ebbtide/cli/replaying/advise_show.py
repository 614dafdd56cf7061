"""Printing advice: what each wave and workload needs, what no period can save, and the configuration."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ebbtide.cli.episodes import verdict_document
from ebbtide.cli.guard import NOT_SO, WRONG, Refused
from ebbtide.cli.output import remark, show, show_json
from ebbtide.cli.pooling import Pool
from ebbtide.cli.replaying.fitting import Fitting
from ebbtide.cli.replaying.told import seconds
from ebbtide.text import visible
from events.recovery import Verdict
from replay.account.words import plural, span
from replay.advise.advising import Advice, NoEvidence, Wave, Workload, advise
from replay.advise.configuration import COMMENT_COLUMNS, grants, problems, to_paste, why
from replay.advise.stops import Stop
from replay.advise.survival import LAST, MEDIAN, P95, Survival
from replay.journal import NoSuchShutdown, pick

ADVICE_VERSION = 1

_WAVES = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "KILLED", "P50", "P95", "MAX", "WHY")
_WORKLOADS = ("WORKLOAD", "PRIORITY", "STOPS", "KILLED", "P50", "P95", "MAX", "ASKS", "VERDICT")
_NUMBERS = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "KILLED", "P50", "P95", "MAX", "ASKS")


def show_advice(journals: Sequence[Path], episode: str | None, output: str) -> int:
    """Exit code 0, 1 where nothing can be advised, or that of the worst journal's verdict."""
    pool = Pool(journals)
    try:
        advice = _advise(pool, episode)
    except NoEvidence as error:
        remark(f"ebbtide: nothing can be advised: {error}")
        return pool.code or NOT_SO
    if output == "json":
        show_json({**document(advice), "journals": list(map(_journal, pool.verdicts))})
    elif output == "yaml":
        sys.stdout.write(to_paste(advice))
    else:
        show(tables(advice))
        # Not by way of rich: a comment that is wrapped ends in a line that is no comment.
        sys.stdout.write("".join(f"{visible(line)}\n" for line in to_paste(advice, _columns()).splitlines()))
    return pool.code


def _advise(pool: Pool, episode: str | None) -> Advice:
    """``last`` is the last of the journal named last. All is read, for the verdicts' sake."""
    found = pool.accounts()
    if episode is None:
        return advise(found)
    try:
        chosen = pick(found, episode)
    except NoSuchShutdown as error:
        raise Refused(f"{error}; 'ebbtide journal ls' lists them", pool.code or WRONG) from None
    deque(found, maxlen=0)
    if len(pool) > 1:
        remark(
            f"ebbtide: of {plural(len(pool), 'journal')} this is shutdown {chosen.id} of {chosen.node} alone;"
            " leave EPISODE out for all of them"
        )
    return advise((chosen,))


def _columns() -> int:
    """How wide a comment may be."""
    return min(COMMENT_COLUMNS, get_terminal_size().columns if sys.stdout.isatty() else COMMENT_COLUMNS)


def _journal(verdict: Verdict) -> dict[str, Any]:
    return {"id": verdict.journal_id.hex(), **verdict_document(verdict)}


# --- tables ------------------------------------------------------------------------------------


def tables(advice: Advice) -> RenderableType:
    """Waves, workloads, what cannot be saved; below them the configuration is to be printed."""
    hopeless = [Text(visible(f"{each.name} {said}"), style="yellow") for each, said in problems(advice)]
    short = [Text(visible(said), style="yellow") for said in grants(advice)]
    return Group(
        Text(visible(_title(advice))),
        Text(""),
        Fitting(_WAVES, map(_wave_row, advice.waves), right=_NUMBERS, spare=("WHY", "P50")),
        Text(""),
        Fitting(
            _WORKLOADS,
            (_workload_row(each, advice) for each in advice.workloads),
            right=_NUMBERS,
            spare=("PRIORITY", "P50", "STOPS"),
        ),
        *([Text(""), *short] if short else []),
        *([Text(""), Text("no period can save on this evidence:"), *hopeless] if hopeless else []),
        Text(""),
        Text("to paste:", style="dim"),
    )


def _title(advice: Advice) -> str:
    parts = (("saved", "end by themselves"), ("perhaps", "perhaps"), ("hopeless", "not"))
    stops = [f"{len(getattr(advice, name))} {words}" for name, words in parts if getattr(advice, name)]
    total = sum(len(getattr(advice, name)) for name, _ in parts)
    return f"from {_whose(advice)}: {plural(total, 'stop')}, under these periods {', '.join(stops)}"


def _whose(advice: Advice) -> str:
    """One shutdown by name."""
    if len(advice.shutdowns) > 1:
        return f"{plural(len(advice.shutdowns), 'shutdown')} of {plural(advice.nodes, 'node')}"
    return f"shutdown {advice.shutdowns[0]} of {advice.workloads[0].stops[0].node}"


def _wave_row(wave: Wave) -> tuple[str, ...]:
    return (
        str(wave.priority),
        f"{wave.configured_seconds}s",
        f"{wave.seconds}s",
        *_numbers(wave.survival),
        why(wave),
    )


def _workload_row(each: Workload, advice: Advice) -> tuple[str, ...]:
    asks = "-" if each.wanted_seconds is None else f"{each.wanted_seconds}s"
    priority = str(advice.waves[each.wave].priority)
    return (each.name, priority, *_numbers(each.survival), asks, each.verdict)


def _numbers(curve: Survival) -> tuple[str, ...]:
    times = (curve.quantile_ns(of) for of in (MEDIAN, P95, LAST))
    unknown = "not reached" if curve.total else "-"
    return (
        str(curve.total),
        str(curve.censored),
        *(unknown if each is None else span(each) for each in times),
    )


# --- one document ------------------------------------------------------------------------------


def document(advice: Advice) -> dict[str, Any]:
    """Times in seconds; null: not reached. ``saved``, ``perhaps`` and ``hopeless`` part all stops."""
    return {
        "kind": "Advice",
        "version": ADVICE_VERSION,
        "shutdowns": list(advice.shutdowns),
        "nodes": advice.nodes,
        "requestedSeconds": advice.requested_seconds,
        "reserveSeconds": advice.reserve_seconds,
        "inhibitDelayMaxSeconds": advice.drop_in_seconds,
        "waves": [
            {
                "priority": wave.priority,
                "configuredSeconds": wave.configured_seconds,
                "adviseSeconds": wave.seconds,
                "why": why(wave),
                **_survival(wave.survival),
            }
            for wave in advice.waves
        ],
        "workloads": [_workload(each, advice) for each in advice.workloads],
        "problems": [
            {"workload": each.name, "verdict": each.verdict, "message": said}
            for each, said in problems(advice)
        ],
        **{name: list(map(_stop, getattr(advice, name))) for name in ("saved", "perhaps", "hopeless")},
        "notRaised": [
            {
                "node": each.node,
                "shutdown": each.shutdown,
                "grantSeconds": seconds(each.grant_ns),
                "askedSeconds": seconds(each.asked_ns),
            }
            for each in advice.short
        ],
        "configuration": to_paste(advice),
    }


def _workload(each: Workload, advice: Advice) -> dict[str, Any]:
    return {
        "workload": each.name,
        "priority": advice.waves[each.wave].priority,
        "verdict": each.verdict,
        "wantedSeconds": each.wanted_seconds,
        **_survival(each.survival),
    }


def _survival(curve: Survival) -> dict[str, Any]:
    names = ("p50Seconds", "p95Seconds", "maxSeconds")
    times = (seconds(curve.quantile_ns(of)) for of in (MEDIAN, P95, LAST))
    return {"stops": curve.total, "censored": curve.censored, **dict(zip(names, times, strict=True))}


def _stop(stop: Stop) -> dict[str, Any]:
    return {
        "shutdown": stop.shutdown,
        "node": stop.node,
        "pod": stop.label,
        "uid": stop.uid,
        "seconds": seconds(stop.observed.ns),
        "atLeast": not stop.observed.ended,
    }
