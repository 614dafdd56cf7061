"""The truth about a simulated fleet, from the model without the journals.

Compared with the answers of docs/questions.sql. A workload is a pod name without its number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ebbtide.replay.sim.sim_node import Happening, SimulatedContainer
from ebbtide.replay.sim.simulate import Machine

NEEDED_MS = 65_000


def node(machine: Machine) -> str:
    return machine.plan.node


def workload(machine: Machine, uid: str) -> str:
    pod = next(plan.pod for plan in machine.plan.pods if plan.pod.uid == uid)
    return pod.name.rpartition("-")[0]


def first(machine: Machine, *whats: str) -> Happening | None:
    return next(iter(machine.log.of(*whats)), None)


def outcome(machine: Machine) -> str:
    """Cancelled if withdrawn before the lock's release, complete if released, else cut short."""
    word = first(machine, "withdraw", "release")
    if word is not None:
        return "cancelled" if word.what == "withdraw" else "complete"
    return "truncated" if first(machine, "signal", "hook") else "never-begun"


def outcomes(fleet: list[Machine]) -> Counter[tuple[str, str]]:
    return Counter((machine.plan.faults.kind, outcome(machine)) for machine in fleet)


def small_grants(fleet: list[Machine]) -> set[tuple[str, int]]:
    found = set()
    for machine in fleet:
        signal = first(machine, "shutdown")
        assert signal is not None
        grant_ms = int(signal.detail.split()[-2])
        if grant_ms < NEEDED_MS:
            found.add((node(machine), grant_ms))
    return found


class HookEnd(NamedTuple):
    """An observed hook end; ``detail``: how."""

    workload: str
    kind: str
    took_ms: int
    detail: str


def hook_ends(fleet: list[Machine]) -> Iterator[HookEnd]:
    """Without those caused by their container's end."""
    for machine in fleet:
        began: dict[tuple[str, str], Happening] = {}
        alive = 0
        for index, seen in enumerate(machine.log.seen):
            at = (seen.uid, seen.container)
            if seen.what in ("daemon", "crash", "left", "down"):
                alive = seen.life if seen.what == "daemon" else 0
            elif seen.what == "hook":
                began[at] = seen
            elif seen.what == "hook-end" and not _with_its_container(machine, index):
                kind, start = _hook_kind(machine, *at), began[at]
                if alive and (kind == "exec" or alive == start.life):
                    took_ms = (seen.at_ns - start.at_ns) // 1_000_000
                    yield HookEnd(workload(machine, seen.uid), kind, took_ms, seen.detail)


def hook_times(fleet: list[Machine]) -> dict[tuple[str, str], list[int]]:
    """Hook durations in milliseconds, by workload and kind."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in hook_ends(fleet):
        found[each.workload, each.kind].append(each.took_ms)
    return found


def _with_its_container(machine: Machine, index: int) -> bool:
    """Stopped for lack of a waiter: its container, or its pod's last chance, is gone."""
    end = machine.log.seen[index]
    exits = (seen for seen in machine.log.of("exit") if seen.uid == end.uid and seen.at_ns <= end.at_ns)
    return end.detail == "stopped" and any(seen.container == end.container for seen in exits)


def _hook_kind(machine: Machine, uid: str, container: str) -> str:
    pod = next(plan.pod for plan in machine.plan.pods if plan.pod.uid == uid)
    return next(each.hook.kind for each in pod.containers if each.name == container and each.hook)


def failed_hooks(fleet: list[Machine]) -> Counter[tuple[str, str]]:
    """Hooks that failed by themselves, by workload and kind."""
    return Counter((each.workload, each.kind) for each in hook_ends(fleet) if each.detail == "failed")


#: The machine's index in the fleet, and the UID.
PodOf = tuple[int, str]


def killed(fleet: list[Machine], unseen: Collection[PodOf] = ()) -> Counter[str]:
    """Pods with a container that died of SIGKILL or survived it, by workload. ``unseen``: without a
    recorded end, because the machine went down first.
    """
    uids = {(at, seen.uid) for at, seen in _of(fleet, "kill")}
    gone = {(at, seen.uid) for at, seen in _of(fleet, "exit") if seen.detail == "SIGKILL"}
    stuck = {(at, uid) for at, uid in uids if any(box.phase != "exited" for box in _boxes(fleet[at], uid))}
    return Counter(workload(fleet[at], uid) for at, uid in (gone | stuck).difference(unseen))


def _boxes(machine: Machine, uid: str) -> list[SimulatedContainer]:
    return machine.boots[0].node.pods.of(uid)


def _of(fleet: list[Machine], *whats: str) -> Iterator[tuple[int, Happening]]:
    return ((at, seen) for at, machine in enumerate(fleet) for seen in machine.log.of(*whats))


def deaf(fleet: list[Machine]) -> Counter[str]:
    """Pods with a container that ignores its signal and was examined before its kill, by workload."""
    uids = {
        (at, seen.uid)
        for at, seen in _of(fleet, "look")
        if any(box.name == seen.container and box.plan.stop_ns is None for box in _boxes(fleet[at], seen.uid))
    }
    return Counter(workload(fleet[at], uid) for at, uid in uids)


def crashed(fleet: list[Machine]) -> set[str]:
    """Nodes where a daemon died in the shutdown and another one followed."""
    return {node(machine) for machine in fleet if _took_over(machine)}


def _took_over(machine: Machine) -> bool:
    signal, down = first(machine, "shutdown"), first(machine, "down")
    assert signal is not None
    assert down is not None
    word = first(machine, "withdraw", "release")
    over_ns = down.at_ns
    if word is not None and word.what == "withdraw":
        # A stopping container continues to its end.
        ends = [seen.at_ns for seen in machine.log.of("exit") if seen.at_ns < down.at_ns]
        over_ns = max([word.at_ns, *ends])
    died = [seen for seen in machine.log.of("crash") if signal.at_ns < seen.at_ns < over_ns]
    return (
        any(died[0].at_ns < seen.at_ns < down.at_ns for seen in machine.log.of("daemon")) if died else False
    )
