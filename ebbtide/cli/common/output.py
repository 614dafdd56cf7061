"""How results are printed: tables in colour on a terminal and plain in a pipe, or one JSON document.

Results go to standard output and nothing else does; progress and remarks go to standard error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from ebbtide.text import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


#: In a pipe nothing is wrapped: a line is a row, however long.
PIPE_WIDTH = 4096

#: Control characters that JSON need not escape, and that a terminal obeys.
CONTROL = re.compile(r"[\x7f-\x9f]")

#: Colours of a pod's or an episode's outcome; what is not named stays as it is.
STYLES = {
    "graceful": "green",
    "complete": "green",
    "ok": "green",
    "running": "cyan",
    "spared": "cyan",
    "cancelled": "cyan",
    "rejected": "magenta",
    "killed": "red",
    "failed": "red",
    "slow": "yellow",
    "truncated": "red",
    "never-begun": "red",
    "critical": "bold red",
    "unknown": "yellow",
    "warning": "yellow",
    "note": "dim",
}


def console(file: IO[str] | None = None) -> Console:
    """A console that is plain unless ``file`` (standard output) is a terminal."""
    from rich.console import Console

    to = file or sys.stdout
    return Console(file=to, highlight=False, width=None if to.isatty() else PIPE_WIDTH)


def show(renderable: RenderableType) -> None:
    """Print a table or a text; in a pipe without trailing blanks."""
    if isinstance(renderable, str):
        print(renderable)
        return
    if sys.stdout.isatty():
        console().print(renderable, crop=False)
        return
    to = console()
    with to.capture() as captured:
        to.print(renderable)
    lines = captured.get().splitlines()
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> RenderableType:
    """A table; a cell that is an outcome gets its colour. Columns named in ``right`` are numbers."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(visible(cell), style=STYLES.get(cell, "")) for cell in row))
    return made


def pairs(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Names and their values, without a heading."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(Text(name), Text(visible(value), style=STYLES.get(value, "")))
    return made


def show_json(document: Any) -> None:
    """One JSON document; indented for people, on one line in a pipe."""
    import json

    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    sys.stdout.write(CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def json_line(document: Any) -> str:
    """A document on one line, without its end, for a stream of them."""
    import json

    text = json.dumps(document, ensure_ascii=False)
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def show_yaml(document: Any) -> None:
    import yaml

    sys.stdout.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def show_document(document: Any, output: str) -> None:
    """``output`` is ``json`` or ``yaml``."""
    (show_yaml if output == "yaml" else show_json)(document)


def remark(text: str) -> None:
    """A line of progress or a remark; never part of the result."""
    print(visible(text), file=sys.stderr)
