"""Any input file is read, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

#: A long path, a shortened name, and the error.
MESSAGE_LENGTH_MAX = 600


def corpus(name: str) -> list[Path]:
    return sorted((Path(__file__).parent / "corpus" / name).iterdir())


def read_or_refused(
    paths: list[Path], read: Callable[[Path], object], refusal: type[Exception], mistakes_max: int = 1
) -> None:
    """As the file's name says; errors name the file, one line per mistake.

    A file that would be read forever fails by the watchdog.
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
