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


#: What is ordered, by the word in the order's key; ``{pod}`` is its subject, ``{part}`` is behind the colon.
ORDERED = {
    "arm": "taking the delay lock",
    "disarm": "giving the delay lock back",
    "drop-in": "changing the drop-in for logind",
    "inventory": "listing the pods",
    "announce": "announcing what the node does",
    "start": "starting pod {pod}",
    "deliver": "delivering pod statuses",
    "release": "letting the machine go",
    "hook": "the preStop hook of {pod}/{part}",
    "stop": "the stop signal for {pod}/{part}",
    "kill": "SIGKILL for {pod}/{part}",
    "autopsy": "the autopsy of {pod}/{part}",
}


def ordered(lines: Lines, key: str) -> str:
    """In words what the order with this key is about (`events.base.order_key`); the key where it has none."""
    what, _, subject = key.partition("/")[2].partition("/")
    word, _, part = what.partition(":")
    uid = subject.rpartition("/")[0]
    words = ORDERED.get(word)
    return key if words is None else words.format(pod=lines.labels.get(uid, uid), part=part)


class Lines:
    """What must be remembered from one line to the next; a shutdown may go on from an earlier process."""

    def __init__(self, began_ns: int = 0, labels: Mapping[str, str] | None = None) -> None:
        self.labels = dict(labels or {})
        self.began_ns = began_ns
        #: Of the shutdown that runs; one that an earlier process began was told of by that one.
        self.lock_held = True

    def names(self, uids: Sequence[str]) -> str:
        return ", ".join(self.labels.get(uid, uid) for uid in uids)

    def since(self, record: Record) -> str:
        return elapsed(record.mono_ns - self.began_ns)
