"""``ebbtide hurry``, ``release`` and ``view``: requests to the running daemon.

The first two become facts in the journal, with the caller's uid. ``kubectl ebbtide`` executes the third
beside the daemon (`ebbtide.view_socket`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ebbtide.cli.common.shared_options import runtime_option
from ebbtide.options import control_socket

HURRY_EPILOG = """\b
Examples:
  sudo ebbtide hurry web-0
  sudo ebbtide hurry shop/db-0
"""

RELEASE_EPILOG = """\b
Examples:
  sudo ebbtide release
"""


@click.command(epilog=HURRY_EPILOG)
@click.argument("pod")
@runtime_option
def hurry(pod: str, runtime: Path) -> None:
    """Stop waiting for POD: its grace ends now.

    POD is namespace/name, a UID, or a unique name. The pod keeps the 2 s between stop signal and SIGKILL.
    """
    from ebbtide.control import ask
    from ebbtide.events.record.format import visible

    # Without a signal of our own: the daemon decides, so that the journal has the caller and a replay gives
    # the same end.
    ask("hurry", control_socket(runtime), pod=pod)
    click.echo(f"asked: {visible(pod)} is not waited for any longer")


@click.command(epilog=RELEASE_EPILOG)
@runtime_option
def release(runtime: Path) -> None:
    """Let the machine go now, whatever still runs."""
    from ebbtide.control import ask

    ask("release", control_socket(runtime))
    click.echo("asked: the machine may go")


VIEW_EPILOG = """\b
Examples:
  sudo ebbtide view status
  sudo ebbtide view timeline last --pod=shop/web-0 --output=json
"""


@click.command(epilog=VIEW_EPILOG, context_settings={"ignore_unknown_options": True})
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
