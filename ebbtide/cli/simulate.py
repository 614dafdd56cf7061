"""``ebbtide simulate``: a whole shutdown in virtual time, on a modelled node."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import click

from ebbtide.cli.options import DURATION, output_option

EPILOG = """\b
Examples:
  ebbtide simulate
  ebbtide simulate --synthetic 110 --seed 7 --journal ./simulated
  ebbtide simulate --config /etc/ebbtide/config.yaml --pods pods/ --behaviour behaviour.yaml
  ebbtide simulate --runs 1000 -o json | jq .broken
  ebbtide simulate --mode api --api-lost-after 5s --journal ./simulated
  ebbtide simulate --synthetic 30 --seeds 1..200 --calm --journal ./fleet

The same options give the same journal, byte for byte, on any machine: nothing but what they name is read.
Every verb that reads works on it.
"""

#: Pods and runs beyond this are a slip of the keyboard.
PODS_MAX, RUNS_MAX, SEED_MAX = 10_000, 1_000_000, 2**63 - 1


class Seeds(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
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


@click.command(epilog=EPILOG)
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A configuration; repeatable, later files win field by field. This machine's own is not read unless"
    " it is named.  [default: waves of 30, 20 and 10 s]",
)
@click.option(
    "--pods",
    multiple=True,
    metavar="FILE|-",
    help="Pods: a Pod, a List, several documents, YAML or JSON, a folder; repeatable.",
)
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
@click.option("--seeds", type=Seeds(), metavar="A..B", help="These seeds, both included.")
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
@click.option("--calm", is_flag=True, help="Nothing goes wrong with the node: no crash, no lost bus, no cut.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the journal here; of several runs each in a folder node-SEED.  [default: it is not kept]",
)
@output_option("table", "json")
def simulate(output: str, **options: Any) -> int:
    """Run a whole shutdown in virtual time on modelled pods, and check it.

    The decisions are the daemon's own, the node is a model: what its pods, logind, runtime and API server do
    comes from --behaviour, or from the seed.

    Exit code 1: an invariant does not hold; the command that shows it again is printed.
    """
    gc.disable()  # what one run loads and makes is used to its end; many runs turn it on again
    from ebbtide.cli.simulating.asked import Asked
    from ebbtide.cli.simulating.running import run

    return run(Asked(**options), output)
