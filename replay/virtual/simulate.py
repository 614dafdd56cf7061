"""The front door of a simulation: from what somebody wants, and a seed, to a run that was checked.

>>> from replay.virtual.simulate import Wanted, simulate
>>> run = simulate(Wanted(synthetic=30), seed=7)
>>> run.breaches, run.files()          # what did not hold, and the journal's segments by name
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from events.history import History
from events.model import Pod, Settings
from replay.account.fold import accounts
from replay.account.model import Account
from replay.virtual import drawing
from replay.virtual.behaviour import Behaviour
from replay.virtual.book import Shelf
from replay.virtual.check import check
from replay.virtual.draws import Draws
from replay.virtual.invariants import Breach
from replay.virtual.machine import Machine
from replay.virtual.plan import Faults, Mode, Plan

#: Pods of a node where nobody says how many.
SYNTHETIC_PODS = 30


class Wanted(NamedTuple):
    """What is to be simulated. ``pods`` None: ``synthetic`` of them are drawn.

    ``behaviour`` None: it is drawn from the seed, with what goes wrong on the node; ``calm``: without that.
    """

    settings: Settings = drawing.SETTINGS
    sources: dict[str, str] = {}
    pods: tuple[Pod, ...] | None = None
    synthetic: int = SYNTHETIC_PODS
    behaviour: Behaviour | None = None
    calm: bool = False
    version: str = "0"
    #: Of a Kubernetes node's daemon; empty: there is none.
    mode: Mode = ""
    api_lost_after_ns: int | None = None


class Simulated(NamedTuple):
    """A run that is over. Empty ``breaches``: every invariant held, and its journal replays."""

    seed: int
    machine: Machine
    breaches: list[Breach]

    def files(self) -> dict[str, bytes]:
        """The journal's segments as names and bytes, in the order of writing."""
        return self.machine.book.files()

    def accounts(self) -> Iterator[Account]:
        """What the journal tells of its shutdowns."""
        return accounts(History([Shelf(self.files())]))


def plan_of(wanted: Wanted, seed: int) -> Plan:
    """Everything that the run of this seed is a function of."""
    draws = Draws(seed)
    pods = (
        drawing.synthetic(wanted.synthetic, draws.fork("synthetic")) if wanted.pods is None else wanted.pods
    )
    if wanted.mode:
        pods = drawing.of_node(pods, draws.fork("of node")) if wanted.pods is None else pods
    behaves, fork = wanted.behaviour, draws.fork("behaviour")
    plans = drawing.plans(pods, fork) if behaves is None else behaves.plans(pods, fork)
    drawn = drawing.faults(draws.fork("faults"), calm=wanted.calm)
    faults = _on_node(wanted, drawn if behaves is None else behaves.faults, draws)
    return Plan(
        settings=wanted.settings,
        sources=wanted.sources,
        pods=plans,
        faults=faults,
        seed=seed,
        version=wanted.version,
        node=f"node-{seed}",
    )


def _on_node(wanted: Wanted, faults: Faults, draws: Draws) -> Faults:
    """What was asked for has the last word."""
    if wanted.mode and wanted.behaviour is None:
        faults = drawing.node_faults(faults, wanted.mode, draws.fork("node faults"), calm=wanted.calm)
    elif wanted.mode:
        faults = faults._replace(mode=wanted.mode)
    if wanted.api_lost_after_ns is None:
        return faults
    return faults._replace(api_lost_after_ns=wanted.api_lost_after_ns, api_back_after_ns=None)


def simulate(wanted: Wanted, seed: int) -> Simulated:
    """Run and check one seed. Raises replay.virtual.loop.RanAway, events.frames.FrameTooLarge."""
    machine = Machine(plan_of(wanted, seed)).run()
    return Simulated(seed, machine, check(machine))
