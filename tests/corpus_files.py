"""What holds for any file that a person or a program wrote: it is read, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

#: A long path, a long name cut short, and what is wrong with it.
MESSAGE_LENGTH_MAX = 600


def corpus(name: str) -> list[Path]:
    return sorted((Path(__file__).parent / "corpus" / name).iterdir())


def read_or_refused(
    paths: list[Path], read: Callable[[Path], object], refusal: type[Exception], mistakes_max: int = 1
) -> None:
    """As each file's name says; the error names the file, and so many mistakes in one line.

    A file that a reader without limits would read for ever ends the test by its watchdog.
    """
    for path in paths:
        if path.name.startswith("ok-"):
            read(path)
            continue
        with pytest.raises(refusal) as raised:
            read(path)
        message = str(raised.value)
        assert message.startswith(str(path))
        assert message.isprintable()
        assert len(message) < MESSAGE_LENGTH_MAX * mistakes_max, path.name
