"""Skip a test with the reason if a real part is unavailable. CI's machine has all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.beds.rootfs import Unavailable


@contextmanager
def or_skip() -> Iterator[None]:
    """Skip the test if the block raises `Unavailable`."""
    try:
        yield
    except Unavailable as why:
        pytest.skip(str(why))
