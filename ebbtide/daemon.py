"""The daemon: runs the system, its journal and its edges.

Import here only what arming needs: code for a shutdown is imported once the daemon is armed.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import trio

from ebbtide.actors.edges.last_boot_reading import LastBootEdge
from ebbtide.actors.edges.linux.bus import system_bus_address
from ebbtide.actors.edges.service_manager import LOCK_NAME, ServiceManager, inherited_fds
from ebbtide.actors.episode import EPISODE, EpisodeState
from ebbtide.actors.interfaces import Clock, Edge, Tell
from ebbtide.actors.runner import Effects, Inbox, Sequencer
from ebbtide.config import ConfigError, Loaded, configuration_values, default_paths, load_named
from ebbtide.control import ControlError, control_verbs, serve
from ebbtide.daemon_status import shipping_json, status_of
from ebbtide.events import bounds, facts
from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.decisions import Armed, EpisodeClosed
from ebbtide.events.disk import SEGMENT_BYTES_MAX, DirectoryStorage, Limits, Storage, trim
from ebbtide.events.reader import History
from ebbtide.events.record.format import document
from ebbtide.events.segment import JOURNAL_ID_BYTES
from ebbtide.events.units import span_s
from ebbtide.events.writer import Writer, write_last_resort
from ebbtide.host import Host, LocalHost, Logind, SystemClock, host_name, journal_identity, lock_runtime
from ebbtide.log import LineContext, Log, LogOutput, Report, TraceIds, journald_fields, without_fields
from ebbtide.machine_lock import Holder, lock_machine, serve_waiting
from ebbtide.modes import ModeEdges, NodeParts, edges_of_mode, lasting_folder
from ebbtide.node_metrics import MetricsBackend, MetricsOptions, MetricsRecorder
from ebbtide.options import RunOptions
from ebbtide.otel import metric_table
from ebbtide.otel.cursor import settled_seq
from ebbtide.recover import EARLIER_BYTES_MAX, Recovered, Unreadable, begin_segment, beside, recover
from ebbtide.shipping.shipping_edge import ShippingEdge
from ebbtide.side_process import environment_of_children
from ebbtide.tracing import (
    TracingEdge,
    hook_context,
    usable_destination,
    usable_resource,
    with_tracing,
)

if TYPE_CHECKING:
    # For the demo: an idle daemon need not load a model of logind.
    from ebbtide.actors.edges.embedded_logind import EmbeddedLogindEdge
    from ebbtide.actors.edges.process.process_edge import ProcessEdge

#: A moved journal tries its first location this often. Each try is a segment with a checkpoint.
AWAY_SECONDS = 60


#: READY waits so long for the list of pods: over a list's timeout, under the unit's start timeout.
HEARD_SECONDS_MAX = 15


#: A segment ends after a shutdown, to be copied elsewhere; but not at each of many cancelled ones.
SETTLED_SEGMENT_SECONDS_MIN = 60


#: A heartbeat has 110 bytes: an hour without another record takes 400 KB.
HEARTBEAT_SECONDS = 1
#: Before the release, or while the pods of a cancelled shutdown end.
BEATING_PHASES = ("running", "cancelling")


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
        #: None: of the demo, or not to be had.
        self.machine_lock: socket.socket | None = None
        self._waiting: set[Holder] = set()
        self.local: ProcessEdge | None = None
        self.shipping: ShippingEdge | None = None
        self._shown = ""
        self._full_at_bytes = SEGMENT_BYTES_MAX
        self._segment_begun_ns = 0
        #: The current segment has the end of a shutdown.
        self._settled = False

    @property
    def trace_id(self) -> str:
        """The open shutdown's, or the last one's, or empty."""
        return self._traces.current

    def append(self, records: Sequence[Record]) -> None:
        hashes = self.writer.append(records)
        for record, chain_hash in zip(records, hashes, strict=True):
            self._traces.learn(record, chain_hash)

    async def wait_written(self, seq: int) -> bool:
        return await self.writer.wait_written(seq)

    async def wait_synced(self, seq: int) -> bool:
        return await self.writer.wait_synced(seq)

    async def run(self) -> str:
        """Runs until an actor decides to leave; returns the reason. The pods' processes go on."""
        # Before any fact: a reader of this process's records begins at its checkpoint.
        self._begin_segment()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self._log.run)
            nursery.start_soon(self._keep_small)
            nursery.start_soon(self._beat)
            if self.machine_lock is not None:
                nursery.start_soon(serve_waiting, self.machine_lock, self._waiting)
            if self._metering is not None:
                nursery.start_soon(self._metering.run, self._tell)
            # Before the start's step: its orders belong to this process.
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
            # Before the cancel: an attached edge would end its hooks, which must go on.
            for edge in self.edges:
                edge.detach()
            with trio.move_on_after(bounds.now.close_seconds):
                await self.writer.close()
                # After the close: sums cover durable records only.
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

    async def _beat(self) -> None:
        """A second of a shutdown without a record gets one: this bounds the time of a power cut."""
        while True:
            while self.status.phase not in BEATING_PHASES:
                await self._stepped.wait()
            while self.status.phase in BEATING_PHASES:
                await self._beat_once(BEATING_PHASES)
            # One more after the release: its frame shows that the outcome is durable. A trace's root waits
            # for it.
            while self.status.phase == "released" and not await self._beat_once(("released",)):
                pass

    async def _beat_once(self, phases: Sequence[str]) -> bool:
        before = self.writer.last_seq
        await trio.sleep(HEARTBEAT_SECONDS)
        due = self.writer.last_seq == before and self.status.phase in phases
        if due:
            await self._inbox.put(facts.Heartbeat())
        return due

    async def _keep_small(self) -> None:
        """Removes old segments when a new one begins. A moved journal tries its first location."""
        while True:
            self._grown = trio.Event()
            for name in await self._trim(self.sequencer.system.episode or None):
                self._tell(6, f"journal: removed the old segment {name}")
            with trio.move_on_after(AWAY_SECONDS if self.writer.away else math.inf) as pause:
                await self._grown.wait()
            # Not in a shutdown: a move would delay its records.
            if pause.cancelled_caught and self.writer.away and not self.sequencer.system.episode:
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
        """For read-only callers. The node is protected without it."""
        # Imported here because arming has begun: this does not delay it.
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
            "waiting": sorted(each.text for each in self._waiting),
            "shipping": shipping_json(self.shipping.last_state()) if self.shipping is not None else None,
        }

    def _configuration(self) -> dict[str, Any]:
        """As ``config show`` without secrets, and the command line's options."""
        if self._loaded is None:
            raise ControlError("no configuration has been read yet: see the daemon's log")
        options = self._options
        return document(
            "RunningConfiguration",
            1,
            values=configuration_values(self._loaded),
            sources=self._loaded.sources,
            files=[os.path.abspath(path) for path in options.config or default_paths()],
            mode=options.mode,
            journal=os.path.abspath(options.journal),
            cri=None if options.cri is None else os.path.abspath(options.cri),
            kubeconfig=options.kubeconfig,
            node_name=options.node_name,
        )

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reload_asked.set()
                else:
                    await self._inbox.put(await self._host.stopping(self.status.needed_ns))

    async def _reload(self) -> None:
        while True:
            await self._reload_asked.wait()
            self._reload_asked = trio.Event()
            # In a thread: the disk may hang while pods end.
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
        # Also in a shutdown: without a checkpoint the next start would not know which hooks have run.
        if self.writer.severed:
            self._begin_segment()
            self._grown.set()

    def _after(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record.event, Armed):
                # A full collection would delay the stop signals of a shutdown.
                if not self.sequencer.system.episode:
                    freeze_what_stays()
                for edge in self.edges:
                    edge.prewarm()
                # The imports leave over 1 MiB, which glibc would keep for months. musl has no such call.
                with suppress(AttributeError):
                    ctypes.CDLL(None).malloc_trim(0)
        self._stepped.set()
        self._stepped = trio.Event()
        line = self._status_line()
        if line != self._shown:
            self._shown = line
            self._host.notify(STATUS=line)
        self._settled |= any(isinstance(record.event, EpisodeClosed) for record in records)
        age_ns = self._clock.mono_ns() - self._segment_begun_ns
        over = self._settled and age_ns >= SETTLED_SEGMENT_SECONDS_MIN * NS_PER_SECOND
        over = over or self.writer.segment_bytes > self._full_at_bytes
        # Not in a shutdown: a large checkpoint would delay stop signals.
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
        return f"armed, no answer yet: {unheard}" if unheard else "armed"

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


#: Of glibc's mallopt.
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
#: Its first value, which otherwise grows to the largest freed block.
LARGE_BLOCK_BYTES = 128 * 1024


def keep_one_heap() -> None:
    """Limits glibc's allocator, before there are threads: otherwise a daemon grows with each shutdown."""
    with suppress(AttributeError):  # musl has neither
        library = ctypes.CDLL(None)
        library.mallopt(M_ARENA_MAX, 1)
        library.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


async def daemon_under_logind(options: RunOptions, loaded: Loaded, node_parts: NodeParts | None) -> Daemon:
    """Waits while another daemon protects this machine. ``node_parts``: for a node's modes. Raises
    RuntimeTaken if another daemon has this runtime folder.
    """
    from ebbtide.actors.edges.logind_edge import LogindEdge

    keep_one_heap()
    output = LogOutput()
    service = ServiceManager.from_environment()
    machine_lock = await lock_machine(system_bus_address(), service, output.tell)
    lock_runtime(options.runtime)
    logind = LogindEdge(
        service=service,
        lock_fds=inherited_fds().get(LOCK_NAME, ()),
        drop_in_folder=loaded.config.drop_in_directory,
    )
    parts = edges_of_mode(options, loaded, node_parts, output.tell)
    last_boot = partial(LastBootEdge, lasting_folder(options))
    node = node_parts.node if node_parts is not None else host_name()
    config = partial(load_named, options.config)
    daemon = await _assemble(
        options, loaded, config, parts, node, logind, service, output.tell, output.report, last_boot
    )
    daemon.machine_lock = machine_lock
    return daemon


async def daemon_with_embedded_logind(
    options: RunOptions, config: Loaded, logind: EmbeddedLogindEdge, tell: Tell
) -> Daemon:
    """With its own logind: no bus, no root, no power-off."""
    parts, bare = edges_of_mode(options, config, None, tell), without_fields(tell)
    return await _assemble(
        options, config, lambda: config, parts, host_name(), logind, ServiceManager(""), tell, bare
    )


async def _assemble(
    options: RunOptions,
    loaded: Loaded,
    config: Callable[[], Loaded],
    parts: ModeEdges,
    name: str,
    logind: Logind,
    service: ServiceManager,
    tell: Tell,
    report: Report,
    last_boot: Callable[[str, str], Edge] | None = None,
) -> Daemon:
    """``last_boot``: makes the edge that reads the end of the last boot, from both boots' ids. Raises
    JournalLocked, ForeignJournal, OSError: each in one line with the cure.
    """
    who = journal_identity(name)
    paths = [options.journal, *map(Path, loaded.config.journal_fallbacks)]
    storages = [DirectoryStorage(path) for path in dict.fromkeys(paths)]
    fresh_id = os.urandom(JOURNAL_ID_BYTES)
    # First: only the history has the journal's next number.
    recovered = await recover_in_time(storages, who.machine_id, fresh_id, SystemClock().wall_ns(), tell)
    # The writer and the edges call the daemon only once it runs.
    made: list[Daemon] = []
    writer = Writer(
        storages,
        who._replace(logic=recovered.system.logic),
        recovered.verdict.start(fresh_id),
        on_failed=lambda location, error: made[0].storage_failed(location, error),
        on_moved=lambda location, first_seq: made[0].storage_moved(location, first_seq),
        on_lost=lambda error: tell(3, f"no place is left for the journal: {error}"),
        last_resort=write_last_resort,
    )
    node = LocalHost(name, options.mode, logind, service, recovered.failed_starts)
    edges: tuple[Edge, ...] = (logind, *parts.edges)
    if last_boot is not None:
        edges = (*edges, last_boot(who.boot_id, boot_to_ask_about(recovered, who.boot_id)))
    if parts.cluster is not None:

        def link() -> tuple[str, str]:
            """The journal's id, and its last shutdown's trace where that began before this boot."""
            clock = SystemClock()
            before_boot = recovered.status.began_wall_ns < clock.wall_ns() - clock.mono_ns()
            return writer.journal_id.hex(), recovered.trace_id if before_boot else ""

        parts.cluster.link_to(link)
    prefix = metric_table.KUBELET_PREFIX if loaded.config.metrics_kubelet_names else ""
    locations = [storage.location for storage in storages]
    tracing, exported = None, None
    resource = usable_resource(os.environ, tell)
    destination = usable_destination(loaded.config.tracing.given, os.environ, tell)
    config = with_tracing(config, resource, exports=destination is not None)
    if destination is not None:
        tracing = TracingEdge(destination, locations, writer, tell)
        exported = partial(settled_seq, locations, lambda: writer.journal_id)

        def context(order: str) -> str:
            return hook_context(made[0].trace_id, order)

        parts.runtime.pass_on(context)
        if parts.cluster is not None:
            parts.cluster.pass_on(context)
        edges = (*edges, tracing)
    shipping = None
    if loaded.config.shipping.url:
        shipping = ShippingEdge(
            loaded.config.shipping.store,
            locations,
            lambda: writer.journal_id,
            lambda: bool(made[0].sequencer.system.episode),
            tell,
        )
        edges = (*edges, shipping)
    limits = Limits(total_bytes=loaded.config.journal_bytes_max)
    trim = partial(_trim_journal, storages, limits, tracing, shipping=shipping)
    sources = [storage.source for storage in storages]

    async def keep(data: bytes) -> None:
        with trio.move_on_after(bounds.now.side_file_seconds), suppress(OSError):
            await storages[0].put(metric_table.METERS_FILE_NAME, data)

    async def rebuild(before_seq: int) -> metric_table.Meters:
        return await storages[0].call(metric_table.fold_before, sources, writer.journal_id, before_seq)

    def last_shutdown() -> list[metric_table.CauseCount]:
        name = writer.journal_id.hex()
        return metric_table.last_causes(History(sources, journal=name, bytes_max=EARLIER_BYTES_MAX))

    async def causes() -> list[metric_table.CauseCount]:
        return await storages[0].call(last_shutdown)

    state = shipping.last_state if shipping is not None else None
    ways = MetricsBackend(keep, rebuild, time.time_ns, parts.runtime.active, causes, exported, state)
    metering = MetricsRecorder(
        recovered.meters,
        writer,
        ways,
        MetricsOptions(loaded.config.metrics_listen, prefix),
    )
    made.append(
        Daemon(
            recovered,
            writer,
            edges,
            SystemClock(),
            node,
            config,
            options,
            tell,
            trim,
            report,
            metering,
        )
    )
    made[0].local = parts.local
    if tracing is not None:
        made[0].sequencer.observers.append(tracing.see)
    if shipping is not None:
        made[0].shipping = shipping
        made[0].sequencer.observers.append(shipping.see)
    # Before anything runs: another daemon's journal ends the start, with nothing to undo.
    await writer.open()
    return made[0]


def boot_to_ask_about(recovered: Recovered, boot_id: str) -> str:
    """The last boot in the journal, if it is over and its end is not on record; or empty."""
    state = cast(EpisodeState, recovered.system.slots[(EPISODE.name, "")].state)
    if state.boot_id not in ("", boot_id):
        return state.boot_id
    # An earlier daemon of this boot ended before it had an answer.
    return state.ended.boot_id if state.ended is not None else ""


async def recover_in_time(
    storages: Sequence[Storage], machine_id: str, fresh_id: bytes, wall_ns: int, tell: Tell
) -> Recovered:
    """The history of the first location that answers in time, else a new journal: an unreadable one must not
    leave the node unprotected.
    """
    for at, storage in enumerate(storages):
        sources = [each.source for each in storages[at:]]
        try:
            with trio.fail_after(bounds.now.recover_seconds):
                # Lock before reading, or another daemon might still append.
                if at == 0:
                    with suppress(OSError):
                        await storage.acquire("ebbtide")
                recovered = await storage.call(recover, sources, machine_id, fresh_id)
            break
        except (OSError, trio.TooSlowError, Unreadable) as error:
            why = str(error) or f"no answer in {span_s(bounds.now.recover_seconds)}"
            tell(3, f"the journal at {storage.location} cannot be read ({why}): going on without its history")
    else:
        at, recovered = len(storages), recover((), machine_id, fresh_id)
    if at > 0:
        recovered = recovered._replace(verdict=beside(recovered.verdict, wall_ns))
    if recovered.verdict.state != "intact":
        tell(4, recovered.verdict.banner)
    if recovered.divergence is not None:
        tell(
            3,
            f"the journal's decisions differ from this version's, from record {recovered.divergence.seq} on",
        )
    return recovered


async def _trim_journal(
    storages: Sequence[DirectoryStorage],
    limits: Limits,
    tracing: TracingEdge | None,
    keep_from_seq: int | None,
    shipping: ShippingEdge | None = None,
) -> Sequence[str]:
    """Keeps unexported and unshipped segments below the hard cap. Returns the removed names, also after an
    error or a deadline.
    """
    gone: list[str] = []

    def removed(name: str) -> None:
        gone.append(name)
        if shipping is not None:
            shipping.removed(name)

    with trio.move_on_after(bounds.now.trim_seconds), suppress(OSError):
        if tracing is not None:
            # Only the exporter moves its cursor.
            tracing.want()
            undelivered = await storages[0].call(tracing.keep_from)
            keep_from_seq = min(undelivered, keep_from_seq or undelivered)
        if shipping is not None:
            shipping.want()
            unshipped = await storages[0].call(shipping.backlog)
            shipping.looked(unshipped)
            keep_from_seq = min(unshipped.keep_from_seq, keep_from_seq or unshipped.keep_from_seq)
        await trim(storages, time.time_ns(), keep_from_seq, limits, removed)
    return gone
