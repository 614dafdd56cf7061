"""The matrix is complete, and its rules detect violations. No node runs here."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.base import Event, Record
from tests.journals import pod
from tests.node import matrix
from tests.node.faults import HUNG, KILLED, WAYS
from tests.node.matrix import (
    BY_ROW,
    FORGIVEN,
    LIMIT_NS,
    MEANS,
    MODES,
    NAMES,
    PARTS,
    POD_SET,
    TIMES,
    WAVES,
    Cell,
    Missed,
    Results,
    Seen,
    all_cells,
    breaches,
    unsignalled,
    why_not,
)
from tests.node.shutdowns import NS

pytestmark = pytest.mark.proof

CELL = Cell("cri", "kubelet", HUNG, "wave-1")
#: Each wave's start, and a pod's life after its signal, in the correct shutdown.
BEGINS_NS = {name: (1 + 3 * at) * NS for at, name in enumerate(WAVES)}
LIVES_NS = 2 * NS


def at(mono_ns: int, event: Event) -> Record:
    return Record(seq=1, mono_ns=mono_ns, wall_ns=0, episode=1, cause=0, actor="edge", last=True, event=event)


def ended(name: str, outcome: d.PodOutcome) -> Record:
    return at(BEGINS_NS["high"], d.PodEnded(uid=f"uid-{name}", wave=0, outcome=outcome, reason=""))


def whole() -> Seen:
    """A correct shutdown: the deaf pod is killed, the others end by themselves."""
    deaf = [name for name, planned in POD_SET.items() if not planned.ends_after]
    notes = {
        name: {
            "began": [0],
            "hook": [BEGINS_NS[planned.priority]] if planned.hook else [],
            "signal": [BEGINS_NS[planned.priority]],
            "ended": [] if name in deaf else [BEGINS_NS[planned.priority] + LIVES_NS],
        }
        for name, planned in POD_SET.items()
    }
    planned = [at(NS, d.PodPlanned(wave=0, grace_seconds=4, pod=pod(name))) for name in NAMES]
    fates = [ended(name, "killed" if name in deaf else "graceful") for name in NAMES]
    waves = [
        at(
            BEGINS_NS[name],
            d.WaveStarted(wave=0, priority=each, period_ns=5 * NS, deadline_ns=0, kill_by_ns=0),
        )
        for name, each in WAVES.items()
    ]
    return Seen(
        cell=CELL,
        asked_ns=NS,
        began_ns=NS,
        released_ns=10 * NS,
        over_ns=10 * NS,
        alive=frozenset(),
        notes=notes,
        records=[*planned, *waves, *fates],
        after=dict.fromkeys(NAMES, "Succeeded"),
    )


def noted(seen: Seen, name: str, **times: list[int]) -> Seen:
    return seen._replace(notes=seen.notes | {name: seen.notes[name] | times})


def without_fate(seen: Seen, name: str) -> Seen:
    kept = [
        each
        for each in seen.records
        if not (isinstance(each.event, d.PodEnded) and each.event.uid == f"uid-{name}")
    ]
    return seen._replace(records=kept)


def with_fate(seen: Seen, name: str, outcome: d.PodOutcome) -> Seen:
    found = without_fate(seen, name)
    return found._replace(records=[*found.records, ended(name, outcome)])


def without_plan(seen: Seen, name: str) -> Seen:
    kept = [
        each
        for each in seen.records
        if not (isinstance(each.event, d.PodPlanned) and each.event.pod.uid == f"uid-{name}")
    ]
    return seen._replace(records=kept)


def given_up(seen: Seen, name: str) -> Seen:
    """Alive at the release, and recorded so."""
    told = at(9 * NS, d.PodsEnded(unfinished=(f"uid-{name}",)))
    found = with_fate(seen, name, "unknown")
    return found._replace(alive=frozenset({name}), records=[*found.records, told])


BROKEN: dict[str, tuple[str, Callable[[Seen], Seen]]] = {
    "never released": ("lock", lambda seen: seen._replace(released_ns=None)),
    "released too late": ("lock", lambda seen: seen._replace(released_ns=NS + LIMIT_NS + 1)),
    "logind did not wait": ("lock", lambda seen: seen._replace(over_ns=9 * NS)),
    "a pod still runs": ("lock", lambda seen: seen._replace(alive=frozenset({"low-slow"}))),
    "a wave too early": ("order", lambda seen: noted(seen, "middle-hook", hook=[2 * NS])),
    "two signals": ("once", lambda seen: noted(seen, "high-slow", signal=[7 * NS, 8 * NS])),
    "two hooks": ("once", lambda seen: noted(seen, "high-hook", hook=[7 * NS, 8 * NS])),
    "graceful, and was killed": ("fates", lambda seen: noted(seen, "high-slow", ended=[])),
    "killed, and had ended": ("fates", lambda seen: with_fate(seen, "high-slow", "killed")),
    "failed": ("fates", lambda seen: with_fate(seen, "high-slow", "failed")),
    "no fate": ("fates", lambda seen: without_fate(seen, "high-slow")),
    "ended, and runs on": ("fates", lambda seen: seen._replace(alive=frozenset({"high-slow"}))),
    "a fate of nobody's": ("fates", lambda seen: without_plan(seen, "high-slow")),
    "no signal": ("signal", lambda seen: noted(seen, "high-slow", signal=[], ended=[])),
    "a signal too late": ("signal", lambda seen: noted(seen, "high-slow", signal=[11 * NS])),
    "no hook": ("hook", lambda seen: noted(seen, "high-hook", hook=[])),
    "unknown": ("known", lambda seen: with_fate(seen, "high-slow", "unknown")),
    "given up, and on record": ("cut_off", lambda seen: given_up(seen, "high-slow")),
    "for ever": ("after_boot", lambda seen: seen._replace(after={"low-hook": "Running, no process"})),
    "no answer after the boot": ("after_boot", lambda seen: seen._replace(after={})),
    "ended, and Running": ("after_boot", lambda seen: seen._replace(after={"low-hook": "Running"})),
    "another replay": ("replay", lambda seen: seen._replace(replay="it diverged")),
}  # fmt: skip


def test_every_combination_is_a_cell_or_left_out_with_a_reason() -> None:
    every = {Cell(*each) for each in itertools.product(MEANS, PARTS, WAYS, TIMES)}
    cells = all_cells()
    assert len(cells) == len(set(cells))
    assert {each for each in every if not why_not(each)} == set(cells)
    assert {Cell(*each, "wave-1") for each in itertools.product(MODES, PARTS, WAYS)} <= set(cells)


def test_a_whole_shutdown_holds() -> None:
    assert breaches(whole()) == []
    assert unsignalled(whole()) == []


@pytest.mark.parametrize("what", BROKEN)
def test_a_breach_is_found(what: str) -> None:
    rule, change = BROKEN[what]
    assert rule in {line.split(":")[0] for line in breaches(change(whole()))}


def test_nothing_done_is_broken_by_every_rule_that_it_concerns() -> None:
    """No signals, no hooks, unknown outcomes, all Running after the boot."""
    notes = {name: {"began": [0], "hook": [], "signal": [], "ended": []} for name in NAMES}
    seen = whole()._replace(notes=notes, after=dict.fromkeys(NAMES, "Running"))
    for name in NAMES:
        seen = with_fate(seen, name, "unknown")
    counts = Counter(line.split(":")[0] for line in breaches(seen))
    assert counts == {"signal": 6, "known": 6, "hook": 3}


def test_a_shutdown_that_planned_nothing_is_broken() -> None:
    seen = whole()._replace(records=[])
    assert {f"fates: {name} has ended, and no fate is on record" for name in NAMES} <= set(breaches(seen))


def test_what_is_forgiven_is_so_in_its_cells_alone() -> None:
    """Only for the pods whose wave had not ended."""
    for rule, *pattern in FORGIVEN:
        cells = [
            each
            for each in all_cells()
            if all(want in ("*", got) for want, got in zip(pattern, each, strict=True))
        ]
        assert cells, f"{rule}: no cell is {pattern}"
        assert rule in {each.__name__ for each in BY_ROW}
    seen = with_fate(with_fate(whole(), "low-hook", "unknown"), "high-slow", "unknown")
    listed = seen._replace(cell=Cell("api", "daemon", KILLED, "wave-2"))
    assert breaches(listed) == ["known: low-hook has an unknown fate"]
    for time in ("wave-1", "between"):
        assert breaches(listed._replace(cell=listed.cell._replace(time=time))) == []
    assert len(breaches(listed._replace(cell=listed.cell._replace(way="slow")))) == 2


class NoBed:
    """The part of a bed that `run_all` uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "log").mkdir(exist_ok=True)

    def log(self, name: str) -> str:
        return f"what {name} said"


Matrix = Callable[..., tuple[int, Results]]


@pytest.fixture
def of_two_cells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Matrix:
    """Two cells on a missing node: each try gives the next outcome. Returns exit code and results."""

    @contextlib.asynccontextmanager
    async def no_bed(**_: object) -> AsyncIterator[NoBed]:
        yield NoBed(tmp_path)

    async def nothing(_: object) -> None:
        pass

    def over(*outcomes: Exception | Seen, seconds: float = 60) -> tuple[int, Results]:
        left = list(outcomes)

        class NoRun:
            daemon = "its daemon"

            def __init__(self, _: NoBed, cell: Cell, folder: Path) -> None:
                self.cell, self.folder = cell, folder

            async def run(self) -> Seen:
                outcome = left.pop(0)
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome._replace(cell=self.cell)

        file = tmp_path / "matrix.jsonl"
        words = f"matrix --only {CELL._replace(time='wave-*').name} --results {file} --seconds {seconds}"
        for name, stand_in in {"node_bed": no_bed, "make_classes": nothing, "Run": NoRun}.items():
            monkeypatch.setattr(matrix, name, stand_in)
        monkeypatch.setattr(sys, "argv", words.split())
        code = matrix.main()
        assert not left
        return code, Results(file)

    return over


FIRST = CELL.name


def test_a_daemon_that_fails_breaks_the_cell(of_two_cells: Matrix) -> None:
    """At once, with the daemon's log."""
    error = ExceptionGroup("in the fault's nursery", [AssertionError("it does not arm")])
    code, results = of_two_cells(error, whole())
    assert (code, results.broken()) == (1, {FIRST: ["daemon: AssertionError: it does not arm"]})
    assert Path(results.rows[FIRST]["journal"], "daemon.log").read_text() == "what ebbtide said"


def test_what_a_bed_never_made_counts(of_two_cells: Matrix) -> None:
    """One retry; then it affects the exit code, and the next run retries."""
    assert of_two_cells(seconds=0)[0] == 3
    gone = ExceptionGroup("in the fault's nursery", [RuntimeError("the inside of the bed has gone")])
    code, results = of_two_cells(Missed("no pods"), whole(), gone)
    assert (code, results.not_made(), results.broken()) == (1, [FIRST], {})
    code, results = of_two_cells(whole())
    assert (code, results.not_made()) == (0, [])
