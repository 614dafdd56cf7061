"""Options of several commands.

Imports only click: ``ebbtide --help`` and the daemon import this module too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.options import JOURNAL_PATH, MODES, PROCESS, RUNTIME_PATH, RunOptions

if TYPE_CHECKING:
    Parameter = click.ParamType[int]
else:
    # Older versions of click have no type arguments.
    Parameter = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., int]


def need_command(ctx: click.Context) -> None:
    """A group without a command shows its help, in every version of click."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


class Duration(Parameter):
    """As in the kubelet's configuration; in nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from ebbtide.config.fields import parse_duration

        try:
            duration_ns = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration_ns < 0:
            self.fail(f"{value} is negative: a duration starts at 0s", param, ctx)
        return duration_ns


DURATION = Duration()


def given_options(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """For a command line: True for a flag, a repeatable option each time."""
    for name, value in options.items():
        for each in value if isinstance(value, tuple) else (value,):
            # Not by equality: 0 is given.
            if each is not None and each is not False and each != "":
                yield f"--{name}", each


def output_option(*formats: str) -> Callable[[F], F]:
    """The first format is the default. Verbs that write a file use `saving.file_option`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print the result.",
    )


class EpisodeCommand(click.Command):
    """``-2`` is the name of a shutdown and no option.

    The look-up of the EPISODE refuses other unknown words with one dash. Unknown words with two dashes are
    refused as options.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"context_settings": {"ignore_unknown_options": True}, **kwargs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = [name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)]
        for arg in args[: args.index("--") if "--" in args else None]:
            name = arg.partition("=")[0]
            if name.startswith("--") and name not in known:
                from difflib import get_close_matches

                raise click.NoSuchOption(name, possibilities=get_close_matches(name, known, n=1), ctx=ctx)
        return super().parse_args(ctx, args)


#: By far the most frequent choice.
EPISODE = click.argument("episode", default="last")
OPTIONAL_EPISODE = click.argument("episode", required=False)


def episode_verb(
    name: str, epilog: str, *formats: str, episode: Callable[[Function], Function] = EPISODE
) -> Callable[[Function], click.Command]:
    """``formats``: of ``-o``; a verb that writes a file has its own."""

    def make(function: Function) -> click.Command:
        command = click.command(name, epilog=epilog, cls=EpisodeCommand)(episode(journals_option(function)))
        return output_option(*formats)(command) if formats else command

    return make


count_option = click.option(
    "-n", "count", type=click.IntRange(min=1), default=None, metavar="N", help="At most N rows."
)

wave_option = click.option(
    "--wave", type=click.IntRange(min=0), default=None, metavar="N", help="Only this wave."
)


def configs_option(default: str, name: str = "configs") -> Callable[[F], F]:
    """``default``: for its help."""
    return click.option(
        "--config",
        name,
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"A configuration; repeatable, later files win field by field.  [default: {default}]",
    )


config_option = configs_option("/etc/ebbtide/config.yaml")

grant_option = click.option(
    "--grant", type=DURATION, metavar="DURATION", help="logind's limit.  [default: as logind reports it]"
)


def pods_option(default: str = "") -> Callable[[F], F]:
    return click.option(
        "--pods",
        multiple=True,
        metavar="FILE|-",
        help=f"Pods and workloads: lists, documents, charts, YAML or JSON, a folder; repeatable.{default}",
    )


#: A journal in the API server (`ebbtide.cli.common.reading`).
SCHEME = "configmaps:"


def is_stored(place: Path) -> bool:
    return str(place).startswith(SCHEME)


def local(context: click.Context, option: click.Parameter, place: Path | None) -> Path | None:
    """For a ``--journal`` to write, or of this machine's daemon. Raises Refused."""
    if place is not None and is_stored(place):
        raise Refused(f"{place} is a journal of outages, in the API server: name a directory of this machine")
    return place


journal_option = click.option(
    "--journal",
    type=click.Path(path_type=Path),
    default=JOURNAL_PATH,
    show_default=True,
    metavar="DIR",
    callback=local,
    help="The journal.",
)

runtime_option = click.option(
    "--runtime",
    type=click.Path(path_type=Path),
    default=RUNTIME_PATH,
    show_default=True,
    metavar="DIR",
    help="The daemon's files that a reboot removes: its socket, its pods' records.",
)

#: By field of `RunOptions`.
_OPTIONS: dict[str, Callable[[Function], Function]] = {
    "config": configs_option("/etc/ebbtide/config.yaml", "config"),
    "journal": journal_option,
    "runtime": runtime_option,
    "mode": click.option(
        "--mode",
        type=click.Choice(MODES),
        help="Judge for this mode.  [default: the daemon's last mode, else as detected]",
    ),
    "cri": click.option(
        "--cri",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="The container runtime's socket.  [default: containerd's or CRI-O's own]",
    ),
    "kubeconfig": click.option(
        "--kubeconfig",
        metavar="PATH",
        help="Credentials for the API server: a file, or in-cluster for the pod's service account."
        "  [default: /etc/ebbtide/kubeconfig, or the kubelet's]",
    ),
    "node_name": click.option(
        "--node-name",
        metavar="NAME",
        help="This Node's name in the API.  [default: EBBTIDE_NODE_NAME, or the host name in lower case]",
    ),
}
OF_NODE = ("config", "runtime", "mode", "cri", "kubeconfig", "node_name")


def run_options(*names: str) -> Callable[[Function], Function]:
    """These fields of `RunOptions` as one ``options``; its mode is empty if absent."""

    def decorate(command: Function) -> Function:
        @wraps(command)
        def with_options(**given: Any) -> int:
            options = RunOptions(**{name: given.pop(name) for name in names})
            if options.mode == PROCESS and "mode" in names:
                refuse_node_options(options)
            return command(options=options._replace(mode=options.mode or ""), **given)

        made: Function = with_options
        for name in reversed(names):
            made = _OPTIONS[name](made)
        return made

    return decorate


def paths_option(text: str, option: str = "--journal", name: str = "journals") -> Callable[[F], F]:
    """``text``: for its help."""
    path = click.Path(path_type=Path)
    return click.option(option, name, multiple=True, type=path, metavar="DIR", help=text)


#: Places of one journal, after it moved.
journals_option = paths_option(
    "A journal's directory, or a packed journal; repeatable if a failing disk made it move. For outages"
    " also configmaps:NAMESPACE/NODE (the Node's name or UID)."
    f"  [default: {JOURNAL_PATH} and the configured fallbacks]",
)
#: Each place may have another node's journal (`JournalPool`).
pooled_journals_option = paths_option(
    "A node's journal, or a folder of journals; repeatable, for a fleet."
    f"  [default: {JOURNAL_PATH} and the configured fallbacks]",
)


def refuse_node_options(options: RunOptions) -> None:
    """Mode process has no Kubernetes node: ignored options would mislead their author. Raises Refused."""
    for name in ("cri", "kubeconfig", "node_name"):
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise Refused(f"{option} is for a Kubernetes node: leave it out, or choose another --mode")
