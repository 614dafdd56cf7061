"""One node for all tests of this folder; skipped where it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from tests.beds.rootfs import Unavailable
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up, made_bed, mend
from tests.node.pods import remove_all

NAMES = ("node-1", "node-2")


@pytest.fixture(scope="session")
def _bed() -> Iterator[Bed]:
    try:
        with made_bed(NAMES) as bed:
            trio.run(bring_up, bed)
            yield bed
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture
async def bed(_bed: Bed) -> Bed:
    """The node, without a pod, whatever the tests before it did."""
    await mend(_bed)
    await remove_all(_bed)
    return _bed
