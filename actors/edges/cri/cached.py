"""Pods of an inventory that the runtime does not show: as the API server knows them, with their ends.

A node whose runtime is away (or whose socket is not ours) still has its kubelet, and in mode ``api`` that is
all it takes. And a pod that became ready since the last look, or is about to start, is the API server's to
tell. Whatever a later look shows of them is known better.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import trio

from actors.edges.cri.table import Table
from actors.edges.cri.unseen import FINAL_PHASES
from actors.edges.cri.views import cached
from actors.edges.kubernetes.calling import Known, Lookup
from events.facts import ContainerExited
from events.model import Pod

#: Between two looks for ends. A kubelet needs some 100 ms to tell the API server of one.
LOOK_SECONDS = 0.25


class Expected(NamedTuple):
    """``id`` of the container where it is known. ``coming``: it does not run yet, so a look that does not
    show it says nothing. ``since``: Trio's time.
    """

    id: str
    coming: bool
    since: float


class Cached:
    """``lookup`` None: nothing is known but by the runtime."""

    def __init__(self, lookup: Lookup | None) -> None:
        self._lookup = lookup
        #: By UID and name, containers of an inventory whose end nobody has seen.
        self._waiting: dict[tuple[str, str], Expected] = {}
        self._more = trio.Event()

    def pods(self, own: Collection[str]) -> list[Pod]:
        """Those of which something runs, but our own."""
        found = [cached(known) for known in self._lookup.pods()] if self._lookup is not None else []
        return [pod for pod in found if pod is not None and pod.uid not in own]

    def forget(self) -> None:
        """It is another shutdown than before."""
        self._waiting = {}

    def tell(self, pods: Iterable[Pod]) -> None:
        """A shutdown is given these: from now on the ends of their containers are looked for."""
        for pod in pods:
            self.expect(pod.uid, {each.name: "" for each in pod.containers if each.running})

    def expect(self, uid: str, ids: dict[str, str], *, coming: bool = False) -> None:
        """The same for some containers of one pod, with their ids."""
        now = trio.current_time()
        self._waiting |= {(uid, name): Expected(key, coming, now) for name, key in ids.items()}
        self._more.set()
        self._more = trio.Event()

    def expects(self, uid: str, container: str) -> bool:
        """Was a shutdown given it though the runtime had not shown it?"""
        return (uid, container) in self._waiting

    def drop(self, uid: str, container: str) -> None:
        """Its end was said."""
        self._waiting.pop((uid, container), None)

    async def wait(self) -> None:
        """Return when it is time to ask for `ended`; never while nobody is waited for."""
        while not self._waiting:
            await self._more.wait()
        await trio.sleep(LOOK_SECONDS)

    def ended(self) -> list[ContainerExited]:
        """What has ended as the API server has it, each once."""
        over = [each for each in self._waiting if self._over(*each)]
        for each in over:
            del self._waiting[each]
        return [self._exited(*each) for each in over]

    def settle(self, table: Table, as_of: float) -> list[ContainerExited]:
        """The runtime has told all that runs, as of Trio's time ``as_of``: ``table`` follows what it shows of
        them, and what it does not show has ended.
        """
        ends = []
        for (uid, name), each in list(self._waiting.items()):
            entry = table.find(uid, name)
            if entry is not None and entry.running:
                table.tell([entry.pod])
            elif each.coming or each.since >= as_of:
                continue
            elif entry is not None and each.id in ("", entry.id):
                ends.append(entry.exited())
            else:
                ends.append(self._exited(uid, name))
            del self._waiting[uid, name]
        return ends

    def _exited(self, uid: str, container: str) -> ContainerExited:
        known = self._known(uid)
        code = known.ended.get(container) if known is not None else None
        return ContainerExited(uid=uid, container=container, exit_code=code)

    def _known(self, uid: str) -> Known | None:
        return self._lookup.find(uid) if self._lookup is not None else None

    def _over(self, uid: str, container: str) -> bool:
        """An object is gone once its kubelet has ended it; a final phase is told when all have ended."""
        known = self._known(uid)
        return known is None or container in known.ended or known.phase in FINAL_PHASES
