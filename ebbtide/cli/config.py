"""``ebbtide config``: is the configuration valid, and where does each value come from?"""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.common.guard import NOT_SO
from ebbtide.cli.common.output import show, show_json
from ebbtide.cli.common.shared_options import config_option, grant_option, need_command, output_option
from ebbtide.cli.config_view import (
    check_configuration,
    check_document,
    check_text,
    configuration_json,
    configuration_table,
    configuration_yaml,
)
from ebbtide.config.loading import load_named

CHECK_EPILOG = """\b
Examples:
  ebbtide config check
  ebbtide config check --config /var/lib/kubelet/config.yaml --grant 30s
  ebbtide config check --config site.yaml --require-enabled     # in a pipeline
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


@config.command("check", epilog=CHECK_EPILOG)
@config_option
@grant_option
@click.option(
    "--require-enabled",
    "required",
    is_flag=True,
    help="Exit code 1 also where graceful shutdown is off: for a gate that protects nodes.",
)
@output_option("table", "json")
def check_command(configs: tuple[Path, ...], grant: int | None, required: bool, output: str) -> int:
    """Validate, and check whether logind's limit allows it.

    Exit code 1: valid, but logind grants less than the periods and must not be changed. Where logind does
    not answer, name its limit with --grant.
    """
    from ebbtide.node import logind_grant_ns

    # With --grant the limit can be another machine's: a pipeline checks the files of a whole fleet.
    checked = check_configuration(load_named(configs), logind_grant_ns() if grant is None else grant)
    if output == "json":
        show_json(check_document(checked))
    else:
        show(check_text(checked))
    return NOT_SO if required and not checked.enabled else checked.exit_code


@config.command("show", epilog=SHOW_EPILOG)
@config_option
@output_option("table", "json", "yaml")
def show_command(configs: tuple[Path, ...], output: str) -> None:
    """Show the effective configuration, and where each value comes from."""
    loaded = load_named(configs)
    if output == "yaml":
        click.echo(configuration_yaml(loaded), nl=False)
    elif output == "json":
        show_json(configuration_json(loaded))
    else:
        show(configuration_table(loaded))
