"""Simulated shutdowns for what-if, with given or drawn behaviour, so that the truth is available."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import Source
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes, shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.values import Hook, Period, Pod, Settings
from ebbtide.replay.sim import scenario as drawing
from ebbtide.replay.sim.scenario import ContainerPlan, Draws, Faults, HookPlan, PodPlan, SimulationPlan
from ebbtide.replay.sim.simulate import Machine
from ebbtide.replay.whatif.record import Changes, RecordedShutdown, read_recorded_shutdown
from ebbtide.replay.whatif.whatif_run import Comparison, Interval, Outline, PodSide, run_again
from tests import journals
from tests.replay.sim.nights import first_shutdown

LOW, HIGH = 0, 1000
SECOND = NS_PER_SECOND
CALM = Faults()

#: An order's delay is drawn anew.
SLACK_NS = SECOND // 20


def settings(low: int = 20, high: int = 10, **others: object) -> Settings:
    periods = (Period(priority=LOW, seconds=low), Period(priority=HIGH, seconds=high))
    return Settings(by_pod_priority=periods, **others)  # type: ignore[arg-type]


def pod(name: str, priority: int = LOW, grace: int | None = 60, hook: Hook | None = None) -> Pod:
    return journals.pod(name, priority, grace=grace, hook=hook)


def behaves(
    each: Pod,
    stop_seconds: float | None = 1,
    hook: HookPlan | None = None,
    appears_ns: int = 0,
    **more: object,
) -> PodPlan:
    """``stop_seconds`` None: it never ends by itself."""
    stop_ns = None if stop_seconds is None else int(stop_seconds * SECOND)
    manner = ContainerPlan(stop_ns=stop_ns, hook=hook or HookPlan(), reap_ns=5_000_000, **more)  # type: ignore[arg-type]
    return PodPlan(each, {container.name: manner for container in each.containers}, appears_ns)


class Recorded(NamedTuple):
    """A recorded simulated shutdown, and its what-ifs."""

    machine: Machine
    shutdown: RecordedShutdown

    @property
    def source(self) -> Source:
        return self.machine.journal.source()

    @property
    def account(self) -> ShutdownRecord:
        return next(shutdown_records(History([self.source])))

    def ask(self, **changes: object) -> Comparison:
        return run_again(self.shutdown, Changes(**changes))  # type: ignore[arg-type]

    def truth(self, settings: Settings) -> Outline:
        """The same node and behaviour under other settings."""
        found = first_shutdown(Machine(self.machine.plan._replace(settings=settings)).run())
        assert found is not None
        return found


def record(pods: Sequence[PodPlan], given: Settings | None = None, faults: Faults = CALM) -> Recorded:
    return recorded(SimulationPlan(settings=given or settings(), pods=tuple(pods), faults=faults))


def recorded(plan: SimulationPlan) -> Recorded:
    machine = Machine(plan).run()
    source = machine.journal.source()
    first = next(iter(episodes(History([source]))))
    return Recorded(machine, read_recorded_shutdown(History([source]), first.first_seq))


def drawn(seed: int, count: int = 12, *, calm: bool = False) -> SimulationPlan:
    draws = Draws(seed).fork("what-if")
    pods = drawing.draw_pod_plans(drawing.synthetic_pods(count, draws), draws)
    return SimulationPlan(
        drawing.DEFAULT_SETTINGS, pods, drawing.draw_faults(draws.fork("faults"), calm=calm), seed=seed
    )


def side(found: Comparison, name: str) -> PodSide:
    return next(each for each in found.pods if each.pod.name == name)


def is_in(now: Interval, truth_ns: int | None) -> bool:
    """Is the true time between the two runs? None is later than any time."""
    low, high = now.bounds
    late = truth_ns is None or (low is not None and low <= truth_ns + SLACK_NS)
    return late and (high is None or (truth_ns is not None and truth_ns <= high + SLACK_NS))
