"""Parts of event texts: levels, pod names, lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: As in sd-daemon(3): smaller is worse.
ERROR, WARNING, NOTICE, INFO, DEBUG = 3, 4, 5, 6, 7


class Message(NamedTuple):
    level: int
    text: str


#: Forms of a log line. ``since``: time since the shutdown's begin.
UNLOGGED = ""
PLAIN, TIMED = "{text}", "{since} {text}"
OF_POD, TIMED_OF_POD = "pod {pod} {text}", "{since} pod {pod} {text}"


class Names:
    """Names from earlier events of the whole journal: also events outside of a shutdown name pods."""

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        #: UID to ``namespace/name``.
        self.labels = dict(labels or {})
        #: UID to the wave of the pod's last plan.
        self.waves: dict[str, int] = {}
        #: From the last `ShutdownBegan`.
        self.lock_held = True
        self.grant_ns = 0
        #: From the last plan, by wave.
        self.period_seconds: tuple[int, ...] = ()

    def of(self, uid: str) -> str:
        return self.labels.get(uid, uid)

    def all_of(self, uids: Iterable[str]) -> str:
        return ", ".join(map(self.of, uids))

    def some_of(self, uids: Sequence[str]) -> str:
        return shortened_list([self.of(uid) for uid in uids])


def plural(count: int, noun: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


#: More would make a line too long to read.
NAMES_MAX = 8


def shortened_list(texts: Sequence[str], most: int = NAMES_MAX) -> str:
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def mounts_text(names: Names, mounted: Sequence[tuple[str, str]]) -> str:
    """``shop/web-0 data``; the path alone for a driver's mount."""
    return shortened_list([f"{names.of(uid)} {volume}" if uid else volume for uid, volume in mounted])


#: By `events.values.BootEnding`.
ENDING_TEXTS = {
    "graceful": "graceful",
    "cut-short": "cut short at wave {wave}",
    "never-begun": "never begun",
    "abrupt": "without a shutdown",
    "unknown": "no shutdown was seen, and no log shows its end",
}
END_REASON_TEXTS = {
    "bypassed": "inhibitor bypassed",
    "not-configured": "periods not configured",
    "not-armed": "the daemon was not armed",
    "not-running": "the daemon did not run any more",
    "time-over": "the time for it was over",
    "panic": "kernel panic or hang",
    "watchdog": "reset by the watchdog",
    "unrecorded": "power cut, reset, or a forced restart",
}


def boot_end_text(ending: str, why: str, wave: int) -> str:
    """``cut short at wave 2: kernel panic or hang``."""
    text, reason = ENDING_TEXTS.get(ending, ending).format(wave=wave), END_REASON_TEXTS.get(why, why)
    if ending == "graceful" and reason:
        return f"{text}, though: {reason}"
    return f"{text}: {reason}" if reason else text
