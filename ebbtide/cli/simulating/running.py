"""Running what was asked: one seed to look at, or many to find one that breaks."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator

from ebbtide.cli.guard import DONE, NOT_SO
from ebbtide.cli.output import remark, show, show_json
from ebbtide.cli.simulating.asked import Asked
from ebbtide.cli.simulating.keeping import free, keep
from ebbtide.cli.simulating.show import document, lines_of_breaches, many_document, many_tables, tables
from ebbtide.cli.simulating.tally import Tally
from replay.virtual.simulate import Simulated, Wanted, simulate

#: How often a long run says where it is.
PROGRESS_SECONDS = 5.0


def run(asked: Asked, output: str) -> int:
    """The exit code. Raises Refused and what reading the files raises."""
    wanted = asked.wanted()
    if asked.journal is not None:
        free(asked.journal)
    return (_many if asked.several else _one)(asked, wanted, output)


def _one(asked: Asked, wanted: Wanted, output: str) -> int:
    (seed,) = asked.all_seeds()
    simulated = simulate(wanted, seed)
    if asked.journal is not None:
        keep(asked.journal, simulated.files())
    if output == "json":
        show_json(document(simulated, asked.command(seed), asked.journal))
    else:
        for table in tables(simulated, asked.journal):
            show(table)
    _complain(asked, simulated)
    if asked.journal is None and output == "table":
        remark("the journal was not kept: name a directory for it with --journal")
    return NOT_SO if simulated.breaches else DONE


def _many(asked: Asked, wanted: Wanted, output: str) -> int:
    gc.enable()
    tally = Tally()
    began = time.monotonic()
    for simulated in _all(asked, wanted):
        tally.add(simulated, asked.command(simulated.seed))
        _complain(asked, simulated)
        if asked.journal is not None:
            keep(asked.journal / f"node-{simulated.seed}", simulated.files())
    tally.seconds = time.monotonic() - began
    if output == "json":
        show_json(many_document(tally, asked.journal))
    else:
        for table in many_tables(tally, asked.journal):
            show(table)
    return NOT_SO if tally.broken else DONE


def _all(asked: Asked, wanted: Wanted) -> Iterator[Simulated]:
    """One after the other; on a terminal it is said how far it is."""
    seeds = asked.all_seeds()
    told = time.monotonic()
    for count, seed in enumerate(seeds):
        now = time.monotonic()
        if now - told > PROGRESS_SECONDS and sys.stderr.isatty():
            told = now
            remark(f"{count} of {len(seeds)} runs")
        yield simulate(wanted, seed)


def _complain(asked: Asked, simulated: Simulated) -> None:
    """A seed that breaks an invariant names the command that shows it again."""
    if simulated.breaches:
        for line in lines_of_breaches(simulated, asked.command(simulated.seed)):
            remark(line)
