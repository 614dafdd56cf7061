"""Tables that stay readable on a narrow terminal: no word is broken, and no column is a letter wide.

What fits stands as a table. What does not loses the columns that can be missed; what still does not fit
is told row by row, as blocks. In a pipe a line is as long as it has to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ebbtide.cli.common.output import STYLES, table
from ebbtide.text import visible

#: Blanks between two columns, and before the lines of a block.
GAP = 2


class NarrowTable:
    """Rows under headings. ``right``: columns of numbers; ``spare``: those that go first, in this order."""

    def __init__(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        right: Sequence[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        self.headings, self.right, self.spare = tuple(headings), right, spare
        self.rows = [tuple(map(visible, row)) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = self._kept(options.max_width)
        if kept is None:
            yield from self._blocks(options.max_width)
            return
        shown = ([row[at] for at in kept] for row in self.rows)
        yield table([self.headings[at] for at in kept], shown, right=self.right)

    def _kept(self, width: int) -> list[int] | None:
        """The columns for so much room; None: even the least of them need more."""
        kept = list(range(len(self.headings)))
        for name in ("", *self.spare):
            kept = [at for at in kept if self.headings[at] != name]
            if sum(map(self._width, kept)) + GAP * (len(kept) - 1) <= width:
                return kept
        return None

    def _width(self, at: int) -> int:
        return max(cell_len(row[at]) for row in (self.headings, *self.rows))

    def _blocks(self, width: int) -> Iterator[Text]:
        """Each row by its name, with all that is known of it in lines below."""
        for row in self.rows:
            number = self.headings[0] in self.right
            name = f"{self.headings[0]} {row[0]}" if number else row[0]
            yield Text(name, style="bold", overflow="ignore", no_wrap=True)
            yield from _folded(list(zip(self.headings[1:], row[1:], strict=True)), width)


def _folded(pairs: Iterable[tuple[str, str]], width: int) -> Iterator[Text]:
    """``GRACE 10s  TOOK 1.3s``: what does not fit on a line begins the next one, in words."""
    line = Text()
    for name, value in pairs:
        if not value:
            continue
        pair = Text.assemble(" " * GAP, (f"{name} ", "dim"), (value, STYLES.get(value, "")))
        if line and line.cell_len + pair.cell_len > width:
            yield line
            line = Text()
        line.append(pair)
    yield line
