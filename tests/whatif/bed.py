"""Shutdowns to ask "what if" of: simulated with given or drawn manners, so that the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from events.base import NS_PER_SECOND
from events.episodes import episodes
from events.history import History
from events.model import Container, Hook, Period, Pod, Settings
from events.source import Source
from replay.virtual import drawing
from replay.virtual.draws import Draws
from replay.virtual.machine import Machine
from replay.virtual.manner import HookPlan, Manner, PodPlan
from replay.virtual.plan import Faults, Plan
from replay.whatif.changes import Changes
from replay.whatif.compare import Comparison, PodSide, Span, compare
from replay.whatif.outline import Outline, outline
from replay.whatif.performing import WhatIf, perform
from replay.whatif.tape import Tape, read_tape

LOW, HIGH = 0, 1000
SECOND = NS_PER_SECOND
CALM = Faults()

#: An order takes a moment, and which moment is drawn anew.
SLACK_NS = SECOND // 20


def settings(low: int = 20, high: int = 10, **others: object) -> Settings:
    """Two waves of so many seconds."""
    periods = (Period(priority=LOW, seconds=low), Period(priority=HIGH, seconds=high))
    return Settings(by_pod_priority=periods, **others)  # type: ignore[arg-type]


def pod(name: str, priority: int = LOW, grace: int | None = 60, hook: Hook | None = None) -> Pod:
    return Pod(
        uid=f"uid-{name}",
        namespace="shop",
        name=name,
        priority=priority,
        grace_seconds=grace,
        containers=(Container(name="main", hook=hook),),
    )


def behaves(
    each: Pod,
    stop_seconds: float | None = 1,
    hook: HookPlan | None = None,
    appears_ns: int = 0,
    **more: object,
) -> PodPlan:
    """``stop_seconds`` None: it never ends by itself."""
    stop_ns = None if stop_seconds is None else int(stop_seconds * SECOND)
    manner = Manner(stop_ns=stop_ns, hook=hook or HookPlan(), reap_ns=5_000_000, **more)  # type: ignore[arg-type]
    return PodPlan(each, {container.name: manner for container in each.containers}, appears_ns)


class Recorded(NamedTuple):
    """A simulated shutdown on record, and what can be asked of it."""

    machine: Machine
    tape: Tape

    @property
    def source(self) -> Source:
        return self.machine.book.source()

    def ask(self, **changes: object) -> WhatIf:
        return perform(self.tape, Changes(**changes))  # type: ignore[arg-type]

    def compare(self, **changes: object) -> Comparison:
        return compare(self.ask(**changes))

    def truth(self, settings: Settings) -> Outline:
        """The same node, with the same manners, under other settings."""
        machine = Machine(self.machine.plan._replace(settings=settings)).run()
        records = machine.boots[0].records
        first = next(each.seq for each in records if each.episode == each.seq)
        mine = [(each.mono_ns, each.event) for each in records if each.episode == first]
        return outline(mine, mine[0][0])

    def seq_of(self, kind: type) -> int:
        """The number of the first record of a kind."""
        return next(each.seq for each in self.tape.events if isinstance(each.event, kind))


def record(pods: Sequence[PodPlan], given: Settings | None = None, faults: Faults = CALM) -> Recorded:
    return recorded(Plan(settings=given or settings(), pods=tuple(pods), faults=faults))


def recorded(plan: Plan) -> Recorded:
    machine = Machine(plan).run()
    source = machine.book.source()
    first = next(iter(episodes(History([source]))))
    return Recorded(machine, read_tape(History([source]), first.first_seq))


def drawn(seed: int, count: int = 12, *, calm: bool = False) -> Plan:
    """A plausible node, and what goes wrong with it."""
    draws = Draws(seed).fork("what-if")
    pods = drawing.plans(drawing.synthetic(count, draws), draws)
    return Plan(drawing.SETTINGS, pods, drawing.faults(draws.fork("faults"), calm=calm), seed=seed)


def side(found: Comparison, name: str) -> PodSide:
    return next(each for each in found.pods if each.line.pod.name == name)


def is_in(now: Span, truth_ns: int | None) -> bool:
    """Whether a true time lies between the two runs; None is later than any time."""
    low, high = now.bounds
    late = truth_ns is None or (low is not None and low <= truth_ns + SLACK_NS)
    return late and (high is None or (truth_ns is not None and truth_ns <= high + SLACK_NS))
