"""A shutdown by its name: ``last``, ``-1``, ``-2``, … or its id. One place, for the commands and the library.

It is no more than that, so that a command which only chooses loads nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeVar

#: ``last`` is ``-1``.
LAST = "last"


class NoSuchShutdown(LookupError):
    """The journal tells of no shutdown of this name: ask for ``last``, ``-1``, ``-2``, … or an id of it."""


class Named(Protocol):
    """Whatever has a shutdown's id."""

    @property
    def id(self) -> str: ...


NamedT = TypeVar("NamedT", bound=Named)


def pick(found: Iterable[NamedT], name: str) -> NamedT:
    """The one that is called so: ``last``, ``-1``, ``-2``, … or its id. Keeps no more of them than it must.

    Raises NoSuchShutdown, which says how many there are.
    """
    back = 1 if name == LAST else _backwards(name)
    latest: deque[NamedT] = deque(maxlen=back or 1)
    count = 0
    for each in found:
        if each.id == name:
            return each
        latest.append(each)
        count += 1
    if 0 < back <= count:
        return latest[0]
    known = f"there are {count}, the last is {latest[-1].id}" if count else "there is none yet"
    raise NoSuchShutdown(f"no shutdown {name!r} in this journal: {known}")


def _backwards(name: str) -> int:
    """3 for ``-3``; 0 for what is no such name."""
    digits = name[1:]
    fits = name.startswith("-") and digits.isascii() and digits.isdecimal() and len(digits) < 10
    return int(digits) if fits else 0
