"""``ebbtide simulate``: a whole shutdown in virtual time, on a modelled node; or outages of one that dies.

One seed to look at, or many to find one that breaks; where the journal goes; and how a simulation is shown:
its shutdowns, what went wrong on the node, and whether everything held. Of outages: what was true, and what
the controller made of what it was told.
"""

from __future__ import annotations

import gc
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from ebbtide import __version__
from ebbtide.cli.common.guard import DONE, NOT_SO, Refused
from ebbtide.cli.common.output import pairs, remark, show, show_json, table
from ebbtide.cli.common.saving import refuse_existing
from ebbtide.cli.common.selection import cause_document
from ebbtide.cli.common.shared_options import DURATION, local, output_option, pods_option
from ebbtide.events.base import NS_PER_MS
from ebbtide.events.record.causes import cause_groups, headline
from ebbtide.events.record.severity import SEVERITY_SIGNS
from ebbtide.events.record.shutdown_record import ShutdownRecord, wave_outcome_text
from ebbtide.events.units import json_seconds, offset, size_text, span, span_s
from ebbtide.replay.sim.invariants import OF_BOOTS, OF_RUNS, Breach
from ebbtide.replay.sim.scenario import NodeMode
from ebbtide.replay.sim.simulation import SYNTHETIC_PODS, Simulated, SimulationRequest, simulate

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebbtide.replay.sim.sim_outage import SimulatedOutage


EPILOG = """\b
Examples:
  ebbtide simulate
  ebbtide simulate --synthetic 110 --seed 7 --journal ./simulated
  ebbtide simulate --config /etc/ebbtide/config.yaml --pods pods/ --behaviour behaviour.yaml
  ebbtide simulate --runs 1000 -o json | jq .broken
  ebbtide simulate --mode api --api-lost-after 5s --journal ./simulated
  ebbtide simulate --synthetic 30 --seeds 1..200 --calm --journal ./fleet
  ebbtide simulate --outage --seed 5 --journal ./outage && ebbtide replay report --journal ./outage

The same options give the same journal, byte for byte, on any machine: nothing but what they name is read.
Every verb that reads works on it.
"""

#: Pods and runs beyond this are a slip of the keyboard.
PODS_MAX, RUNS_MAX, SEED_MAX = 10_000, 1_000_000, 2**63 - 1


class SeedRange(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
    """``A..B``, both included."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        first, dots, last = str(value).partition("..")
        if not dots or not (first + last).isdecimal() or not (first + last).isascii():
            self.fail(f"{value!r} is no range of seeds: write it like 1..200", param, ctx)
        seeds = range(int(first), int(last) + 1)
        if not seeds or seeds[-1] > SEED_MAX or len(seeds) > RUNS_MAX:
            self.fail(f"{value!r} has no seed, too many or too large ones: write it like 1..200", param, ctx)
        return seeds


@click.command("simulate", epilog=EPILOG)
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A configuration; repeatable, later files win field by field. This machine's own is not read unless"
    " it is named.  [default: waves of 30, 20 and 10 s]",
)
@pods_option()
@click.option(
    "--synthetic",
    type=click.IntRange(0, PODS_MAX),
    metavar="N",
    help="Draw so many pods instead.  [default: 30]",
)
@click.option(
    "--behaviour",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="How the pods behave and what happens to the node.  [default: drawn from the seed]",
)
@click.option("--seed", type=click.IntRange(0, SEED_MAX), metavar="N", help="The seed.  [default: 0]")
@click.option("--runs", type=click.IntRange(1, RUNS_MAX), metavar="N", help="So many seeds, from --seed on.")
@click.option("--seeds", type=SeedRange(), metavar="A..B", help="These seeds, both included.")
@click.option(
    "--mode",
    type=click.Choice(("auto", "api", "cri", "observe", "process")),
    help="The daemon's mode: a Kubernetes node with its kubelet and API server, or processes of its own."
    "  [default: process]",
)
@click.option(
    "--api-lost-after",
    type=DURATION,
    metavar="DURATION",
    help="From so long after the signal the API server does not answer any more; with a node's --mode.",
)
@click.option(
    "--outage",
    is_flag=True,
    help="A node that dies, or seems to, and the controller of outages, in place of a shutdown. All is drawn"
    " from the seed: who lies, what comes back, which leader dies.",
)
@click.option("--calm", is_flag=True, help="Nothing goes wrong with the node: no crash, no lost bus, no cut.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="DIR",
    callback=local,
    help="Keep the journal here; of several runs each in a folder node-SEED.  [default: it is not kept]",
)
@output_option("table", "json")
def simulate_command(output: str, **options: Any) -> int:
    """Run a whole shutdown in virtual time on modelled pods, and check it.

    The decisions are the daemon's own, the node is a model: what its pods, logind, runtime and API server do
    comes from --behaviour, or from the seed. With --outage they are the controller's.

    Exit code 1: an invariant does not hold; the command that shows it again is printed.
    """
    gc.disable()  # what one run loads and makes is used to its end; many runs turn it on again
    asked = SimulateOptions(**options)
    if asked.outage:
        asked.refuse_for_outage()
    wanted = asked.wanted()
    if asked.journal is not None:
        refuse_existing(asked.journal, "--journal")
    if asked.outage:
        return _run_outage(asked, output)
    if asked.runs is not None or asked.seeds is not None:
        return _run_many(asked, wanted, output)
    return _run_one(asked, wanted, output)


class SimulateOptions(NamedTuple):
    """What was asked: as the simulator wants it, and as a command that asks for it again."""

    configs: tuple[Path, ...]
    pods: tuple[str, ...]
    synthetic: int | None
    behaviour: Path | None
    seed: int | None
    runs: int | None
    seeds: range | None
    outage: bool
    calm: bool
    mode: str | None
    api_lost_after: int | None
    journal: Path | None

    def all_seeds(self) -> Sequence[int]:
        """Raises Refused."""
        if self.seeds is not None:
            if self.seed is not None or self.runs is not None:
                raise Refused("--seeds says which seeds: leave --seed and --runs out")
            return self.seeds
        first = self.seed or 0
        return range(first, first + (self.runs or 1))

    def refuse_for_outage(self) -> None:
        """Raises Refused."""
        for name, value in self._asdict().items():
            if name not in ("outage", "seed", "journal") and value not in (None, (), False):
                option = {"configs": "config"}.get(name, name.replace("_", "-"))
                raise Refused(f"--outage draws all of one run from --seed: leave --{option} out")

    def command(self, seed: int) -> str:
        """What shows this one seed again; a journal to look at is a good idea then."""
        options = [
            *(word for path in self.configs for word in ("--config", str(path))),
            *(word for path in self.pods for word in ("--pods", path)),
            *(("--synthetic", str(self.synthetic)) if self.synthetic is not None else ()),
            *(("--behaviour", str(self.behaviour)) if self.behaviour is not None else ()),
            *(("--mode", self.mode) if self.mode is not None else ()),
            *(("--api-lost-after", f"{self.api_lost_after}ns") if self.api_lost_after is not None else ()),
            *(("--outage",) if self.outage else ()),
            *(("--calm",) if self.calm else ()),
        ]
        return shlex.join(["ebbtide", "simulate", *options, "--seed", str(seed)])

    def wanted(self) -> SimulationRequest:
        """Read what the options name. Raises Refused, ConfigError, ManifestError, BehaviourError."""
        if self.pods and self.synthetic is not None:
            raise Refused("--pods says which pods there are: leave --synthetic out")
        if self.behaviour is not None and self.calm:
            raise Refused("--behaviour says what goes wrong: leave --calm out")
        # In mode process there is no Kubernetes node to model; a file may bring one with it.
        mode: NodeMode = "" if self.mode in (None, "process") else cast(NodeMode, self.mode)
        if self.api_lost_after is not None and not (mode or self.behaviour):
            raise Refused(
                "--api-lost-after is about a Kubernetes node: name its --mode auto, api, cri or observe"
            )
        wanted = SimulationRequest(
            version=__version__,
            calm=self.calm,
            synthetic=SYNTHETIC_PODS if self.synthetic is None else self.synthetic,
            mode=mode,
            api_lost_after_ns=self.api_lost_after,
        )
        if self.configs:
            # Only what is named: this machine's own, unasked, would make a seed another journal here.
            from ebbtide.config import load

            loaded = load(self.configs)
            wanted = wanted._replace(settings=loaded.settings, sources=dict(loaded.sources))
        if self.pods:
            # Behind the configuration: its feature gates decide what a manifest may say.
            from ebbtide.manifests import load_pods

            wanted = wanted._replace(pods=load_pods(self.pods, wanted.settings))
        if self.behaviour is not None:
            from ebbtide.cli.simulate_behaviour import load_behaviour

            wanted = wanted._replace(behaviour=load_behaviour(self.behaviour))
        return wanted


#: How often a long run says where it is.
PROGRESS_SECONDS = 5.0


def _run_one(asked: SimulateOptions, wanted: SimulationRequest, output: str) -> int:
    # Simulated before anything is written: a run that fails leaves no half of a journal behind.
    (seed,) = asked.all_seeds()
    simulated = simulate(wanted, seed)
    if asked.journal is not None:
        write_journal(asked.journal, simulated.files())
    if output == "json":
        show_json(run_document(simulated, asked.command(seed), asked.journal))
    else:
        for table in run_tables(simulated, asked.journal):
            show(table)
    _remark_breaches(asked, simulated)
    if asked.journal is None and output == "table":
        remark("the journal was not kept: name a directory for it with --journal")
    return NOT_SO if simulated.breaches else DONE


def _run_outage(asked: SimulateOptions, output: str) -> int:
    from ebbtide.replay.sim.sim_outage import simulate_outage

    (seed,) = asked.all_seeds()
    simulated = simulate_outage(seed, __version__)
    if asked.journal is not None:
        write_journal(asked.journal, simulated.files())
    if output == "json":
        show_json(outage_document(simulated, asked.command(seed), asked.journal))
    else:
        for table in outage_tables(simulated, asked.journal):
            show(table)
    _remark_breaches(asked, simulated)
    if asked.journal is None and output == "table":
        remark("the journal was not kept: name a directory for it with --journal")
    return NOT_SO if simulated.breaches else DONE


def _run_many(asked: SimulateOptions, wanted: SimulationRequest, output: str) -> int:
    gc.enable()  # a thousand runs would not fit
    tally, seeds = Tally(), asked.all_seeds()
    began = said = time.monotonic()
    for count, seed in enumerate(seeds):
        now = time.monotonic()
        # In a pipe nobody waits for it, and it would only be in the way of what breaks.
        if now - said > PROGRESS_SECONDS and sys.stderr.isatty():
            said = now
            remark(f"{count} of {len(seeds)} runs")
        simulated = simulate(wanted, seed)
        tally.add(simulated, asked.command(simulated.seed))
        _remark_breaches(asked, simulated)
        if asked.journal is not None:
            write_journal(asked.journal / f"node-{simulated.seed}", simulated.files())
    tally.seconds = time.monotonic() - began
    if output == "json":
        show_json(many_document(tally, asked.journal))
    else:
        for table in many_tables(tally, asked.journal):
            show(table)
    return NOT_SO if tally.broken else DONE


def _remark_breaches(asked: SimulateOptions, simulated: Simulated | SimulatedOutage) -> None:
    """Each breach of an invariant, and the command that shows it again."""
    if not simulated.breaches:
        return
    seed = simulated.seed
    for breach in simulated.breaches[:BREACHES_SHOWN]:
        remark(f"seed {seed}: {breach.invariant}: {breach.sentence}")
    if len(simulated.breaches) > BREACHES_SHOWN:
        remark(f"seed {seed}: and {len(simulated.breaches) - BREACHES_SHOWN} more")
    remark(f"to see it again: {asked.command(seed)} --journal simulated-{seed}")


#: As the daemon's own journal (`events.disk`).
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


def write_journal(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the segments. Raises OSError."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    for name, data in files.items():
        path = directory / name
        path.touch(mode=FILE_MODE)
        path.write_bytes(data)


# --- what many runs come to --------------------------------------------------------------------


class BrokenSeed(NamedTuple):
    """A seed with what did not hold, and the command that shows it again."""

    seed: int
    breaches: list[Breach]
    command: str


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
            self.broken.append(BrokenSeed(simulated.seed, simulated.breaches, command))


SIMULATION_VERSION = 1

#: Every invariant, and that the journal reads back and replays.
CHECKS_COUNT = len(OF_BOOTS) + len(OF_RUNS) + 2

#: Breaches of one run that are named: what breaks one invariant mostly breaks it again and again.
BREACHES_SHOWN = 10

#: Happenings that nobody wishes for, by their names in the world's log.
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

#: What is told of a kubelet that is not as it should be, before anything happens.
KUBELETS = {
    "away": "the kubelet is away",
    "stays": "the kubelet stays, whatever it is told",
    "slow": "the kubelet is slow to stop",
}

POWER_CUT = "power cut"


def pod_outcomes(shutdown: ShutdownRecord) -> Counter[str]:
    return Counter(pod.outcome or "unknown" for pod in shutdown.pods)


def most_common_text(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"


# --- one run -----------------------------------------------------------------------------------


def run_tables(simulated: Simulated, journal: Path | None) -> Iterator[RenderableType]:
    """The run, then each of its shutdowns with its waves."""
    shutdowns, breaches = list(simulated.shutdown_records()), simulated.breaches
    written, files = simulated.machine.journal, simulated.files()
    rows = [
        ("seed", str(simulated.seed)),
        ("pods", str(len(simulated.machine.plan.pods))),
        ("went wrong", "; ".join(_misfortunes(simulated)) or "nothing on the node itself"),
    ]
    if not shutdowns:
        rows.append(("shutdowns", "none: graceful shutdown is off in this configuration"))
    length = sum(map(len, files.values()))
    rows.append(("journal", f"{len(written.records)} events, {len(files)} segments, {size_text(length)}"))
    rows.append(("head", written.head.hex()))
    if journal is not None:
        rows.append(("kept in", str(journal)))
    held = f"it verifies identical, and all {CHECKS_COUNT} invariants hold"
    broken = f"{len(breaches)} breaches of {len({each.invariant for each in breaches})} invariants"
    yield pairs([*rows, ("checked", broken if breaches else held)])
    for shutdown in shutdowns:
        yield ""
        by = shutdown.by
        over = ", handed over to the runtime" if by.handed_over_ns is not None else ""
        budget, grant = span(shutdown.budget_ns), span(shutdown.grant_ns)
        yield pairs(
            [
                ("shutdown", shutdown.id),
                ("verdict", f"{SEVERITY_SIGNS[shutdown.severity]} {headline(shutdown)}"),
                ("kind", shutdown.kind),
                *([("means", f"{by.means}{over}: {by.reason}")] if by.means else []),
                ("outcome", shutdown.outcome),
                ("took", "it was cut short" if shutdown.ended_ns is None else span(shutdown.ended_ns)),
                ("budget", f"{budget} of a grant of {grant}"),
                ("pods by fate", most_common_text(pod_outcomes(shutdown))),
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


def _misfortunes(simulated: Simulated) -> Iterator[str]:
    """What happened to the node, with the time since its shutdown's signal."""
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
            # A machine that goes down at the end of its shutdown is what was asked for.
            text = "the power was cut" if seen.detail == POWER_CUT else ""
        elif seen.what == "crash" and seen.detail != "by the plan":
            # A power cut takes the daemon with it, and is named already.
            text = ""
        if text:
            yield f"{text} at {offset(seen.at_ns - signal_ns)}"


def run_document(simulated: Simulated, command: str, journal: Path | None) -> dict[str, Any]:
    """The whole run as one JSON document; durations in seconds."""
    files = simulated.files()
    return {
        "kind": "Simulation",
        "version": SIMULATION_VERSION,
        "seed": simulated.seed,
        "command": command,
        "node": simulated.machine.plan.node,
        "pods": len(simulated.machine.plan.pods),
        "misfortunes": list(_misfortunes(simulated)),
        "shutdowns": [
            {
                "id": shutdown.id,
                "traceId": shutdown.trace_id,
                "kind": shutdown.kind,
                "means": shutdown.by.means,
                "handedOver": shutdown.by.handed_over_ns is not None,
                "outcome": shutdown.outcome,
                "severity": shutdown.severity,
                "headline": headline(shutdown),
                "causes": [cause_document(shutdown, group) for group in cause_groups(shutdown)],
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
            for shutdown in simulated.shutdown_records()
        ],
        "events": len(simulated.machine.journal.records),
        "bytes": sum(map(len, files.values())),
        "journalId": simulated.machine.journal.journal_id.hex(),
        "head": simulated.machine.journal.head.hex(),
        "journal": None if journal is None else str(journal),
        "invariants": CHECKS_COUNT,
        "breaches": _breach_documents(simulated.breaches),
    }


def _breach_documents(breaches: list[Breach]) -> list[dict[str, str]]:
    return [each._asdict() for each in breaches]


# --- outages -----------------------------------------------------------------------------------


def outage_tables(simulated: SimulatedOutage, journal: Path | None) -> Iterator[RenderableType]:
    """What was true, then what is on record."""
    from ebbtide.replay.report.outage_page import headline as outage_headline

    written, files = simulated.journal, simulated.files()
    length = sum(map(len, files.values()))
    rows = [
        ("seed", str(simulated.seed)),
        ("journal", f"{len(written.records)} events, {len(files)} segments, {size_text(length)}"),
        ("head", written.head.hex()),
    ]
    if journal is not None:
        rows.append(("kept in", str(journal)))
    broken = simulated.breaches[0].sentence if simulated.breaches else ""
    yield pairs([*rows, ("checked", broken or "it verifies identical")])
    yield ""
    happened = ((offset(at_ms * NS_PER_MS), what) for at_ms, what in simulated.world.happened)
    yield table(("WHEN", "WHAT WAS TRUE"), happened, right=("WHEN",))
    yield ""
    records = (
        (offset(record.started_mono_ns), record.outcome, outage_headline(record), record.proof)
        for record in simulated.outage_records()
    )
    yield table(("BEGAN", "OUTCOME", "ON RECORD", "PROOF"), records, right=("BEGAN",))


def outage_document(simulated: SimulatedOutage, command: str, journal: Path | None) -> dict[str, Any]:
    """The whole run as one JSON document; times in seconds since its begin, durations in seconds."""
    from ebbtide.replay.report.outage_page import headline as outage_headline

    written = simulated.journal
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
        "events": len(written.records),
        "bytes": sum(map(len, simulated.files().values())),
        "journalId": written.journal_id.hex(),
        "head": written.head.hex(),
        "journal": None if journal is None else str(journal),
        "breaches": _breach_documents(simulated.breaches),
    }


# --- many runs ---------------------------------------------------------------------------------


def many_tables(tally: Tally, journal: Path | None) -> Iterator[RenderableType]:
    """Counts, and every seed that broke something."""
    held = f"all {CHECKS_COUNT} invariants hold in every run"
    yield pairs(
        [
            ("runs", f"{tally.runs} in {span_s(tally.seconds)}"),
            ("shutdowns", most_common_text(tally.outcomes)),
            ("pods by fate", most_common_text(tally.pods)),
            ("events", str(tally.events)),
            *([("kept in", f"{journal}/node-SEED")] if journal is not None else []),
            ("checked", f"{len(tally.broken)} runs broke an invariant" if tally.broken else held),
        ]
    )
    if tally.broken:
        yield ""
        rows = ((str(each.seed), each.breaches[0].invariant, each.command) for each in tally.broken)
        yield table(("SEED", "BROKE", "TO SEE IT AGAIN"), rows, right=("SEED",))


def many_document(tally: Tally, journal: Path | None) -> dict[str, Any]:
    """The counts as one JSON document."""
    return {
        "kind": "Simulations",
        "version": SIMULATION_VERSION,
        "runs": tally.runs,
        "seconds": round(tally.seconds, 3),
        "outcomes": dict(sorted(tally.outcomes.items())),
        "pods": dict(sorted(tally.pods.items())),
        "events": tally.events,
        "bytes": tally.bytes,
        "journal": None if journal is None else str(journal),
        "invariants": CHECKS_COUNT,
        "broken": [
            {"seed": each.seed, "command": each.command, "breaches": _breach_documents(each.breaches)}
            for each in tally.broken
        ],
    }
