"""``ebbtide replay step`` on a real terminal: single keys, a resize, and a terminal left as it was found."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.journals import SHUTDOWN

#: Real processes on a real terminal, with bounds of seconds.
pytestmark = pytest.mark.proof

PATIENCE_SECONDS = 30
COMMAND = (sys.executable, "-c", "from ebbtide.cli import main; main()", "replay", "step")
SCREEN = "\x1b[H\x1b[2J"
STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """The command in a pseudo-terminal; `screen` is what was drawn last, whole, without styles."""

    def __init__(self, *arguments: str, term: str = "xterm", rows: int = 24, columns: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [*COMMAND, *arguments, "--journal", str(SHUTDOWN)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": term},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._theirs, self._said = theirs, b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    @property
    def said(self) -> str:
        return self._said.decode(errors="replace")

    @property
    def screen(self) -> str:
        return STYLES.sub("", self.said.rpartition(SCREEN)[2])

    def wait(self, text: str, *, on_screen: bool = True) -> str:
        """Until it is shown; bounded."""
        until = time.monotonic() + PATIENCE_SECONDS
        while text not in (self.screen if on_screen else self.said):
            left = until - time.monotonic()
            assert left > 0, f"{text!r} did not come; there is:\n{self.screen}"
            assert self._read(left), f"{text!r} did not come before the end; there is:\n{self.said}"
        return self.screen

    def _read(self, seconds: float) -> bool:
        if not select.select([self.ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.ours, 65536)
        except OSError:
            return False
        self._said += data
        return bool(data)

    def ended(self) -> int:
        until = time.monotonic() + PATIENCE_SECONDS
        while (code := self.process.poll()) is None:
            assert time.monotonic() < until, f"it does not end; there is:\n{self.screen}"
            self._read(0.05)
        while select.select([self.ours], [], [], 0)[0] and self._read(0):
            pass
        return code

    def settings(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self._theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_a_key_is_a_command(terminal: Terminal) -> None:
    """Keys move, arrows too; what is typed at a prompt ends with Enter; q ends with exit code 0."""
    terminal.wait("record 12 of 12-90")
    terminal.press("k")
    terminal.wait("main: SIGKILL")
    terminal.press("\x1b[D")
    assert "downs[main].phase: stopping -> killed" in terminal.wait("record 57 of 12-90")
    terminal.press("e90x\x7f\r")
    terminal.wait("shutdown closed: complete")
    terminal.press("0")
    terminal.wait("record 12 of 12-90")
    terminal.press("Wstuck-0 phase\rcc")
    terminal.wait("watching * stuck-0 phase")
    terminal.wait("record 57 of 12-90")
    terminal.press("Z")
    terminal.wait("no such key")
    terminal.press("q")
    assert terminal.ended() == 0
    assert terminal.settings() == terminal.before


def test_interrupted_the_terminal_is_as_before(terminal: Terminal) -> None:
    """Ctrl-C ends it as its signal does, and puts everything back."""
    terminal.wait("record 12 of 12-90")
    terminal.press("\x03")
    assert terminal.ended() == -signal.SIGINT
    assert terminal.said.rstrip().endswith("\x1b[?1049l")
    assert terminal.settings() == terminal.before


# --- keys, and signals that come while one is waited for ---------------------------------------
