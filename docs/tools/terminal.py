"""A small terminal: enough of one to see what a program shows with Rich.

It knows lines, carriage returns, cursor movements up and left, erasing, and colours. What else arrives is
passed over. One cell a character; the demo uses no wide ones.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b.|[\r\n\b]|[^\x1b\r\n\b]+", re.DOTALL)

#: The 16 colours as most dark terminals have them.
PALETTE = (
    "#2e3440", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#5c6370", "#ff7a85", "#b5e890", "#ffd98a", "#82c4ff", "#e29bf5", "#7fd6e0", "#ffffff",
)  # fmt: skip
CUBE = (0, 95, 135, 175, 215, 255)


class Look(NamedTuple):
    """How a cell is drawn; ``colour`` empty: the default."""

    colour: str = ""
    bold: bool = False
    dim: bool = False
    italic: bool = False


class Cell(NamedTuple):
    character: str
    look: Look


BLANK = Cell(" ", Look())
Row = tuple[Cell, ...]


class Terminal:
    """A screen of ``columns`` by ``rows`` that scrolls."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._lines: list[list[Cell]] = [[]]
        self._x, self._y = 0, 0
        self._look = Look()

    def feed(self, text: str) -> None:
        """Whole escape sequences only: a sequence must not be cut between two calls."""
        for match in _PIECE.finditer(text):
            if match[2]:
                self._control(match[1], match[2])
            elif match[0] == "\n":
                self._down()
            elif match[0] == "\r":
                self._x = 0
            elif match[0] == "\b":
                self._x = max(0, self._x - 1)
            elif not match[0].startswith("\x1b"):
                self._write(match[0])

    def screen(self) -> tuple[Row, ...]:
        """The visible rows, without trailing blanks."""
        top = max(0, len(self._lines) - self.rows)
        return tuple(_stripped(line) for line in self._lines[top:])

    def text(self) -> str:
        """The visible characters."""
        return "\n".join("".join(cell.character for cell in row) for row in self.screen())

    def _write(self, text: str) -> None:
        for character in text:
            if self._x >= self.columns:
                self._x = 0
                self._down()
            line = self._lines[self._y]
            line += [BLANK] * (self._x + 1 - len(line))
            line[self._x] = Cell(character, self._look)
            self._x += 1

    def _down(self) -> None:
        self._y += 1
        if self._y == len(self._lines):
            self._lines.append([])

    def _control(self, words: str, final: str) -> None:
        number = int(words) if words.isdecimal() else 1
        if final == "m":
            self._colour([int(word or 0) for word in words.split(";")])
        elif final == "A":
            self._y = max(0, self._y - number)
        elif final == "K":
            line = self._lines[self._y]
            del line[0 if words == "2" else self._x :]

    def _colour(self, codes: list[int]) -> None:
        while codes:
            code = codes.pop(0)
            if code == 38 and codes[:1] == [5]:
                self._look = self._look._replace(colour=_indexed(codes[1]))
                del codes[:2]
            elif code == 38 and codes[:1] == [2]:
                self._look = self._look._replace(colour="#{:02x}{:02x}{:02x}".format(*codes[1:4]))
                del codes[:4]
            else:
                self._look = _styled(self._look, code)


def _styled(look: Look, code: int) -> Look:
    changes = {1: {"bold": True}, 2: {"dim": True}, 3: {"italic": True}, 39: {"colour": ""}}
    if code == 0:
        return Look()
    if 30 <= code <= 37 or 90 <= code <= 97:
        return look._replace(colour=PALETTE[code - 30 if code < 90 else code - 82])
    return look._replace(**changes.get(code, {}))


def _indexed(number: int) -> str:
    """One of the 256 colours."""
    if number < 16:
        return PALETTE[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    number -= 16
    return "#" + "".join(f"{CUBE[part]:02x}" for part in (number // 36, number // 6 % 6, number % 6))


def _stripped(line: list[Cell]) -> Row:
    end = len(line)
    while end and line[end - 1].character == " ":
        end -= 1
    return tuple(line[:end])
