"""One real node for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.actors.edges.kubernetes.rig import NODE
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up, mend
from tests.node.conftest import weather
from tests.node.pods import remove_all
from tests.node.serving import served


@pytest.fixture(scope="session")
def _bed() -> Iterator[Bed]:
    with served(bring_up, (NODE,)) as bed:
        yield bed


@pytest.fixture
async def bed(_bed: Bed) -> Bed:
    """The node, without a pod, whatever the tests before it did."""
    await mend(_bed)
    await remove_all(_bed)
    return _bed


__all__ = ["weather"]
