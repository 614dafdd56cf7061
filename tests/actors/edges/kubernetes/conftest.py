"""One real node for this folder, and an API server alone for simpler tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.actors.edges.kubernetes.rig import NODE
from tests.node.bed import Bed
from tests.node.bringing_up import bring_api_up, bring_up, mend_api
from tests.node.conftest import bed, weather
from tests.node.serving import served

__all__ = ["bed", "weather"]


@pytest.fixture(scope="session")
def _bed() -> Iterator[Bed]:
    with served(bring_up, (NODE,)) as made:
        yield made


@pytest.fixture(scope="session")
def _api_bed() -> Iterator[Bed]:
    with served(bring_api_up, (NODE,)) as made:
        yield made


@pytest.fixture
async def api_bed(_api_bed: Bed) -> Bed:
    """No controller, no kubelet: no object changes by itself."""
    await mend_api(_api_bed)
    return _api_bed
