"""A simulated Kubernetes node's name: seed, mode, pods, and removed parts.

without PART   removes a drawn part: a pod (``pod.2``), or a fault (``crash_after_ns``, a field of
`replay.sim.scenario.Faults`)
"""

from __future__ import annotations

from typing import NamedTuple

from ebbtide.replay.sim.scenario import Faults, NodeMode, SimulationPlan
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, check_run, plan_of
from tests.long_run import Tried, refuse_unknown, shrink

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


Node = Tried[Name, Machine]


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
    plan = whole_plan(name)
    refuse_unknown(name.without, parts(plan))
    calm = Faults()._asdict()
    faults = plan.faults._replace(**{part: calm[part] for part in name.without if part in calm})
    pods = tuple(pod for index, pod in enumerate(plan.pods) if f"pod.{index}" not in name.without)
    return plan._replace(pods=pods, faults=faults)


def try_out(name: Name) -> Node:
    """Run a node and look at it."""
    machine = Machine(plan_without(name)).run()
    return Tried(name, machine, check_run(machine))


def fewest(broken: Node) -> Node:
    """The same breach with the fewest parts."""
    return shrink(broken, parts(whole_plan(broken.name)), try_out)
