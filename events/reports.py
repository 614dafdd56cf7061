"""What the driver tells of a failing disk, and whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from events.chain import Item


class Reports(NamedTuple):
    """Whom the driver tells. All are called from its tasks and must not block.

    ``failed(location, error)``, ``moved(location, first_seq)``, ``lost(error, undurable items)``.
    """

    failed: Callable[[str, str], None]
    moved: Callable[[str, int], None]
    lost: Callable[[str, Sequence[Item]], None]
