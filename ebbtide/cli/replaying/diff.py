"""``ebbtide replay diff``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay diff -2 last
  ebbtide replay diff last last --other /mnt/node-7/journal
  ebbtide replay diff -2 -1 -o json | jq '.changes[] | select(.section == "pod")'

\b
Pods are paired by namespace and name, then by what is left of a name without the endings that Kubernetes
draws (web-5d4f8c7b9-x2k4z is the successor of web-6c9f7d8b5-q7zwt); waves by their priority. Times count
as the same below a millisecond.
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("a")
@click.argument("b")
@journals_option
@click.option(
    "--other",
    "others",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The journal that B is in, where it is another one; repeatable.",
)
@click.option("-n", "count", type=click.IntRange(min=1), default=None, metavar="N", help="Only so many.")
@output_option("table", "json")
def diff(
    a: str, b: str, journals: tuple[Path, ...], others: tuple[Path, ...], count: int | None, output: str
) -> int:
    """Compare two shutdowns: what took longer in B, and what else has changed.

    A and B are last, -1, -2, …, or ids. They are aligned by pod and wave, not by the sequence of events.
    The exit code says nothing of whether they differ.
    """
    from ebbtide.cli.replaying.diff_show import show_diff

    return show_diff((journals, a), (others or journals, b), count, output)
