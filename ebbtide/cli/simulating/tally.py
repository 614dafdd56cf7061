"""What many runs come to: counts of outcomes and fates, and the seeds that broke something."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from replay.virtual.invariants import Breach
from replay.virtual.simulate import Simulated


class Broken(NamedTuple):
    """A seed with what did not hold, and the command that shows it again."""

    seed: int
    breaches: list[Breach]
    command: str


class Tally:
    """Counts over all runs so far."""

    def __init__(self) -> None:
        self.runs = self.events = self.bytes = 0
        self.seconds = 0.0
        self.outcomes: Counter[str] = Counter()
        self.pods: Counter[str] = Counter()
        self.broken: list[Broken] = []

    def add(self, simulated: Simulated, command: str) -> None:
        self.runs += 1
        self.events += len(simulated.machine.book.records)
        self.bytes += sum(map(len, simulated.files().values()))
        for account in simulated.accounts():
            self.outcomes[account.outcome] += 1
            self.pods.update(pod.outcome or "unknown" for pod in account.pods)
        if simulated.breaches:
            self.broken.append(Broken(simulated.seed, simulated.breaches, command))
