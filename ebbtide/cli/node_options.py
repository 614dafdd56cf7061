"""Options of the verbs that look at a Kubernetes node: the daemon's own, under the same names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ebbtide.options import MODES, PROCESS, RunOptions

if TYPE_CHECKING:
    from ebbtide.doctor.seen import NodeSeen

F = TypeVar("F", bound=Callable[..., Any])


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


def options_of(
    mode: str | None, *, cri: Path | None, kubeconfig: str | None, node_name: str | None, **others: Any
) -> RunOptions:
    """What ``run`` would be told; the mode is empty where none is given. ``others``: fields of it by name.

    Raises Refused for options that the mode would not use.
    """
    from ebbtide.cli.guard import Refused

    given = {"cri": cri, "kubeconfig": kubeconfig, "node_name": node_name}
    unused = [name for name, value in given.items() if value is not None]
    if mode == PROCESS and unused:
        option = f"--{unused[0].replace('_', '-')}"
        raise Refused(f"{option} is for a Kubernetes node: leave it out, or choose another --mode")
    return RunOptions(mode=mode or "", cri=cri, kubeconfig=kubeconfig, node_name=node_name, **others)


def refuse_unfit(seen: NodeSeen | None, *, looked: bool) -> None:
    """What ``run`` would not begin with is no node to measure or to plan for. ``looked``: it was all the
    same, since only a strict mode refuses it. Raises Refused.
    """
    from ebbtide.cli.guard import Refused

    if seen is not None and seen.unfit and not looked:
        raise Refused(seen.unfit)
