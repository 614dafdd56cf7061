"""The node of `tests.node`, also for what is deployed on it."""

from tests.node.conftest import _bed, bed

__all__ = ["_bed", "bed"]
