"""A walk on a terminal: a key is a command, and the screen is drawn anew after each, at whatever size it has.

Nothing is kept of the screen: each drawing measures it, so that a resize is one more drawing. The terminal
is set to hand out each key at once and to show none. Signals stay signals: Ctrl-C ends, Ctrl-Z stops, and
after it the terminal is set again.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from types import FrameType, TracebackType
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size

from ebbtide.cli.replay.step import BY_KEY, COMMANDS, Session, WrongCommand, event_view
from ebbtide.events.record.format import visible

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


def run_on_terminal(session: Session) -> None:
    """Until the walk is over. The terminal is left as it was found, whatever happens."""
    with Keys(sys.stdin.fileno()) as keys:
        _write_screen(ENTER_SCREEN)
        try:
            _Screen(session, keys).loop()
        finally:
            _write_screen(LEAVE_SCREEN)


class _Screen:
    def __init__(self, session: Session, keys: Keys) -> None:
        self._session, self._keys = session, keys
        self._message = ""
        #: Lines of the event that are above the screen.
        self._above = 0

    def loop(self) -> None:
        while not self._session.over:
            self.draw(FOOT)
            key = self._keys.read()
            if key == "resize":
                continue
            if key in ("pageup", "pagedown"):
                page = max(1, _screen_size()[1] - 2)
                self._above = max(0, self._above + (page if key == "pagedown" else -page))
                continue
            command = COMMANDS.get(ALIASES.get(key, key)) or BY_KEY.get(key)
            if command is None:
                self._message = "no such key: ? lists them"
                continue
            argument = self._ask(f"{command.argument}: ") if command.argument else ""
            if argument is None or (command.argument and not argument):
                self._message = ""
                continue
            try:
                self._message = self._session.do(f"{command.key} {argument}")
            except WrongCommand as error:
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
            if key == "backspace":
                text = text[:-1]
            elif key == "clear":
                text = ""
            elif key == "space":
                text += " "
            elif len(key) == 1 and key.isprintable():
                text += key

    # --- drawing ------------------------------------------------------------------------------

    def draw(self, foot: str, *, asking: bool = False) -> None:
        columns, rows = _screen_size()
        message = [
            row for line in self._message.splitlines() for row in _wrapped_rows(visible(line), columns)
        ]
        message = message[: max(0, rows - 2)]
        room = max(0, rows - 1 - len(message))
        body = []
        for at, line in enumerate(event_view(self._session.stepper, self._session.watches)):
            style = BOLD if at == 0 else RED if at == 1 and line.startswith("!") else ""
            # What is bold or red is so on every row that it takes: a row may be drawn without the others.
            body += [f"{style}{row}{PLAIN}" if style else row for row in _wrapped_rows(line, columns)]
        self._above = min(self._above, max(0, len(body) - 1))
        shown = body[self._above : self._above + room]
        if len(body) > self._above + room and shown:
            shown[-1] = "… PgDn shows more"[:columns]
        # Of what is typed the end, where the cursor is; of the keys the begin, as a bar to the border.
        foot = foot[-columns + 1 :] if asking else set_cell_size(foot, columns)
        lines = [*shown, *[""] * (room - len(shown)), *message]
        end = visible(foot) if asking else f"{REVERSE}{foot}{PLAIN}"
        _write_screen(HOME_AND_CLEAR + "".join(f"{line}\n" for line in lines) + end)


def _wrapped_rows(line: str, columns: int) -> list[str]:
    """A line on as many rows as it needs."""
    return [line] if cell_len(line) <= columns else chop_cells(line, columns)


def _screen_size() -> tuple[int, int]:
    """Columns and rows, now; a terminal that does not know has the usual ones."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 0, 0
    return columns or 80, rows or 24


def _write_screen(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


# --- single keys from a terminal, by name; and when its size has changed ------------------------


#: How long the rest of an escape sequence may take; a key that is only Escape has none.
ESCAPE_SECONDS = 0.05

READ_BYTES = 64
ESCAPE = 0x1B

KEY_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1bOH": "home",
    b"\x1bOF": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
    b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown",
    b"\r": "enter",
    b"\n": "enter",
    b" ": "space",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x15": "clear",
    b"\x04": "eof",
}

#: After these the window may have another size, or the terminal other settings.
RESIZE_SIGNALS = (signal.SIGWINCH, signal.SIGCONT)


class Keys:
    """Used in a ``with``: what it changes of the terminal and of signals, it restores."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def __enter__(self) -> Keys:
        self._settings = termios.tcgetattr(self._descriptor)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        # Not written by a handler: one that is due in the moment before a wait would run only after it,
        # and a Ctrl-C would be lost until the next key.
        self._former_wake = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._handlers: dict[signal.Signals, Any] = {
            number: signal.signal(number, _wakes_only) for number in RESIZE_SIGNALS
        }
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_wake)
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._settings)
        os.close(self._woken)
        os.close(self._wake)

    def read(self) -> str:
        """A printable character, a name of `KEY_NAMES`, ``escape``, ``resize``, or ``eof``; waits for it."""
        if not self._buffer:
            ready, _, _ = select.select([self._descriptor, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, READ_BYTES)
                # After Ctrl-Z the shell has set the terminal as it likes it.
                tty.setcbreak(self._descriptor)
                return "resize"
            self._fill()
        if not self._buffer:
            return "eof"
        first = self._buffer[0]
        if first == ESCAPE:
            return self._escape()
        # So many bytes has a UTF-8 character that begins like this; what is typed fast may come in two reads.
        size = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        while len(self._buffer) < size and select.select([self._descriptor], [], [], ESCAPE_SECONDS)[0]:
            self._fill()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return KEY_NAMES.get(taken) or taken.decode(errors="replace")

    def _fill(self) -> None:
        try:
            self._buffer += os.read(self._descriptor, READ_BYTES)
        except OSError:  # the terminal is gone
            self._buffer = b""

    def _escape(self) -> str:
        """A sequence that means something here, whole; any other is passed over as Escape."""
        while True:
            for sequence, name in KEY_NAMES.items():
                if sequence[0] == ESCAPE and self._buffer.startswith(sequence):
                    self._buffer = self._buffer[len(sequence) :]
                    return name
            # Only time tells the key Escape from the begin of a sequence.
            if not select.select([self._descriptor], [], [], ESCAPE_SECONDS)[0]:
                break
            before = self._buffer
            self._fill()
            if self._buffer in (before, b""):
                break
        self._buffer = b""
        return "escape"


def _wakes_only(number: int, frame: FrameType | None) -> None:
    """A signal with a handler is written to the pipe, and so ends a wait."""
