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
import threading
import time
from collections.abc import Iterator

import pytest

from ebbtide.cli.replay.step_terminal import Keys
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


def test_a_prompt_is_given_up_with_escape(terminal: Terminal) -> None:
    """Escape alone is a key; an arrow at the prompt is none of the text."""
    terminal.wait("record 12 of 12-90")
    terminal.press("/SIG")
    terminal.wait("TEXT: SIG")
    terminal.press("\x1b")
    terminal.wait("n next")
    terminal.press("n")
    terminal.wait("record 13 of 12-90")


def test_a_resize_is_one_more_drawing(terminal: Terminal) -> None:
    """Never wider or higher than the window is now; what does not fit is a page further down."""
    terminal.wait("record 12 of 12-90")
    terminal.press("e62\r")
    terminal.wait("record 62 of 12-90")
    terminal.resize(10, 50)
    screen = terminal.wait("PgDn shows more")
    lines = screen.split("\r\n")
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 50
    terminal.press("\x1b[6~")
    terminal.wait("begun_ns")
    assert "record 62" not in terminal.screen


def test_interrupted_the_terminal_is_as_before(terminal: Terminal) -> None:
    """Ctrl-C ends it as its signal does, and puts everything back."""
    terminal.wait("record 12 of 12-90")
    terminal.press("\x03")
    assert terminal.ended() == -signal.SIGINT
    assert terminal.said.rstrip().endswith("\x1b[?1049l")
    assert terminal.settings() == terminal.before


def test_a_dumb_terminal_takes_lines() -> None:
    """No cursor, no colours: a prompt, and a line a command; a wrong one is said, and asked again."""
    terminal = Terminal(term="dumb")
    try:
        terminal.wait("step> ", on_screen=False)
        terminal.press("jump\n")
        terminal.wait("no such command 'jump'", on_screen=False)
        terminal.press("kill\n")
        terminal.wait("main: SIGKILL", on_screen=False)
        assert "\x1b" not in terminal.said
        terminal.press("\x04")
        assert terminal.ended() == 0
    finally:
        terminal.close()


# --- keys, and signals that come while one is waited for ---------------------------------------


@pytest.fixture
def typist() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: where one types, and where it is read."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_keys_have_names(typist: tuple[int, int]) -> None:
    """A letter is itself, a sequence what it stands for, whole characters stay whole."""
    ours, theirs = typist
    with Keys(theirs) as keys:
        os.write(ours, "a\x1b[Dé".encode())
        assert [keys.read() for _ in range(3)] == ["a", "left", "é"]


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGWINCH, None)])
def test_no_signal_waits_for_a_key(
    typist: tuple[int, int], number: signal.Signals, expected: type[BaseException] | None
) -> None:
    """Also one that interrupts no system call of ours: here since another thread takes it, elsewhere since it
    comes in the moment before the call.
    """
    ours, theirs = typist
    done, typed, main = threading.Event(), [], threading.get_ident()
    waits = Keys.read.__code__

    def strike() -> None:
        while sys._current_frames()[main].f_code is not waits:
            time.sleep(0)
        signal.pthread_kill(threading.get_ident(), number)
        if not done.wait(PATIENCE_SECONDS):
            typed.append(os.write(ours, b"x"))

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=strike)
    try:
        with Keys(theirs) as keys:
            thread.start()
            if expected is None:
                assert keys.read() == "resize"
            else:
                with pytest.raises(expected):
                    keys.read()
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGINT, former)
    assert not typed
