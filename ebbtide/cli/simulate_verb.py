"""``ebbtide simulate``: a whole shutdown in virtual time, on a modelled node; or outages of a failing node.

One seed to look at, or many to find one that breaks an invariant.
"""

from __future__ import annotations

import gc
import shlex
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from ebbtide import __version__
from ebbtide.actors.policy.planning import PlanWarning
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.saving import refuse_existing, write_journal
from ebbtide.cli.common.shared_options import configs_option, given_options, local, output_option, pods_option
from ebbtide.cli.simulate_view import Tally, show_run, show_tally
from ebbtide.replay.sim.scenario import NodeMode
from ebbtide.replay.sim.sim_outage import SimulatedOutage, simulate_outage
from ebbtide.replay.sim.simulate import SYNTHETIC_PODS, Simulated, SimulationRequest, simulate

EPILOG = """\b
Examples:
  ebbtide simulate
  ebbtide simulate --synthetic 110 --seed 7 --journal ./simulated
  ebbtide simulate --config /etc/ebbtide/config.yaml --pods pods/ --behaviour behaviour.yaml
  ebbtide simulate --mode api --seeds 0..999 -o json | jq .broken
  ebbtide simulate --synthetic 30 --seeds 1..200 --calm --journal ./fleet
  ebbtide simulate --outage --seed 5 --journal ./outage && ebbtide replay report --journal ./outage

The same options give the same journal, byte for byte, on any machine: the command reads only the files that
they name. Every reading verb works on the journal.
"""

#: Larger numbers are typing errors.
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
            self.fail(f"{value!r} is an empty or too large range of seeds: write it like 1..200", param, ctx)
        return seeds


@click.command("simulate", epilog=EPILOG)
@configs_option("waves of 30, 20 and 10 s", "config")
@pods_option()
@click.option(
    "--synthetic",
    type=click.IntRange(0, PODS_MAX),
    metavar="N",
    help="Draw N random pods instead.  [default: 30]",
)
@click.option(
    "--behaviour",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="How the pods behave and what happens to the node.  [default: drawn from the seed]",
)
@click.option("--seed", type=click.IntRange(0, SEED_MAX), metavar="N", help="The seed.  [default: 0]")
@click.option("--seeds", type=SeedRange(), metavar="A..B", help="These seeds, both included.")
@click.option(
    "--mode",
    type=click.Choice(("auto", "api", "cri", "observe", "process")),
    help="The daemon's mode: a Kubernetes node with its kubelet and API server, or processes of its own."
    "  [default: process]",
)
@click.option(
    "--outage",
    is_flag=True,
    help="Simulate the outage controller and a node that fails, or seems to, in place of a shutdown. The seed"
    " decides everything.",
)
@click.option("--calm", is_flag=True, help="No fault of the node: no crash, no lost bus, no power cut.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="DIR",
    callback=local,
    help="Keep the journal here; several runs each in a folder node-SEED.  [default: it is not kept]",
)
@output_option("table", "json")
def simulate_command(output: str, **options: Any) -> int:
    """Run a whole shutdown in virtual time on modelled pods, and check it.

    The daemon's own logic decides, or the outage controller's with --outage. The node is a model: --behaviour
    or the seed decides what pods, logind, runtime and API server do.

    Exit code 1: an invariant is broken. The output has the command that repeats the run.
    """
    gc.disable()  # one run needs its memory to the end
    asked = SimulateOptions(**options)
    wanted = asked.wanted()
    if asked.journal is not None:
        refuse_existing(asked.journal, "--journal")
    if asked.seeds is not None:
        return _run_many(asked, wanted, asked.seeds, output)
    seed = asked.seed or 0
    simulated: Simulated | SimulatedOutage
    simulated = simulate_outage(seed, __version__) if asked.outage else simulate(wanted, seed)
    # A failed run leaves no partial journal.
    if asked.journal is not None:
        write_journal(asked.journal, simulated.files())
    return show_run(simulated, asked.command(seed), asked.journal, output)


class SimulateOptions(NamedTuple):
    config: tuple[Path, ...]
    pods: tuple[str, ...]
    synthetic: int | None
    behaviour: Path | None
    mode: str | None
    outage: bool
    calm: bool
    seed: int | None
    seeds: range | None
    journal: Path | None

    def command(self, seed: int) -> str:
        """Repeats one seed."""
        options = self._replace(seed=seed, seeds=None, journal=None)._asdict()
        words = (
            word
            for option, value in given_options(options)
            for word in ((option,) if value is True else (option, str(value)))
        )
        return shlex.join(["ebbtide", "simulate", *words])

    def wanted(self) -> SimulationRequest:
        """Raises Refused, ConfigError, ManifestError, BehaviourError."""
        drawn = self._replace(outage=False, seed=None, journal=None)._asdict()
        for option, _ in given_options(drawn) if self.outage else ():
            raise Refused(f"--outage draws the whole run from --seed: leave {option} out")
        if self.seeds is not None and self.seed is not None:
            raise Refused("--seeds replaces --seed: leave one of them out")
        if self.pods and self.synthetic is not None:
            raise Refused("--pods names the pods: leave --synthetic out")
        if self.behaviour is not None and self.calm:
            raise Refused("--behaviour says what goes wrong: leave --calm out")
        wanted = SimulationRequest(
            version=__version__,
            calm=self.calm,
            synthetic=SYNTHETIC_PODS if self.synthetic is None else self.synthetic,
            # Mode process has no Kubernetes node to model; a file may bring one with it.
            mode="" if self.mode in (None, "process") else cast(NodeMode, self.mode),
        )
        if self.config:
            # This machine's own files would change the journal of a seed.
            from ebbtide.config import load

            loaded = load(self.config)
            wanted = wanted._replace(settings=loaded.settings, sources=dict(loaded.sources))
        if self.pods:
            # Its feature gates decide which manifests are valid.
            from ebbtide.manifests import load_pods

            notes: list[PlanWarning] = []
            wanted = wanted._replace(pods=load_pods(self.pods, wanted.settings, notes))
            for code, message in notes:
                remark(f"{code}: {message}")
        if self.behaviour is not None:
            from ebbtide.cli.simulate_behaviour import load_behaviour

            wanted = wanted._replace(behaviour=load_behaviour(self.behaviour))
        return wanted


PROGRESS_SECONDS = 5.0


def _run_many(asked: SimulateOptions, wanted: SimulationRequest, seeds: range, output: str) -> int:
    gc.enable()  # a thousand runs would fill the memory
    tally = Tally(journal=None if asked.journal is None else str(asked.journal))
    began = reported = time.monotonic()
    for count, seed in enumerate(seeds):
        now = time.monotonic()
        # In a pipe, progress would hide the breaches.
        if now - reported > PROGRESS_SECONDS and sys.stderr.isatty():
            reported = now
            remark(f"{count} of {len(seeds)} runs")
        simulated = simulate(wanted, seed)
        tally.add(simulated, asked.command(seed))
        if asked.journal is not None:
            write_journal(asked.journal / f"node-{seed}", simulated.files())
    tally.seconds = round(time.monotonic() - began, 3)
    return show_tally(tally, output)
