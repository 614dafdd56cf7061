"""Two plain values side by side: which parts differ, down to the innermost one.

Plain values are what a payload or a state decodes to. A field at its default is not there: None here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

#: Of a list whose length changed by more, the lists are shown and not each element.
ELEMENTS_MAX = 64


class Change(NamedTuple):
    """One part by its path (``downs[0].phase``). None: not there."""

    path: str
    left: Any
    right: Any

    @property
    def differs(self) -> bool:
        return not same(self.left, self.right)


def same(left: Any, right: Any) -> bool:
    """Equal, and of one type all the way down: 1, true and 1.0 are three values in MessagePack."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(value, right[name]) for name, value in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def changes(left: Any, right: Any, path: str = "") -> Iterator[Change]:
    """The parts that differ, in the order of the left side, then what only the right side has."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in {**left, **right}:
            yield from changes(left.get(name), right.get(name), f"{path}.{name}" if path else str(name))
    elif _are_lists(left, right) and max(len(left), len(right)) <= ELEMENTS_MAX:
        for at in range(max(len(left), len(right))):
            yield from changes(_at(left, at), _at(right, at), f"{path}[{at}]")
    elif not same(left, right):
        yield Change(path, left, right)


def _are_lists(*values: Any) -> bool:
    return all(isinstance(value, list | tuple) for value in values)


def _at(values: Any, at: int) -> Any:
    return values[at] if at < len(values) else None


def side_by_side(left: Any, right: Any) -> Iterator[Change]:
    """Every field of two events: an equal one whole, a differing one down to its parts."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        yield Change("data", left, right)
        return
    for name in {**left, **right}:
        if name in left and name in right and same(left[name], right[name]):
            yield Change(str(name), left[name], right[name])
        else:
            yield from changes(left.get(name), right.get(name), str(name))
