"""Options that several commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ebbtide.options import JOURNAL_PATH, MODES, PROCESS, RUNTIME_PATH, RunOptions

if TYPE_CHECKING:
    from ebbtide.doctor.snapshot import NodeSnapshot


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


# Options of the verbs that look at a Kubernetes node: the daemon's own, under the same names.


def node_options(command: F) -> F:
    """``--mode``, ``--cri``, ``--kubeconfig``, ``--node-name``; each None where it is not given."""
    for option in (
        click.option(
            "--node-name",
            metavar="NAME",
            help="This Node's name in the API.  [default: EBBTIDE_NODE_NAME, or the host name in lower case]",
        ),
        click.option(
            "--kubeconfig",
            metavar="PATH",
            help="Who we are for the API server: a file, or in-cluster."
            "  [default: /etc/ebbtide/kubeconfig, or the kubelet's]",
        ),
        click.option(
            "--cri",
            type=click.Path(path_type=Path),
            metavar="PATH",
            help="The container runtime's socket.  [default: containerd's or CRI-O's own]",
        ),
        click.option(
            "--mode",
            type=click.Choice(MODES),
            help="Judge for this mode.  [default: the daemon's last one, else what this machine looks like]",
        ),
    ):
        command = option(command)
    return command


def run_options(
    mode: str | None, *, cri: Path | None, kubeconfig: str | None, node_name: str | None, **others: Any
) -> RunOptions:
    """What ``run`` would be told; the mode is empty where none is given. ``others``: fields of it by name.

    Raises Refused for options that the mode would not use.
    """
    from ebbtide.cli.common.guard import Refused

    given = {"cri": cri, "kubeconfig": kubeconfig, "node_name": node_name}
    unused = [name for name, value in given.items() if value is not None]
    if mode == PROCESS and unused:
        option = f"--{unused[0].replace('_', '-')}"
        raise Refused(f"{option} is for a Kubernetes node: leave it out, or choose another --mode")
    return RunOptions(mode=mode or "", cri=cri, kubeconfig=kubeconfig, node_name=node_name, **others)


def refuse_unfit(seen: NodeSnapshot | None, *, looked: bool) -> None:
    """What ``run`` would not begin with is no node to measure or to plan for. ``looked``: it was all the
    same, since only a strict mode refuses it. Raises Refused.
    """
    from ebbtide.cli.common.guard import Refused

    if seen is not None and seen.unfit and not looked:
        raise Refused(seen.unfit)
