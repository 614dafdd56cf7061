"""The rig for each test; skipped without a real logind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.beds.logind import missing
from tests.daemon.rig import Rig
from tests.daemon.rig import rig as new_rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """The daemon is not started. Finally every journal is replayed; a divergence fails the test."""
    if reason := missing():
        pytest.skip(reason)
    async with new_rig() as made:
        yield made
        # Shown on failure: the folder is removed with the rig.
        print(made.log())
