"""``ebbtide view``: the command that ``kubectl ebbtide`` executes beside the daemon
(`ebbtide.view_socket`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ebbtide.cli.common.shared_options import runtime_option

EPILOG = """\b
Examples:
  sudo ebbtide view status
  sudo ebbtide view timeline last --pod=shop/web-0 --output=json
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@runtime_option
@click.argument(
    "words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="QUESTION [--NAME=VALUE]..."
)
def view(runtime: Path, words: tuple[str, ...]) -> int:
    """Ask the daemon's read-only socket for status, plan, doctor or timeline.

    The answer is the command's output and exit code on its node, for the daemon's own journal,
    configuration and pods. People use 'kubectl ebbtide', or the command itself.
    """
    from ebbtide.control import ask
    from ebbtide.view_socket import CLIENT_SECONDS_MAX, view_socket

    answer = ask("view", view_socket(runtime), seconds_max=CLIENT_SECONDS_MAX, words=words)
    sys.stdout.write(answer["out"])
    sys.stdout.flush()
    sys.stderr.write(answer["err"])
    code: int = answer["code"]
    return code
