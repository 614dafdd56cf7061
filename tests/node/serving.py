"""A node for the time of a fixture."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

from tests.beds.skipping import or_skip
from tests.node.bed import Bed
from tests.node.bringing_up import made_bed


@contextmanager
def served(
    begin: Callable[[Bed], Awaitable[object]] | None = None, names: Sequence[str] = ("node-1",)
) -> Iterator[Bed]:
    """Serve after ``begin``. Tests are skipped if no node is available."""
    with or_skip(), made_bed(names) as bed:
        if begin is not None:
            trio.run(begin, bed)
        yield bed
