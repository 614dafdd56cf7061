"""``ebbtide demo``: on a terminal a live view, in a pipe one line a transition."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.common.shared_options import output_option

if TYPE_CHECKING:
    from ebbtide.daemon_status import DaemonStatus
    from ebbtide.demo import DemoFolder
    from ebbtide.demo.demo_run import DemoResult

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
    """Run twelve pods as local processes, and end them as in a power-off.

    No root, no configuration, no cluster; under 20 s. Nothing outside its own folder is touched.
    """
    from ebbtide.cli.common.guard import Signalled
    from ebbtide.cli.common.saving import refuse_existing
    from ebbtide.demo import make_demo_folder

    if journal is not None:
        refuse_existing(journal, "--journal")
        journal.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=journal, prefix=".demo-"):
            pass
    # For the last page: the name, or the typed path where the shell does not find the name.
    typed = Path(sys.argv[0])
    program = str(typed) if typed.name == "ebbtide" and not shutil.which("ebbtide") else "ebbtide"
    folder = make_demo_folder(journal.absolute() if journal is not None else None)
    played = _play(
        folder,
        live=output == "table"
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"),
        quiet=output == "json",
    )
    from ebbtide.cli.common.output import show, show_json
    from ebbtide.demo.demo_run import demo_page, last_page

    if not played.whole or played.shutdown is None:
        number = played.ended_by or signal.SIGINT
        text = f"{number.name}: the demo ends early, and its pods with it"
        if played.shutdown is not None:
            text += f"; its story: {program} replay timeline --journal {folder.journal}"
        raise Signalled(number, text)
    page = demo_page(played.shutdown, played.trace_id, folder.journal)
    if output == "json":
        show_json(page)
    else:
        show(last_page(page, played.shutdown, program))
    return 0


def _play(folder: DemoFolder, *, live: bool, quiet: bool) -> DemoResult:
    from ebbtide.cli.common.guard import ReaderGone
    from ebbtide.events.record.format import visible

    def say(line: str) -> None:
        try:
            print(visible(line), file=sys.stderr if quiet else sys.stdout, flush=True)
        except BrokenPipeError as error:
            raise ReaderGone from error

    # Before the slow imports.
    say(f"Twelve pods from {folder.pods} come up as local processes.")
    import trio

    from ebbtide.demo.demo_run import run_demo

    if not live:
        return trio.run(run_demo, folder, say, lambda level, line: say(line), lambda status, now_ns: None)
    from rich.live import Live

    from ebbtide.cli.common.output import console
    from ebbtide.demo.demo_run import live_frame

    # The last page has all of it again, with the reasons.
    view = Live(console=console(), auto_refresh=False, transient=True)

    def draw(status: DaemonStatus, now_ns: int) -> None:
        if status.pods:
            view.update(live_frame(status, now_ns), refresh=True)

    # The log's lines would push the view away, which shows the same.
    with view:
        return trio.run(run_demo, folder, say, lambda level, line: None, draw)
