"""The rig for each test; skipped where the real logind cannot be had."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.beds.logind import missing
from tests.daemon.rig import Rig
from tests.daemon.rig import rig as new_rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """The daemon is not started yet. On leaving, every journal is replayed; a divergence fails the test."""
    if reason := missing():
        pytest.skip(reason)
    async with new_rig() as made:
        yield made
        # Shown where the test failed: the folder goes with the rig.
        print(made.log())
