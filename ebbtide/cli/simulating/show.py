"""How a simulation is shown: its shutdowns, what went wrong on the node, and whether everything held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.cli.output import pairs, table
from ebbtide.cli.simulating.tally import Tally
from events.base import NS_PER_SECOND
from replay.account.model import Account, WaveTold
from replay.virtual.invariants import OF_BOOTS, OF_RUNS, Breach
from replay.virtual.simulate import Simulated
from replay.virtual.trail import Seen

if TYPE_CHECKING:
    from rich.console import RenderableType

VERSION = 1

#: Every invariant, and that the journal reads back and replays.
CHECKS = len(OF_BOOTS) + len(OF_RUNS) + 2

#: Breaches of one run that are told; the first ones say it.
BREACHES_TOLD = 10

#: Happenings that nobody wishes for, in the words of the trail.
MISFORTUNES = {
    "crash": "the daemon died",
    "bus-lost": "the connection to the bus broke",
    "logind-gone": "logind went away",
    "withdraw": "the shutdown was withdrawn",
    "limit": "logind's limit was reached",
    "api-lost": "the API server was lost",
    "api-back": "the API server came back",
}

POWER_CUT = "power cut"


def seconds(duration_ns: int | None) -> str:
    """With milliseconds."""
    return "" if duration_ns is None else f"{duration_ns / NS_PER_SECOND:.3f} s"


def _json_seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else round(duration_ns / NS_PER_SECOND, 6)


# --- one run -----------------------------------------------------------------------------------


def tables(simulated: Simulated, journal: Path | None) -> Iterator[RenderableType]:
    """The run, then each of its shutdowns with its waves."""
    shutdowns = list(simulated.accounts())
    yield pairs(_run_rows(simulated, shutdowns, journal))
    for account in shutdowns:
        yield ""
        yield pairs(_shutdown_rows(account))
        yield table(
            ("WAVE", "PRIORITY", "PERIOD", "PODS", "BEGAN", "TOOK", "OUTCOME"),
            (_wave_row(wave) for wave in account.waves),
            right=("WAVE", "PRIORITY", "PERIOD", "PODS", "BEGAN", "TOOK"),
        )


def _run_rows(
    simulated: Simulated, shutdowns: list[Account], journal: Path | None
) -> Iterator[tuple[str, str]]:
    book, files = simulated.machine.book, simulated.files()
    yield "seed", str(simulated.seed)
    yield "pods", str(len(simulated.machine.plan.pods))
    yield "went wrong", "; ".join(_misfortunes(simulated)) or "nothing on the node itself"
    if not shutdowns:
        yield "shutdowns", "none: graceful shutdown is off in this configuration"
    size = sum(map(len, files.values()))
    yield "journal", f"{len(book.records)} events, {len(files)} segments, {size // 1000} kB"
    yield "head", book.head.hex()
    if journal is not None:
        yield "kept in", str(journal)
    yield "checked", _verdict(simulated.breaches)


def _verdict(breaches: list[Breach]) -> str:
    if not breaches:
        return f"it verifies identical, and all {CHECKS} invariants hold"
    return f"{len(breaches)} breaches of {len({each.invariant for each in breaches})} invariants"


def _misfortunes(simulated: Simulated) -> Iterator[str]:
    """What happened to the node, with the time since its shutdown's signal."""
    trail, faults = simulated.machine.trail, simulated.machine.plan.faults
    signal_ns = next((seen.at_ns for seen in trail.of("shutdown")), 0)
    if faults.api != "works":
        yield f"the API server {faults.api}"
    if faults.runtime_refuses != "nothing":
        yield f"the runtime refuses {faults.runtime_refuses}"
    for seen in trail.seen:
        text = _misfortune(seen)
        if text:
            yield f"{text} at {(seen.at_ns - signal_ns) / NS_PER_SECOND:+.3f} s"


def _misfortune(seen: Seen) -> str:
    if seen.what == "down":
        return "the power was cut" if seen.detail == POWER_CUT else ""
    if seen.what == "crash" and seen.detail != "by the plan":
        return ""
    return MISFORTUNES.get(seen.what, "")


def _shutdown_rows(account: Account) -> Iterator[tuple[str, str]]:
    yield "shutdown", account.id
    yield "kind", account.kind
    if account.by.means:
        over = ", handed over to the runtime" if account.by.handed_over_ns is not None else ""
        yield "means", f"{account.by.means}{over}: {account.by.reason}"
    yield "outcome", account.outcome
    yield "took", seconds(account.ended_ns) or "it was cut short"
    yield "budget", f"{seconds(account.budget_ns)} of a grant of {seconds(account.grant_ns)}"
    counts = Counter(pod.outcome or "unknown" for pod in account.pods)
    yield "pods by fate", ", ".join(f"{count} {fate}" for fate, count in counts.most_common()) or "none"


def _wave_row(wave: WaveTold) -> tuple[str, ...]:
    took_ns = None if wave.began_ns is None or wave.ended_ns is None else wave.ended_ns - wave.began_ns
    return (
        str(wave.index),
        str(wave.priority),
        seconds(wave.planned_ns),
        str(len(wave.pods)),
        seconds(wave.began_ns),
        seconds(took_ns),
        wave.outcome,
    )


def lines_of_breaches(simulated: Simulated, command: str) -> Iterator[str]:
    """Each breach, and the command that shows it again."""
    for breach in simulated.breaches[:BREACHES_TOLD]:
        yield f"seed {simulated.seed}: {breach.invariant}: {breach.sentence}"
    if len(simulated.breaches) > BREACHES_TOLD:
        yield f"seed {simulated.seed}: and {len(simulated.breaches) - BREACHES_TOLD} more"
    yield f"to see it again: {command} --journal simulated-{simulated.seed}"


def document(simulated: Simulated, command: str, journal: Path | None) -> dict[str, Any]:
    """The whole run as one JSON document; durations in seconds."""
    files = simulated.files()
    return {
        "kind": "Simulation",
        "version": VERSION,
        "seed": simulated.seed,
        "command": command,
        "node": simulated.machine.plan.node,
        "pods": len(simulated.machine.plan.pods),
        "misfortunes": list(_misfortunes(simulated)),
        "shutdowns": [_shutdown(account) for account in simulated.accounts()],
        "events": len(simulated.machine.book.records),
        "bytes": sum(map(len, files.values())),
        "journalId": simulated.machine.book.journal_id.hex(),
        "head": simulated.machine.book.head.hex(),
        "journal": None if journal is None else str(journal),
        "invariants": CHECKS,
        "breaches": _breaches(simulated.breaches),
    }


def _breaches(breaches: list[Breach]) -> list[dict[str, str]]:
    return [each._asdict() for each in breaches]


def _shutdown(account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "traceId": account.trace_id,
        "kind": account.kind,
        "means": account.by.means,
        "handedOver": account.by.handed_over_ns is not None,
        "outcome": account.outcome,
        "seconds": _json_seconds(account.ended_ns),
        "budgetSeconds": _json_seconds(account.budget_ns),
        "grantSeconds": _json_seconds(account.grant_ns),
        "pods": dict(sorted(Counter(pod.outcome or "unknown" for pod in account.pods).items())),
        "waves": [
            {
                "priority": wave.priority,
                "periodSeconds": _json_seconds(wave.planned_ns),
                "pods": len(wave.pods),
                "beganSeconds": _json_seconds(wave.began_ns),
                "endedSeconds": _json_seconds(wave.ended_ns),
                "outcome": wave.outcome,
            }
            for wave in account.waves
        ],
    }


# --- many runs ---------------------------------------------------------------------------------


def many_tables(tally: Tally, journal: Path | None) -> Iterator[RenderableType]:
    """Counts, and every seed that broke something."""
    yield pairs(_tally_rows(tally, journal))
    if tally.broken:
        yield ""
        rows = ((str(each.seed), each.breaches[0].invariant, each.command) for each in tally.broken)
        yield table(("SEED", "BROKE", "TO SEE IT AGAIN"), rows, right=("SEED",))


def _tally_rows(tally: Tally, journal: Path | None) -> Iterator[tuple[str, str]]:
    yield "runs", f"{tally.runs} in {tally.seconds:.1f} s"
    for name, counts in (("shutdowns", tally.outcomes), ("pods by fate", tally.pods)):
        yield name, ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"
    yield "events", str(tally.events)
    if journal is not None:
        yield "kept in", f"{journal}/node-SEED"
    held = f"all {CHECKS} invariants hold in every run"
    yield "checked", f"{len(tally.broken)} runs broke an invariant" if tally.broken else held


def many_document(tally: Tally, journal: Path | None) -> dict[str, Any]:
    """The counts as one JSON document."""
    return {
        "kind": "Simulations",
        "version": VERSION,
        "runs": tally.runs,
        "seconds": round(tally.seconds, 3),
        "outcomes": dict(sorted(tally.outcomes.items())),
        "pods": dict(sorted(tally.pods.items())),
        "events": tally.events,
        "bytes": tally.bytes,
        "journal": None if journal is None else str(journal),
        "invariants": CHECKS,
        "broken": [
            {"seed": each.seed, "command": each.command, "breaches": _breaches(each.breaches)}
            for each in tally.broken
        ],
    }
