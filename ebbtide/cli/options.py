"""Options that several commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ebbtide.options import JOURNAL_PATH, RUNTIME_PATH

F = TypeVar("F", bound=Callable[..., Any])


if TYPE_CHECKING:
    Parameter = click.ParamType[int]
else:
    # Older versions of click have no type arguments.
    Parameter = click.ParamType


def need_command(ctx: click.Context) -> None:
    """A group without a command shows what there is, and has done nothing (the same in every click)."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


class Duration(Parameter):
    """A Go duration, as the kubelet's configuration has them; in nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from ebbtide.config.durations import parse_duration

        try:
            duration_ns = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration_ns < 0:
            self.fail(f"{value} is negative: a duration starts at 0s", param, ctx)
        return duration_ns


DURATION = Duration()


def config_option(command: F) -> F:
    return click.option(
        "--config",
        "configs",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A configuration; repeatable, later files win field by field."
        "  [default: /etc/ebbtide/config.yaml]",
    )(command)


def journal_option(command: F) -> F:
    return click.option(
        "--journal",
        type=click.Path(path_type=Path),
        default=JOURNAL_PATH,
        show_default=True,
        metavar="DIR",
        help="The journal.",
    )(command)


def runtime_option(command: F) -> F:
    return click.option(
        "--runtime",
        type=click.Path(path_type=Path),
        default=RUNTIME_PATH,
        show_default=True,
        metavar="DIR",
        help="Where the daemon keeps what goes with the boot: its socket, its pods' records.",
    )(command)


def socket_option(command: F) -> F:
    return click.option(
        "--socket",
        type=click.Path(path_type=Path),
        default=None,
        metavar="PATH",
        help="The daemon's control socket.  [default: ebbtide.sock in the runtime directory]",
    )(command)


def output_option(*formats: str) -> Callable[[F], F]:
    """``-o``; the first format is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print the result.",
    )
