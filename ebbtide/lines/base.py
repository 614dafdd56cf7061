"""What the tellers share: levels, how time is worded, and the pods' names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from events.base import NS_PER_SECOND
from events.record import Record

#: sd-daemon(3) log levels.
ERROR, WARNING, NOTICE, INFO = 3, 4, 5, 6

Line = tuple[int, str]
Teller = Callable[["Lines", Any, Record], Iterator[Line]]


def seconds(ns: int) -> str:
    """``20``, ``0.5``: at most one decimal, none where it would be zero."""
    tenths = (ns + 50_000_000) // 100_000_000
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"


def elapsed(ns: int) -> str:
    """``3.07``: what was measured, to the hundredth."""
    return f"{ns / NS_PER_SECOND:.2f}"


class Lines:
    """What must be remembered from one line to the next; a shutdown may go on from an earlier process."""

    def __init__(self, began_ns: int = 0, labels: Mapping[str, str] | None = None) -> None:
        self.labels = dict(labels or {})
        self.began_ns = began_ns

    def names(self, uids: Sequence[str]) -> str:
        return ", ".join(self.labels.get(uid, uid) for uid in uids)

    def since(self, record: Record) -> str:
        return elapsed(record.mono_ns - self.began_ns)
