"""A walk on a terminal: a key is a command, and the screen is drawn anew after each, at whatever size it has.

Nothing is kept of the screen: each drawing measures it, so that a resize is one more drawing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells, set_cell_size

from ebbtide.cli.replaying.step_keys import Keys
from ebbtide.cli.replaying.step_session import BY_KEY, COMMANDS, Session, Wrong
from ebbtide.cli.replaying.step_view import view
from ebbtide.text import visible

ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
HOME_AND_CLEAR = "\x1b[H\x1b[2J"
BOLD, RED, REVERSE, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[7m", "\x1b[0m"

#: Keys beside those of the commands themselves.
ALIASES = {
    "space": "next",
    "enter": "next",
    "right": "next",
    "down": "next",
    "left": "back",
    "up": "back",
    "backspace": "back",
    "home": "first",
    "end": "last",
    "h": "help",
    "eof": "quit",
}

FOOT = (
    "n next  b back  e event  p pod  w wave  k kill  f failure  / search  W watch  c continue  ? help  q quit"
)


def run(session: Session) -> None:
    """Until the walk is over. The terminal is left as it was found, whatever happens."""
    with Keys(sys.stdin.fileno()) as keys:
        _write(ENTER_SCREEN)
        try:
            _Screen(session, keys).loop()
        finally:
            _write(LEAVE_SCREEN)


class _Screen:
    def __init__(self, session: Session, keys: Keys) -> None:
        self._session, self._keys = session, keys
        self._message = ""
        #: Lines of the event that are above the screen.
        self._above = 0

    def loop(self) -> None:
        while not self._session.over:
            self.draw(FOOT)
            self._on(self._keys.read())

    def _on(self, key: str) -> None:
        if key == "resize":
            return
        if key in ("pageup", "pagedown"):
            self._above = max(0, self._above + (self._room() if key == "pagedown" else -self._room()))
            return
        name = ALIASES.get(key, key)
        command = COMMANDS.get(name) or BY_KEY.get(key)
        if command is None:
            self._message = "no such key: ? lists them"
            return
        argument = self._ask(f"{command.argument}: ") if command.argument else ""
        if argument is None or (command.argument and not argument):
            self._message = ""
            return
        try:
            self._message = self._session.do(f"{command.key} {argument}")
        except Wrong as error:
            self._message = str(error)
        self._above = 0

    def _ask(self, label: str) -> str | None:
        """A line typed at the foot; None where it was given up."""
        text = ""
        while True:
            self.draw(label + text, asking=True)
            key = self._keys.read()
            if key == "enter":
                return text.strip()
            if key in ("escape", "eof"):
                return None
            text = _typed(text, key)

    # --- drawing ------------------------------------------------------------------------------

    def draw(self, foot: str, *, asking: bool = False) -> None:
        columns, rows = _size()
        message = [row for line in self._message.splitlines() for row in _rows(visible(line), columns)]
        message = message[: max(0, rows - 2)]
        room = max(0, rows - 1 - len(message))
        body = list(self._body(columns))
        self._above = min(self._above, max(0, len(body) - 1))
        shown = body[self._above : self._above + room]
        if len(body) > self._above + room and shown:
            shown[-1] = "… PgDn shows more"[:columns]
        foot = foot[-columns + 1 :] if asking else set_cell_size(foot, columns)
        lines = [*shown, *[""] * (room - len(shown)), *message]
        end = visible(foot) if asking else f"{REVERSE}{foot}{PLAIN}"
        _write(HOME_AND_CLEAR + "".join(f"{line}\n" for line in lines) + end)

    def _body(self, columns: int) -> Iterator[str]:
        """What is bold or red is so on every row that it takes."""
        for at, line in enumerate(view(self._session.stepper, self._session.watches)):
            style = BOLD if at == 0 else RED if at == 1 and line.startswith("!") else ""
            for row in _rows(line, columns):
                yield f"{style}{row}{PLAIN}" if style else row

    def _room(self) -> int:
        return max(1, _size()[1] - 2)


def _typed(text: str, key: str) -> str:
    if key == "backspace":
        return text[:-1]
    if key == "clear":
        return ""
    if key == "space":
        return f"{text} "
    return text + key if len(key) == 1 and key.isprintable() else text


def _rows(line: str, columns: int) -> list[str]:
    """A line on as many rows as it needs."""
    return [line] if cell_len(line) <= columns else chop_cells(line, columns)


def _size() -> tuple[int, int]:
    """Columns and rows, now; a terminal that does not know has the usual ones."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 0, 0
    return columns or 80, rows or 24


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
