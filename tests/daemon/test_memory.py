"""Memory of a daemon that arms repeatedly."""

from __future__ import annotations

import gc
import weakref

from ebbtide.daemon import freeze_what_stays


class Cycle:
    """A reference cycle, like a pod and its containers."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_frozen_and_has_gone_is_freed() -> None:
    """A pod that vanished between two armings is freed."""
    made = Cycle()
    kept = weakref.ref(made)
    freeze_what_stays()
    assert gc.get_freeze_count() > 0
    del made
    freeze_what_stays()
    assert kept() is None
