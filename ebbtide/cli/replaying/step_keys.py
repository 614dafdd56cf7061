"""Single keys from a terminal, by name; and when its size has changed.

The terminal is set to hand out each key at once and to show none. Signals stay signals: Ctrl-C ends, Ctrl-Z
stops, and after it the terminal is set again.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import tty
from types import FrameType, TracebackType
from typing import Any

#: How long the rest of an escape sequence may take; a key that is only Escape has none.
ESCAPE_SECONDS = 0.05

READ_BYTES = 64

NAMES = {
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
SIGNALS = (signal.SIGWINCH, signal.SIGCONT)


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
            number: signal.signal(number, _wakes_only) for number in SIGNALS
        }
        self._set()
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
        """A printable character, a name of `NAMES`, ``escape``, ``resize``, or ``eof``; waits for it."""
        if not self._buffer and self._wait():
            return "resize"
        if not self._buffer:
            return "eof"
        return self._take()

    def _set(self) -> None:
        tty.setcbreak(self._descriptor)

    def _wait(self) -> bool:
        """Fill the buffer; true where a signal came instead. An empty buffer after that is the end."""
        ready, _, _ = select.select([self._descriptor, self._woken], [], [])
        if self._woken in ready:
            os.read(self._woken, READ_BYTES)
            self._set()
            return True
        self._fill()
        return False

    def _fill(self) -> None:
        try:
            self._buffer += os.read(self._descriptor, READ_BYTES)
        except OSError:  # the terminal is gone
            self._buffer = b""

    def _take(self) -> str:
        """The first key of what has come."""
        if self._buffer[:1] == b"\x1b":
            return self._escape()
        size = _character_bytes(self._buffer[0])
        while len(self._buffer) < size and select.select([self._descriptor], [], [], ESCAPE_SECONDS)[0]:
            self._fill()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return NAMES.get(taken) or taken.decode(errors="replace")

    def _escape(self) -> str:
        """A sequence that means something here, whole; any other is passed over as Escape."""
        while not self._complete() and select.select([self._descriptor], [], [], ESCAPE_SECONDS)[0]:
            before = self._buffer
            self._fill()
            if self._buffer in (before, b""):
                break
        for sequence, name in NAMES.items():
            if sequence[:1] == b"\x1b" and self._buffer.startswith(sequence):
                self._buffer = self._buffer[len(sequence) :]
                return name
        self._buffer = b""
        return "escape"

    def _complete(self) -> bool:
        return any(self._buffer.startswith(sequence) for sequence in NAMES if sequence[:1] == b"\x1b")


def _wakes_only(number: int, frame: FrameType | None) -> None:
    """A signal with a handler is written to the pipe, and so ends a wait."""


def _character_bytes(first: int) -> int:
    """How many bytes a UTF-8 character has that begins so."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
