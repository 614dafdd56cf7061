"""Opening a journal for a command: its locations, and what to say about its end.

A command reads all it can use, then says in one line on standard error what it could not, and ends with the
exit code of the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import remark
from ebbtide.events.catalog import DirectorySource, Source
from ebbtide.events.reader import History
from ebbtide.events.recovery import Verdict
from ebbtide.options import JOURNAL_PATH

F = TypeVar("F", bound=Callable[..., Any])


def journals_option(command: F) -> F:
    return click.option(
        "--journal",
        "journals",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="A directory of the journal, or a packed one; repeatable, where a failing disk made it move."
        f"  [default: {JOURNAL_PATH} and the configured fallbacks]",
    )(command)


def sources_of(journals: Sequence[Path]) -> list[Source]:
    """The named directories or packed journals, or the configured directories.

    Raises Refused where a named one is missing, or is something else.
    """
    return [_source_of(path) for path in journals] or list(map(DirectorySource, default_journals()))


def _source_of(path: Path) -> Source:
    if path.is_dir():
        return DirectorySource(path)
    if not path.is_file():
        raise Refused(
            f"{path} is no directory, and no packed journal: name the journal's directory with --journal"
        )
    from ebbtide.events.pack import NotPacked, PackedSource

    try:
        source = PackedSource(path)
    except NotPacked as error:
        raise Refused(f"{error}; name the journal's directory with --journal") from error
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(source.close)
    return source


def default_journals() -> list[Path]:
    """Where the daemon keeps its journal.

    A configuration that cannot be read must not stand between a person and the journal.
    """
    from ebbtide.config import ConfigError, default_paths, load

    try:
        fallbacks = load(default_paths()).options.journal_fallbacks
    except ConfigError:
        fallbacks = ()
    return [JOURNAL_PATH, *map(Path, fallbacks)]


def open_journal(
    journals: Sequence[Path], *, from_checkpoint: bool = False, logic_flags: Collection[str] | None = None
) -> History:
    """Raises Refused when there is no journal, OSError when it cannot be read."""
    sources = sources_of(journals)
    history = History(sources, from_checkpoint=from_checkpoint, logic_flags=logic_flags)
    if not history.path.segments and not history.path.tail:
        locations = ", ".join(source.location for source in sources)
        raise Refused(f"no journal in {locations}: name its directory with --journal")
    return history


def conclude(verdict: Verdict) -> int:
    """Say what was wrong with the journal, if anything; its exit code."""
    if verdict.state != "intact":
        remark(f"ebbtide: {verdict.banner}")
    return verdict.exit_code
