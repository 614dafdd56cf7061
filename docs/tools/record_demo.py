"""Records a real run of ``ebbtide demo`` on a terminal, as the animated SVG that the README shows.

    python docs/tools/record_demo.py docs/demo.svg

The picture is a strip of frames that is moved in steps; rows that stay the same are drawn once. No script,
no font and no other file is in it, so that it moves wherever an image may stand.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from terminal import Look, Row, Terminal

COLUMNS, ROWS = 118, 39
COMMAND = "ebbtide demo"
#: Fine enough for a clock in tenths to look alive, coarse enough for a small file.
FRAME_SECONDS = 0.2
#: The last page is what one reads.
LAST_SECONDS = 9.0
#: A run that takes longer is broken: the demo promises 20 s.
RUN_SECONDS_MAX = 30.0

FONT_SIZE, CELL_WIDTH, LINE_HEIGHT, MARGIN, BAR = 14, 8.43, 18, 16, 30
BACKGROUND, FOREGROUND = "#1b1f27", "#d8dee9"
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


class Frame(NamedTuple):
    """A screen, and for how many seconds it stood."""

    screen: tuple[Row, ...]
    seconds: float


# --- from a run to frames ----------------------------------------------------------------------


def run(command: Sequence[str]) -> Iterator[tuple[float, str]]:
    """What a command writes to a terminal of its own, with the seconds since its begin."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    began = time.monotonic()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as child:
        os.close(theirs)
        decode = codecs.getincrementaldecoder("utf-8")().decode
        while time.monotonic() - began < RUN_SECONDS_MAX:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                data = os.read(ours, 65_536)
            except OSError:  # the other side has been closed: the end
                break
            if not data:
                break
            yield time.monotonic() - began, decode(data)
        os.close(ours)
        if child.wait() != 0:
            raise SystemExit(f"{' '.join(command)} failed with {child.returncode}")


def frames(pieces: Iterator[tuple[float, str]]) -> list[Frame]:
    """Screens `FRAME_SECONDS` apart; what stands longer is one frame."""
    terminal = Terminal(COLUMNS, ROWS)
    terminal.feed(f"\x1b[1;32m$\x1b[0m {COMMAND}\r\n")
    shots: list[tuple[float, tuple[Row, ...]]] = [(0.0, terminal.screen())]
    rest = ""
    for at, text in pieces:
        whole, rest = _whole(rest + text)
        terminal.feed(whole)
        if at - shots[-1][0] < FRAME_SECONDS and len(shots) > 1:
            shots[-1] = (shots[-1][0], terminal.screen())
        else:
            shots.append((at, terminal.screen()))
    shots.append((shots[-1][0] + FRAME_SECONDS, terminal.screen()))
    ends = [at for at, _ in shots[1:]] + [shots[-1][0] + LAST_SECONDS]
    timed = [Frame(screen, end - at) for (at, screen), end in zip(shots, ends, strict=True)]
    return [
        Frame(screen, sum(frame.seconds for frame in group))
        for screen, group in groupby(timed, key=lambda frame: frame.screen)
    ]


def _whole(text: str) -> tuple[str, str]:
    """Split off an escape sequence that is not complete yet."""
    cut = re.search(r"\x1b(\[[?0-9;]*)?$", text)
    return (text[: cut.start()], text[cut.start() :]) if cut else (text, "")


# --- from frames to a picture ------------------------------------------------------------------


class Picture:
    """Collects rows and looks, each once."""

    def __init__(self, taken: Sequence[Frame]) -> None:
        self._frames = taken
        self._rows: dict[Row, int] = {}
        self._looks: dict[Look, str] = {}
        self._width = round(COLUMNS * CELL_WIDTH + 2 * MARGIN)
        self._height = max(len(frame.screen) for frame in taken) * LINE_HEIGHT + 2 * MARGIN + BAR

    def svg(self) -> str:
        """The whole file."""
        strip = "".join(self._frame(at, frame) for at, frame in enumerate(self._frames))
        rows = "".join(f'<g id="r{number}">{self._row(row)}</g>' for row, number in self._rows.items())
        looks = "".join(f".{name}{{{_css(look)}}}" for look, name in self._looks.items() if name)
        size = f'width="{self._width}" height="{self._height}" viewBox="0 0 {self._width} {self._height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
            f"<title>A run of {COMMAND}</title><style>{self._style()}{looks}</style><defs>{rows}</defs>"
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>{_buttons()}'
            f'<svg x="{MARGIN}" y="{MARGIN + BAR}" width="{self._width - MARGIN}" '
            f'height="{self._height}"><g class="strip">{strip}</g></svg></svg>\n'
        )

    def _frame(self, at: int, frame: Frame) -> str:
        uses = (self._use(row, line) for line, row in enumerate(frame.screen) if row)
        return f'<g transform="translate({at * self._width})">{"".join(uses)}</g>'

    def _use(self, row: Row, line: int) -> str:
        number = self._rows.setdefault(row, len(self._rows))
        return f'<use href="#r{number}" y="{(line + 1) * LINE_HEIGHT - 4}"/>'

    def _row(self, row: Row) -> str:
        parts, column = [], 0
        for look, cells in groupby(row, key=lambda cell: cell.look):
            text = "".join(cell.character for cell in cells)
            if text.strip():
                parts.append(self._span(look, text, column))
            column += len(text)
        return "".join(parts)

    def _span(self, look: Look, text: str, column: int) -> str:
        """A run of one look; its length is given, so that any font keeps the columns."""
        lead = len(text) - len(text.lstrip())
        text = text.strip()
        name = self._looks.setdefault(look, f"l{len(self._looks)}" if look != Look() else "")
        x, width = (column + lead) * CELL_WIDTH, len(text) * CELL_WIDTH
        kind = f' class="{name}"' if name else ""
        return f'<text{kind} x="{x:.1f}" textLength="{width:.1f}" xml:space="preserve">{escape(text)}</text>'

    def _style(self) -> str:
        total = sum(frame.seconds for frame in self._frames)
        steps, at = [], 0.0
        for number, frame in enumerate(self._frames):
            steps.append(f"{at / total * 100:.3f}%{{transform:translateX(-{number * self._width}px)}}")
            at += frame.seconds
        return (
            f"text{{font:{FONT_SIZE}px {FONTS};fill:{FOREGROUND};white-space:pre}}"
            f"@keyframes play{{{''.join(steps)}}}"
            f".strip{{animation:play {total:.2f}s step-end infinite}}"
        )


def _css(look: Look) -> str:
    rules = [f"fill:{look.colour}" if look.colour else "", "font-weight:bold" if look.bold else ""]
    rules += ["opacity:.6" if look.dim else "", "font-style:italic" if look.italic else ""]
    return ";".join(filter(None, rules))


def _buttons() -> str:
    colours = ("#e06c75", "#e5c07b", "#98c379")
    return "".join(
        f'<circle cx="{20 + 20 * at}" cy="20" r="6" fill="{colour}"/>' for at, colour in enumerate(colours)
    )


def main() -> None:
    """Record, and write the picture to the path that is named."""
    target = Path(sys.argv[1])
    command = [sys.executable, "-c", "from ebbtide.cli import main; main()", *COMMAND.split()[1:]]
    taken = frames(run(command))
    target.write_text(Picture(taken).svg(), encoding="utf-8")
    print(f"{target}: {len(taken)} frames, {target.stat().st_size // 1024} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
