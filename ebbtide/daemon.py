"""The composition root: puts the system, its journal and its edges together, and runs them.

This is the only place that knows all of them. It decides nothing about pods: it brings facts in (a start,
a configuration, a signal from the service manager, a word from a person) and shows what comes out.
"""

from __future__ import annotations

import gc
import math
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import trio

from actors.interfaces import Clock, Edge
from actors.logic.course import EpisodeState
from actors.logic.episode import EPISODE
from actors.logic.snapshot import take
from actors.runner.effects import Effects
from actors.runner.inbox import Inbox
from actors.runner.sequencer import Sequencer
from ebbtide.config import ConfigError, Loaded
from ebbtide.control import ControlError, serve
from ebbtide.fields import Traces, fields_of
from ebbtide.lines import Lines
from ebbtide.log import Log
from ebbtide.metering import Metering
from ebbtide.options import RunOptions
from ebbtide.recover import Recovered
from ebbtide.status import status_of
from ebbtide.surroundings import Report, Surroundings, Tell
from ebbtide.verbs import verbs
from events.base import Order
from events.decisions import Armed
from events.facts import SettingsLoaded, SettingsRejected, StorageFailed, StorageMoved
from events.record import Record, Stamp
from events.retention import SEGMENT_BYTES_MAX
from events.writer import Writer

#: How often a journal that had to move tries its first location again, outside of shutdowns.
AWAY_SECONDS = 60

#: How long the end of the process waits for the journal's last records.
CLOSE_SECONDS_MAX = 2


class Daemon:
    """One process's life. ``report`` gets the log's lines with fields, ``tell`` what stands in no record."""

    def __init__(
        self,
        recovered: Recovered,
        writer: Writer,
        edges: Sequence[Edge],
        clock: Clock,
        surroundings: Surroundings,
        load: Callable[[], Loaded],
        options: RunOptions,
        tell: Tell,
        trim: Callable[[int | None], Awaitable[Sequence[str]]],
        report: Report,
        metering: Metering | None = None,
    ) -> None:
        self._trim, self._grown = trim, trio.Event()
        self.standing = recovered.standing
        self.writer = writer
        self.edges = edges
        self._clock = clock
        self._surroundings = surroundings
        self._load = load
        self._options = options
        self._tell = tell
        lines = Lines(self.standing.began_ns, self.standing.labels)
        self._log = Log(
            lines,
            writer.wait_written,
            report,
            lambda record: fields_of(record, lines.names, writer.journal_id, self._traces.of(record.episode)),
        )
        self._metering = metering
        self._inbox = Inbox()
        self._effects = Effects(edges, self._inbox, writer, clock)
        self._effects.refuse(recovered.spent)
        self.sequencer = Sequencer(recovered.system, self._inbox, self, self._effects, clock)
        self.sequencer.observers += [self.standing.fold, self._log.keep, self._after]
        if metering is not None:
            self.sequencer.observers.append(metering.fold)
        self._traces = Traces(recovered.system.episode, recovered.trace_id)
        self._shown = ""
        self._full_at_bytes = SEGMENT_BYTES_MAX

    @property
    def trace_id(self) -> str:
        """Of the open shutdown, or the last one; empty if there was none."""
        return self._traces.current

    # --- the journal as the sequencer sees it ---------------------------------------------------

    def append(self, records: Sequence[Record]) -> None:
        hashes = self.writer.append(records)
        for record, chain_hash in zip(records, hashes, strict=True):
            self._traces.learn(record, chain_hash)

    async def wait_written(self, seq: int) -> bool:
        return await self.writer.wait_written(seq)

    async def wait_synced(self, seq: int) -> bool:
        return await self.writer.wait_synced(seq)

    # --- life ------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Until an actor decides to leave; returns why. The pods' processes are left alone."""
        self._begin_segment()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self._log.run)
            nursery.start_soon(self._keep_small)
            if self._metering is not None:
                nursery.start_soon(self._metering.run, self._tell)
            await self._begin(nursery)
            reason = await self.sequencer.run()
            self._surroundings.notify(STOPPING=1)
            for edge in self.edges:
                edge.detach()
            with trio.move_on_after(CLOSE_SECONDS_MAX):
                await self.writer.close()
                if self._metering is not None:
                    await self._metering.save()
            nursery.cancel_scope.cancel()
        return reason

    async def _keep_small(self) -> None:
        """Old segments go when a new one has begun: at the start, and as the journal grows.

        While the journal is away from its first location, a new segment tries to take it back there.
        """
        while True:
            self._grown = trio.Event()
            for name in await self._trim(self.sequencer.system.episode or None):
                self._tell(6, f"journal: removed the old segment {name}")
            with trio.move_on_after(AWAY_SECONDS if self.writer.away else math.inf):
                await self._grown.wait()
            if self.writer.away and not self.sequencer.system.episode:
                self._begin_segment()

    def _begin_segment(self) -> None:
        system = self.sequencer.system
        stamp = Stamp(self._clock.mono_ns(), self._clock.wall_ns())
        self.writer.begin_segment(stamp, take(system))
        self._full_at_bytes = self.writer.segment_bytes + SEGMENT_BYTES_MAX
        system.next_seq += 1

    async def _begin(self, nursery: trio.Nursery) -> None:
        """The process's own facts come first, then what the edges see."""
        open_orders = self._open_orders()
        started = await self._surroundings.started()
        before = self._episode_state()
        same = (before.boot_id, before.userspace_id) == (started.boot_id, started.userspace_id)
        nursery.start_soon(self._effects.run)
        self.sequencer.admit(started)
        nursery.start_soon(partial(self._effects.adopt, open_orders, same_userspace=same))
        self.reload()
        for edge in self.edges:
            nursery.start_soon(edge.run, self._inbox)
        nursery.start_soon(self._signals)
        if self._options.control_socket.parent != self._options.control_socket:
            await nursery.start(self._control)
        self._surroundings.notify(READY=1, STATUS=self._status_line())

    def _open_orders(self) -> list[Order]:
        return [opened.order for opened in self.sequencer.system.open_orders.values()]

    def _episode_state(self) -> EpisodeState:
        state = self.sequencer.system.slots[(EPISODE.name, "")].state
        return cast(EpisodeState, state)

    async def _control(self, task_status: trio.TaskStatus[None]) -> None:
        table = verbs(self.standing, self._inbox, self._status, self._metrics)
        try:
            await serve(self._options.control_socket, table, self._tell, task_status=task_status)
        except OSError as error:
            self._tell(4, f"no control socket at {self._options.control_socket}: {error.strerror or error}")
            task_status.started()

    def _status(self) -> dict[str, Any]:
        early = self._episode_state().sleeps_terminated_early
        now_ns = self._clock.mono_ns()
        said = status_of(self.standing, self.writer, self.trace_id, early, now_ns)
        return said | {"mode": self._options.mode}

    def _metrics(self) -> dict[str, Any]:
        if self._metering is None:
            raise ControlError("this daemon keeps no metrics")
        return self._metering.document()

    # --- facts from the service manager ----------------------------------------------------------

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    self.reload()
                else:
                    await self._inbox.put(await self._surroundings.stopping(self.standing.needed_ns))

    def reload(self) -> None:
        """Read the configuration (again). A bad one keeps the old one, and says so."""
        try:
            loaded = self._load()
        except ConfigError as error:
            self._inbox.push(SettingsRejected(error=str(error)))
            return
        self._inbox.push(SettingsLoaded(settings=loaded.settings, sources=dict(loaded.sources)))

    def storage_failed(self, location: str, error: str) -> None:
        self._inbox.push(StorageFailed(location=location, error=error))

    def storage_moved(self, location: str, first_seq: int) -> None:
        self._inbox.push(StorageMoved(location=location, first_seq=first_seq))

    # --- what comes out --------------------------------------------------------------------------

    def _after(self, records: Sequence[Record]) -> None:
        """Between steps: what the service manager shows, what is imported early, and a new segment."""
        for record in records:
            if isinstance(record.event, Armed):
                gc.collect()
                gc.freeze()  # what is here stays; a collection in mid-shutdown need not look at it
                for edge in self.edges:
                    edge.prewarm()
        line = self._status_line()
        if line != self._shown:
            self._shown = line
            self._surroundings.notify(STATUS=line)
        if not self.sequencer.system.episode and self.writer.segment_bytes > self._full_at_bytes:
            self._begin_segment()
            self._grown.set()

    def _status_line(self) -> str:
        standing = self.standing
        if standing.phase != "idle":
            return f"shutdown {standing.phase}: {standing.kind}"
        return "armed" if standing.armed else f"not armed: {standing.why_not}"
