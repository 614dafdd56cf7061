"""``ebbtide replay advise``: the smallest periods that save every pod."""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from pathlib import Path

import click
from rich.console import Group
from rich.text import Text

from ebbtide.cli.common.guard import NOT_SO, WRONG, Refused
from ebbtide.cli.common.output import NarrowTable, remark, show, show_json
from ebbtide.cli.common.reading import JournalPool
from ebbtide.cli.common.selection import journal_state, listed_by
from ebbtide.cli.common.shared_options import (
    OPTIONAL_EPISODE,
    EpisodeCommand,
    output_option,
    pooled_journals_option,
)
from ebbtide.events.messages import plural
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.format import document, visible
from ebbtide.events.segment import LOGICS
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Period
from ebbtide.replay.advise import (
    MARGIN_PERCENT,
    Advice,
    Caution,
    NoEvidence,
    Survival,
    Trial,
    advise,
    curve_text,
)
from ebbtide.replay.journal_library import NoSuchShutdown, pick

EPILOG = """\b
Examples:
  ebbtide replay advise
  ebbtide replay advise last -o yaml > advice.yaml && ebbtide config check --config advice.yaml
  ebbtide replay advise --journal node-1/journal --journal node-2/journal
  ebbtide replay advise --journal ./fleet -o json | jq '.waves[] | {priority, seconds}'

A pod that was killed after 20 s needed more than 20 s, and counts so (censored, Kaplan-Meier). So does a pod
with a hook that was cut, or that was not seen to its end (CUT). Values beyond the evidence are "not reached".
LEFT OUT: pods that perhaps got no stop signal, or at an unknown time. A workload is a pod's name without the
endings of its replicas. Times begin with the pod's stop, hooks included.
"""

#: Ten times the needed time.
MARGIN_PERCENT_MAX = 1000

margin_option = click.option(
    "--margin",
    "margin",
    type=click.IntRange(0, MARGIN_PERCENT_MAX),
    default=MARGIN_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="The margin above the slowest pod's time.",
)

ADVICE_VERSION = 3


@click.command("advise", epilog=EPILOG, cls=EpisodeCommand)
@OPTIONAL_EPISODE
@pooled_journals_option
@margin_option
@output_option("table", "json", "yaml")
def advise_command(episode: str | None, journals: tuple[Path, ...], margin: int, output: str) -> int:
    """Advise the smallest periods with which every pod would have ended by itself, and a margin.

    Only enough stops, of most of its pods, shorten a wave. What-if tests the advice on the same shutdowns: it
    loses none of their pods for certain.

    From all shutdowns of all named journals, or from EPISODE alone. -o yaml prints only the configuration,
    to name after the present one. Exit code 1: no shutdown that stopped a pod is on record.
    """
    pool = JournalPool(journals)
    found = pool.shutdown_records()
    caution = Caution(margin_percent=margin)
    try:
        if episode is None:
            advice = advise(found, caution, partial(_try_out, pool, ""))
        else:
            # ``last``: of the journal that was named last.
            chosen = pick(found, episode)
            deque(found, maxlen=0)  # read all, for the verdicts
            if len(pool) > 1:
                remark(
                    f"ebbtide: of {plural(len(pool), 'journal')} this is shutdown {chosen.id} of"
                    f" {chosen.node} alone; leave EPISODE out for all of them"
                )
            advice = advise((chosen,), caution, partial(_try_out, pool, chosen.id))
    except NoSuchShutdown as error:
        raise Refused(f"{error}{listed_by(error)}", pool.code or WRONG) from None
    except NoEvidence as error:
        remark(f"ebbtide: no advice: {error}")
        return pool.code or NOT_SO
    # Verdicts are complete after the journals' ends.
    if output == "json":
        used = [journal_state(each) | {"id": each.journal_id.hex()} for each in pool.verdicts]
        show_json(document("Advice", ADVICE_VERSION, advice, journals=used))
    elif output == "yaml":
        sys.stdout.write(advice.configuration)
    else:
        show_advice(advice)
    return pool.code


def _try_out(pool: JournalPool, only: str, periods: tuple[Period, ...]) -> Trial:
    # Late: what-if loads all actors, and most advice changes nothing.
    from ebbtide.replay.whatif.whatif_run import trial_of

    nights = (
        (told, partial(each.history, LOGICS))
        for each in pool.locations()
        for told in shutdown_records(each.history())
        if only in ("", told.id)
    )
    return trial_of(nights, periods)


_TIMES = ("KILLED", "CUT", "P50", "P95", "MAX")
_WAVES = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", *_TIMES, "WHY")
_WORKLOADS = ("WORKLOAD", "PRIORITY", "STOPS", *_TIMES, "ASKS", "VERDICT")
_NUMBERS = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", *_TIMES, "ASKS")


def show_advice(advice: Advice) -> None:
    stops = plural(sum(wave.times.stops for wave in advice.waves), "stop")
    waves = (
        (
            str(wave.priority),
            span_s(wave.configured_seconds),
            span_s(wave.seconds),
            *_times_cells(wave.times, str(wave.left_out)),
            wave.why,
        )
        for wave in advice.waves
    )
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
    curves = [Text(f"priority {wave.priority}: {curve_text(wave.times)}") for wave in advice.waves]
    tables = Group(
        Text(f"from {plural(advice.shutdowns, 'shutdown')} of {plural(advice.nodes, 'node')}: {stops}"),
        Text(buys_text(advice)),
        Text(""),
        NarrowTable(_WAVES, waves, right=_NUMBERS, spare=("WHY", "P50")),
        Text(""),
        Text("stops that end by themselves, by the seconds of their wave:"),
        *curves,
        Text(""),
        NarrowTable(_WORKLOADS, workloads, right=_NUMBERS, spare=("PRIORITY", "P50", "STOPS")),
        *([Text(""), Text("not saved by these periods:"), *problems] if problems else []),
        Text(""),
        Text("to paste:", style="dim"),
    )
    show(tables)
    # Not through rich: a wrapped comment would end in a line that is no comment.
    for line in advice.configuration.splitlines():
        sys.stdout.write(f"{visible(line)}\n")


def buys_text(advice: Advice) -> str:
    """``today 7 of 9 pods end by themselves; with this advice 8 or 9 would, for 12 s more``."""
    today = f"today {advice.today} of {plural(advice.pods, 'pod')} end by themselves"
    trial = advice.trial
    if trial is None:
        return f"{today}; nothing changes"
    least = advice.today + trial.saved - trial.lost - trial.perhaps_lost
    most = advice.today + trial.saved + trial.perhaps_saved - trial.lost
    would = str(least) if least == most else f"{least} to {most}"
    cost = f"{span_s(abs(advice.more_seconds))} {'more' if advice.more_seconds >= 0 else 'less'}"
    nights = f"; not decided again: {plural(trial.not_asked, 'shutdown')}" if trial.not_asked else ""
    return f"{today}; with this advice {would} would, for {cost} of the machine's time at most{nights}"


def _times_cells(times: Survival, *beside_stops: str) -> tuple[str, ...]:
    # Beyond the longest stop that ended by itself there is no evidence.
    unknown = "not reached" if times.stops else "-"
    return (
        str(times.stops),
        *beside_stops,
        str(times.killed),
        str(times.censored - times.killed),
        *(unknown if each is None else span(each) for each in (times.p50_ns, times.p95_ns, times.max_ns)),
    )
