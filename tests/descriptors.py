"""A process that has no descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

#: Below this every number is taken; a hole would be a descriptor to have.
NUMBERS = 256


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Whatever needs a new descriptor in the block fails with EMFILE. Those that are open stay good."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    assert highest < NUMBERS
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (NUMBERS, hard))
    try:
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
