"""Keys from a pseudo-terminal, and signals that come while one is waited for."""

from __future__ import annotations

import os
import pty
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from ebbtide.cli.replay.step_terminal import Keys

PATIENCE_SECONDS = 10


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

    def strike() -> None:
        while sys._current_frames()[main].f_code is not Keys._wait.__code__:
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
