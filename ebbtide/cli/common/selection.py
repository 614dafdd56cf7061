"""What people select of a journal, understood in the same way by every verb: a moment, an actor, a pod.

A moment (``--since``, ``--until``, ``--at``) is one of four things, told apart by their form alone:

- ``214``: a record's number;
- ``+3.5s``, ``-2s``: with a sign, a time since the shutdown's signal, or before it;
- ``10m``: without one, that long ago;
- ``2026-03-01T12:00:00Z``: a time (RFC 3339, or as the tables show it); without a zone UTC.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import msgspec

from ebbtide.cli.common.guard import Refused
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.codec import RawRecord
from ebbtide.events.messages import Names
from ebbtide.replay.timeline import Moment, is_actor, is_pod, short_name

MOMENT_METAVAR = "SEQ|+TIME|AGO|TIME"
#: For the help of an option.
MOMENT_FORMS = "214, +3.5s since the signal, 10m ago, or a time"


def parse_moment(text: str, option: str, now_ns: int | None = None) -> Moment:
    """``now_ns``: Unix time in nanoseconds. Raises Refused, with the option's name."""
    if text.isascii() and text.isdecimal():
        return Moment("seq", int(text))
    from ebbtide.config.readers import parse_duration

    try:
        duration_ns = parse_duration(text)
    except ValueError:
        duration_ns = None
    if duration_ns is not None:
        if text.lstrip().startswith(("+", "-")):
            return Moment("since_ns", duration_ns)
        return Moment("wall_ns", (time.time_ns() if now_ns is None else now_ns) - duration_ns)
    # What a verb prints can be given back to any verb, the "UTC" behind it too. For the same reason a time
    # without a zone is UTC and not local: it was most likely copied from a table, where all times are UTC.
    written = text.removesuffix(" UTC")
    # Exact to the nanosecond: `datetime` keeps microseconds.
    fraction = re.search(r"\.(\d{1,9})\d*", written)
    try:
        whole = datetime.fromisoformat(written.replace(fraction[0], "") if fraction else written)
        seconds = int((whole if whole.tzinfo else whole.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise Refused(
            f"{option} {text!r} is neither a record's number (214), nor a time since the signal (+3.5s), nor"
            " a duration back from now (10m), nor a time (2026-03-01T12:00:00Z)"
        ) from None
    return Moment("wall_ns", seconds * NS_PER_SECOND + int(fraction[1].ljust(9, "0") if fraction else 0))


def known_actor(wanted: str) -> str:
    """``wanted``, if it names one that writes records. Raises Refused, naming those that there are."""
    from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, EDGE, SYSTEM
    from ebbtide.events.writer import JOURNAL_ACTOR

    names = (*ACTOR_TYPE_BY_NAME, EDGE, SYSTEM, JOURNAL_ACTOR)
    if not any(is_actor(wanted.partition(":")[0], name, short_name(name)) for name in names):
        known = ", ".join(map(short_name, names))
        raise Refused(f"no actor is called {wanted!r}: name one of {known}, or NAME:SUBJECT")
    return wanted


class PodSelection:
    """The records of one pod: those that name it, and those of its actor.

    ``wanted`` is namespace/name, a name, or a UID. A pod that was made anew under its name has several UIDs.
    """

    def __init__(self, wanted: str, names: Names) -> None:
        self._wanted, self._names = wanted, names
        self._known = 0
        self._uids: set[str] = set()
        self._needles: list[bytes] = []

    def is_known(self) -> bool:
        """Whether a record has introduced it yet."""
        # Names only ever grow: the same number of them means that there is nothing new to look through.
        if len(self._names.labels) != self._known:
            self._known = len(self._names.labels)
            self._uids = {
                uid for uid, label in self._names.labels.items() if is_pod(self._wanted, uid, label)
            }
            # Sought in the encoded bytes, so that only what is shown is decoded. As a value of its own, and
            # as the subject in an order's key: the UID alone would also be found inside a longer one.
            self._needles = [
                needle for uid in self._uids for needle in (msgspec.msgpack.encode(uid), f"/{uid}/".encode())
            ]
        return bool(self._uids)

    def takes(self, raw: RawRecord) -> bool:
        if not self.is_known():
            return False
        return raw.actor.partition(":")[2] in self._uids or any(
            needle in raw.payload for needle in self._needles
        )
