"""``ebbtide replay advise``: the smallest periods that save every pod; and what ``ebbtide plan --history``
says.

What each wave and workload needs, what no period can save, and the configuration to paste. The last part is
the plan's: whether pods that are to come fit the waves of a fleet, by what its journals tell.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, NamedTuple

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ebbtide.actors.policy.planning import Plan
from ebbtide.cli.common.guard import DONE, NOT_SO, WRONG, Refused, worst
from ebbtide.cli.common.output import NarrowTable, remark, show, show_json
from ebbtide.cli.common.reading import JournalPool
from ebbtide.cli.common.selection import listed_by, verdict_document
from ebbtide.cli.common.shared_options import (
    EpisodeCommand,
    optional_episode_argument,
    output_option,
    pooled_option,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible
from ebbtide.events.record.shutdown_record import ConfigurationRecord, ShutdownRecord
from ebbtide.events.units import json_seconds, span, span_s
from ebbtide.events.values import Pod, Settings
from ebbtide.replay.advise import (
    COMMENT_COLUMNS,
    MARGIN_PERCENT,
    Advice,
    Caution,
    NoEvidence,
    Outlook,
    Stop,
    WaveAdvice,
    advise,
    configuration_to_paste,
    grant_sentences,
    left_out_sentences,
    observed_stops,
    problems,
    wave_comment,
)
from ebbtide.replay.fit import Fit, fit
from ebbtide.replay.journal_library import NoSuchShutdown, pick
from ebbtide.replay.survival import Survival

EPILOG = """\b
Examples:
  ebbtide replay advise
  ebbtide replay advise last -o yaml > advice.yaml && ebbtide config check --config advice.yaml
  ebbtide replay advise --journal node-1/journal --journal node-2/journal
  ebbtide replay advise --journal ./fleet -o json | jq '.waves[] | {priority, adviseSeconds}'

A pod that was killed after 20 s needed more than 20 s: it counts as that (censored, Kaplan-Meier), and not as
20 s. A value that the evidence does not reach is "not reached". A workload is what is left of a pod's name
without what tells replicas apart. Times begin with the pod's stop, hooks included.
"""


#: Ten times what was needed is no margin any more.
MARGIN_PERCENT_MAX = 1000


margin_option = click.option(
    "--margin",
    "margin",
    type=click.IntRange(0, MARGIN_PERCENT_MAX),
    default=MARGIN_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="So much more than the slowest pod took.",
)


@click.command("advise", epilog=EPILOG, cls=EpisodeCommand)
@optional_episode_argument
@pooled_option("--journal", "journals")
@margin_option
@output_option("table", "json", "yaml")
def advise_command(episode: str | None, journals: tuple[Path, ...], margin: int, output: str) -> int:
    """Advise the smallest periods with which every pod would have ended by itself, and a margin.

    No wave is shortened on a few stops, or on a part of its pods; who was left out, and why, is said.

    From all shutdowns of all journals named, or from EPISODE alone. With -o yaml only the configuration is
    printed, to be named after the one in force. Exit code 1: no shutdown that stopped a pod is on record.
    """
    pool = JournalPool(journals)
    found = pool.shutdown_records()
    caution = Caution(margin_percent=margin)
    try:
        if episode is None:
            advice = advise(found, caution)
        else:
            # ``last`` is the last of the journal named last.
            chosen = pick(found, episode)
            deque(found, maxlen=0)  # all is read, for the verdicts' sake
            if len(pool) > 1:
                remark(
                    f"ebbtide: of {plural(len(pool), 'journal')} this is shutdown {chosen.id} of"
                    f" {chosen.node} alone; leave EPISODE out for all of them"
                )
            advice = advise((chosen,), caution)
    except NoSuchShutdown as error:
        raise Refused(f"{error}{listed_by(error)}", pool.code or WRONG) from None
    except NoEvidence as error:
        remark(f"ebbtide: nothing can be advised: {error}")
        return pool.code or NOT_SO
    # The verdicts are complete only now: a journal is read to its end before it has one.
    if output == "json":
        verdicts = [{"id": each.journal_id.hex(), **verdict_document(each)} for each in pool.verdicts]
        show_json({**advice_document(advice), "journals": verdicts})
    elif output == "yaml":
        sys.stdout.write(configuration_to_paste(advice))
    else:
        show_advice(advice)
    return pool.code


def show_advice(advice: Advice) -> None:
    """Its tables, then the configuration to paste."""
    show(advice_tables(advice))
    # Not by way of rich: a comment that is wrapped ends in a line that is no comment.
    columns = get_terminal_size().columns if sys.stdout.isatty() else COMMENT_COLUMNS
    for line in configuration_to_paste(advice, min(COMMENT_COLUMNS, columns)).splitlines():
        sys.stdout.write(f"{visible(line)}\n")


ADVICE_VERSION = 1

_WAVES = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", "KILLED", "P50", "P95", "MAX", "WHY")
_WORKLOADS = ("WORKLOAD", "PRIORITY", "STOPS", "KILLED", "P50", "P95", "MAX", "ASKS", "VERDICT")
_NUMBERS = ("PRIORITY", "PERIOD", "ADVISED", "STOPS", "LEFT OUT", "KILLED", "P50", "P95", "MAX", "ASKS")


# --- tables ------------------------------------------------------------------------------------


def advice_tables(advice: Advice) -> RenderableType:
    """Waves, workloads, what cannot be saved; below them the configuration is to be printed."""
    hopeless = [Text(visible(f"{each.name} {said}"), style="yellow") for each, said in problems(advice)]
    left_out = [Text(visible(said), style="yellow") for said in left_out_sentences(advice.left_out)]
    short = [Text(visible(said), style="yellow") for said in grant_sentences(advice)]
    parts: tuple[tuple[Outlook, str], ...]
    parts = (("saved", "end by themselves"), ("perhaps", "perhaps"), ("hopeless", "not"))
    stops = [f"{advice.counts[name]} {words}" for name, words in parts if advice.counts[name]]
    total = sum(advice.counts.values())
    pods = total + sum(each.pods for each in advice.left_out)
    counted = plural(total, "stop") if pods == total else f"{total} of {plural(pods, 'stop')}"
    # One shutdown by its name: its journal can be asked for more.
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
    # Beyond the longest stop that ended by itself the curve ends: no number there would be evidence.
    unknown = "not reached" if curve.total else "-"
    return (
        str(curve.total),
        *beside_stops,
        str(curve.censored),
        *(unknown if each is None else span(each) for each in times),
    )


# --- one document ------------------------------------------------------------------------------


def advice_document(advice: Advice) -> dict[str, Any]:
    """Times in seconds; null: not reached. ``saved``, ``perhaps`` and ``hopeless`` part all stops."""
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
    """What an advice says without the name of any one stop."""
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


# --- plan --history: do pods that are to come fit the waves of a fleet? -------------------------


#: The gate that a configuration in the record knows of.
SLEEP_GATE = "PodLifecycleSleepAction"


class FleetHistory(NamedTuple):
    """What a fleet's journals tell. ``configuration`` is the newest; ``grant_ns`` the smallest of today's."""

    stops: tuple[Stop, ...]
    shutdowns: int
    nodes: int
    configuration: ConfigurationRecord | None
    grant_ns: int | None
    code: int

    def settings(self) -> Settings | None:
        """As the newest shutdown had them; None where no shutdown had waves."""
        recorded = self.configuration
        if recorded is None:
            return None
        return Settings(
            by_pod_priority=recorded.periods,
            gates={} if recorded.sleep_action else {SLEEP_GATE: False},
            budget=recorded.budget,
            # Up, to whole seconds as a configuration has them: less reserve would cut pods that fitted.
            reserve_seconds=-(-recorded.reserve_ns // NS_PER_SECOND),
        )


def read_fleet_history(folders: Sequence[Path]) -> FleetHistory:
    """Raises Refused where a place holds no journal."""
    pool = JournalPool(folders)
    found: list[Stop] = []
    last: dict[tuple[str, str], ShutdownRecord] = {}
    newest: ShutdownRecord | None = None
    shutdowns = 0
    for shutdown in pool.shutdown_records():
        shutdowns += 1
        found += observed_stops((shutdown,))
        # Without waves graceful shutdown was off: it says nothing of what pods would have now.
        if shutdown.configuration.periods:
            # By the machine too: two that were installed one after the other may have had one name.
            last[shutdown.node, shutdown.machine_id] = shutdown
            if newest is None or shutdown.started_wall_ns >= newest.started_wall_ns:
                newest = shutdown
    # The smallest: what fits there fits on every node. Each node's last, since a grant may have been raised.
    grants = [shutdown.grant_ns for shutdown in last.values() if shutdown.grant_ns]
    configuration = newest.configuration if newest is not None else None
    return FleetHistory(
        tuple(found), shutdowns, len(last), configuration, min(grants, default=None), pool.code
    )


def judge_fit(plan: Plan, pods: Sequence[Pod], past: FleetHistory, settings: Settings) -> Fit:
    return fit(plan, pods, past.stops, sleep_action=settings.gate(SLEEP_GATE))


def fit_exit_code(found: Fit, past: FleetHistory) -> int:
    """1 where something does not fit: a gate for CI."""
    return worst((past.code, DONE if found.fits else NOT_SO))


def fit_json(found: Fit, past: FleetHistory) -> dict[str, Any]:
    """What is added to the plan as ``history``."""
    return {
        "shutdowns": past.shutdowns,
        "nodes": past.nodes,
        "stops": len(past.stops),
        "fits": found.fits,
        "unknown": [pod.label for pod in found.unknown],
        "findings": [
            {
                "code": each.code,
                "namespace": each.pod.namespace,
                "name": each.pod.name,
                "uid": each.pod.uid,
                "wave": each.wave,
                "priority": each.priority,
                "neededSeconds": json_seconds(each.needed_ns),
                "atLeast": each.at_least,
                "hasSeconds": json_seconds(each.has_ns),
                "message": each.message,
            }
            for each in found.misfits
        ],
    }


def fit_lines(found: Fit, past: FleetHistory) -> RenderableType:
    """The verdict in one line, then one a finding."""
    counted = ((len(past.stops), "stop"), (past.shutdowns, "shutdown"), (past.nodes, "node"))
    stops, shutdowns, nodes = (plural(*each) for each in counted)
    by = f"by {stops} in {shutdowns} of {nodes}"
    lines = [(f"fits, {by}", "green") if found.fits else (f"does not fit, {by}:", "red")]
    lines += [(f"{each.code}: {each.message}", "yellow") for each in found.misfits]
    if found.unknown:
        # Neither good nor bad news: they are named, so that nobody takes the verdict for one about them.
        pods = ", ".join(pod.label for pod in found.unknown)
        lines.append((f"nothing is on record of {pods}", "dim"))
    return Group(*(Text(visible(text), style=style) for text, style in lines))
