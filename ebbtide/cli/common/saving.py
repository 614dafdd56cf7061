"""Writing a result to a file: whole or not at all, and never over a journal.

The file appears under its name when it is complete, and never in the place of what a command reads. Without
a file it goes to standard output, but what no person can read does not go to a terminal.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import default_journals
from ebbtide.cli.common.shared_options import F
from ebbtide.events.segment import SEGMENT_MAGIC, parse_segment_file_name
from ebbtide.events.units import size_text

STDOUT = "-"

#: What stands beside a journal's segments (docs/journal-format.md, "Side files"), and how it is written.
SIDE_FILES = (
    *("lock", "reserve", "metrics"),
    *("traces.json", "logs.json", "traces.lock", "shipped.json", "shipped.lock"),
)
PART = ".part"


def file_option(example: str) -> Callable[[F], F]:
    """``-o FILE``."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help=f"Where to write it, such as {example}.  [default: standard output]",
    )


def save(
    path: Path | None, parts: Iterable[bytes], *, readable: bool, example: str, option: str = "-o"
) -> None:
    """Raises Refused where it would fill a terminal or replace a journal, OSError where it cannot be written.

    ``readable``: a person can read it on a terminal. ``option``: the one that named it.
    """
    if path is None or str(path) == STDOUT:
        if not readable and sys.stdout.isatty():
            raise Refused(
                f"this is not for a terminal: name a file, {option} {example}, or send it into a pipe"
            )
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
        return
    if not path.name:
        raise Refused(f"{option} names no file: give it one, such as {example}")
    spare_journals(path, option)
    if path.exists() and not path.is_file():
        # A pipe or a device is written to: replaced, /dev/null would be a file from then on.
        with path.open("wb") as file:
            length = sum(file.write(part) for part in parts)
    else:
        length = _write_whole(path, parts)
    remark(f"wrote {path}: {size_text(length)}")


def spare_journals(path: Path, option: str = "-o") -> None:
    """A slip of the hand must not cost the evidence. Every writer of a file asks first. Raises Refused.

    Which journals the command reads it says itself, so that no writer can forget to.
    """
    context = click.get_current_context(silent=True)
    named = context.params.get("journals", ()) if context is not None else ()
    is_segment = parse_segment_file_name(path.name) is not None
    if not is_segment and path.is_file():
        # By its content too: a segment that somebody has renamed is evidence all the same.
        with path.open("rb") as file:
            is_segment = file.read(len(SEGMENT_MAGIC)) == SEGMENT_MAGIC
    if is_segment or any(_is_part_of(path, place) for place in map(Path, named or default_journals())):
        raise Refused(f"{path} is, or would be, a file of a journal: choose another name with {option}")


def refuse_existing(folder: Path, option: str) -> None:
    """What is there is never written over, or mixed with. Raises Refused."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} is there already: name a new directory with {option}")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which has its name once all is in it, or never: half of a fleet's tables would
    look like all of it. ``path`` is not there, or empty (`refuse_existing`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name[:80]}.", dir=path.parent) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        yield made
        if path.exists():
            path.rmdir()
        made.rename(path)


def _is_part_of(path: Path, place: Path) -> bool:
    """Whether it is what is read there, by whatever name, or is called like a file of the journal's."""
    if not place.is_dir():
        return _same(path, place)
    with suppress(OSError):
        if _is_journal_file(path.name) and _same(path.parent, place):
            return True
        return any(_same(path, file) for file in place.iterdir() if _is_journal_file(file.name))
    return False


def _is_journal_file(name: str) -> bool:
    return name in SIDE_FILES or name.endswith(PART) or parse_segment_file_name(name) is not None


def _same(one: Path, other: Path) -> bool:
    """Symbolic and hard links are the file that they lead to."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _write_whole(path: Path, parts: Iterable[bytes]) -> int:
    """Beside its place first, so that it is there whole or not at all; its size in bytes."""
    try:
        # In the same folder, since a rename over the border of a file system is none. A long name is cut, so
        # that with what `mkstemp` adds it does not pass the file system's limit of 255 bytes.
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", dir=path.parent)
    except OSError as error:
        # It names a file that nobody has asked for.
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            # `mkstemp` makes a file for its owner alone. A result has the mode that any new file would have;
            # the mask can only be read by setting it.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
            size = file.tell()
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return size
