"""One real node for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.actors.edges.kubernetes.rig import NODE
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up
from tests.node.conftest import bed, weather
from tests.node.serving import served

__all__ = ["bed", "weather"]


@pytest.fixture(scope="session")
def _bed() -> Iterator[Bed]:
    with served(bring_up, (NODE,)) as made:
        yield made
