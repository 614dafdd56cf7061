"""The Node in the API: exactly what we changed is taken back, by the daemon's own code for it.

A daemon does so itself after a cancel and at the next boot. What is left for here is a node whose daemon
never came back.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.calls import (
    ApiCaller,
    ApiNode,
    Unanswered,
    node_path,
)
from ebbtide.actors.edges.kubernetes.client import ApiClient
from ebbtide.actors.edges.kubernetes.node_writes import CERTIFICATE_ANNOTATION, is_tainted, read_note
from ebbtide.actors.edges.kubernetes.pods import PodStore
from ebbtide.actors.edges.kubernetes.runtime import Writes
from ebbtide.actors.interfaces import Ending
from ebbtide.cli.uninstall import NODE_STEP, Step
from ebbtide.events.base import Fact
from ebbtide.events.decisions import AnnounceNode

#: A person waits.
API_SECONDS_MAX = 10.0
ABSENT = 404


class NoOutlet:
    """An outlet that nobody reads."""

    async def put(self, *facts: Fact) -> None:
        """Nothing that is found out here is on record: there is no journal any more."""


async def restore_node(kubeconfig: Path | None, node: str, dry_run: bool) -> Step:
    """``kubeconfig`` None: as the pod that we run in."""
    said: list[str] = []
    link = ApiClient(kubeconfig, lambda level, line: said.append(line))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            step = await _restore_over(link, node, dry_run)
        except Unanswered as error:
            why = f"{error}: run this again when the API server answers"
            step = Step(NODE_STEP, node, "failed", said[0] if said else why)
        nursery.cancel_scope.cancel()
    return step


async def _restore_over(caller: ApiCaller, node: str, dry_run: bool) -> Step:
    """Raises Unanswered."""
    answer = await caller.call("GET", node_path(node), seconds_max=API_SECONDS_MAX)
    if answer.code == ABSENT:
        return Step(NODE_STEP, node, "nothing", "there is no such Node")
    if not answer.ok:
        return Step(NODE_STEP, node, "failed", f"it cannot be read: HTTP {answer.code}")
    changes = our_changes(msgspec.json.decode(answer.body, type=ApiNode))
    if not changes:
        return Step(NODE_STEP, node, "nothing", "nothing there is ours")
    if dry_run:
        return Step(NODE_STEP, node, "would", f"take back {', '.join(changes)}")
    said: list[str] = []
    writes = Writes(caller, PodStore(), node, tell=lambda level, line: said.append(line))
    order = AnnounceNode(key="uninstall", ready=True)
    with trio.move_on_after(API_SECONDS_MAX):
        ending = writes.effects[AnnounceNode](order, NoOutlet())
        ended = ending if isinstance(ending, Ending) else await ending
        if ended.result == "done":
            return Step(NODE_STEP, node, "done", f"took back {', '.join(changes)}")
        said.append(ended.reason)
    return Step(NODE_STEP, node, "failed", said[-1] if said else f"not done in {API_SECONDS_MAX:g} s")


def our_changes(node: ApiNode) -> list[str]:
    """What on a Node is ours, in words."""
    changed = read_note(node)
    found = {
        "the taint": is_tainted(node),
        "unschedulable": changed.unschedulable,
        **{f"the condition {kind}": True for kind in changed.conditions},
        "the certificate": CERTIFICATE_ANNOTATION in node.metadata.annotations,
    }
    return [words for words, stands in found.items() if stands]
