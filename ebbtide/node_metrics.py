"""The node's metrics while the daemon runs: folded from records, saved beside the journal, served on request.

A start folds the records after the saved sums; without these, the whole journal, after the node is protected.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import trio

from ebbtide.actors.interfaces import Tell
from ebbtide.actors.policy.planning import make_plan
from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.decisions import Armed, EpisodeClosed
from ebbtide.events.values import Pod, workload_name
from ebbtide.events.writer import Writer
from ebbtide.otel.metric_table import CauseCount, Meters, ReadContext, ShippingState, exposition, fold

#: Folding this many unsaved records again at the next start takes 10 ms.
KEEP_EVERY = 2000

#: The first allows the fold of older records; after the second the sums are saved immediately.
PROTECTED, FINISHED = Armed, EpisodeClosed


class MetricsBackend(NamedTuple):
    """``keep`` writes the file of sums. ``rebuild`` folds the journal before a record's number; like
    ``causes``, it raises OSError. ``pods``: where the mode knows them.
    """

    keep: Callable[[bytes], Awaitable[None]]
    rebuild: Callable[[int], Awaitable[Meters]]
    wall_ns: Callable[[], int]
    pods: Callable[[], Sequence[Pod]] | None = None
    causes: Callable[[], Awaitable[list[CauseCount]]] | None = None
    #: All spans up to this record have arrived; None without export.
    exported: Callable[[], int] | None = None
    #: None without shipping.
    shipping: Callable[[], ShippingState | None] | None = None


class MetricsOptions(NamedTuple):
    """``address``: empty for nowhere. ``prefix``: before the names from a KEP."""

    address: str = ""
    prefix: str = ""


class MetricsRecorder:
    """``meters`` None: the sums lack older records."""

    def __init__(
        self, meters: Meters | None, journal: Writer, backend: MetricsBackend, shown: MetricsOptions
    ) -> None:
        self.meters = meters if meters is not None else Meters()
        self._journal, self._backend, self._shown = journal, backend, shown
        self._waiting: list[Record] | None = None if meters is not None else []
        self._protected, self._due = trio.Event(), trio.Event()
        self._kept_seq = self.meters.seq
        #: A shutdown has ended since the causes were read.
        self._unread = True

    def fold(self, records: Sequence[Record]) -> None:
        if self._waiting is not None:
            self._waiting += records
        fold(self.meters, records)
        kinds = [type(record.event) for record in records]
        self._unread |= FINISHED in kinds
        if PROTECTED in kinds:
            self._protected.set()
        if FINISHED in kinds or self.meters.seq - self._kept_seq >= KEEP_EVERY:
            self._due.set()

    async def run(self, tell: Tell) -> None:
        async with trio.open_nursery() as nursery:
            if self._shown.address:
                from ebbtide.metrics_server import serve_or_report  # late: few nodes are scraped

                nursery.start_soon(serve_or_report, self._shown.address, self.text, tell)
            # The lock comes first: folding a whole journal may take seconds.
            await self._protected.wait()
            await self.complete(tell)
            while True:
                await self.read_causes(tell)
                await self.save()
                await self._due.wait()

    async def complete(self, tell: Tell) -> None:
        if self._waiting is None:
            return
        # Later records wait here.
        begins = self._waiting[0].seq if self._waiting else self.meters.seq + 1
        try:
            meters = await self._backend.rebuild(begins)
        except OSError as error:
            tell(4, f"the metrics begin anew: the journal cannot be read ({error.strerror or error})")
            meters = Meters()
        waiting, self._waiting = self._waiting, None
        fold(meters, waiting)
        self.meters = meters

    async def read_causes(self, tell: Tell) -> None:
        """Not during a shutdown: the daemon has other work."""
        if self._backend.causes is None or not self._unread or self.meters.episode:
            return
        self._unread = False
        try:
            self.meters.causes = await self._backend.causes()
        except OSError as error:
            tell(4, f"the metrics have no causes: the journal cannot be read ({error.strerror or error})")

    async def save(self) -> None:
        self._due = trio.Event()
        # Better no file than one with a gap, which a later start could not detect.
        if self._waiting is None:
            self._kept_seq, data = self.meters.seq, msgspec.msgpack.encode(self.meters)
            # After a power cut, new records have the numbers of lost ones, and would look counted.
            if await self._journal.wait_synced(self._kept_seq):
                await self._backend.keep(data)

    def text(self) -> str:
        return exposition(self.meters, self._around(), self._shown.prefix)

    def document(self) -> dict[str, Any]:
        """For the control socket: the caller chooses the form."""
        around = msgspec.to_builtins(self._around()._asdict())
        return {"meters": msgspec.to_builtins(self.meters), "around": around}

    def _around(self) -> ReadContext:
        journal, backend, now_ns = self._journal, self._backend, self._backend.wall_ns()
        pending, behind_ns = None, 0
        if backend.exported is not None:
            settled = backend.exported()
            waiting = [wall_ns for seq, wall_ns in self.meters.ends.values() if seq > settled]
            # The clock may have been set back.
            pending, behind_ns = len(waiting), max(0, now_ns - min(waiting, default=now_ns))
        return ReadContext(
            now_wall_ns=now_ns,
            at_risk=at_risk(self.meters, backend.pods()) if backend.pods is not None else None,
            journal_unsynced=max(0, journal.last_seq - journal.synced_seq),
            journal_lost=journal.lost,
            journal_away=journal.away,
            export_pending=pending,
            export_behind_ns=behind_ns,
            shipping=backend.shipping() if backend.shipping is not None else None,
        )


def at_risk(meters: Meters, pods: Sequence[Pod]) -> int:
    """How many pods would be killed now: their workload has needed more time than they would get."""
    node, now_ns = meters.node, time.monotonic_ns()
    waves = make_plan(
        node.periods, node.grant_ns or None, node.reserve_ns, pods, "strict", now_ns=now_ns
    ).waves
    needs = {pod.uid: meters.needs.get(f"{pod.namespace}/{workload_name(pod.name)}") for pod in pods}
    count = 0
    for planned in (pod for wave in waves for pod in wave.pods):
        need, grace_ns = needs[planned.uid], planned.grace_seconds * NS_PER_SECOND
        if need is not None:
            # A kill after this time shows that it is too short; an end, that it is enough.
            count += need.longest_ns >= grace_ns if need.needs_more else need.longest_ns > grace_ns
    return count
