"""The Node in the API: exactly what we changed is taken back, by the same hand that the daemon has for it.

A daemon does so itself after a cancel and at the next boot. What is left for here is a node whose daemon
never came back.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import trio

from actors.edges.kubernetes.calling import Caller, Unanswered
from actors.edges.kubernetes.link import Link
from actors.edges.kubernetes.store import Store
from actors.edges.kubernetes.writes import Writes
from actors.edges.kubernetes.writes.memory import CERTIFICATE, is_tainted, noted
from actors.edges.kubernetes.writes.shapes import NodeObject, node_path
from actors.interfaces import Ending
from ebbtide.uninstall.steps import Step
from events.base import Fact
from events.decisions import AnnounceNode

WHAT = "Node"
#: Modes whose daemon shows the Node as going down.
ANNOUNCING = ("auto", "api", "cri")
#: A person waits.
API_SECONDS_MAX = 10.0
ABSENT = 404


def changed_by(mode: str) -> bool:
    """Whether a daemon of this mode (empty: there was none) may have changed its Node."""
    return mode in ANNOUNCING


class Nobody:
    """An outlet that nobody reads."""

    async def put(self, *facts: Fact) -> None:
        """Nothing that is found out here is on record: there is no journal any more."""


async def restore(kubeconfig: Path | None, node: str, dry_run: bool) -> Step:
    """``kubeconfig`` None: as the pod that we run in."""
    said: list[str] = []
    link = Link(kubeconfig, lambda level, line: said.append(line))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            step = await _restore(link, node, dry_run)
        except Unanswered as error:
            why = f"{error}: run this again when the API server answers"
            step = Step(WHAT, node, "failed", said[0] if said else why)
        nursery.cancel_scope.cancel()
    return step


async def _restore(caller: Caller, node: str, dry_run: bool) -> Step:
    """Raises Unanswered."""
    answer = await caller.call("GET", node_path(node), seconds_max=API_SECONDS_MAX)
    if answer.code == ABSENT:
        return Step(WHAT, node, "nothing", "there is no such Node")
    if not answer.ok:
        return Step(WHAT, node, "failed", f"it cannot be read: HTTP {answer.code}")
    changes = what_stands(msgspec.json.decode(answer.body, type=NodeObject))
    if not changes:
        return Step(WHAT, node, "nothing", "nothing there is ours")
    if dry_run:
        return Step(WHAT, node, "would", f"take back {', '.join(changes)}")
    return await _take_back(caller, node, changes)


async def _take_back(caller: Caller, node: str, changes: list[str]) -> Step:
    said: list[str] = []
    writes = Writes(caller, Store(), node, tell=lambda level, line: said.append(line))
    order = AnnounceNode(key="uninstall", ready=True)
    with trio.move_on_after(API_SECONDS_MAX):
        ending = writes.effects[AnnounceNode](order, Nobody())
        ended = ending if isinstance(ending, Ending) else await ending
        if ended.result == "done":
            return Step(WHAT, node, "done", f"took back {', '.join(changes)}")
        said.append(ended.reason)
    return Step(WHAT, node, "failed", said[-1] if said else f"not done in {API_SECONDS_MAX:g} s")


def what_stands(node: NodeObject) -> list[str]:
    """What on a Node is ours, in words."""
    changed = noted(node)
    found = {
        "the taint": is_tainted(node),
        "unschedulable": changed.unschedulable,
        **{f"the condition {kind}": True for kind in changed.conditions},
        "the certificate": CERTIFICATE in node.metadata.annotations,
    }
    return [words for words, stands in found.items() if stands]
