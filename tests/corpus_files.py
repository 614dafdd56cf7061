"""What holds for any file of somebody's: it is read, or refused in one line, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st

#: Far above what the largest of them needs (some 10 ms); far below what one without limits would.
SECONDS_MAX = 5.0

#: A long path, a long name cut short, and what is wrong with it.
MESSAGE_LENGTH_MAX = 600

#: Where pieces are cut out, how long they are, and what is put in.
CUTS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 40), st.binary(max_size=8)), max_size=4)


def corpus(name: str) -> list[Path]:
    return sorted((Path(__file__).parent / "corpus" / name).iterdir())


def read_or_refused(
    path: Path, read: Callable[[Path], object], refusal: type[Exception], mistakes_max: int = 1
) -> None:
    """As the file's name says; the error names the file, and so many mistakes in one line."""
    started = time.monotonic()
    if path.name.startswith("ok-"):
        read(path)
    else:
        with pytest.raises(refusal) as raised:
            read(path)
        message = str(raised.value)
        assert message.startswith(str(path))
        assert message.isprintable()
        assert len(message) < MESSAGE_LENGTH_MAX * mistakes_max
    assert time.monotonic() - started < SECONDS_MAX


def damaged(path: Path, cuts: list[tuple[int, int, bytes]]) -> bytes:
    raw = path.read_bytes()[:4000]
    for at, length, piece in cuts:
        raw = raw[:at] + piece + raw[at + length :]
    return raw
