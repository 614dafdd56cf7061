"""Writing a result to a file: whole or not at all, and never over a journal.

The file appears under its name when it is complete, and never in the place of what a command reads. Without
a file it goes to standard output, but what no person can read does not go to a terminal.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import default_journals
from ebbtide.events.segment import SEGMENT_MAGIC, parse_segment_file_name

F = TypeVar("F", bound=Callable[..., Any])

STDOUT = "-"

#: What stands beside a journal's segments (docs/journal-format.md, "Side files"), and how it is written.
SIDE_FILES = ("lock", "reserve", "traces.json", "logs.json", "traces.lock", "metrics")
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


def save(path: Path | None, parts: Iterable[bytes], *, readable: bool, example: str) -> None:
    """Raises Refused where it would fill a terminal or replace a journal, OSError where it cannot be written.

    ``readable``: a person can read it on a terminal.
    """
    if path is None or str(path) == STDOUT:
        if not readable and sys.stdout.isatty():
            raise Refused(f"this is not for a terminal: name a file, -o {example}, or send it into a pipe")
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
        return
    if not path.name:
        raise Refused(f"-o names no file: give it one, such as {example}")
    spare_journals(path)
    remark(f"wrote {path}: {_size(_write(path, parts))}")


def spare_journals(path: Path) -> None:
    """A slip of the hand must not cost the evidence. Every writer of a file asks first. Raises Refused.

    Which journals the command reads it says itself, so that no writer can forget to.
    """
    context = click.get_current_context(silent=True)
    named = context.params.get("journals", ()) if context is not None else ()
    journals = list(map(Path, named)) or default_journals()
    if (
        parse_segment_file_name(path.name)
        or _is_segment(path)
        or any(_is_part_of(path, place) for place in journals)
    ):
        raise Refused(f"{path} is, or would be, a file of a journal: choose another name with -o")


def _is_part_of(path: Path, place: Path) -> bool:
    """Whether it is what is read there, by whatever name, or is called like a file of the journal's."""
    if not place.is_dir():
        return _same(path, place)
    with suppress(OSError):
        if _is_its_name(path.name) and _same(path.parent, place):
            return True
        return any(_same(path, file) for file in place.iterdir() if _is_its_name(file.name))
    return False


def _is_its_name(name: str) -> bool:
    return name in SIDE_FILES or name.endswith(PART) or parse_segment_file_name(name) is not None


def _same(one: Path, other: Path) -> bool:
    """Symbolic and hard links are the file that they lead to."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_segment(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(SEGMENT_MAGIC)) == SEGMENT_MAGIC


def _write(path: Path, parts: Iterable[bytes]) -> int:
    """Beside its place first, so that it is there whole or not at all; its size in bytes."""
    if path.exists() and not path.is_file():
        return _write_into(path, parts)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", dir=path.parent)
    except OSError as error:
        # It names a file that nobody has asked for.
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
            size = file.tell()
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return size


def _write_into(path: Path, parts: Iterable[bytes]) -> int:
    """A pipe or a device is written to, not replaced."""
    with path.open("wb") as file:
        return sum(file.write(part) for part in parts)


def _size(count: int) -> str:
    return f"{count} bytes" if count < 10_000 else f"{count // 1000} kB"
