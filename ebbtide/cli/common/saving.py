"""Writes a result to a file: whole or not at all, and never over a journal.

Without a file the result goes to standard output, but no binary data to a terminal.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import SEGMENT_FILES
from ebbtide.cli.common.shared_options import F
from ebbtide.events.segment import SEGMENT_MAGIC
from ebbtide.events.units import size_text

STDOUT = "-"


def file_option(example: str) -> Callable[[F], F]:
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
    """``readable``: text for a terminal. ``option``: the option with the path. Raises Refused, OSError."""
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
        # A pipe or a device: a rename would replace /dev/null by a file.
        with path.open("wb") as file:
            length = sum(file.write(part) for part in parts)
    else:
        length = _write_whole(path, parts)
    remark(f"wrote {path}: {size_text(length)}")


def spare_journals(path: Path, option: str = "-o") -> None:
    """Every writer of a file calls this: a slip must not destroy the evidence. Raises Refused, also where the
    path's folder is absent.
    """
    if not path.parent.is_dir():
        raise Refused(f"{path.parent}: no such folder: make it first")
    context = click.get_current_context(silent=True)
    named = context.params.get("journals", ()) if context is not None else ()
    spared = any(path.resolve().parent.glob(SEGMENT_FILES))
    if path.exists():
        spared |= any(Path(each).exists() and path.samefile(each) for each in named)
    if not spared and path.is_file():
        # A renamed segment is still evidence.
        with path.open("rb") as file:
            spared = file.read(len(SEGMENT_MAGIC)) == SEGMENT_MAGIC
    if spared:
        raise Refused(f"{path} is a journal, or in a journal's folder: choose another path with {option}")


def refuse_existing(folder: Path, option: str) -> None:
    """Existing files are never overwritten or mixed. Raises Refused."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} exists already: name a new directory with {option}")


#: As the daemon's own journal (`events.disk`).
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


def write_journal(directory: Path, files: Mapping[str, bytes]) -> None:
    """Raises OSError."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    for name, data in files.items():
        path = directory / name
        path.touch(mode=FILE_MODE)
        path.write_bytes(data)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """The folder gets its name when it is complete: half of a fleet's tables would look like all. ``path`` is
    absent or empty (`refuse_existing`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name[:80]}.", dir=path.parent) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        yield made
        if path.exists():
            path.rmdir()
        made.rename(path)


def _write_whole(path: Path, parts: Iterable[bytes]) -> int:
    """Returns the size in bytes."""
    try:
        # In the same folder: a rename cannot cross file systems. A name has at most 255 bytes.
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", dir=path.parent)
    except OSError as error:
        # The user did not name this file.
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            # `mkstemp` makes a file for its owner alone. Reading the mask means setting it.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
            size = file.tell()
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return size
