"""The matrix is whole, and its judgement tells what holds from what does not. No node comes up here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.base import Event, Record
from tests.journals import pod
from tests.node.faults import HUNG, WAYS
from tests.node.matrix import (
    KUBELET,
    LIMIT_NS,
    MEANS,
    MODES,
    NAMES,
    NOTES,
    PARTS,
    POD_SET,
    TIMES,
    WAVES,
    Cell,
    Results,
    Seen,
    all_cells,
    breaches,
    command,
    row,
    table,
    unsignalled,
    wave,
    why_not,
)
from tests.node.shutdowns import NS

CELL = Cell("cri", "containerd", HUNG, "wave-1")
#: When each wave begins, and how long a pod lives on after its signal, in the shutdown that holds.
BEGINS_NS = {name: (1 + 3 * at) * NS for at, name in enumerate(WAVES)}
LIVES_NS = 2 * NS


def at(mono_ns: int, event: Event) -> Record:
    return Record(seq=1, mono_ns=mono_ns, wall_ns=0, episode=1, cause=0, actor="edge", last=True, event=event)


def ended(name: str, outcome: d.PodOutcome) -> Record:
    return at(BEGINS_NS["high"], d.PodEnded(uid=f"uid-{name}", wave=0, outcome=outcome, reason=""))


def whole() -> Seen:
    """A shutdown in which all is as it should be: the deaf pod is killed, the others end by themselves."""
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
    "for ever": ("after_boot", lambda seen: seen._replace(after={"low-hook": "Running, no process"})),
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


def test_an_unknown_fate_is_no_breach_and_counted() -> None:
    seen = with_fate(whole(), "high-slow", "unknown")
    assert breaches(seen) == []
    assert row(seen, 1)["unknown"] == ["high-slow"]


def test_a_pod_taken_from_the_kubelet_may_hear_both() -> None:
    """The kubelet's signal and ours; who is not taken over has one."""
    seen = noted(whole(), "low-slow", signal=[NS, 2 * NS])
    uid = "uid-low-slow"
    orders = [
        at(NS, d.DeletePod(key="", uid=uid, namespace="shop", name="low-slow", grace_seconds=4)),
        at(NS, d.SendSignal(key="", uid=uid, container="main", signal="SIGTERM")),
    ]
    assert breaches(seen._replace(records=[*seen.records, *orders])) == []
    assert breaches(seen._replace(records=[*seen.records, orders[0]]))


def test_a_wave_whose_time_is_over_is_not_waited_for() -> None:
    """Its pods may still be there when the next one begins, so many seconds after it began."""
    late = noted(whole(), "low-slow", ended=[12 * NS])
    for name in wave("middle"):
        late = noted(late, name, signal=[6 * NS], hook=[], ended=late.notes[name]["ended"] and [7 * NS])
    assert not [line for line in breaches(late) if "wave middle" in line]


def test_nothing_is_asked_of_the_kubelet() -> None:
    """Its figures stand in the row."""
    seen = noted(whole(), "low-slow", signal=[], ended=[])
    made = row(seen._replace(cell=CELL._replace(means=KUBELET), over_ns=40 * NS, released_ns=None), 1)
    assert (made["broken"], made["without_sigterm"], made["in_time"]) == ([], ["low-slow"], False)


def test_results_are_kept_and_added_up(tmp_path: Path) -> None:
    """The last line of a cell holds; a table counts them beside the kubelet's."""
    file = tmp_path / "matrix.jsonl"
    Results(file).write(row(whole()._replace(released_ns=None), 1))
    Results(file).write(row(whole(), 1))
    theirs = noted(whole(), "low-slow", signal=[])._replace(cell=CELL._replace(means=KUBELET))
    Results(file).write(row(theirs, 1))
    found = Results(file)
    assert set(found.rows) == {"cri:containerd:hung:wave-1", "kubelet:containerd:hung:wave-1"}
    assert found.rows["cri:containerd:hung:wave-1"]["broken"] == []
    assert (
        "| containerd | hung | 1 | 0 | –, 0 of 6, – | 1 of 6 | 0 of 6 | 0 of 6 | 1 of 1 | 1 of 1 |"
        in table(found)
    )


def test_a_breach_is_run_again_by_its_command() -> None:
    assert command(CELL) == "python -m tests.node.matrix --only cri:containerd:hung:wave-1 --again"
    assert tuple(whole().notes["low-slow"]) == NOTES
