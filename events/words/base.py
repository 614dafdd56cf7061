"""What the sentences share: how grave they are, how time is worded, and who is who.

A sentence says what happened, never when and to whom: the system log, a timeline and a report put their own
columns or prefixes around it, and all three read alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from events import decisions as d
from events import facts as f
from events.base import Event
from events.record import Stamp

#: How grave it is, as sd-daemon(3) counts: smaller is worse.
ERROR, WARNING, NOTICE, INFO, DEBUG = 3, 4, 5, 6, 7


class Said(NamedTuple):
    """A sentence, and how grave it is. `INFO` is what the system log may leave out, `DEBUG` bookkeeping."""

    level: int
    text: str


class Names:
    """What must be remembered from one sentence to the next: names and waves of pods, and the lock."""

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        #: UID to ``namespace/name``.
        self.labels = dict(labels or {})
        #: UID to the wave that the pod was last planned into.
        self.waves: dict[str, int] = {}
        #: Whether the shutdown that runs holds a lock that it can give back.
        self.lock_held = True

    def of(self, uid: str) -> str:
        return self.labels.get(uid, uid)

    def all_of(self, uids: Iterable[str]) -> str:
        return ", ".join(map(self.of, uids))

    def learn(self, event: Event) -> None:
        """To be called with every event, also with one that nothing is said of."""
        learn = _LEARN.get(type(event))
        if learn is not None:
            learn(self, event)


def _appeared(names: Names, event: f.PodAppeared) -> None:
    names.labels[event.pod.uid] = event.pod.label


def _joined(names: Names, event: f.PodJoined) -> None:
    names.labels[event.pod.uid] = event.pod.label


def _listed(names: Names, event: f.InventoryTaken) -> None:
    names.labels.update((pod.uid, pod.label) for pod in event.pods)


def _planned(names: Names, event: d.PodPlanned) -> None:
    names.labels[event.pod.uid] = event.pod.label
    names.waves[event.pod.uid] = event.wave


def _rejected(names: Names, event: d.PodRejected) -> None:
    names.labels[event.uid] = event.label


def _began(names: Names, event: d.ShutdownBegan) -> None:
    names.lock_held = event.lock_held
    names.waves.clear()


_LEARN: dict[type[Event], Callable[[Names, Any], None]] = {
    f.PodAppeared: _appeared,
    f.InventoryTaken: _listed,
    f.PodJoined: _joined,
    d.PodPlanned: _planned,
    d.PodRejected: _rejected,
    d.ShutdownBegan: _began,
}

#: Type tags of the events that names are learned from.
INTRODUCING: tuple[str, ...] = tuple(kind.__name__ for kind in _LEARN)

#: Words an event, with the stamp of its record.
Teller = Callable[[Names, Any, Stamp], Said]


def seconds(ns: int) -> str:
    """``20``, ``0.5``: at most one decimal, none where it would be zero."""
    tenths = (ns + 50_000_000) // 100_000_000
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"


def elapsed(ns: int) -> str:
    """``3.07``: what was measured, to the hundredth."""
    hundredths = (abs(ns) + 5_000_000) // 10_000_000
    return f"{'-' if ns < 0 and hundredths else ''}{hundredths // 100}.{hundredths % 100:02d}"


def count(number: int, what: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


#: What is ordered, by the word in the order's key; ``{pod}`` is its subject, ``{part}`` is behind the colon.
ORDERED = {
    "arm": "taking the delay lock",
    "disarm": "giving the delay lock back",
    "drop-in": "changing the drop-in for logind",
    "inventory": "listing the pods",
    "announce": "announcing what the node does",
    "start": "starting pod {pod}",
    "deliver": "delivering pod statuses",
    "traces": "sending the traces",
    "release": "letting the machine go",
    "hook": "the preStop hook of {pod}/{part}",
    "stop": "the stop signal for {pod}/{part}",
    "kill": "SIGKILL for {pod}/{part}",
    "autopsy": "the autopsy of {pod}/{part}",
    "delete": "the delete of {pod}",
    "event": "posting an Event",
    "owner": "an Event for the owner of {pod}",
    "withdraw": "taking pods out of their Services",
    "await": "waiting for final statuses",
    "unmount": "waiting for volumes",
    "mounts": "looking at what is mounted",
    "certificate": "publishing the certificate",
    "kubelet-stop": "stopping the kubelet",
    "stop-kubelet": "stopping the kubelet",
    "kubelet-start": "starting the kubelet again",
}

#: Where one actor uses a word for something of its own.
ORDERED_BY = {("KubeletActor", "stop"): "kubelet-stop", ("KubeletActor", "start"): "kubelet-start"}


class Ordered(NamedTuple):
    """What the key of an order says (`events.base.order_key`): ``what`` is its word, ``part`` a container."""

    actor: str
    what: str
    part: str
    uid: str


def parse_key(key: str) -> Ordered:
    """Of a text that is no key, all parts but ``actor`` are empty."""
    actor, _, rest = key.partition("/")
    word, _, subject = rest.partition("/")
    what, _, part = word.partition(":")
    return Ordered(actor, what, part, subject.rpartition("/")[0])


def ordered(names: Names, key: str) -> str:
    """In words what the order with this key is about; the key where it has none."""
    parts = parse_key(key)
    words = ORDERED.get(ORDERED_BY.get(parts[:2], parts.what))
    return key if words is None else words.format(pod=names.of(parts.uid), part=parts.part)
