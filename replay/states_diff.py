"""Where two states of an actor differ, found by going down only where they do.

A state shares with the one before it all that its event left alone; so a change costs what changed, however
many pods an actor knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from actors.logic.roll import Roll
from events.model import Pod
from replay.states_fields import SHORT, element_name, field_names


class Differing(NamedTuple):
    """A value, by its path, that is not what it was: the smallest that can be compared."""

    path: str
    before: Any
    after: Any


#: Told as a whole: what they hold has no place of its own.
_WHOLE = (Pod, Roll, *SHORT)


def differing(before: Any, after: Any, path: str = "") -> Iterator[Differing]:
    """In the order of the fields; nothing where both are equal."""
    if before is after:
        return
    same = type(before) is type(after) and not isinstance(before, _WHOLE)
    if same and isinstance(before, msgspec.Struct):
        for name in field_names(type(before)):
            old, new = getattr(before, name), getattr(after, name)
            if old is not new:
                yield from differing(old, new, f"{path}.{name}" if path else name)
    elif same and isinstance(before, tuple) and _alike(before, after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differing(old, new, f"{path}[{element_name(old, at)}]")
    elif before != after:
        yield Differing(path, before, after)


def _alike(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Whether they hold the same things, in the same places, that are more than a word each."""
    return len(before) == len(after) and all(
        isinstance(old, msgspec.Struct)
        and type(old) is type(new)
        and type(old) not in _WHOLE
        and element_name(old, at) == element_name(new, at)
        for at, (old, new) in enumerate(zip(before, after, strict=True))
    )
