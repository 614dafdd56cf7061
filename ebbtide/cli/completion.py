"""``ebbtide completion``: the script with which a shell completes commands, options and paths."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  ebbtide completion bash > /etc/bash_completion.d/ebbtide
  ebbtide completion zsh > "${fpath[1]}/_ebbtide"
  ebbtide completion fish > ~/.config/fish/completions/ebbtide.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    from click.shell_completion import get_completion_class

    from ebbtide.cli.app import cli

    maker = get_completion_class(shell)
    assert maker is not None, "click knows the three shells"
    click.echo(maker(cli, {}, "ebbtide", "_EBBTIDE_COMPLETE").source())
