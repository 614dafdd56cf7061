"""``ebbtide metrics``: the metrics of the running daemon, or of a journal, without a scrape."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import output_option, runtime_option, socket_option
from ebbtide.options import control_socket

EPILOG = """\b
Examples:
  ebbtide metrics
  ebbtide metrics --journal /mnt/old/journal
  ebbtide metrics -o json | jq .metrics
"""


@click.command(epilog=EPILOG)
@click.option(
    "--journal",
    "journals",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Fold this journal instead of asking the daemon; repeatable, where a failing disk made it move.",
)
@click.option(
    "--kubelet-names", is_flag=True, help="kubelet_ before the names of KEP-2712's and KEP-3960's metrics."
)
@runtime_option
@socket_option
@output_option("prometheus", "json")
def metrics(
    journals: tuple[Path, ...], kubelet_names: bool, runtime: Path, socket: Path | None, output: str
) -> int:
    """Print the metrics as Prometheus's text, or as JSON.

    A journal alone does not know how the node stands: it has no armed, no lock and no pods at risk.
    """
    from ebbtide.cli.metering import show_metrics

    return show_metrics(journals, control_socket(runtime, socket), output, kubelet_names=kubelet_names)
