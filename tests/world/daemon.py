"""One life of the daemon: the real composition root on simulated edges, until its exit or kill.

A kill can come before every step of every task, and around every access to node and disk (`Life.touch`). From
then on the dead code has no effect; then its tasks are cancelled.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import cast

import trio

from ebbtide.actors.config_reconciler import CONFIG, ConfigState
from ebbtide.actors.episode import EPISODE, EpisodeState
from ebbtide.actors.interfaces import Edge
from ebbtide.actors.system import System
from ebbtide.config import Loaded, parse
from ebbtide.daemon import Daemon, recover_in_time
from ebbtide.daemon_status import DaemonStatus
from ebbtide.events.base import BARRIER_NS_MAX, Order, Record
from ebbtide.events.disk import Limits, Storage, trim
from ebbtide.events.facts import DaemonStarted, HurryRequested, ReleaseRequested, StopRequested
from ebbtide.events.segment import Identity
from ebbtide.events.values import Settings
from ebbtide.events.writer import Writer
from ebbtide.log import without_fields
from ebbtide.options import RunOptions
from ebbtide.recover import phase_by_actors
from ebbtide.replay.replayer import Divergence
from ebbtide.replay.sim.scenario import Draws
from tests.world.clock import sleep_ns
from tests.world.edge import LogindEdge, RuntimeEdge, StatusEdge
from tests.world.gate import Gated
from tests.world.node import Node

#: No socket: requests come by `Life.hurry` and `Life.release`.
NO_SOCKET = RunOptions(sockets=False)

MACHINE = "machine"

#: A task's life; each task of a life inherits it.
OWNER: ContextVar[Life] = ContextVar("OWNER")


@cache
def _defaults() -> Loaded:
    return parse([])


class WorldDaemon(Daemon):
    """The real daemon with signals from the world instead of the kernel."""

    life: Life

    async def _signals(self) -> None:
        async for signal in self.life.signals:
            if signal == "HUP":
                # A thread would not see the world's clock.
                self._take_settings(self._load())
            else:
                await self._inbox.put(await self._host.stopping(self.status.needed_ns))

    async def hear(self, fact: HurryRequested | ReleaseRequested) -> None:
        """Handle a request like the control socket."""
        await self._inbox.put(fact)


class Life:
    """``number`` counts in the whole world. ``point`` runs at each possible death."""

    def __init__(
        self,
        number: int,
        node: Node,
        draws: Draws,
        settings: Callable[[], Settings],
        point: Callable[[Life], None],
    ) -> None:
        self.number, self.node, self.draws = number, node, draws
        self.alive = True
        self.reason = ""
        self.failure = ""
        #: Effects before their barrier was passed or expired: (order, waited ns).
        self.impatient: list[tuple[str, int]] = []
        self.daemon: WorldDaemon | None = None
        self.runtime: RuntimeEdge | None = None
        #: Wrong displayed values.
        self.untrue: list[str] = []
        self.failed_storage = False
        self.ready = False
        self.verdict = ""
        #: The last record of its predecessors that it read; None: it died before.
        self.goes_on_after: int | None = None
        self.records: list[Record] = []
        self.readers: list[Callable[[Life, Sequence[Record]], object]] = []
        self.divergence: Divergence | None = None
        self._settings, self._point = settings, point
        self._scope = trio.CancelScope()
        self._held: dict[str, tuple[int, int]] = {}
        self._send, self.signals = trio.open_memory_channel[str](16)

    # --- from outside

    def crash(self, why: str) -> None:
        """SIGKILL: the kernel closes what was open, at once."""
        if not self.alive:
            return
        self.alive = False
        self.node.log.note("crash", detail=why, life=self.number)
        self.node.logind.client_died(self.number)
        self._scope.cancel()

    def touch(self) -> bool:
        if self.alive:
            self._point(self)
        return self.alive

    def manifest_appeared(self) -> None:
        """A file was laid in the folder of manifests."""
        if self.runtime is not None:
            self.runtime.manifest_appeared()

    def signal(self, name: str) -> None:
        """SIGTERM or SIGHUP from the service manager; lost before the daemon listens, as in reality."""
        if self.alive:
            self._send.send_nowait(name)

    async def hurry(self, pod: str) -> None:
        if self.alive and self.daemon is not None:
            await self.daemon.hear(HurryRequested(pod=pod, asked_by=0))

    async def release(self) -> None:
        if self.alive and self.daemon is not None and self.daemon.status.phase == "running":
            self.node.log.note("release-asked", life=self.number)
            await self.daemon.hear(ReleaseRequested(asked_by=0))

    # --- barriers

    def observe(self, records: Sequence[Record]) -> None:
        """Records the end of each order's step, to check the barriers of its effect."""
        if not self.alive:
            return
        self.records += records
        for read in self.readers:
            read(self, records)
        if self.daemon is not None:
            self.untrue += what_is_untrue(self.daemon.status, self.daemon.sequencer.system, records[-1].seq)
        for record in records:
            if isinstance(record.event, Order):
                self._held[record.event.key] = (records[-1].seq, self.node.clock.mono_ns())

    def begins(self, order: Order) -> bool:
        if not self.alive or self.daemon is None:
            return False
        writer = self.daemon.writer
        # An adopted order was in the journal before this process.
        seq, since_ns = self._held.get(order.key, (0, 0))
        reached = {"none": seq, "written": writer.written_seq, "synced": writer.synced_seq}[order.barrier]
        waited_ns = self.node.clock.mono_ns() - since_ns
        if reached < seq and waited_ns < BARRIER_NS_MAX and not writer.lost:
            self.impatient.append((order.key, waited_ns))
        return reached < seq

    # --- the life itself

    async def run(self, storages: Sequence[Storage]) -> str:
        """Returns the reason of its end; "crashed" after a kill or an exception."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._main, [cast(Storage, Gated(self, storage)) for storage in storages])
        self._bury()
        return self.reason or "crashed"

    async def _main(self, storages: Sequence[Storage]) -> None:
        OWNER.set(self)
        with self._scope:
            try:
                reason = await self._live(storages)
                self.reason = reason if self.alive else ""
            except Exception:
                if self.alive:
                    self.failure = traceback.format_exc()
                    self.crash("an exception")

    def _bury(self) -> None:
        """Close its descriptors and stop all reports to it."""
        logind = self.node.logind
        if self.alive and self.reason:
            self.node.log.note("left", detail=self.reason, life=self.number)
            logind.close(0)
        self.alive = False
        logind.client_died(self.number)
        self._send.close()

    async def _live(self, storages: Sequence[Storage]) -> str:
        fresh_id = bytes(self.draws.below(256) for _ in range(16))
        wall_ns = self.node.clock.wall_ns()
        recovered = await recover_in_time(storages, MACHINE, fresh_id, wall_ns, self._tell)
        self.verdict, self.divergence = recovered.verdict.state, recovered.divergence
        self.goes_on_after = recovered.verdict.start(fresh_id).after.seq
        writer = Writer(
            storages,
            Identity("node", MACHINE, self.node.boot_id, "0", recovered.system.logic),
            recovered.verdict.start(fresh_id),
            on_failed=self._storage_failed,
            on_moved=self._storage_moved,
            on_lost=self._storage_lost,
            last_resort=lambda line: None,
        )
        await writer.open()
        self.daemon = daemon = WorldDaemon(
            recovered,
            writer,
            self._edges(),
            self.node.clock,
            Host(self, recovered.failed_starts),
            lambda: _defaults()._replace(settings=self._settings()),
            NO_SOCKET,
            self._tell,
            lambda keep_from_seq: self._trim(storages, keep_from_seq),
            without_fields(self._tell),
        )
        daemon.life = self
        daemon.sequencer.observers.append(self.observe)
        return await daemon.run()

    def _tell(self, level: int, line: str) -> None:
        """Errors are part of the story; the journal has the rest."""
        if level <= 3 and self.alive:
            self.node.log.note("error", detail=line, life=self.number)

    async def _trim(self, storages: Sequence[Storage], keep_from_seq: int | None) -> Sequence[str]:
        with trio.move_on_after(1), suppress(OSError):
            # Simulated files have no age, so only the size limits the journal.
            limits = Limits(total_bytes=self.node.features.journal_bytes)
            return await trim(storages, 0, keep_from_seq, limits)
        return ()

    def _edges(self) -> tuple[Edge, ...]:
        node, draws = self.node, self.draws
        self.runtime = RuntimeEdge(self, node, draws.fork("runtime"))
        logind = LogindEdge(self, node, draws.fork("logind"))
        return logind, self.runtime, StatusEdge(self, node, draws.fork("status"))

    def _storage_failed(self, location: str, error: str) -> None:
        self._note_storage("failed", f"{location}: {error}")
        if self.daemon is not None:
            self.daemon.storage_failed(location, error)

    def _storage_moved(self, location: str, first_seq: int) -> None:
        self._note_storage("moved", f"{location} from {first_seq}")
        if self.daemon is not None:
            self.daemon.storage_moved(location, first_seq)

    def _storage_lost(self, error: str) -> None:
        self._note_storage("lost", error)

    def _note_storage(self, what: str, detail: str) -> None:
        if self.alive:
            self.failed_storage = True
            self.node.log.note(f"journal-{what}", detail=detail, life=self.number)


class Host:
    """A start and a stop on a simulated node (`ebbtide.daemon.Surroundings`)."""

    def __init__(self, life: Life, failed_starts: int) -> None:
        self._life, self._failed_starts = life, failed_starts

    async def started(self) -> DaemonStarted:
        life = self._life
        await sleep_ns(life.draws.between(200, 5000) * 1000)
        return life.node.daemon_started(life.number, "0", "process", "node", self._failed_starts)

    async def stopping(self, needed_ns: int) -> StopRequested:
        node = self._life.node
        if node.stopping:
            node.extend_stop(needed_ns)
        return StopRequested(system_stopping=node.stopping, stop_time_ns=needed_ns)

    #: No watchdog: a simulated daemon hangs only on the world's order.
    life_seconds = 0.0

    def notify(self, **variables: str | int) -> None:
        """Ignored."""

    async def notify_in_time(self, **variables: str | int) -> None:
        if self._life.alive and "READY" in variables:
            self._life.ready = True
            self._life.node.log.note("ready", life=self._life.number)


def what_is_untrue(status: DaemonStatus, system: System, seq: int) -> Iterator[str]:
    """Compare the daemon's displayed state with its actors after record ``seq``.

    One sentence per difference. A failed actor has no state.
    """
    episode, config = system.slots[(EPISODE.name, "")], system.slots[(CONFIG.name, "")]
    if not episode.failed:
        if status.phase != phase_by_actors(system):
            yield f"at {seq} it shows {status.phase}, and is {phase_by_actors(system)}"
        state = cast(EpisodeState, episode.state)
        unknown = [pod.uid for wave in state.waves for pod in wave.pods if pod.uid not in status.pods]
        if unknown:
            yield f"at {seq} it does not know {', '.join(unknown)}"
    needed_ns = cast(ConfigState, config.state).needed_ns
    if not config.failed and status.needed_ns != needed_ns:
        yield f"at {seq} it shows a need of {status.needed_ns} ns, and needs {needed_ns}"
