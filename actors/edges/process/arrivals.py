"""What a change of the manifests means for the pods that are known.

A manifest starts pods; it never ends or changes one that runs. What has ended is forgotten when its
manifest goes, and starts anew when that comes back or is written again.
"""

from __future__ import annotations

from collections.abc import Set

from actors.edges.process.record import Records, output_name
from actors.edges.process.recover import Recovery
from actors.edges.process.rings import Rings
from actors.edges.process.source import Change, Gone
from actors.edges.process.table import PodEntry, Table
from events.base import Fact
from events.facts import ManifestRejected, PodAppeared


class Arrivals:
    """Keeps the table in step with the manifests."""

    def __init__(self, table: Table, records: Records, rings: Rings, recovery: Recovery) -> None:
        self._table = table
        self._records = records
        self._rings = rings
        self._recovery = recovery

    def take(self, change: Change) -> list[Fact]:
        """Apply one change; the facts to report of it."""
        path = str(change.path)
        if isinstance(change, Gone):
            self._leave(path, frozenset())
            return []
        if change.error:
            return [ManifestRejected(path=path, error=change.error)]
        self._leave(path, {pod.uid for pod, _ in change.pods})
        return [fact for pod, spec in change.pods for fact in self._appear(PodEntry(pod, spec, path))]

    def _appear(self, new: PodEntry) -> list[Fact]:
        known = self._table.pods.get(new.pod.uid)
        if known is not None and known.path not in ("", new.path):
            return [ManifestRejected(path=new.path, error=f"pod {new.pod.label} stands in {known.path} too")]
        if known is not None and known.begun and (known.recovered or not known.over):
            # It runs, or it ended before this daemon began: then meeting its manifest starts nothing.
            known.path, known.recovered = new.path, False
            return []
        self._table.pods[new.pod.uid] = new
        found = self._recovery.claim(new)
        return [PodAppeared(pod=new.pod)] if found is None else found

    def _leave(self, path: str, keep: Set[str]) -> None:
        """This file names no other pods than those any more."""
        for uid, entry in list(self._table.pods.items()):
            if entry.path == path and uid not in keep:
                entry.path = ""
                if entry.over or not entry.begun:
                    self._forget(entry)

    def _forget(self, pod: PodEntry) -> None:
        uid = pod.pod.uid
        del self._table.pods[uid]
        self._records.remove(uid)
        for name in pod.containers:
            self._rings.remove(output_name(uid, name))
