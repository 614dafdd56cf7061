"""Process trees with and without a cgroup; no test leaves a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ebbtide.actors.edges.linux.processes import Cgroups, kill_exactly
from ebbtide.events import bounds
from tests.actors.edges.process.process_bed import ours


@pytest.fixture(params=[False, True], ids=["no-cgroup", "cgroup"])
def use_cgroups(request: pytest.FixtureRequest, tmp_path: Path) -> bool:
    wanted = bool(request.param)
    if wanted:
        found = Cgroups.detect(tmp_path / "probe")
        if found is None:
            pytest.skip("no cgroup v2 with cgroup.kill is delegated here")
        found.prune()
    return wanted


@pytest.fixture(autouse=True)
def wide_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide bounds for slow machines. The wait for a parent stays short: the test is the parent of an
    adopted container and never reaps it.
    """
    wide = bounds.Bounds().widened(300)._replace(parent_seconds=bounds.now.parent_seconds)
    monkeypatch.setattr(bounds, "now", wide)


@pytest.fixture(autouse=True)
def nothing_outlives_its_test(tmp_path: Path) -> Iterator[None]:
    """Kill leftovers of a failed test; a passing test has none."""
    yield
    places = [tmp_path / "state", *(path / "state" for path in tmp_path.iterdir() if path.is_dir())]
    left = [item for place in places if place.is_dir() for item in ours(place)]
    for item in left:
        kill_exactly(item.pid, item.start_ticks)
    for place in places:
        groups = Cgroups.detect(place)
        if groups is not None:
            groups.prune()
    assert not left, f"left behind: {left}"
