"""A simulation as JSON and as tables: one run, many runs, or one run with outages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import pairs, remark, show, show_json, table
from ebbtide.cli.common.selection import episode_heading
from ebbtide.events.base import NS_PER_MS
from ebbtide.events.messages import plural
from ebbtide.events.record.causes import headline
from ebbtide.events.record.format import document, json_object
from ebbtide.events.record.shutdown_record import SIGNS, ShutdownRecord, wave_outcome_text
from ebbtide.events.units import json_seconds, offset, size_text, span, span_s
from ebbtide.replay.sim.invariants import OF_BOOTS, OF_RUNS
from ebbtide.replay.sim.simulate import Simulated

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebbtide.replay.sim.sim_outage import SimulatedOutage

SIMULATION_VERSION = 1

#: One defect often breaks an invariant many times.
BREACHES_SHOWN = 10

#: Every invariant, and that the journal reads back and replays.
CHECKS_COUNT = len(OF_BOOTS) + len(OF_RUNS) + 2

#: By their names in the world's log.
MISFORTUNES = {
    "crash": "the daemon died",
    "bus-lost": "the connection to the bus broke",
    "logind-gone": "logind went away",
    "withdraw": "the shutdown was withdrawn",
    "limit": "logind's limit was reached",
    "api-lost": "the API server was lost",
    "api-back": "the API server came back",
    "runtime-hangs": "the runtime hung",
    "runtime-wakes": "the runtime woke up",
    "kubelet-hangs": "the kubelet hung",
    "kubelet-wakes": "the kubelet woke up",
}

KUBELETS = {
    "away": "the kubelet is away",
    "stays": "the kubelet does not stop",
    "slow": "the kubelet is slow to stop",
}


def show_run(simulated: Simulated | SimulatedOutage, command: str, journal: Path | None, output: str) -> int:
    """Returns the exit code. JSON has times in seconds."""
    kept = None if journal is None else str(journal)
    written, sizes = simulated.journal, [len(data) for data in simulated.files().values()]
    events = len(written.records)
    rows = [
        ("journal", f"{events} events, {plural(len(sizes), 'segment')}, {size_text(sum(sizes))}"),
        ("head", written.head.hex()),
        ("kept in", kept or ""),
    ]
    if isinstance(simulated, Simulated):
        kind, found, tables = "Simulation", shutdown_fields(simulated), shutdown_tables(simulated, rows)
    else:
        kind, found, tables = "OutageSimulation", outage_fields(simulated), outage_tables(simulated, rows)
    if output == "json":
        shown = document(
            kind,
            SIMULATION_VERSION,
            seed=simulated.seed,
            command=command,
            events=events,
            bytes=sum(sizes),
            journal_id=written.journal_id.hex(),
            head=written.head.hex(),
            journal=kept,
            breaches=[each._asdict() for each in simulated.breaches],
            **found,
        )
        show_json(shown)
    else:
        for each in tables:
            show(each)
    remark_breaches(simulated, command)
    if journal is None and output == "table":
        remark("the journal was not kept: name a directory for it with --journal")
    return NOT_SO if simulated.breaches else DONE


def remark_breaches(simulated: Simulated | SimulatedOutage, command: str) -> None:
    seed, found = simulated.seed, simulated.breaches
    for breach in found[:BREACHES_SHOWN]:
        remark(f"seed {seed}: {breach.invariant}: {breach.sentence}")
    if len(found) > BREACHES_SHOWN:
        remark(f"seed {seed}: and {len(found) - BREACHES_SHOWN} more")
    if found:
        remark(f"to see it again: {command} --journal simulated-{seed}")


def shutdown_fields(simulated: Simulated) -> dict[str, Any]:
    return {
        "node": simulated.machine.plan.node,
        "pods": len(simulated.machine.plan.pods),
        "misfortunes": list(misfortunes(simulated)),
        "shutdowns": [_shutdown_document(each) for each in simulated.shutdown_records()],
        "invariants": CHECKS_COUNT,
    }


def _shutdown_document(shutdown: ShutdownRecord) -> dict[str, Any]:
    heading = episode_heading(shutdown)
    found = {
        "means": shutdown.by.means,
        "handed_over": shutdown.by.handed_over_ns is not None,
        "seconds": json_seconds(shutdown.ended_ns),
        "budget_ns": shutdown.budget_ns,
        "grant_ns": shutdown.grant_ns,
        "pods": dict(sorted(pod_outcomes(shutdown).items())),
        "waves": [
            {
                "priority": wave.priority,
                "periodSeconds": json_seconds(wave.planned_ns),
                "pods": len(wave.pods),
                "beganSeconds": json_seconds(wave.began_ns),
                "endedSeconds": json_seconds(wave.ended_ns),
                "outcome": wave.outcome,
            }
            for wave in shutdown.waves
        ],
    }
    return heading | json_object(found)


def pod_outcomes(shutdown: ShutdownRecord) -> Counter[str]:
    return Counter(shutdown.summary.pods)


def misfortunes(simulated: Simulated) -> Iterator[str]:
    """With the time since the shutdown's signal."""
    world_log, faults = simulated.machine.log, simulated.machine.plan.faults
    signal_ns = next((seen.at_ns for seen in world_log.of("shutdown")), 0)
    if faults.api != "works":
        yield f"the API server {faults.api}"
    if faults.runtime_refuses != "nothing":
        yield f"the runtime refuses {faults.runtime_refuses}"
    if faults.mode and faults.kubelet in KUBELETS:
        yield KUBELETS[faults.kubelet]
    for seen in world_log.seen:
        text = MISFORTUNES.get(seen.what, "")
        if seen.what == "down":
            # A shutdown ends with a machine that goes down.
            text = "the power was cut" if seen.detail == "power cut" else ""
        elif seen.what == "crash" and seen.detail != "by the plan":
            # The power cut is listed already.
            text = ""
        if text:
            yield f"{text} at {offset(seen.at_ns - signal_ns)}"


def shutdown_tables(simulated: Simulated, written: list[tuple[str, str]]) -> Iterator[RenderableType]:
    """``written``: the journal's rows."""
    shutdowns = list(simulated.shutdown_records())
    rows = [
        ("seed", str(simulated.seed)),
        ("pods", str(len(simulated.machine.plan.pods))),
        ("went wrong", "; ".join(misfortunes(simulated)) or "nothing on the node itself"),
    ]
    if not shutdowns:
        rows.append(("shutdowns", "none: graceful shutdown is off in this configuration"))
    held = f"it verifies identical, and all {CHECKS_COUNT} invariants hold"
    broken = simulated.breaches
    invariants = len({each.invariant for each in broken})
    checked = f"{len(broken)} breaches of {invariants} invariants" if broken else held
    yield pairs([*rows, *written, ("checked", checked)])
    for shutdown in shutdowns:
        yield ""
        by = shutdown.by
        over = ", handed over to the runtime" if by.handed_over_ns is not None else ""
        yield pairs(
            [
                ("shutdown", shutdown.id),
                ("verdict", f"{SIGNS[shutdown.severity]} {headline(shutdown)}"),
                ("kind", shutdown.kind),
                ("means", f"{by.means}{over}: {by.reason}" if by.means else ""),
                ("outcome", shutdown.outcome),
                ("took", "it was cut short" if shutdown.ended_ns is None else span(shutdown.ended_ns)),
                ("budget", f"{span(shutdown.budget_ns)} of a grant of {span(shutdown.grant_ns)}"),
                ("pods by fate", _counts_text(pod_outcomes(shutdown))),
            ]
        )
        waves = (
            (
                str(wave.index),
                str(wave.priority),
                span(wave.planned_ns),
                str(len(wave.pods)),
                "" if wave.began_ns is None else span(wave.began_ns),
                "" if wave.began_ns is None or wave.ended_ns is None else span(wave.ended_ns - wave.began_ns),
                wave_outcome_text(wave, shutdown),
            )
            for wave in shutdown.waves
        )
        headings = ("WAVE", "PRIORITY", "PERIOD", "PODS", "BEGAN", "TOOK", "OUTCOME")
        yield table(headings, waves, right=headings[:-1])


def _counts_text(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"


def outage_fields(simulated: SimulatedOutage) -> dict[str, Any]:
    """Times since the begin of the run."""
    from ebbtide.events.record.outage_causes import outage_headline

    return {
        "happened": [
            {"atSeconds": json_seconds(at_ms * NS_PER_MS), "what": what}
            for at_ms, what in simulated.world.happened
        ],
        "outages": [
            {
                "id": record.id,
                "traceId": record.trace_id,
                "outcome": record.outcome,
                "headline": outage_headline(record),
                "beganSeconds": json_seconds(record.started_mono_ns),
                "seconds": json_seconds(record.ended_ns),
                "outOfServiceSeconds": json_seconds(record.out_ns),
                "proof": record.proof,
                "unrecovered": list(record.unrecovered),
            }
            for record in simulated.outage_records()
        ],
    }


def outage_tables(simulated: SimulatedOutage, written: list[tuple[str, str]]) -> Iterator[RenderableType]:
    from ebbtide.events.record.outage_causes import outage_headline

    broken = simulated.breaches[0].sentence if simulated.breaches else ""
    checked = ("checked", broken or "it verifies identical")
    yield pairs([("seed", str(simulated.seed)), *written, checked])
    yield ""
    happened = ((offset(at_ms * NS_PER_MS), what) for at_ms, what in simulated.world.happened)
    yield table(("WHEN", "WHAT WAS TRUE"), happened, right=("WHEN",))
    yield ""
    rows = (
        (offset(each.started_mono_ns), each.outcome, outage_headline(each), each.proof)
        for each in simulated.outage_records()
    )
    yield table(("BEGAN", "OUTCOME", "ON RECORD", "PROOF"), rows, right=("BEGAN",))


class Tally(Struct, kw_only=True, tag_field="kind", tag="Simulations"):
    """``broken``: with the commands that repeat the runs."""

    version: int = SIMULATION_VERSION
    runs: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    pods: Counter[str] = field(default_factory=Counter)
    events: int = 0
    bytes: int = 0
    journal: str | None
    invariants: int = CHECKS_COUNT
    broken: list[dict[str, Any]] = field(default_factory=list)

    def add(self, simulated: Simulated, command: str) -> None:
        self.runs += 1
        self.events += len(simulated.machine.journal.records)
        self.bytes += sum(map(len, simulated.files().values()))
        for shutdown in simulated.shutdown_records():
            self.outcomes[shutdown.outcome] += 1
            self.pods.update(pod_outcomes(shutdown))
        remark_breaches(simulated, command)
        if simulated.breaches:
            breaches = [each._asdict() for each in simulated.breaches]
            self.broken.append({"seed": simulated.seed, "command": command, "breaches": breaches})


def show_tally(tally: Tally, output: str) -> int:
    """Returns the exit code."""
    code = NOT_SO if tally.broken else DONE
    if output == "json":
        show_json(tally)
        return code
    held = f"all {CHECKS_COUNT} invariants hold in every run"
    rows = [
        ("runs", f"{tally.runs} in {span_s(tally.seconds)}"),
        ("shutdowns", _counts_text(tally.outcomes)),
        ("pods by fate", _counts_text(tally.pods)),
        ("events", str(tally.events)),
        ("kept in", f"{tally.journal}/node-SEED" if tally.journal is not None else ""),
        ("checked", f"{len(tally.broken)} runs broke an invariant" if tally.broken else held),
    ]
    show(pairs(rows))
    if tally.broken:
        show("")
        seeds = (
            (str(each["seed"]), each["breaches"][0]["invariant"], each["command"]) for each in tally.broken
        )
        show(table(("SEED", "BROKE", "TO SEE IT AGAIN"), seeds, right=("SEED",)))
    return code
