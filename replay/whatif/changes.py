"""What is to be different: settings, pods, logind's grant, and single facts of the record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

import msgspec
from msgspec.structs import replace

from events.base import Fact
from events.facts import (
    DaemonStarted,
    InventoryTaken,
    LogindRead,
    PrepareForShutdown,
    SettingsLoaded,
    StopRequested,
    Tick,
)
from events.model import Pod, Settings
from replay.whatif.tape import Played, Tape


class WrongChange(ValueError):
    """What was asked for cannot be done to this record. One line, with what to ask for instead."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """None, or empty: as recorded. ``delay`` are (sequence number, nanoseconds).

    A pod of the same ``namespace/name`` as a recorded one takes its place, and its behaviour with it; any
    other is added, and behaves as nobody knows. Raises ValueError where a time is negative.
    """

    settings: Settings | None = None
    pods: tuple[Pod, ...] = ()
    grant_ns: int | None = None
    drop: tuple[int, ...] = ()
    delay: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.grant_ns is not None and self.grant_ns < 0:
            raise ValueError(f"a grant of {self.grant_ns} ns is negative")
        for seq, delay_ns in self.delay:
            if delay_ns < 0:
                raise ValueError(f"the delay of record {seq}, {delay_ns} ns, is negative")


class Told(NamedTuple):
    """A fact as the new run is to hear of it: recorded at ``mono_ns``, to be told ``delay_ns`` later."""

    seq: int
    mono_ns: int
    event: Fact
    delay_ns: int = 0

    @property
    def at_ns(self) -> int:
        return self.mono_ns + self.delay_ns


def facts_under(tape: Tape, changes: Changes, grant_ns: int | None) -> tuple[Told, ...]:
    """The recorded facts as changed; ``grant_ns`` None: as recorded. Raises WrongChange."""
    delays = dict(changes.delay)
    for seq in (*changes.drop, *delays):
        _check(tape, seq)
    _agree(changes)
    edit = _Edit(tape, changes, grant_ns)
    return tuple(
        Told(each.seq, each.mono_ns, edit.fact(each), delays.get(each.seq, 0) + edit.moved_ns(each))
        for each in tape.facts
        if each.seq not in changes.drop
    )


def _check(tape: Tape, seq: int) -> None:
    found = next((each for each in tape.events if each.seq == seq), None)
    if found is None:
        where = f"it has the records {tape.first_seq} to {tape.last_seq}"
        raise WrongChange(f"record {seq} is no event of this shutdown: {where}")
    name = type(found.event).__name__
    if found.cause:
        root = _root(tape, found)
        raise WrongChange(f"record {seq} is the decision {name}: name the fact that led to it, {root}")
    if isinstance(found.event, Tick):
        raise WrongChange(f"record {seq} is a tick: it follows from deadlines; change the settings instead")
    if seq == tape.first_seq:
        raise WrongChange(f"record {seq} is the {name} that begins the shutdown: without it there is none")


def _agree(changes: Changes) -> None:
    seen: dict[int, None] = {}
    for seq, _ in changes.delay:
        if seq in changes.drop:
            raise WrongChange(f"record {seq} is to be dropped and delayed: ask for one of the two")
        if seq in seen:
            raise WrongChange(f"record {seq} has two delays: ask for one of them, or for their sum")
        seen[seq] = None


def _root(tape: Tape, found: Played) -> int:
    by_seq = {each.seq: each for each in tape.events}
    while found.cause:
        found = by_seq[found.cause]
    return found.seq


class _Edit:
    """Given pods in the place of recorded ones, by label; what is new joins the last part of each listing."""

    def __init__(self, tape: Tape, changes: Changes, grant_ns: int | None) -> None:
        recorded = {pod.label: pod for pod in recorded_pods(tape)}
        self._given = {pod.label: _in_place_of(recorded.get(pod.label), pod) for pod in changes.pods}
        self._new = tuple(pod for label, pod in self._given.items() if label not in recorded)
        self._then, self._now = tape.settings, changes.settings
        self._tape, self._grant_ns = tape, grant_ns

    def fact(self, played: Played) -> Fact:
        event = cast(Fact, played.event)
        if isinstance(event, InventoryTaken):
            return self._listed(event)
        if isinstance(event, SettingsLoaded) and self._now is not None:
            return replace(event, settings=self._now) if event.settings == self._then else event
        return event if self._grant_ns is None else _with_grant(event, self._tape.grant_ns, self._grant_ns)

    def moved_ns(self, played: Played) -> int:
        """logind's own timer lets the machine go when the grant is over, whatever that is."""
        event, granted_ns = played.event, self._tape.grant_ns
        by_timer = isinstance(event, StopRequested) and event.system_stopping and self._grant_ns is not None
        if not by_timer or self._grant_ns is None or played.mono_ns - self._tape.signal_ns < granted_ns:
            return 0
        return self._grant_ns - granted_ns

    def _listed(self, event: InventoryTaken) -> InventoryTaken:
        if not self._given:
            return event
        pods = tuple(self._given.get(pod.label, pod) for pod in event.pods)
        return replace(event, pods=pods + (self._new if event.part == event.parts else ()))


def _with_grant(event: Fact, then_ns: int, now_ns: int) -> Fact:
    """A fact that tells the grant of then tells that of now; another value, read later, stays."""
    tells = isinstance(event, PrepareForShutdown | LogindRead | DaemonStarted) and event.grant_ns == then_ns
    return replace(event, grant_ns=now_ns) if tells else event


def recorded_pods(tape: Tape) -> Iterator[Pod]:
    """As listed, again and again."""
    listings: Iterable[InventoryTaken] = (
        each.event for each in tape.facts if isinstance(each.event, InventoryTaken)
    )
    return (pod for listing in listings for pod in listing.pods)


def _in_place_of(recorded: Pod | None, pod: Pod) -> Pod:
    """What had ended at the signal had ended; a manifest does not know."""
    if recorded is None:
        return pod
    running = {each.name: each.running for each in recorded.containers}
    containers = tuple(replace(each, running=running.get(each.name, True)) for each in pod.containers)
    return replace(pod, uid=recorded.uid, containers=containers)
