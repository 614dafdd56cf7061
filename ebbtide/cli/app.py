"""The list of commands, each imported on use: ``--help`` imports none."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from ebbtide import __version__
from ebbtide.cli.common.guard import ReaderGone
from ebbtide.cli.common.shared_options import need_command


class Entry(NamedTuple):
    """``target``: ``module:attribute`` below ``ebbtide.cli``."""

    target: str
    text: str


Sections = Mapping[str, Mapping[str, Entry]]


class LazyGroup(click.Group):
    """``sections``: the commands by title, in the order of ``--help``."""

    def __init__(self, *args: Any, sections: Sections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = self.entries.get(name)
        if entry is None:
            return None
        module, attribute = entry.target.split(":")
        command: click.Command = getattr(import_module(f"ebbtide.cli.{module}"), attribute)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in self.entries and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = " or ".join(get_close_matches(args[0], self.entries, n=2))
            ctx.fail(f"no such command {args[0]!r}{f' (did you mean {near}?)' if near else ''}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            # At the interpreter's end, a missing reader would cause a traceback.
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        return answer

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # For all sections, to align their texts.
        width = max(map(len, self.entries))
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.text) for name, entry in entries.items()])


SECTIONS: dict[str, dict[str, Entry]] = {
    "See it": {
        "demo": Entry("demo:demo", "A whole shutdown in front of your eyes, on this machine, under 20 s."),
        "plan": Entry("plan:plan", "What a shutdown now would do, and why."),
        "simulate": Entry(
            "simulate_verb:simulate_command", "A whole shutdown in virtual time, on a modelled node."
        ),
    },
    "Run it": {
        "run": Entry("run:run", "The daemon: arm, wait, carry shutdowns out."),
        "doctor": Entry("doctor:doctor", "What would make the next shutdown less graceful."),
        "status": Entry("status:status", "Armed or not, the lock, the grant, the last shutdown."),
        "metrics": Entry("metrics:metrics", "The metrics, as Prometheus reads them."),
        "view": Entry(
            "daemon_requests:view", "Ask the daemon's read-only socket, as 'kubectl ebbtide' does."
        ),
        "config": Entry("config:config", "Check the configuration; show where each value comes from."),
        "uninstall": Entry("uninstall:uninstall", "Before removal: take back what the daemon changed."),
    },
    "In mid-shutdown": {
        "hurry": Entry("daemon_requests:hurry", "Stop waiting for a pod."),
        "release": Entry("daemon_requests:release", "Let the machine go now."),
    },
    "Nodes that died": {
        "outage": Entry("outage:outage", "Prove that a node is off, recover it, and account for it."),
    },
    "Look back": {
        "journal": Entry("journal:journal", "Episodes and events of a journal; is it intact?"),
        "replay": Entry("replay:replay", "What happened, why, and what would have been."),
        "export": Entry("export:export", "Hand a shutdown to other tools: files, traces."),
        "fleet": Entry("fleet:fleet", "Ask the journals of many nodes: verify, what-if, advise, tables."),
    },
}


EPILOG = """\b
Examples:
  ebbtide demo
  ebbtide plan --config config.yaml --pods pods/ --grant 30s
  sudo ebbtide run
  ebbtide journal show -f

Only run, demo, simulate and uninstall change a journal, a configuration or a machine. Exit codes: 0 done, 1
the answer is no, 2 a wrong request, 3 the replay diverged, 4 the journal's tail is torn, 5 it is corrupt, 6
an incompatible version wrote it.
"""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", prog_name="ebbtide", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """End a Kubernetes node's pods gracefully before the machine goes down, and account for it."""
    need_command(ctx)
