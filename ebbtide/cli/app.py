"""The list of commands, each loaded only when it is asked for.

``--help`` prints this list without importing what the commands need.
"""

from __future__ import annotations

import click

from ebbtide import __version__
from ebbtide.cli.lazy import Entry, Lazy
from ebbtide.cli.options import need_command

#: The commands in the order in which ``--help`` shows them, by what one wants to do.
SECTIONS: dict[str, dict[str, Entry]] = {
    "See it": {
        "demo": Entry("demo:demo", "A whole shutdown in front of your eyes, on this machine, under 20 s."),
        "plan": Entry("plan:plan", "What a shutdown now would do, and why."),
        "simulate": Entry("simulate:simulate", "A whole shutdown in virtual time, on a modelled node."),
    },
    "Run it": {
        "run": Entry("run:run", "The daemon: arm, wait, carry shutdowns out."),
        "doctor": Entry("doctor:doctor", "What would keep the next shutdown from being graceful."),
        "drill": Entry("drill:drill", "Measure on the live node what a shutdown would need."),
        "status": Entry("status:status", "Armed or not, the lock, the grant, the last shutdown."),
        "metrics": Entry("metrics:metrics", "The metrics, as Prometheus reads them."),
        "config": Entry("config:config", "Check the configuration; show where each value comes from."),
        "uninstall": Entry("uninstall:uninstall", "Leave the node as it was before."),
    },
    "In mid-shutdown": {
        "hurry": Entry("people:hurry", "Stop waiting for a pod."),
        "release": Entry("people:release", "Let the machine go now."),
    },
    "Look back": {
        "journal": Entry("journal:journal", "Episodes and events of a journal; is it intact?"),
        "replay": Entry("replay:replay", "Execute a journal again, and ask it why."),
        "export": Entry("export:export", "Hand a shutdown to other tools: files, traces."),
    },
    "Your shell": {
        "completion": Entry("completion:completion", "Print the completion script of your shell."),
    },
}

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


EPILOG = """\b
Examples:
  ebbtide demo
  ebbtide plan --config config.yaml --pods pods/ --grant 30s
  sudo ebbtide run
  ebbtide journal show -f

Journals, configurations and manifests are only ever read, but by run, demo and uninstall. Exit codes: 0 as
asked, 1 it does not hold, 2 the request was wrong, 3 replay diverged, 4 the journal's tail is torn, 5 it is
corrupt, 6 an incompatible version wrote it.
"""


@click.group(
    cls=Lazy,
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
