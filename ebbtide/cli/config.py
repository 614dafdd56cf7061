"""``ebbtide config``: is the configuration valid, what holds, and where does each value come from?"""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import DURATION, config_option, need_command, output_option

CHECK_EPILOG = """\b
Examples:
  ebbtide config check
  ebbtide config check --config /var/lib/kubelet/config.yaml --grant 30s
"""

SHOW_EPILOG = """\b
Examples:
  ebbtide config show
  ebbtide config show --config base.yaml --config site.yaml -o yaml
"""


@click.group(invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Check the configuration; show where each value comes from."""
    need_command(ctx)


@config.command(epilog=CHECK_EPILOG)
@config_option
@click.option("--grant", type=DURATION, metavar="DURATION", help="logind's limit; read from it if not given.")
@output_option("table", "json")
def check(configs: tuple[Path, ...], grant: int | None, output: str) -> int:
    """Validate; say whether it can be honoured.

    Exit code 1: valid, but logind grants less than the periods and may not be asked for more.
    """
    from ebbtide.cli.output import show, show_json
    from ebbtide.cli.sources import grant_or_logind, read_config
    from ebbtide.config.view import check as judge
    from ebbtide.config.view import check_json, check_text

    checked = judge(read_config(configs), grant_or_logind(grant))
    if output == "json":
        show_json(check_json(checked))
    else:
        show(check_text(checked))
    return checked.exit_code


@config.command(epilog=SHOW_EPILOG)
@config_option
@output_option("table", "json", "yaml")
def show(configs: tuple[Path, ...], output: str) -> None:
    """Show the effective configuration, and where each value comes from."""
    from ebbtide.cli import output as out
    from ebbtide.cli.sources import read_config
    from ebbtide.config import view

    loaded = read_config(configs)
    if output == "yaml":
        click.echo(view.show_yaml(loaded), nl=False)
    elif output == "json":
        out.show_json(view.show_json(loaded))
    else:
        out.show(view.show_table(loaded))
