"""The daemon: runs the system, its journal and its edges.

It records facts (a start, a configuration, a signal of the service manager, a request on the control socket);
actors decide. It imports only what arming needs: code for a shutdown is imported once the daemon is armed.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import trio

from ebbtide.actors.episode import EPISODE, EpisodeState
from ebbtide.actors.interfaces import Clock, Edge, Tell
from ebbtide.actors.runner import Effects, Inbox, Sequencer
from ebbtide.config import ConfigError, Loaded, configuration_values, default_paths
from ebbtide.control import ControlError, control_verbs, serve
from ebbtide.daemon_status import shipping_json, status_of
from ebbtide.events import bounds, facts
from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.decisions import Armed, EpisodeClosed
from ebbtide.events.retention import SEGMENT_BYTES_MAX
from ebbtide.events.writer import Writer
from ebbtide.host import Host
from ebbtide.log import LineContext, Log, Report, TraceIds, journald_fields
from ebbtide.node_metrics import MetricsRecorder
from ebbtide.options import RunOptions
from ebbtide.recover import Recovered, begin_segment
from ebbtide.shipping.shipping_edge import ShippingEdge
from ebbtide.side_process import environment_of_children

if TYPE_CHECKING:
    # The demo makes it: an idle daemon need not load a model of logind.
    from ebbtide.actors.edges.process.process_edge import ProcessEdge

#: How often a moved journal tries its first location again. Each try is a segment with a checkpoint.
AWAY_SECONDS = 60


#: READY waits so long for the list of pods: over a list's timeout, under the unit's start timeout.
HEARD_SECONDS_MAX = 15


#: A new segment begins after a shutdown, so that the closed one can be copied elsewhere. Segments stay few
#: where shutdowns are scheduled and cancelled all day.
SETTLED_SEGMENT_SECONDS_MIN = 60


class Daemon:
    """``report``: log lines with fields. ``tell``: log lines about no record."""

    def __init__(
        self,
        recovered: Recovered,
        writer: Writer,
        edges: Sequence[Edge],
        clock: Clock,
        host: Host,
        load: Callable[[], Loaded],
        options: RunOptions,
        tell: Tell,
        trim: Callable[[int | None], Awaitable[Sequence[str]]],
        report: Report,
        metering: MetricsRecorder | None = None,
    ) -> None:
        self._trim, self._grown = trim, trio.Event()
        self._reload_asked = trio.Event()
        self._stepped = trio.Event()
        self.status = recovered.status
        self.writer = writer
        self.edges = edges
        self._clock = clock
        self._host = host
        self._load = load
        self._loaded: Loaded | None = None
        self._options = options
        self._tell = tell
        lines = LineContext(self.status.began_ns, self.status.labels)
        self._log = Log(
            lines,
            writer.wait_written,
            report,
            lambda record: journald_fields(
                record, lines.names, writer.journal_id, self._traces.of(record.episode)
            ),
        )
        self._metering = metering
        self._inbox = Inbox()
        self._effects = Effects(edges, self._inbox, writer, clock)
        self._effects.refuse(recovered.spent)
        self.sequencer = Sequencer(recovered.system, self._inbox, self, self._effects, clock)
        recovered.system.on_failure = self._log.keep_failure
        self.sequencer.observers += [self.status.fold, self._log.keep, self._after]
        if metering is not None:
            self.sequencer.observers.append(metering.fold)
        self._traces = TraceIds(recovered.system.episode, recovered.trace_id)
        #: The pods' edge in mode process.
        self.local: ProcessEdge | None = None
        #: None where no segment is shipped.
        self.shipping: ShippingEdge | None = None
        self._shown = ""
        self._full_at_bytes = SEGMENT_BYTES_MAX
        self._segment_begun_ns = 0
        #: The current segment has the end of a shutdown.
        self._settled = False

    @property
    def trace_id(self) -> str:
        """The open shutdown's, or the last one's; empty without any."""
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
        """Runs until an actor decides to leave; returns the reason. The pods' processes go on."""
        # Before any fact: a reader of this process's records begins at its checkpoint.
        self._begin_segment()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self._log.run)
            nursery.start_soon(self._keep_small)
            if self._metering is not None:
                nursery.start_soon(self._metering.run, self._tell)
            # Before the start's own step, whose orders belong to this process.
            open_orders = [opened.order for opened in self.sequencer.system.open_orders.values()]
            started = await self._host.started()
            # The former process's, until the start's step.
            before = cast(EpisodeState, self.sequencer.system.slots[(EPISODE.name, "")].state)
            same = (before.boot_id, before.userspace_id) == (started.boot_id, started.userspace_id)
            nursery.start_soon(self._effects.run)
            # Before the edges' facts: another boot changes the meaning of every other fact.
            self.sequencer.admit(started)
            nursery.start_soon(partial(self._effects.adopt, open_orders, same_userspace=same))
            # Before any edge's fact: without a configuration logind's answer arms nothing.
            self._take_settings(_settings_or_error(self._load))
            for edge in self.edges:
                nursery.start_soon(edge.run, self._inbox)
            nursery.start_soon(self._signals)
            nursery.start_soon(self._reload)
            if self._options.sockets:
                await nursery.start(self._control)
                if self._options.of_node:
                    nursery.start_soon(self._view)
            # Last: units after ours may use the socket, and until now a SIGHUP kills us.
            nursery.start_soon(self._say_ready)
            nursery.start_soon(self._say_alive)
            reason = await self.sequencer.run()
            # STOPPING first: a failure on the way out must not look like a crash.
            self._host.notify(STOPPING=1)
            # Before the cancel: an attached edge would end its hooks, which must go on without us.
            for edge in self.edges:
                edge.detach()
            with trio.move_on_after(bounds.now.close_seconds):
                await self.writer.close()
                # After the close, when all records are durable: sums cover durable records only.
                if self._metering is not None:
                    await self._metering.save()
            nursery.cancel_scope.cancel()
        return reason

    async def _say_ready(self) -> None:
        """On a node, once the daemon is armed and has the pods' priorities, or a reason why not: a rollout
        continues at READY.
        """
        if self._options.of_node:
            with trio.move_on_after(HEARD_SECONDS_MAX):
                while self.status.starting or self.status.unheard:
                    await self._stepped.wait()
        await self._host.notify_in_time(READY=1, STATUS=self._status_line())

    async def _say_alive(self) -> None:
        """Feeds the watchdog once a turn of the sequencer. A thread would feed it while a step hangs."""
        while every_seconds := self._host.life_seconds:
            await self.sequencer.turned()
            await self._host.notify_in_time(WATCHDOG=1)
            await trio.sleep(every_seconds)

    async def _keep_small(self) -> None:
        """Removes old segments when a new one begins. A moved journal tries its first location."""
        while True:
            self._grown = trio.Event()
            for name in await self._trim(self.sequencer.system.episode or None):
                self._tell(6, f"journal: removed the old segment {name}")
            with trio.move_on_after(AWAY_SECONDS if self.writer.away else math.inf):
                await self._grown.wait()
            # Not in a shutdown: a move would delay its records.
            if self.writer.away and not self.sequencer.system.episode:
                self._begin_segment()

    def _begin_segment(self) -> None:
        self._full_at_bytes = begin_segment(self.writer, self.sequencer.system, self._clock)
        self._segment_begun_ns, self._settled = self._clock.mono_ns(), False

    async def _control(self, task_status: trio.TaskStatus[None]) -> None:
        def metrics() -> dict[str, Any]:
            if self._metering is None:
                raise ControlError("this daemon keeps no metrics")
            return self._metering.document()

        table = control_verbs(self.status, self._inbox, self._status, metrics, self._configuration)
        try:
            await serve(self._options.control_socket, table, self._tell, task_status=task_status)
        except OSError as error:
            self._tell(4, f"no control socket at {self._options.control_socket}: {error.strerror or error}")
            task_status.started()

    async def _view(self) -> None:
        """The socket for read-only callers. The node is protected without it."""
        # Imported here: arming has begun already.
        from ebbtide import view_socket as view

        async def until_shutdown() -> None:
            while self.status.phase == "idle":
                await self._stepped.wait()

        options = self._options
        fallbacks = self._loaded.config.journal_fallbacks if self._loaded is not None else ()
        viewer = view.Viewer(
            [options.journal, *map(Path, fallbacks)],
            options.runtime,
            lambda: self.status.phase == "idle",
            until_shutdown,
            environment_of_children,
        )
        path = view.view_socket(options.runtime)
        limits = (view.CLIENTS_MAX, view.CLIENT_SECONDS_MAX)
        try:
            path.parent.mkdir(mode=view.FOLDER_MODE, parents=True, exist_ok=True)
            await serve(path, viewer.verbs, self._tell, *limits, task_status=trio.TASK_STATUS_IGNORED)
        except OSError as error:
            self._tell(4, f"no socket for 'kubectl ebbtide' at {path}: {error.strerror or error}")

    def _status(self) -> dict[str, Any]:
        now_ns = self._clock.mono_ns()
        document = status_of(self.status, self.writer, self.trace_id, now_ns)
        ended = [pod.label for pod in self.local.ended()] if self.local is not None else []
        return document | {
            "mode": self._options.mode,
            "unheard": self._unheard(),
            "endedPods": ended,
            "shipping": shipping_json(self.shipping.last_state()) if self.shipping is not None else None,
        }

    def _configuration(self) -> dict[str, Any]:
        """The last configuration, as in ``config show`` without secrets, and the command line's options."""
        if self._loaded is None:
            raise ControlError("no configuration has been read yet: see the daemon's log")
        options = self._options
        return {
            "kind": "RunningConfiguration",
            "version": 1,
            "values": configuration_values(self._loaded),
            "sources": self._loaded.sources,
            "files": [os.path.abspath(path) for path in options.config or default_paths()],
            "mode": options.mode,
            "journal": os.path.abspath(options.journal),
            "cri": None if options.cri is None else os.path.abspath(options.cri),
            "kubeconfig": options.kubeconfig,
            "nodeName": options.node_name,
        }

    # --- facts from the service manager ----------------------------------------------------------

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reload_asked.set()
                else:
                    await self._inbox.put(await self._host.stopping(self.status.needed_ns))

    async def _reload(self) -> None:
        """Reads the configuration again on request."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked = trio.Event()
            # In a thread: the disk may hang, and pods may be ending now.
            self._take_settings(
                await trio.to_thread.run_sync(_settings_or_error, self._load, abandon_on_cancel=True)
            )

    def _take_settings(self, loaded: Loaded | ConfigError) -> None:
        """A bad configuration is recorded, and the old one stays."""
        if isinstance(loaded, ConfigError):
            self._inbox.push(facts.SettingsRejected(error=str(loaded)))
            return
        self._loaded = loaded
        self._inbox.push(facts.SettingsLoaded(settings=loaded.settings, sources=dict(loaded.sources)))

    def storage_failed(self, location: str, error: str) -> None:
        self._inbox.push(facts.StorageFailed(location=location, error=error))

    def storage_moved(self, location: str, first_seq: int) -> None:
        self._inbox.push(facts.StorageMoved(location=location, first_seq=first_seq))

    # --- what comes out --------------------------------------------------------------------------

    def _after(self, records: Sequence[Record]) -> None:
        """Between steps: the status line, early imports, and a new segment."""
        for record in records:
            if isinstance(record.event, Armed):
                # A full collection would delay the stop signals of a shutdown.
                if not self.sequencer.system.episode:
                    freeze_what_stays()
                for edge in self.edges:
                    edge.prewarm()
                # Returns memory of the imports, more than a mebibyte, which glibc's allocator would keep for
                # months. musl has no such call.
                with suppress(AttributeError):
                    ctypes.CDLL(None).malloc_trim(0)
        self._stepped.set()
        self._stepped = trio.Event()
        line = self._status_line()
        if line != self._shown:
            self._shown = line
            self._host.notify(STATUS=line)
        # Not in a shutdown: a large checkpoint would delay stop signals.
        self._settled |= any(isinstance(record.event, EpisodeClosed) for record in records)
        # A segment is over when it is full, or has the end of a shutdown and its minimum age.
        age_ns = self._clock.mono_ns() - self._segment_begun_ns
        over = self._settled and age_ns >= SETTLED_SEGMENT_SECONDS_MIN * NS_PER_SECOND
        over = over or self.writer.segment_bytes > self._full_at_bytes
        if over and not self.sequencer.system.episode:
            self._begin_segment()
            self._grown.set()

    def _status_line(self) -> str:
        status = self.status
        if status.phase != "idle":
            lost = ", LOCK LOST" if status.lock == "lost" else ""
            return f"shutdown {status.phase}: {status.kind}{lost}"
        if not status.armed:
            return f"not armed: {status.why_not}"
        unheard = self._unheard()
        return f"armed, not heard of yet: {unheard}" if unheard else "armed"

    def _unheard(self) -> str:
        """Empty in mode process, where the daemon itself has the pods."""
        return self.status.unheard if self._options.of_node else ""


def freeze_what_stays() -> None:
    """Excludes present objects from collections in mid-shutdown; unfreezes released cycles first."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _settings_or_error(load: Callable[[], Loaded]) -> Loaded | ConfigError:
    try:
        return load()
    except ConfigError as error:
        return error
