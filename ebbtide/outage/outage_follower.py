"""One node's outage in the controller: its system, its journal and its edges.

A `Follower` opens or begins the Node's journal and records its start; the actors decide the rest. It marks a
journal at rest: the next leader need not open it.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import trio

from ebbtide import __version__
from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller
from ebbtide.actors.edges.kubernetes.config_maps import JOURNAL_BYTES_MAX, ConfigMapStorage, TooLarge
from ebbtide.actors.edges.kubernetes.node_view import FLOOD_REPORT_SECONDS, ClusterView, NodeEdge
from ebbtide.actors.interfaces import NOTICE, WARNING, Clock, Edge, Tell
from ebbtide.actors.outage import OUTAGE, WELL, OutageState
from ebbtide.actors.runner import Effects, Inbox, Sequencer
from ebbtide.actors.system import System
from ebbtide.events.base import NS_PER_SECOND, Record, shutdown_trace_id
from ebbtide.events.catalog import Source
from ebbtide.events.codec import BadPayload, UnknownType
from ebbtide.events.disk import OUTAGE_LIMITS, trim
from ebbtide.events.outage_events import LeaderStarted, NodeDeleted, NodeRead, OutageSettings, ProofWasWrong
from ebbtide.events.reader import History, Scan
from ebbtide.events.recovery import ForeignJournal, Verdict, refuse_foreign
from ebbtide.events.segment import JOURNAL_ID_BYTES, OUTAGE_LOGIC, Identity
from ebbtide.events.units import size_text
from ebbtide.events.writer import Writer
from ebbtide.log import LineContext, Log, Report, TraceIds, journald_fields
from ebbtide.outage.first_uuids import FirstUuids
from ebbtide.recover import Unreadable, begin_segment, beside
from ebbtide.replay.replayer import Replayer

#: How long to follow a node after its trouble. A flapping node gets one journal instead of ten, and a
#: returned node states how its last boot ended: within 40 s, and 30 s more after a failed write.
REST_SECONDS = 120.0
LOOK_SECONDS = 1.0
#: A journal with more than this share of its limit is a flood. A week's outage takes a tenth of this share; a
#: kubelet that writes without an end takes it within a minute, and most of a day for the rest.
FLOOD_FILL = 0.25
#: How long to keep an outage with a false proof, and all later ones: a kubelet can begin and end outages
#: faster than a person reads.
ALARM_NS = 7 * 86_400 * NS_PER_SECOND
FULL = f"the journal has more than {size_text(JOURNAL_BYTES_MAX)}"


@runtime_checkable
class Observing(Protocol):
    def observe(self, records: Sequence[Record]) -> None: ...


class JournalLost(Exception):
    """``fenced``: another leader writes the journal."""

    def __init__(self, text: str, *, fenced: bool) -> None:
        super().__init__(text)
        self.fenced = fenced


class Shared(NamedTuple):
    """``writer``: this process's name in journals. ``edges``: all but the Node's, made after the recovery.
    ``observers`` get each step and its follower. ``on_blocked`` gets the blocked journals at each look.
    """

    caller: ApiCaller
    view: ClusterView
    namespace: str
    replica: str
    writer: str
    settings: Callable[[str], OutageSettings]
    edges: Callable[[Follower], Sequence[Edge]]
    clock: Clock
    identity: Identity
    tell: Tell
    report: Report
    observers: Sequence[Callable[[Follower, Sequence[Record]], None]] = ()
    on_failed: Callable[[], None] = lambda: None
    on_blocked: Callable[[Mapping[str, str]], None] = lambda blocked: None
    machines: FirstUuids | None = None


def in_trouble(view: ClusterView, node: str, uid: str) -> bool:
    """Unknown or silent, with our taint, or with a person's statement. A kubelet that reports not Ready and
    renews its lease is alive.
    """
    found = view.of(node).node
    if found is None or found.uid != uid:
        return False
    silent = view.silent_at(node) <= trio.current_time()
    return silent or found.ready == "Unknown" or found.taint == "ours" or found.declared is not None


class Recovered(NamedTuple):
    """``trace_id``: of the open outage, or empty. ``keep_from``: the first kept outage; 0: the open one."""

    system: System
    verdict: Verdict
    trace_id: str
    keep_from: int
    diverged: bool


def recover_outages(
    sources: Sequence[Source], node_uid: str, fresh_id: bytes, alarms_since_ns: int = 0
) -> Recovered:
    """Raises Unreadable, OSError."""
    history = History(sources, from_checkpoint=True, logics=(OUTAGE_LOGIC,))
    replayer, trace_id, keep_from = Replayer(goes_on=True), "", 0
    try:
        replayer.feed(history.raw())
        # An empty journal names no set of actors.
        verdict, system = history.verdict, replayer.system if replayer.events else System(logic=OUTAGE_LOGIC)
        refuse_foreign(verdict.header, node_uid)
        if verdict.state == "incompatible":
            raise Unreadable(verdict.banner)
        if system.logic != OUTAGE_LOGIC:
            raise BadPayload("its checkpoint is no outage's")
        system.next_seq = verdict.start(fresh_id).after.seq + 1
        # The outage may have begun before the checkpoint, and its alarm may be before or behind a gap.
        scans = (Scan(each, None) for each in (*history.path.older, *history.path.segments))
        for raw in (raw for scan in scans for piece in scan.pieces() for raw in piece.records):
            if raw.seq == system.episode:
                trace_id = shutdown_trace_id(raw.hash)
            if raw.tag == ProofWasWrong.__name__ and raw.wall_ns > alarms_since_ns:
                keep_from = keep_from or raw.episode
        return Recovered(system, verdict, trace_id, keep_from, diverged=replayer.finish() is not None)
    except (UnknownType, BadPayload, ForeignJournal) as error:
        raise Unreadable(f"the journal cannot be read by this version: {error}") from error


class Follower:
    def __init__(self, shared: Shared, node: str, node_uid: str) -> None:
        self._shared, self.node, self.node_uid = shared, node, node_uid
        self._storage = ConfigMapStorage(shared.caller, shared.namespace, node_uid, shared.writer, node)
        self.node_edge = NodeEdge(
            *(shared.caller, shared.view, node, node_uid, self._heeds_renewals, self._floods)
        )
        self._lost = ""
        self._leaving = False
        self._ended = trio.Event()
        #: By the first fact about the Node.
        self._begun = trio.Event()
        self.system = System(logic=OUTAGE_LOGIC)
        self._traces = TraceIds()
        self._writer: Writer
        self._full_at_bytes = 0

    @property
    def trace_id(self) -> str:
        """Of the open or last outage."""
        return self._traces.current

    @property
    def blocked(self) -> str:
        """Why its journal waits; empty: it does not."""
        return self._storage.blocked

    def _tell(self, level: int, line: str) -> None:
        self._shared.tell(level, f"{self.node}: {line}")

    def _floods(self) -> bool:
        return self._storage.fill > FLOOD_FILL

    def _heeds_renewals(self) -> bool:
        """Whether a decision depends on each renewal."""
        state = self.system.slots[OUTAGE.name, ""].state
        return not (isinstance(state, OutageState) and state.phase in WELL)

    async def run(self) -> None:
        """Follows the node until it is at rest. Raises JournalLost, and OSError for an unreadable journal."""
        shared = self._shared
        await self._storage.acquire(shared.writer)
        recovered = await self._recover()
        self.system = recovered.system
        self._traces = TraceIds(self.system.episode, recovered.trace_id)
        inbox = Inbox()
        async with trio.open_nursery() as writing:
            writing.start_soon(self._writer.run)
            self._begin_segment()
            edges: list[Edge] = [self.node_edge, *shared.edges(self)]
            effects = Effects(edges, inbox, self._writer, shared.clock)
            open_orders = [opened.order for opened in self.system.open_orders.values()]
            sequencer = Sequencer(self.system, inbox, self, effects, shared.clock)
            lines = LineContext()
            log = Log(
                lines,
                self._writer.wait_written,
                lambda level, line, fields: shared.report(level, f"{self.node}: {line}", fields),
                lambda record: journald_fields(
                    record, lines.names, self._writer.journal_id, self._traces.of(record.episode)
                ),
            )
            self.system.on_failure = log.keep_failure
            sequencer.observers += [log.keep, self._after]
            sequencer.observers += [edge.observe for edge in edges if isinstance(edge, Observing)]
            writing.start_soon(log.run)
            async with trio.open_nursery() as working:
                working.start_soon(self._await_end, working.cancel_scope)
                sequencer.admit(
                    LeaderStarted(
                        version=__version__,
                        replica=shared.replica,
                        node=self.node,
                        node_uid=self.node_uid,
                        settings=shared.settings(self.node),
                    )
                )
                working.start_soon(sequencer.run)
                working.start_soon(self.node_edge.run, inbox)
                # The Node first: adopted orders, leftovers and statements are about its present state.
                await self._begun.wait()
                working.start_soon(effects.run)
                working.start_soon(partial(effects.adopt, open_orders, same_userspace=True))
                for edge in edges[1:]:
                    working.start_soon(edge.run, inbox)
                working.start_soon(self._keep_small, recovered.keep_from)
            if self._leaving and not self._lost:
                await self._writer.wait_synced(self.system.next_seq - 1)
            elif not self._lost:
                self._storage.at_rest = True
                await self._writer.close()
            writing.cancel_scope.cancel()
        if self._lost:
            raise JournalLost(self._lost, fenced=self._storage.fenced)

    async def _recover(self) -> Recovered:
        """Also opens the writer."""
        shared, source = self._shared, self._storage.source
        fresh_id = os.urandom(JOURNAL_ID_BYTES)
        try:
            if self._storage.fill > 1:
                raise TooLarge(errno.EFBIG, FULL)
            since_ns = shared.clock.wall_ns() - ALARM_NS
            recovered = await self._storage.call(recover_outages, [source], self.node_uid, fresh_id, since_ns)
        except (Unreadable, TooLarge) as error:
            # Begin beside it: the Node has the taint.
            if isinstance(error, TooLarge):
                self._storage.begin_anew()
            self._tell(WARNING, f"{error}: going on without its history")
            recovered = recover_outages((), self.node_uid, fresh_id)
            recovered = recovered._replace(verdict=beside(recovered.verdict, shared.clock.wall_ns()))
        if recovered.verdict.state != "intact":
            self._tell(WARNING, recovered.verdict.banner)
        if recovered.diverged:
            self._tell(WARNING, "the journal's decisions differ from this version's")
        self._writer = Writer(
            [self._storage],
            shared.identity._replace(machine_id=self.node_uid, node=self.node, logic=OUTAGE_LOGIC),
            recovered.verdict.start(fresh_id),
            program="ebbtide-outage",
            on_failed=lambda location, error: self._tell(NOTICE, f"the journal: {error}"),
            on_moved=lambda location, first_seq: None,
            on_lost=self._on_lost,
            last_resort=lambda line: None,
        )
        self.wait_written, self.wait_synced = self._writer.wait_written, self._writer.wait_synced
        await self._writer.open()
        return recovered

    def leave(self) -> None:
        """``run`` returns once all records are stored."""
        self._leaving = True
        self._ended.set()

    def _on_lost(self, error: str) -> None:
        self._lost = error
        self._ended.set()

    def append(self, records: Sequence[Record]) -> None:
        for record, chain_hash in zip(records, self._writer.append(records), strict=True):
            self._traces.learn(record, chain_hash)

    def _begin_segment(self) -> None:
        self._full_at_bytes = begin_segment(self._writer, self.system, self._shared.clock)

    def _after(self, records: Sequence[Record]) -> None:
        if any(isinstance(each.event, NodeRead | NodeDeleted) for each in records):
            self._begun.set()
        for observe in self._shared.observers:
            observe(self, records)
        if not self.system.episode and self._writer.segment_bytes > self._full_at_bytes:
            self._begin_segment()

    async def _keep_small(self, keep_from: int) -> None:
        """Removes closed outages beyond the limits, and leftovers of an earlier leader."""
        try:
            if await self._writer.wait_synced(self.system.next_seq - 1):
                await self._storage.delete_excluded()
            kept = keep_from or self.system.episode or None
            for name in await trim([self._storage], time.time_ns(), kept, OUTAGE_LIMITS):
                self._tell(NOTICE, f"removed the old segment {name}")
        except OSError as error:
            self._tell(WARNING, f"old segments stay: {error.strerror}")

    async def _await_end(self, scope: trio.CancelScope) -> None:
        """A lost journal, the lead's end, or rest without an outage and trouble."""
        calm_since = math.inf
        while True:
            now = trio.current_time()
            trouble = self.system.episode or in_trouble(self._shared.view, self.node, self.node_uid)
            calm_since = math.inf if trouble else min(calm_since, now)
            if self._storage.fill > 1:
                self._lost = FULL
            # A new follower reports the Node at once.
            rest_seconds = FLOOD_REPORT_SECONDS if self._floods() else REST_SECONDS
            if self._lost or now - calm_since >= rest_seconds:
                break
            with trio.move_on_after(LOOK_SECONDS):
                await self._ended.wait()
                break
        scope.cancel()
