"""Pods that the API server tells of before the runtime was looked at again, or before they run at all.

The table is as old as the last look, and what became ready since is in the watch a moment later. So an
inventory asks both. A pod that is here and has not started is nobody's to stop yet, but while a kubelet runs
it may start at any time: whoever ends the pods by way of the API has to know of it, or it starts when all
else has ended.
"""

from __future__ import annotations

from collections.abc import Collection

from actors.edges.cri.table import Table
from actors.edges.kubernetes.calling import Followed, Known

FINAL_PHASES = ("Succeeded", "Failed")


def missed(lookup: Followed | None, table: Table) -> dict[str, dict[str, str]]:
    """Containers that run and that no look has seen: by UID, each one's id by its name.

    What is known from before a restart only says nothing of now.
    """
    if lookup is None or not lookup.version:
        return {}
    told = {each.uid: each for each in lookup.pods() if each.running and _ours(each, table)}
    found = {uid: _unseen(each.running, table) for uid, each in told.items()}
    return {uid: ids for uid, ids in found.items() if ids}


def coming(lookup: Followed | None, table: Table, but: Collection[str]) -> list[Known]:
    """Pods of which nothing runs, and something may soon. A static one's object is only its mirror."""
    if lookup is None or not lookup.version:
        return []
    here = {pod.uid for pod in table.active()}
    return [
        each
        for each in lookup.pods()
        if each.uid not in here and each.uid not in but and _ours(each, table) and _may_start(each)
    ]


def _ours(known: Known, table: Table) -> bool:
    return bool(known.uid) and known.uid not in table.own and known.phase not in FINAL_PHASES


def _unseen(running: dict[str, str], table: Table) -> dict[str, str]:
    return {name: key for name, key in running.items() if not table.has_seen(key)}


def _may_start(known: Known) -> bool:
    return not (known.running or known.static or known.deleting) and bool(waiting(known))


def waiting(known: Known) -> tuple[str, ...]:
    """The containers that have not ended, in the manifest's order."""
    return tuple(name for name in known.sidecars + known.containers if name not in known.ended)
