"""Where a real part cannot be had: the test says why, and is skipped. CI's machine has them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.beds.rootfs import Unavailable


@contextmanager
def or_skip() -> Iterator[None]:
    """Skip the test that asks for what the block finds to be `Unavailable`."""
    try:
        yield
    except Unavailable as why:
        pytest.skip(str(why))
