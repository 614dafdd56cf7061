"""What a daemon that is armed again and again keeps."""

from __future__ import annotations

import gc
import weakref

from ebbtide.daemon import freeze_what_stays


class Cycle:
    """As a pod and its containers, which know each other."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_frozen_and_has_gone_is_freed() -> None:
    """A pod that was there when the node was armed, and is not when it is armed the next time."""
    made = Cycle()
    kept = weakref.ref(made)
    freeze_what_stays()
    assert gc.get_freeze_count() > 0
    del made
    freeze_what_stays()
    assert kept() is None
