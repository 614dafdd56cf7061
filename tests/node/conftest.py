"""One node for all tests of this folder; skipped if unavailable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.node.bed import Bed
from tests.node.bringing_up import bring_up, mend
from tests.node.ebbtide import Daemon
from tests.node.pods import remove_all
from tests.node.serving import served
from tests.node.weather import Weather

NAMES = ("node-1", "node-2")


@pytest.fixture(autouse=True)
def _wide_bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widen the daemon's bounds: gate tests must not reach them on a slow machine."""
    if request.node.get_closest_marker("gate"):
        monkeypatch.setattr(Daemon, "bounds_factor", 10)


@pytest.fixture(scope="session")
def _bed() -> Iterator[Bed]:
    with served(bring_up, NAMES) as bed:
        yield bed


@pytest.fixture
async def bed(_bed: Bed) -> Bed:
    """The node without pods, whatever earlier tests did."""
    await mend(_bed)
    await remove_all(_bed)
    return _bed


@pytest.fixture
async def weather(bed: Bed) -> AsyncIterator[Weather]:
    """Before the API server, clear at first."""
    made = Weather(bed)
    await made.start()
    yield made
    await made.stop()
