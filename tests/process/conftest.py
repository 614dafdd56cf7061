"""Both ways to end a tree: with a cgroup of its own, and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.edges.process.cgroup import Cgroups


@pytest.fixture(params=[False, True], ids=["no-cgroup", "cgroup"])
def use_cgroups(request: pytest.FixtureRequest, tmp_path: Path) -> bool:
    wanted = bool(request.param)
    if wanted:
        found = Cgroups.detect(tmp_path / "probe")
        if found is None:
            pytest.skip("no cgroup v2 with cgroup.kill is delegated here")
        found.close()
    return wanted
