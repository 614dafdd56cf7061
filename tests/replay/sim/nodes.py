"""A simulated Kubernetes node's name: seed, mode, pods, and removed parts.

without PART   removes a drawn part: a pod (``pod.2``), or a fault (``crash_after_ns``, a field of
`replay.sim.scenario.Faults`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ebbtide.replay.sim.invariants import Breach
from ebbtide.replay.sim.scenario import Faults, NodeMode, SimulationPlan
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, check_run, plan_of
from tests.long_run import fewest

MODES: tuple[NodeMode, ...] = ("auto", "api", "cri", "observe")

#: The default: enough for some waves, and few enough to read.
PODS = 8

#: The shutdown's kind, not a fault.
NOT_A_PART = ("kind", "mode")


class Name(NamedTuple):
    """One node. ``without``: as `parts` calls them."""

    seed: int
    mode: NodeMode
    pods: int = PODS
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        options = [f"--mode {self.mode}", f"--pods {self.pods}" if self.pods != PODS else ""]
        options += [f"--seed {self.seed}", f"--without {' '.join(self.without)}" if self.without else ""]
        return f"python -m tests.replay.sim {' '.join(filter(None, options))}"


class Tried(NamedTuple):
    """A finished node. Empty ``breaches``: everything held."""

    name: Name
    machine: Machine
    breaches: Sequence[Breach]

    def __str__(self) -> str:
        lines = [f"{breach.invariant}: {breach.sentence}" for breach in self.breaches]
        return "\n".join([f"{self.name}", *lines])


class UnknownPart(Exception):
    """Not of this node."""


def whole_plan(name: Name) -> SimulationPlan:
    return plan_of(SimulationRequest(synthetic=name.pods, mode=name.mode), name.seed)


def parts(plan: SimulationPlan) -> list[str]:
    """Removable parts. A pair of start and end is removed together."""
    calm, faults = Faults(), plan.faults
    fields = [
        field
        for field in faults._fields
        if field not in NOT_A_PART and getattr(faults, field) != getattr(calm, field)
    ]
    return [*fields, *(f"pod.{index}" for index in range(len(plan.pods)))]


def plan_without(name: Name) -> SimulationPlan:
    """Raises UnknownPart."""
    plan = whole_plan(name)
    unknown = [part for part in name.without if part not in parts(plan)]
    if unknown:
        raise UnknownPart(f"it has no {', '.join(unknown)}; it has {', '.join(parts(plan))}")
    calm = Faults()._asdict()
    faults = plan.faults._replace(**{part: calm[part] for part in name.without if part in calm})
    pods = tuple(pod for index, pod in enumerate(plan.pods) if f"pod.{index}" not in name.without)
    return plan._replace(pods=pods, faults=faults)


def try_out(name: Name) -> Tried:
    """Run a node and look at it."""
    machine = Machine(plan_without(name)).run()
    return Tried(name, machine, check_run(machine))


def shrink(broken: Tried) -> Tried:
    """The same breach with the fewest parts."""
    rules = {breach.invariant for breach in broken.breaches}

    def breaks(without: tuple[str, ...]) -> bool:
        less = try_out(broken.name._replace(without=without))
        return bool(rules & {breach.invariant for breach in less.breaches})

    found = fewest(broken.name.without, parts(whole_plan(broken.name)), breaks)
    return try_out(broken.name._replace(without=found))
