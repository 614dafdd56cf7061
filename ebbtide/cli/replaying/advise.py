"""``ebbtide replay advise``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.pooling import pooled_option

EPILOG = """\b
Examples:
  ebbtide replay advise
  ebbtide replay advise last -o yaml > advice.yaml && ebbtide config check --config advice.yaml
  ebbtide replay advise --journal node-1/journal --journal node-2/journal
  ebbtide replay advise --journal ./fleet -o json | jq '.waves[] | {priority, adviseSeconds}'

\b
A pod that was killed after 20 s needed more than 20 s: it counts as that (censored, Kaplan-Meier), and not as
20 s. A value that the evidence does not reach is "not reached". A workload is what is left of a pod's name
without what tells replicas apart. Times begin with the pod's stop, hooks included.
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@pooled_option("--journal", "journals")
@output_option("table", "json", "yaml")
def advise(episode: str | None, journals: tuple[Path, ...], output: str) -> int:
    """Advise the smallest periods with which every pod would have ended by itself.

    From all shutdowns of all journals named, or from EPISODE alone. With -o yaml only the configuration is
    printed, to be named after the one in force. Exit code 1: no shutdown that stopped a pod is on record.
    """
    from ebbtide.cli.replaying.advise_show import show_advice

    return show_advice(journals, episode, output)
