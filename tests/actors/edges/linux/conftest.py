"""Process trees use the pods of the process edge."""

from __future__ import annotations

from tests.actors.edges.process.conftest import nothing_outlives_its_test, use_cgroups, wide_bounds

__all__ = ["nothing_outlives_its_test", "use_cgroups", "wide_bounds"]
