"""Prints results: tables, in colour on a terminal and plain in a pipe, or one JSON document.

Only results go to standard output; progress and remarks go to standard error.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from ebbtide.events.record.outage_record import OutageRecord
    from ebbtide.events.record.shutdown_record import ShutdownRecord

T = TypeVar("T")
Cell: TypeAlias = "str | Text"

#: A line in a pipe is a whole row.
PIPE_WIDTH = 4096

#: Between two columns, and before the lines of a block.
GAP = 2

STYLES = {
    "graceful": "green",
    "complete": "green",
    "ok": "green",
    "running": "cyan",
    "spared": "cyan",
    "cancelled": "cyan",
    "goes-on": "cyan",
    "rejected": "magenta",
    "killed": "red",
    "failed": "red",
    "recovered": "green",
    "detached": "green",
    "waiting": "yellow",
    "forced": "red",
    "slow": "yellow",
    "truncated": "red",
    "never-begun": "red",
    "critical": "bold red",
    "unknown": "yellow",
    "warning": "yellow",
    "note": "dim",
    # The signs of a severity.
    "✓": "green",
    "!": "yellow",
    "✕": "bold red",
}


def console(file: IO[str] | None = None) -> Console:
    """Plain unless ``file`` (standard output) is a terminal."""
    from rich.console import Console

    to = file or sys.stdout
    return Console(file=to, highlight=False, width=None if to.isatty() else PIPE_WIDTH)


def show(renderable: RenderableType) -> None:
    if isinstance(renderable, str):
        print(renderable)
    elif sys.stdout.isatty():
        console().print(renderable, crop=False)
    else:
        # rich fills each cell up to its column's width: noise for diff and grep.
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in printed_lines(renderable)))


def printed_lines(renderable: RenderableType) -> list[str]:
    to = console()
    with to.capture() as captured:
        to.print(renderable)
    return captured.get().splitlines()


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Sequence[str] = ()
) -> RenderableType:
    """Outcomes get their colour. Columns in ``right`` are numbers."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        made.add_row(
            *(
                Text(visible(cell), style=STYLES.get(cell, "")) if isinstance(cell, str) else cell
                for cell in row
            )
        )
    return made


#: So many messages of one code are shown.
ALIKE_MAX = 3


def first_of_each(items: Iterable[T], code: Callable[[T], str]) -> Iterator[tuple[T, int]]:
    """The first `ALIKE_MAX` items of each code; the last one with the number of further ones, else 0."""
    listed, shown = list(items), Counter[str]()
    totals = Counter(map(code, listed))
    for item in listed:
        shown[code(item)] += 1
        if shown[code(item)] <= ALIKE_MAX:
            yield item, totals[code(item)] - ALIKE_MAX if shown[code(item)] == ALIKE_MAX else 0


def pairs(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Names and their values. Leaves out a row without a value."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value:
            made.add_row(Text(name), Text(visible(value), style=STYLES.get(value, "")))
    return made


#: The narrowest readable column of sentences.
SENTENCE_WIDTH_MIN = 24


class NarrowTable:
    """``right``: columns of numbers. ``spare``: columns to drop first, in this order, if the table is too
    wide. ``wraps``: a column of sentences, which may take several lines of `SENTENCE_WIDTH_MIN`.

    If it is still too wide, each row becomes a block.
    """

    def __init__(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        right: Sequence[str] = (),
        spare: Sequence[str] = (),
        wraps: str = "",
    ) -> None:
        self.headings, self.right, self.spare, self.wraps = tuple(headings), right, spare, wraps
        self.rows = [tuple(map(visible, row)) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len
        from rich.text import Text

        # Some scripts have letters of two cells.
        widths = [max(map(cell_len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        if self.wraps:
            at = self.headings.index(self.wraps)
            widths[at] = min(widths[at], SENTENCE_WIDTH_MIN)
        kept = list(range(len(self.headings)))
        for name in (None, *self.spare):
            kept = [at for at in kept if self.headings[at] != name]
            if sum(widths[at] for at in kept) + GAP * (len(kept) - 1) <= options.max_width:
                shown = ([row[at] for at in kept] for row in self.rows)
                yield table([self.headings[at] for at in kept], shown, right=self.right)
                return
        for row in self.rows:
            # ``PRIORITY 0``, but ``shop/web-0``: a number needs its heading.
            title = f"{self.headings[0]} {row[0]}" if self.headings[0] in self.right else row[0]
            yield Text(title, style="bold", overflow="ignore", no_wrap=True)
            # ``GRACE 10s  TOOK 1.3s``: a pair that does not fit begins the next line.
            line = Text()
            for name, value in zip(self.headings[1:], row[1:], strict=True):
                if not value:
                    continue
                label = f"{name} " if name else ""
                pair = Text.assemble(" " * GAP, (label, "dim"), (value, STYLES.get(value, "")))
                if line and line.cell_len + pair.cell_len > options.max_width:
                    yield line
                    line = Text()
                line.append(pair)
            yield line


class Heading(NamedTuple):
    """Beside a Struct's field: its column. The flags as in `NarrowTable`."""

    text: str
    right: bool = False
    spare: bool = False
    wraps: bool = False


def struct_cells(rows: Sequence[Any]) -> tuple[list[Heading], list[list[str]]]:
    """Of at least one row; the Struct's own fields before inherited ones, without a field that is None in
    every row.
    """
    kind = type(rows[0])
    hints = get_type_hints(kind, include_extras=True)
    columns = {
        name: each
        for name in dict.fromkeys((*kind.__annotations__, *hints))
        for each in getattr(hints[name], "__metadata__", ())
        if isinstance(each, Heading) and any(getattr(row, name) is not None for row in rows)
    }
    return [*columns.values()], [[value_text(getattr(row, name)) for name in columns] for row in rows]


def struct_table(rows: Sequence[Any]) -> NarrowTable:
    headings, cells = struct_cells(rows)
    return NarrowTable(
        [each.text for each in headings],
        cells,
        right=[each.text for each in headings if each.right],
        spare=[each.text for each in headings if each.spare],
        wraps=next((each.text for each in headings if each.wraps), ""),
    )


def value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def headline_text(shutdown: ShutdownRecord) -> Text:
    """Its sign, then its gravest cause if it did not go well."""
    from rich.text import Text

    from ebbtide.events.record.causes import headline
    from ebbtide.events.record.shutdown_record import SIGNS

    sign = SIGNS[shutdown.severity]
    return Text(visible(f"{sign} {headline(shutdown)}"), style=STYLES[sign])


def outage_lines(outage: OutageRecord) -> list[str]:
    from ebbtide.events.record.outage_causes import outage_cause, outage_headline, outage_seal
    from ebbtide.events.record.shutdown_record import SIGNS

    cause = outage_cause(outage)
    lines = [f"{SIGNS[outage_seal(outage)]} {outage_headline(outage)}"]
    lines += [] if cause is None else [f"{' ' * GAP}do: {cause.do}"]
    return list(map(visible, lines))


#: The roots are never folded away.
REMARKS_MAX = 3


def cause_lines(shutdown: ShutdownRecord, *, every: bool = False) -> RenderableType:
    """``every``: a line for each warning."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from ebbtide.events.record.causes import cause_tree
    from ebbtide.events.record.shutdown_record import SIGNS

    lines: list[tuple[int, str, str]] = []
    remarks = folded = 0
    for at, root in enumerate(cause_tree(shutdown)):
        style, first = STYLES[SIGNS[root.severity]], not at and shutdown.severity != "good"
        remarks += root.level == "remark"
        hidden = root.level == "remark" and remarks > REMARKS_MAX and not every
        if not first and not hidden:  # the headline begins with the first one
            lines.append((GAP, root.text, style))
        if root.level != "remark":
            lines.append((GAP if first else 2 * GAP, f"do: {root.do}", "bold"))
        folded += sum(max(1, len(each.notices)) for each in (root.every if hidden else root.within))
        if every:
            found = [each for group in root.every for each in group.notices]
            lines += [(2 * GAP, each.text, style) for each in found if each.text != root.text]
    if folded and not every:
        lines.append((GAP, f"and {plural(folded, 'warning')} below these: --all", "dim"))
    padded = (
        Padding(Text(visible(text), style=style), (0, 0, 0, left), expand=False)
        for left, text, style in lines
    )
    return Group(headline_text(shutdown), *padded)


def hanging(before: Text, text: Text) -> RenderableType:
    """On a narrow terminal, further lines begin below ``text``."""
    from rich.table import Table

    made = Table.grid()
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    made.add_row(before, text)
    return made


def painter(styles: Mapping[str, Mapping[str, Any]]) -> Callable[[str, str], str]:
    """``paint(name, text)``: in the style of that name (`click.style`) on a terminal, plain in a pipe."""
    import click

    coloured = sys.stdout.isatty()
    return lambda name, text: click.style(text, **styles[name]) if coloured and styles.get(name) else text


def json_line(document: Any, indent: int | None = None) -> str:
    """Without its line's end; ``indent`` None: on one line, for a stream."""
    import json

    import msgspec

    plain = msgspec.to_builtins(document)
    return visible_json(json.dumps(plain, indent=indent, ensure_ascii=False))


def show_json(document: Any) -> None:
    """Indented for people, on one line in a pipe."""
    sys.stdout.write(json_line(document, indent=2 if sys.stdout.isatty() else None) + "\n")


def show_document(document: Any, output: str) -> None:
    """``output`` is ``json`` or ``yaml``."""
    if output == "json":
        show_json(document)
        return
    import yaml

    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():
        # YAML keeps some characters that a terminal obeys: escape all but ASCII then.
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=False)
    sys.stdout.write(text)


def remark(text: str) -> None:
    """Progress or a remark; never part of the result."""
    # In one pipe with the result, in order.
    print(end="", flush=True)
    print(visible(text), file=sys.stderr)
