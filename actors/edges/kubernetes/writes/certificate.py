"""The safe-to-detach certificate on the Node: others may act on it while this machine is off.

It names its boot, as the Node's own ``status.nodeInfo.bootID`` does: one of another boot is worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from actors.edges.boot import BOOT_ID
from actors.edges.kubernetes.calling import MERGE_PATCH, Unanswered
from actors.edges.kubernetes.writes import memory
from actors.edges.kubernetes.writes.halves import Half, NodeWrites
from actors.edges.kubernetes.writes.insisting import silence
from actors.edges.kubernetes.writes.node import CERTIFICATE as KIND
from actors.edges.kubernetes.writes.shapes import now
from actors.interfaces import Ending, Outlet
from events.decisions import PublishCertificate

#: The release waits for it.
PUBLISH_SECONDS_MAX = 2.0
#: Pods and mounts by name; the rest is a number. All annotations of an object share 256 KiB.
NAMED_MAX = 50
#: A name is a pod's UID, a volume's name or a path.
NAME_CHARACTERS_MAX = 256


class Certificates:
    def __init__(self, writes: NodeWrites, context: Callable[[str], str]) -> None:
        self._writes, self._context = writes, context

    async def publish(self, order: PublishCertificate, outlet: Outlet) -> Ending:
        """A later certificate overtakes this one, and so does taking everything back (`node`)."""
        text = certificate(order, BOOT_ID.read_text().strip())
        half = Half("", MERGE_PATCH, lambda node: memory.with_certificate(node, text))
        until = trio.current_time() + PUBLISH_SECONDS_MAX
        async with self._writes.hold(KIND, (KIND,)) as hold:
            call = self._writes.call(hold, until - trio.current_time(), self._context(order.key))
            try:
                problem = await self._writes.change(call, half)
            except Unanswered as error:
                return silence(error)
            return Ending("failed", problem) if problem else Ending()
        return Ending("cancelled", "what is said of this node has been taken back, or said anew")


def certificate(order: PublishCertificate, boot_id: str) -> str:
    """Compact JSON: ``safe``, ``at`` (RFC 3339), ``bootId``, ``ended`` (how many), what is in the way."""
    said: dict[str, Any] = {"safe": order.safe, "at": now(), "bootId": boot_id, "ended": order.ended}
    if order.running:
        said["running"] = [_name(uid) for uid in order.running[:NAMED_MAX]]
    if order.mounted:
        said["mounted"] = [[_name(uid), _name(volume)] for uid, volume in order.mounted[:NAMED_MAX]]
    more = max(0, len(order.running) - NAMED_MAX) + max(0, len(order.mounted) - NAMED_MAX)
    if more:
        said["more"] = more
    return msgspec.json.encode(said).decode()


def _name(text: str) -> str:
    return text[:NAME_CHARACTERS_MAX]
