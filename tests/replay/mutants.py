"""Invert each comparison of the logic in turn and count the mutants that no script and no journal catches.

    python -m tests.replay.mutants            # the survivors; exit code 1 if there are more than before

A comparison is inverted; an inequality also moves its border (``<`` to ``<=``). A mutant is killed if a step
of an interaction script leads to other records, another state or another deadline, or if a journal does not
replay.
"""

from __future__ import annotations

import ast
import gc
import importlib
import os
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ebbtide.events.catalog import DirectorySource, Source
from ebbtide.events.reader import History
from ebbtide.events.segment import OUTAGE_LOGIC, SHUTDOWN_LOGIC
from ebbtide.replay.sim.scenario import NodeMode
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from tests.core_modules import FILES, ROOT, module_name
from tests.journals import CANCELLED, SHUTDOWN, Memory
from tests.replay import outages
from tests.replay.mutated import rewritten
from tests.scripts.bench import Step, logic_of
from tests.scripts.verbs import benches

SCRIPTS = ROOT / "tests" / "scripts"

#: Kubernetes nodes by mode and seed: hand-overs by plan and by lost API server, a cancel, late pods, volumes,
#: a kubelet's lock, an absent or unstartable kubelet, lost delete outcomes, a dying daemon.
NODES: tuple[tuple[NodeMode, int], ...] = (
    ("", 1),
    ("api", 1),
    ("api", 4),
    ("api", 11),
    ("api", 12),
    ("api", 16),
    ("api", 20),
    ("api", 42),
    ("api", 117),
    ("cri", 5),
    ("cri", 12),
    ("cri", 18),
    ("cri", 28),
    ("cri", 59),
    ("cri", 142),
    ("observe", 5),
    ("observe", 20),
    ("auto", 84),
    ("auto", 294),
)

#: Outage worlds by seed: several leaders each, one with a dry run.
OUTAGES = (1, 4639, 11041)
OUTAGES_ONLY = "ebbtide.actors.outage"

#: No actor uses these: `ebbtide plan` (tests/actors/policy), `outage explain` and a divergence's report do.
PASSED_OVER = (
    "ebbtide.actors.policy.planning.",
    "ebbtide.actors.hang.detach_hang",
    "ebbtide.actors.system.differing_field",
)

#: One survivor means that a comparison lost its script, or never needed one: add a script, or write the code
#: without the comparison.
SURVIVORS_MAX = 0

#: A mutant may loop. All scripts and journals take a few seconds.
SECONDS_MAX = 30

#: An operator and its replacements.
TURNED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


class Mutant(NamedTuple):
    """The ``nth`` comparison of its module in walk order; ``made``: its new text."""

    module: str
    function: str
    nth: int
    operand: int
    operator: type[ast.cmpop]
    line: int
    before: str
    made: str

    def __str__(self) -> str:
        return f"{self.module.removeprefix('ebbtide.actors.')}.{self.function}: {self.before} -> {self.made}"

    def source(self, text: str) -> str:
        tree = ast.parse(text)
        compare = _compares(tree)[self.nth]
        compare.ops[self.operand] = self.operator()
        return ast.unparse(tree)


def mutants() -> Iterator[Mutant]:
    for path in FILES:
        for mutant in of_module(module_name(path), path.read_text()):
            if not f"{mutant.module}.{mutant.function}".startswith(PASSED_OVER):
                yield mutant


def of_module(module: str, text: str) -> Iterator[Mutant]:
    tree = ast.parse(text)
    functions = {
        id(node): function.name
        for function in ast.walk(tree)  # breadth first: an inner function has the last word
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    for nth, compare in enumerate(_compares(tree)):
        function = functions.get(id(compare), "")
        before = ast.unparse(compare)
        for at, operator in enumerate(compare.ops):
            for other in TURNED[type(operator)]:
                compare.ops[at] = other()
                yield Mutant(module, function, nth, at, other, compare.lineno, before, ast.unparse(compare))
                compare.ops[at] = operator


def _compares(tree: ast.AST) -> list[ast.Compare]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]


class Stories(NamedTuple):
    """Some of these must catch a mutant: scripts' steps, and journals."""

    scripts: list[list[Step]]
    journals: list[History]


def stories() -> tuple[Stories, Stories]:
    """Of shutdowns and of outages."""
    sources: list[Source] = [DirectorySource(SHUTDOWN), DirectorySource(CANCELLED)]
    sources += [
        simulate(SimulationRequest(synthetic=12, mode=mode), seed).machine.journal.source()
        for mode, seed in NODES
    ]
    worlds = [History([Memory(outages.world(seed).files)]) for seed in OUTAGES]
    return (
        Stories(_steps(SHUTDOWN_LOGIC), [History([source]) for source in sources]),
        Stories(_steps(OUTAGE_LOGIC), worlds),
    )


def _steps(logic: str) -> list[list[Step]]:
    paths = [path for path in sorted(SCRIPTS.glob("*.txt")) if logic_of(path) == logic]
    return [bench.steps for path in paths for bench in benches(path.read_text(), logic)]


def survives(mutant: Mutant, shutdowns: Stories, outage: Stories) -> bool:
    """In a separate process with its own modules, up to `SECONDS_MAX`."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            # Processor time: a busy machine ends no mutant.
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
            told = [outage] if mutant.module.startswith(OUTAGES_ONLY) else [shutdowns, outage]
            with rewritten(mutant.module, mutant.source) as replay:
                code = 0 if _misses(told, replay) else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _misses(told: list[Stories], replay: Any) -> bool:
    """Journals first: they are faster."""
    if not all(replay.verify(journal).identical for each in told for journal in each.journals):
        return False
    bench = importlib.import_module("tests.scripts.bench")
    return all(bench.same_again(steps) for each in told for steps in each.scripts)


def main() -> int:
    every, known = list(mutants()), stories()
    gc.disable()  # in the forks: the stories stay, and a mutant lives for seconds
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        survived = list(pool.map(lambda mutant: survives(mutant, *known), every))
    left = [mutant for mutant, alive in zip(every, survived, strict=True) if alive]
    print("\n".join(map(str, left)))
    print(
        f"{len(every) - len(left)} of {len(every)} killed, at most {SURVIVORS_MAX} may survive",
        file=sys.stderr,
    )
    return int(len(left) > SURVIVORS_MAX)


if __name__ == "__main__":
    sys.exit(main())
