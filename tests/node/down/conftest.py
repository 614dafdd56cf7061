"""One node for all scenarios; its kubelet has no graceful shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.node.bed import Bed
from tests.node.bringing_up import bring_up, mend
from tests.node.contenders import OFF
from tests.node.going import Going, going, make_classes
from tests.node.serving import served


@pytest.fixture(scope="package")
def _opened() -> Iterator[Bed]:
    with served(_bring_up) as bed:
        yield bed


async def _bring_up(bed: Bed) -> None:
    await bring_up(bed, **OFF)
    await make_classes(bed)


@pytest.fixture
async def bed(_opened: Bed) -> Bed:
    """The node with all parts running, whatever earlier scenarios did."""
    await mend(_opened, **OFF)
    return _opened


@pytest.fixture(params=["api", "cri"])
async def node(bed: Bed, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Going]:
    """In each of the modes that end pods."""
    async with going(bed, request.param, tmp_path) as made:
        yield made


@pytest.fixture
async def by_api(bed: Bed, tmp_path: Path) -> AsyncIterator[Going]:
    async with going(bed, "api", tmp_path) as made:
        yield made
