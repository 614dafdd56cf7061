"""``ebbtide replay what-if``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ebbtide.cli.options import DURATION, config_option, output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide replay what-if --config new.yaml
  ebbtide replay what-if -2 --grant 90s
  ebbtide replay what-if --config new.yaml --pods new-pods.yaml -o json | jq .saved
  ebbtide replay what-if --drop-event 214
  ebbtide replay what-if --delay-event 92=3s

\b
The decisions are made anew, in virtual time, by the daemon's own logic; what the pods, hooks, logind and the
API server do is what the record shows, at the recorded delay after what it answered. Where the record has
only a bound (a pod killed after 20 s needed more than 20 s) the run is made twice: once as if that were
enough, once as if nothing were. EVIDENCE says for each pod whether it was observed, bounded, or assumed; a
total is an interval. A restart of the daemon stays where it was.
"""


class Delay(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
    """``SEQ=DURATION``."""

    name = "delay"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        seq, equals, duration = str(value).partition("=")
        if not (equals and seq.isascii() and seq.isdecimal()):
            self.fail(f"{value!r} is no delay of a record: write it like 92=3s", param, ctx)
        return int(seq), DURATION.convert(duration, param, ctx)


@click.command("what-if", epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@config_option
@click.option(
    "--pods",
    multiple=True,
    metavar="FILE|-",
    help="Manifests in the place of recorded pods of the same namespace/name, or beside them; repeatable.",
)
@click.option("--grant", type=DURATION, metavar="DURATION", help="What logind grants.")
@click.option(
    "--drop-event",
    "drop",
    type=int,
    multiple=True,
    metavar="SEQ",
    help="A fact that does not happen; repeatable.",
)
@click.option(
    "--delay-event",
    "delay",
    type=Delay(),
    multiple=True,
    metavar="SEQ=DURATION",
    help="A fact that comes so much later; repeatable.",
)
@output_option("table", "json")
def what_if(episode: str, journals: tuple[Path, ...], output: str, **asked: Any) -> int:
    """Decide a shutdown again under other settings: who would have been saved, and how long it would take.

    EPISODE is last, -1, -2, …, or an id. Exit code 3: the record itself does not replay, so nothing can be
    said; 'ebbtide replay verify' tells more.
    """
    from ebbtide.cli.replaying.what_if_run import run_what_if

    return run_what_if(journals, episode, output, **asked)
