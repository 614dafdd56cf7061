"""What-if against the truth: of what it calls certain, how much is false, and how true are its chances?

    python -m tests.replay.whatif.truth                       # exit code 1: a limit does not hold
    python -m tests.replay.whatif.truth --seeds 10 --why      # and each false verdict

A night is simulated under one configuration. `what-if` decides it again under another, and the same seed is
simulated under that one. A pod's behaviour and the misfortunes are drawn before the run, from the seed alone.
The latencies of the edges are drawn in the order of their calls, and so is whether an unanswered delete was
taken: another configuration gives others.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes, shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord, took_ns
from ebbtide.events.values import Hook, Period, Pod, Settings
from ebbtide.replay.sim import scenario as drawing
from ebbtide.replay.sim.simulate import Machine
from ebbtide.replay.whatif.record import Changes, read_recorded_shutdown
from ebbtide.replay.whatif.verdicts import Curves, ended_well
from ebbtide.replay.whatif.whatif_run import Outline, PodSide, run_again
from tests.replay.sim.nights import drawn_pods, first_shutdown, hooked, periods
from tests.replay.whatif.bed import is_in

#: Mode process has no name in a plan.
MODES: dict[str, drawing.NodeMode] = {
    "process": "",
    "cri": "cri",
    "api": "api",
    "auto": "auto",
    "observe": "observe",
}
PODS = 8

#: In each mode.
SEEDS = 120
#: Earlier nights of the node, for the chances, and their first seed.
EARLIER, EARLIER_FIRST = 6, 1_000_000

#: The limits: false verdicts of each kind, intervals, and chances in bins of ten percent with enough pods.
FALSE_MOST = 0.005
HOLD_LEAST = 0.99
CHANCES_OFF_MOST = 0.05
BIN_LEAST = 200

KINDS = ("saved", "lost", "same")


def _ms(*quantiles: int) -> drawing.DurationQuantiles:
    return drawing.DurationQuantiles(tuple(each * MS for each in quantiles))


#: None: as `simulate` draws them.
POPULATIONS: dict[str, drawing.Behaviour | None] = {
    "drawn": None,
    "slow": drawing.Behaviour((drawing.BehaviourRule(stop=_ms(500, 5000, 12_000, 25_000, 45_000)),)),
    "stubborn": drawing.Behaviour((drawing.BehaviourRule(ignores=True, kill=_ms(0, 1500), of=3),)),
    "hooked": drawing.Behaviour(
        (
            drawing.BehaviourRule(hook=_ms(100, 4000, 15_000, 40_000)),
            drawing.BehaviourRule(hook_hangs=True, of=6),
            drawing.BehaviourRule(hook_fails=True, of=6),
        )
    ),
    "crashing": drawing.Behaviour((drawing.BehaviourRule(crashes=_ms(-9000, 0, 4000, 30_000), of=2),)),
}


CHANGES: dict[str, Settings] = {
    "shorter": periods(10, 5, 3),
    "longer": periods(45, 30, 20),
    "much longer": periods(120, 60, 30),
    "mixed": periods(3, 40, 10),
    "one wave": replace(drawing.DEFAULT_SETTINGS, by_pod_priority=(Period(priority=0, seconds=40),)),
    "elastic": replace(periods(20, 10, 5), budget="elastic"),
    "tiny": periods(1, 2, 1),
}


def plan_of(seed: int, mode: drawing.NodeMode, population: str) -> drawing.SimulationPlan:
    draws = drawing.Draws(seed).fork(f"truth {population}")
    hooks, behaves = draws.fork("hooks"), POPULATIONS[population]

    def changed(pod: Pod) -> Pod:
        if population != "hooked":
            return pod
        return hooked(pod, Hook(kind=hooks.weighted((3, "exec"), (1, "httpGet"))))

    pods, fork = drawn_pods(PODS, mode, draws, changed), draws.fork("behaviour")
    plans = drawing.draw_pod_plans(pods, fork) if behaves is None else behaves.plans(pods, fork)
    faults = drawing.draw_faults(draws.fork("faults"))
    if mode:
        faults = drawing.draw_node_faults(faults, mode, draws.fork("node faults"), calm=False)
    return drawing.SimulationPlan(drawing.DEFAULT_SETTINGS, plans, faults, seed=seed)


class Night(NamedTuple):
    """``first``: its first shutdown; None: none began in its first boot."""

    machine: Machine
    first: Outline | None

    @property
    def history(self) -> History:
        return History([self.machine.journal.source()])

    def ended_well(self, uid: str) -> bool | None:
        """By the record; where it does not show the end, by the world. None: not by the watched end."""
        known = ended_well(self.first.pods.get(uid)) if self.first is not None else None
        if known is not None:
            return known
        node = self.machine.boots[0].node
        boxes = [box for box in node.pods.every if box.uid == uid]
        if any(box.killed and box.exit_signal == "SIGKILL" for box in boxes):
            return False
        if any(box.phase != "exited" for box in boxes):
            return False if node.is_down else None
        return True


def night(plan: drawing.SimulationPlan) -> Night:
    machine = Machine(plan).run()
    return Night(machine, first_shutdown(machine))


@cache
def earlier(mode: str, population: str) -> list[ShutdownRecord]:
    plans = (plan_of(seed, MODES[mode], population) for seed in range(EARLIER_FIRST, EARLIER_FIRST + EARLIER))
    return [record for plan in plans for record in shutdown_records(night(plan).history)]


class Judged(NamedTuple):
    """A pod under a change. ``happened``: whether the verdict came true; None: the world does not tell.
    ``took``: whether the pod's time is in the interval; None: it was not seen to end.
    """

    where: str
    mode: str
    side: PodSide
    happened: bool | None
    took: bool | None
    truth: str


class Total(NamedTuple):
    where: str
    holds: bool


def judge(seed: int, mode: str, population: str, changes: Sequence[str]) -> Iterator[Judged | Total]:
    plan = plan_of(seed, MODES[mode], population)
    then = night(plan)
    first = next(iter(episodes(then.history)), None)
    if first is None or then.first is None:
        return
    shutdown = read_recorded_shutdown(then.history, first.first_seq)
    curves = Curves([*earlier(mode, population), *shutdown_records(then.history)])
    for change in changes:
        now = night(plan._replace(settings=CHANGES[change]))
        found = run_again(shutdown, Changes(settings=CHANGES[change]), curves)
        where = f"{mode} {population} seed {seed} {change}"
        if now.first is not None:
            yield Total(where, is_in(found.total, now.first.total_ns))
        for side in (side for side in found.pods if side.then is not None):
            uid = side.pod.uid
            known = ended_well(side.then)
            was, well = then.ended_well(uid) if known is None else known, now.ended_well(uid)
            good = was if side.change == "same" else side.change.endswith("saved")
            happened = None if well is None or good is None else well == good
            pod = now.first.pods.get(uid) if now.first is not None else None
            took = None if pod is None or took_ns(pod) is None else is_in(side.now(took_ns), took_ns(pod))
            yield Judged(where, mode, side, happened, took, f"{pod and pod.outcome}, ended well: {well}")


class Count:
    """So many of so many."""

    def __init__(self) -> None:
        self.yes = self.all = 0
        self.said = 0.0

    def add(self, yes: bool, said: float = 0) -> None:
        self.yes, self.all, self.said = self.yes + yes, self.all + 1, self.said + said

    def __str__(self) -> str:
        return f"{self.yes} of {self.all}"

    @property
    def share(self) -> float:
        return self.yes / self.all if self.all else 0


class Tally:
    def __init__(self) -> None:
        self.nights = 0
        #: False verdicts by kind, then also by mode or evidence.
        self.false: dict[tuple[str, str], Count] = {}
        self.totals, self.took = Count(), Count()
        self.bins = [Count() for _ in range(10)]
        self.perhaps: Counter[str] = Counter()
        self.wrong: list[str] = []

    def add(self, found: Judged | Total) -> None:
        if isinstance(found, Total):
            self.nights += 1
            self.totals.add(found.holds)
            return
        side = found.side
        if found.took is not None:
            self.took.add(found.took)
        if found.happened is None:
            return
        if side.chance_percent is not None:
            self.perhaps[side.change] += 1
            self.bins[min(side.chance_percent // 10, 9)].add(found.happened, side.chance_percent / 100)
            return
        for by in ("", found.mode, side.support.level):
            self.false.setdefault((side.change, by), Count()).add(not found.happened)
        if not found.happened:
            then = side.then.outcome if side.then else None
            self.wrong.append(
                f"{found.where} {side.pod.label}: {side.change} ({side.support.level}) {then} ->"
                f" {side.outcomes}, and was {found.truth}; {side.support.why}"
            )

    def lines(self) -> Iterator[str]:
        for kind in KINDS:
            by = (f"{name} {count}" for (one, name), count in self.false.items() if one == kind and name)
            yield f"false {kind}: {self.of(kind)} ({', '.join(by)})"
        for at, each in enumerate(self.bins):
            if each.all:
                said = each.said / each.all
                yield f"chance {10 * at}+ %: {said:.1%} said, {each.share:.1%} happened, of {each.all}"
        yield f"intervals: of the total {self.totals}, of the pods {self.took}"
        false = ", ".join(f"{self.of(kind)} {kind}" for kind in KINDS)
        perhaps = self.perhaps.total()
        yield f"{self.nights} shutdowns decided again: false {false}; {perhaps} perhaps"

    def of(self, kind: str) -> Count:
        return self.false.get((kind, ""), Count())

    def broken(self) -> Iterator[str]:
        for kind in KINDS:
            if self.of(kind).share > FALSE_MOST:
                yield f"{self.of(kind)} {kind} are false: more than {FALSE_MOST:.1%}"
        for name, count in (("totals", self.totals), ("pods' times", self.took)):
            if count.share < HOLD_LEAST:
                yield f"{count} {name} are in their interval: less than {HOLD_LEAST:.0%}"
        for each in self.bins:
            if each.all >= BIN_LEAST and abs(each.share - each.said / each.all) > CHANCES_OFF_MOST:
                yield f"said {each.said / each.all:.1%}, happened {each.share:.1%} of {each.all}"


def tally(modes: Sequence[str], seeds: Sequence[int]) -> Tally:
    """A population and two of the changes for each night, in turn."""
    found, populations, changes = Tally(), list(POPULATIONS), list(CHANGES)
    for mode in modes:
        for seed in seeds:
            turn = seed // len(populations)
            pair = [changes[(turn + each) % len(changes)] for each in (0, 3)]
            for each in judge(seed, mode, populations[seed % len(populations)], pair):
                found.add(each)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay.whatif.truth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"nights in each mode ({SEEDS})")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="beginning with this one (0)")
    parser.add_argument("--mode", choices=MODES, help="this one only")
    parser.add_argument("--why", action="store_true", help="print each false verdict")
    asked = parser.parse_args()
    found = tally([asked.mode] if asked.mode else list(MODES), range(asked.first, asked.first + asked.seeds))
    broken = list(found.broken())
    print(*(found.wrong if asked.why else ()), *broken, *found.lines(), sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
