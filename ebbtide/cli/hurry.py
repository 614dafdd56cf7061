"""``ebbtide hurry`` and ``ebbtide release``: a person's requests in mid-shutdown.

Both become facts in the journal, with the caller's uid, and replay like any other.
"""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.common.shared_options import runtime_option, socket_option
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
@socket_option
@runtime_option
def hurry(pod: str, socket: Path | None, runtime: Path) -> None:
    """Stop waiting for POD: its grace ends now.

    POD is namespace/name, a UID, or a unique name. The pod keeps the 2 s between stop signal and SIGKILL.
    """
    from ebbtide.control import ask
    from ebbtide.events.record.format import visible

    # Over the socket, without a signal of our own: the daemon decides, so that the journal has the caller
    # and a replay gives the same end.
    ask("hurry", control_socket(runtime, socket), pod=pod)
    click.echo(f"asked: {visible(pod)} is not waited for any longer")


@click.command(epilog=RELEASE_EPILOG)
@socket_option
@runtime_option
def release(socket: Path | None, runtime: Path) -> None:
    """Let the machine go now, whatever still runs."""
    from ebbtide.control import ask

    ask("release", control_socket(runtime, socket))
    click.echo("asked: the machine may go")
