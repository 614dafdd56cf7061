"""The node of `tests.node`, also for deployments."""

from tests.node.conftest import _bed, bed

__all__ = ["_bed", "bed"]
