"""A simulation as JSON and as tables: one run, many runs, or one run with outages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ebbtide.cli.common.output import pairs, table
from ebbtide.cli.common.selection import shown_cause
from ebbtide.events.base import NS_PER_MS
from ebbtide.events.messages import plural
from ebbtide.events.record.causes import cause_groups, headline
from ebbtide.events.record.shutdown_record import SEVERITY_SIGNS, ShutdownRecord, wave_outcome_text
from ebbtide.events.units import json_seconds, offset, size_text, span, span_s
from ebbtide.replay.sim.invariants import OF_BOOTS, OF_RUNS, Breach
from ebbtide.replay.sim.simulate import Simulated

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebbtide.replay.sim.sim_outage import SimulatedOutage
    from ebbtide.replay.sim.simulate import SimulatedJournal

SIMULATION_VERSION = 1

#: Every invariant, and that the journal reads back and replays.
CHECKS_COUNT = len(OF_BOOTS) + len(OF_RUNS) + 2

#: Faults by their names in the world's log.
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

#: A kubelet that fails from the start.
KUBELETS = {
    "away": "the kubelet is away",
    "stays": "the kubelet does not stop",
    "slow": "the kubelet is slow to stop",
}


def simulation_view(simulated: Simulated, command: str, journal: Path | None) -> dict[str, Any]:
    """One run; durations in seconds."""
    written = simulated.machine.journal
    return {
        "kind": "Simulation",
        "version": SIMULATION_VERSION,
        "seed": simulated.seed,
        "command": command,
        "node": simulated.machine.plan.node,
        "pods": len(simulated.machine.plan.pods),
        "misfortunes": list(_misfortunes(simulated)),
        "shutdowns": [_shutdown_view(each) for each in simulated.shutdown_records()],
        **_journal_view(written, simulated.files(), journal),
        "invariants": CHECKS_COUNT,
        "breaches": [each._asdict() for each in simulated.breaches],
    }


def _journal_view(
    written: SimulatedJournal, files: Mapping[str, bytes], journal: Path | None
) -> dict[str, Any]:
    return {
        "events": len(written.records),
        "bytes": sum(map(len, files.values())),
        "journalId": written.journal_id.hex(),
        "head": written.head.hex(),
        "journal": None if journal is None else str(journal),
    }


def _shutdown_view(shutdown: ShutdownRecord) -> dict[str, Any]:
    return {
        "id": shutdown.id,
        "traceId": shutdown.trace_id,
        "kind": shutdown.kind,
        "means": shutdown.by.means,
        "handedOver": shutdown.by.handed_over_ns is not None,
        "outcome": shutdown.outcome,
        "severity": shutdown.severity,
        "headline": headline(shutdown),
        "causes": [shown_cause(shutdown, group) for group in cause_groups(shutdown)],
        "seconds": json_seconds(shutdown.ended_ns),
        "budgetSeconds": json_seconds(shutdown.budget_ns),
        "grantSeconds": json_seconds(shutdown.grant_ns),
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


def pod_outcomes(shutdown: ShutdownRecord) -> Counter[str]:
    return Counter(pod.outcome or "unknown" for pod in shutdown.pods)


def _misfortunes(simulated: Simulated) -> Iterator[str]:
    """The node's faults, with the time since the shutdown's signal."""
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


def simulation_tables(view: Mapping[str, Any], simulated: Simulated) -> Iterator[RenderableType]:
    """The run, then each of its shutdowns with its waves."""
    rows = [
        ("seed", str(view["seed"])),
        ("pods", str(view["pods"])),
        ("went wrong", "; ".join(view["misfortunes"]) or "nothing on the node itself"),
    ]
    if not view["shutdowns"]:
        rows.append(("shutdowns", "none: graceful shutdown is off in this configuration"))
    held = f"it verifies identical, and all {CHECKS_COUNT} invariants hold"
    broken = simulated.breaches
    invariants = len({each.invariant for each in broken})
    checked = f"{len(broken)} breaches of {invariants} invariants" if broken else held
    yield pairs([*rows, *_journal_rows(view, len(simulated.files())), ("checked", checked)])
    for shutdown in simulated.shutdown_records():
        yield ""
        by = shutdown.by
        over = ", handed over to the runtime" if by.handed_over_ns is not None else ""
        yield pairs(
            [
                ("shutdown", shutdown.id),
                ("verdict", f"{SEVERITY_SIGNS[shutdown.severity]} {headline(shutdown)}"),
                ("kind", shutdown.kind),
                *([("means", f"{by.means}{over}: {by.reason}")] if by.means else []),
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


def _journal_rows(view: Mapping[str, Any], segments: int) -> list[tuple[str, str]]:
    rows = [
        ("journal", f"{view['events']} events, {plural(segments, 'segment')}, {size_text(view['bytes'])}"),
        ("head", view["head"]),
    ]
    return [*rows, ("kept in", view["journal"])] if view["journal"] is not None else rows


def _counts_text(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"


# --- outages -----------------------------------------------------------------------------------


def outage_simulation_view(simulated: SimulatedOutage, command: str, journal: Path | None) -> dict[str, Any]:
    """One run with outages; times in seconds since its begin."""
    from ebbtide.replay.report.outage_page import headline as outage_headline

    return {
        "kind": "OutageSimulation",
        "version": SIMULATION_VERSION,
        "seed": simulated.seed,
        "command": command,
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
        **_journal_view(simulated.journal, simulated.files(), journal),
        "breaches": [each._asdict() for each in simulated.breaches],
    }


def outage_tables(view: Mapping[str, Any], simulated: SimulatedOutage) -> Iterator[RenderableType]:
    """The truth, then the record."""
    broken = simulated.breaches[0].sentence if simulated.breaches else ""
    checked = ("checked", broken or "it verifies identical")
    yield pairs([("seed", str(view["seed"])), *_journal_rows(view, len(simulated.files())), checked])
    yield ""
    happened = ((offset(at_ms * NS_PER_MS), what) for at_ms, what in simulated.world.happened)
    yield table(("WHEN", "WHAT WAS TRUE"), happened, right=("WHEN",))
    yield ""
    records = zip(simulated.outage_records(), view["outages"], strict=True)
    rows = (
        (offset(record.started_mono_ns), each["outcome"], each["headline"], each["proof"])
        for record, each in records
    )
    yield table(("BEGAN", "OUTCOME", "ON RECORD", "PROOF"), rows, right=("BEGAN",))


# --- many runs ---------------------------------------------------------------------------------


class BrokenSeed(NamedTuple):
    """A seed with its breaches, and the command that repeats the run."""

    seed: int
    command: str
    breaches: list[Breach]


class Tally:
    """Counts over all runs so far."""

    def __init__(self) -> None:
        self.runs = self.events = self.bytes = 0
        self.seconds = 0.0
        self.outcomes: Counter[str] = Counter()
        self.pods: Counter[str] = Counter()
        self.broken: list[BrokenSeed] = []

    def add(self, simulated: Simulated, command: str) -> None:
        self.runs += 1
        self.events += len(simulated.machine.journal.records)
        self.bytes += sum(map(len, simulated.files().values()))
        for shutdown in simulated.shutdown_records():
            self.outcomes[shutdown.outcome] += 1
            self.pods.update(pod_outcomes(shutdown))
        if simulated.breaches:
            self.broken.append(BrokenSeed(simulated.seed, command, simulated.breaches))

    def view(self, journal: Path | None) -> dict[str, Any]:
        return {
            "kind": "Simulations",
            "version": SIMULATION_VERSION,
            "runs": self.runs,
            "seconds": round(self.seconds, 3),
            "outcomes": dict(sorted(self.outcomes.items())),
            "pods": dict(sorted(self.pods.items())),
            "events": self.events,
            "bytes": self.bytes,
            "journal": None if journal is None else str(journal),
            "invariants": CHECKS_COUNT,
            "broken": [
                each._asdict() | {"breaches": [breach._asdict() for breach in each.breaches]}
                for each in self.broken
            ],
        }

    def tables(self, journal: Path | None) -> Iterator[RenderableType]:
        """Counts, and every broken seed."""
        held = f"all {CHECKS_COUNT} invariants hold in every run"
        yield pairs(
            [
                ("runs", f"{self.runs} in {span_s(self.seconds)}"),
                ("shutdowns", _counts_text(self.outcomes)),
                ("pods by fate", _counts_text(self.pods)),
                ("events", str(self.events)),
                *([("kept in", f"{journal}/node-SEED")] if journal is not None else []),
                ("checked", f"{len(self.broken)} runs broke an invariant" if self.broken else held),
            ]
        )
        if self.broken:
            yield ""
            rows = ((str(each.seed), each.breaches[0].invariant, each.command) for each in self.broken)
            yield table(("SEED", "BROKE", "TO SEE IT AGAIN"), rows, right=("SEED",))
