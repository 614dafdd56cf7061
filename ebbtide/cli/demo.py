"""``ebbtide demo``: a whole shutdown in front of your eyes.

On a terminal a live view, in a pipe one line a transition; both end with every pod's outcome and why.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.options import output_option

if TYPE_CHECKING:
    from rich.live import Live

    from ebbtide.demo.play import Draw, Played
    from ebbtide.demo.stage import Stage

EPILOG = """\b
Examples:
  ebbtide demo
  ebbtide demo --journal ./demo-journal
  ebbtide demo -o json | jq .pods
"""


@click.command(epilog=EPILOG)
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the journal here.  [default: a fresh folder among the temporary files]",
)
@output_option("table", "json")
def demo(journal: Path | None, output: str) -> int:
    """Run twelve pods as local processes, and take the power away.

    No root, no configuration, no cluster; under 20 s. Nothing outside its own folder is touched.
    """
    from ebbtide.cli.guard import Refused, Signalled
    from ebbtide.cli.output import show, show_json
    from ebbtide.demo.ending import ending, ending_json
    from ebbtide.demo.stage import set_stage

    if journal is not None and journal.exists() and (not journal.is_dir() or any(journal.iterdir())):
        raise Refused(f"{journal} is there already: name a new directory with --journal")
    if journal is not None:
        _try_out(journal)
    program = _program()
    stage = set_stage(journal.absolute() if journal is not None else None)
    played = _play(stage, live=output == "table" and _can_draw(), quiet=output == "json")
    if not played.whole:
        number = played.ended_by or signal.SIGINT
        raise Signalled(number, f"{number.name}: the demo ends early, and its pods with it")
    if output == "json":
        show_json(ending_json(played.told, played.trace_id, stage.journal))
    else:
        show(ending(played.told, played.trace_id, stage.journal, program))
    return 0


def _try_out(journal: Path) -> None:
    """Where nothing can be written there is no demo to show. Raises OSError."""
    journal.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=journal, prefix=".demo-"):
        pass


def _can_draw() -> bool:
    """A terminal whose cursor can be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _program() -> str:
    """What to type: the name alone, or the path that was typed where the shell has no other."""
    typed = Path(sys.argv[0])
    return str(typed) if typed.name == "ebbtide" and not shutil.which("ebbtide") else "ebbtide"


def _play(stage: Stage, *, live: bool, quiet: bool) -> Played:
    import trio

    from ebbtide.cli.guard import ReaderGone
    from ebbtide.demo.play import play
    from ebbtide.text import visible

    def say(line: str) -> None:
        try:
            print(visible(line), file=sys.stderr if quiet else sys.stdout, flush=True)
        except BrokenPipeError as error:
            raise ReaderGone from error

    say(f"Twelve pods from {stage.pods} come up as local processes.")
    screen, draw = _screen() if live else (nullcontext(), _no_draw)
    with screen:
        return trio.run(play, stage, say, (lambda level, line: None) if live else _plain(say), draw)


def _plain(say: Callable[[str], None]) -> Callable[[int, str], None]:
    return lambda level, line: say(line)


def _no_draw(standing: object, now_ns: int) -> None:
    """In a pipe the lines say it all."""


def _screen() -> tuple[Live, Draw]:
    """A live view below the lines; it goes when the last page comes."""
    from rich.live import Live

    from ebbtide.cli.output import console
    from ebbtide.demo.view import frame
    from ebbtide.standing import Standing

    live = Live(console=console(), auto_refresh=False, transient=True)

    def draw(standing: Standing, now_ns: int) -> None:
        if standing.pods:
            live.update(frame(standing, now_ns), refresh=True)

    return live, draw
