"""The daemon: the system, its journal and its edges, put together and run.

This is the only place that knows all of them. It decides nothing about pods: it brings facts in (a start, a
configuration, a signal from the service manager, a request on the control socket) and shows what comes out.

Three parts: `Daemon`, one process's life; what may be asked of it over the control socket; and how it is
assembled, under the system's logind or with one of its own. Imports what arming needs and no more: what
only a shutdown needs is imported once armed.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import trio

from ebbtide.actors.edges.last_boot_reading import LastBootEdge
from ebbtide.actors.edges.service_manager import LOCK_NAME, ServiceManager, inherited_fds
from ebbtide.actors.episode import EPISODE, EpisodeState
from ebbtide.actors.interfaces import NOTICE, Clock, Edge, Outlet, Tell
from ebbtide.actors.runner import Effects, Inbox, Sequencer
from ebbtide.clients import ClientBounds
from ebbtide.config import ConfigError, Loaded, configuration_values, default_paths, load_named
from ebbtide.control import ControlError, Request, Verb, serve
from ebbtide.daemon_status import DaemonStatus, ended_text, shipping_json, status_of
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.decisions import Armed, EpisodeClosed, PodOutcome
from ebbtide.events.disk import DirectoryStorage, Storage
from ebbtide.events.facts import (
    ContainerExited,
    HurryRequested,
    ReleaseRequested,
    SettingsLoaded,
    SettingsRejected,
    StorageFailed,
    StorageMoved,
)
from ebbtide.events.retention import SEGMENT_BYTES_MAX, Limits, trim
from ebbtide.events.segment import JOURNAL_ID_BYTES
from ebbtide.events.units import span_s
from ebbtide.events.writer import Writer, write_last_resort
from ebbtide.host import Host, LocalHost, Logind, SystemClock, host_name, journal_identity, lock_runtime
from ebbtide.log import LineContext, Log, LogOutput, Report, TraceIds, journald_fields, without_fields
from ebbtide.modes import ModeEdges, NodeParts, edges_of_mode, lasting_folder
from ebbtide.node_metrics import MetricsBackend, MetricsOptions, MetricsRecorder
from ebbtide.options import RunOptions
from ebbtide.otel.delivery.cursor import settled_seq
from ebbtide.otel.meters import METERS_FILE_NAME, Meters, fold_before
from ebbtide.otel.metric_table import KUBELET_PREFIX
from ebbtide.recover import Recovered, Unreadable, begin_segment, beside, recover
from ebbtide.shipping.shipping_edge import ShippingEdge
from ebbtide.side_process import environment_of_children
from ebbtide.tracing import (
    TracingEdge,
    hook_context,
    usable_destination,
    usable_resource,
    with_projection,
    with_trace_flush,
)

if TYPE_CHECKING:
    # The demo makes it: an idle daemon need not load a model of logind.
    from ebbtide.actors.edges.embedded_logind import EmbeddedLogindEdge
    from ebbtide.actors.edges.process.process_edge import ProcessEdge

#: How often a journal that had to move tries its first location again, outside of shutdowns. Each try is a
#: new segment with a checkpoint in it: more often, an idle journal would consist of them.
AWAY_SECONDS = 60


#: How long READY waits, once armed, for the word of who has the node's pods: longer than a list of an API
#: server may take that hangs, half of what the unit gives its start.
HEARD_SECONDS_MAX = 15


#: A new segment begins once a shutdown is settled, so that a closed one, which can be copied elsewhere, has
#: all of it. Not sooner than this after the last one: where somebody schedules and cancels shutdowns all day,
#: each segment would hold a few records and a checkpoint of all pods.
SETTLED_SEGMENT_SECONDS_MIN = 60


class Daemon:
    """One process's life. ``report`` gets the log's lines with fields, ``tell`` what stands in no record."""

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
        #: Who has the pods in mode process.
        self.local: ProcessEdge | None = None
        #: None where no segment is shipped.
        self.shipping: ShippingEdge | None = None
        #: UIDs of its pods that are down and of which that has been said.
        self._ended: frozenset[str] = frozenset()
        self._shown = ""
        self._full_at_bytes = SEGMENT_BYTES_MAX
        self._segment_begun_ns = 0
        #: A shutdown has been closed, and its end stands in the segment that is being written.
        self._settled = False

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
        # Before any fact: whoever reads this process's records begins at its checkpoint, which has to stand
        # before all of them.
        self._begin_segment()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self._log.run)
            nursery.start_soon(self._keep_small)
            if self._metering is not None:
                nursery.start_soon(self._metering.run, self._tell)
            # Taken before the start's own step, which may give orders of its own: those are this process's.
            open_orders = [opened.order for opened in self.sequencer.system.open_orders.values()]
            started = await self._host.started()
            before = self._episode_state()  # of the process before us, until our start is stepped
            same = (before.boot_id, before.userspace_id) == (started.boot_id, started.userspace_id)
            nursery.start_soon(self._effects.run)
            # The process's own facts come first, then what the edges see: only the start says whether this is
            # another boot, and every other fact means something else in the one case and in the other.
            self.sequencer.admit(started)
            nursery.start_soon(partial(self._effects.adopt, open_orders, same_userspace=same))
            # Pushed before any edge runs, so that the first that is learned of the outside meets a
            # configuration: without one, nothing is asked of the node, and logind's answer would arm nothing.
            self._take_settings(_settings_or_error(self._load))
            for edge in self.edges:
                nursery.start_soon(edge.run, self._inbox)
            nursery.start_soon(self._signals)
            nursery.start_soon(self._reload)
            if self._options.control_socket.parent != self._options.control_socket:
                await nursery.start(self._control)
                if self._options.of_node:
                    nursery.start_soon(self._view)
            # Last: units that are ordered after ours may ask the socket, and until now a SIGHUP
            # would kill us.
            nursery.start_soon(self._say_ready)
            nursery.start_soon(self._say_alive)
            reason = await self.sequencer.run()
            # STOPPING first: if we die on the way out, the supervisor must not take that for a crash.
            self._host.notify(STOPPING=1)
            # Before anything is cancelled: to an edge that was not told, being cancelled means that the work
            # is called off, and it would end the hooks that are to go on without us.
            for edge in self.edges:
                edge.detach()
            with trio.move_on_after(bounds.now.close_seconds):
                await self.writer.close()
                # After the close: sums are kept of durable records only, and now all of them are.
                if self._metering is not None:
                    await self._metering.save()
            nursery.cancel_scope.cancel()
        return reason

    async def _say_ready(self) -> None:
        """On a node not before it is armed, or known why not, and its pods' priorities are known, or why not:
        whoever goes on with a rollout at READY goes on with a node that ends its pods in their order.
        """
        if self._options.of_node:
            with trio.move_on_after(HEARD_SECONDS_MAX):
                while self.status.starting or self.status.unheard:
                    await self._stepped.wait()
        await self._host.notify_in_time(READY=1, STATUS=self._status_line())

    async def _say_alive(self) -> None:
        """From here, where facts are admitted, and not from a thread: that would live on while this hangs.

        A second sign of life comes only after the sequencer has come round, so whatever hangs, a step, an
        edge's call, a process that somebody stopped, the service manager ends us and starts the next.
        """
        while every_seconds := self._host.life_seconds:
            await self.sequencer.turned()
            await self._host.notify_in_time(WATCHDOG=1)
            await trio.sleep(every_seconds)

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
            # Not in a shutdown: its records must not wait for a move.
            if self.writer.away and not self.sequencer.system.episode:
                self._begin_segment()

    def _begin_segment(self) -> None:
        self._full_at_bytes = begin_segment(self.writer, self.sequencer.system, self._clock)
        self._segment_begun_ns, self._settled = self._clock.mono_ns(), False

    def _episode_state(self) -> EpisodeState:
        state = self.sequencer.system.slots[(EPISODE.name, "")].state
        return cast(EpisodeState, state)

    async def _control(self, task_status: trio.TaskStatus[None]) -> None:
        table = control_verbs(self.status, self._inbox, self._status, self._metrics, self._configuration)
        try:
            await serve(self._options.control_socket, table, self._tell, task_status=task_status)
        except OSError as error:
            # A node is protected without it; what people cannot ask for then, the deadlines bring.
            self._tell(4, f"no control socket at {self._options.control_socket}: {error.strerror or error}")
            task_status.started()

    async def _view(self) -> None:
        """The questions of who may only look. Nobody waits for this: a node is protected without it."""
        # Here, where the arming is under way already.
        from ebbtide import view_socket as view

        options = self._options
        fallbacks = self._loaded.config.journal_fallbacks if self._loaded is not None else ()
        viewer = view.Viewer(
            [options.journal, *map(Path, fallbacks)],
            options.runtime,
            options.control_socket,
            lambda: self.status.phase == "idle",
            self._until_shutdown,
            environment_of_children,
        )
        path = view.view_socket(options.runtime)
        clients = ClientBounds(view.CLIENTS_MAX, view.CLIENT_SECONDS_MAX, view.RUN_SECONDS_MAX)
        try:
            path.parent.mkdir(mode=view.FOLDER_MODE, parents=True, exist_ok=True)
            await serve(path, viewer.verbs, self._tell, clients, task_status=trio.TASK_STATUS_IGNORED)
        except OSError as error:
            self._tell(4, f"no socket for 'kubectl ebbtide' at {path}: {error.strerror or error}")

    async def _until_shutdown(self) -> None:
        while self.status.phase == "idle":
            await self._stepped.wait()

    def _status(self) -> dict[str, Any]:
        early = self._episode_state().sleeps_terminated_early
        now_ns = self._clock.mono_ns()
        document = status_of(self.status, self.writer, self.trace_id, early, now_ns)
        ended = [pod.label for pod in self.local.ended()] if self.local is not None else []
        return document | {
            "mode": self._options.mode,
            "unheard": self._unheard(),
            "endedPods": ended,
            "shipping": shipping_json(self.shipping.last_state()) if self.shipping is not None else None,
        }

    def _configuration(self) -> dict[str, Any]:
        """What this daemon runs with: the configuration that it read last, as ``config show`` has it, so
        without anything secret; and what its command line named. Paths are null where none was.
        """
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

    def _metrics(self) -> dict[str, Any]:
        if self._metering is None:
            raise ControlError("this daemon keeps no metrics")
        return self._metering.document()

    # --- facts from the service manager ----------------------------------------------------------

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    self._reload_asked.set()
                else:
                    await self._inbox.put(await self._host.stopping(self.status.needed_ns))

    async def _reload(self) -> None:
        """Read the configuration again each time that it is asked for; once for all who ask meanwhile."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked = trio.Event()
            # Its disk may hang and its files may be large, and pods may be ending just now.
            self._take_settings(
                await trio.to_thread.run_sync(_settings_or_error, self._load, abandon_on_cancel=True)
            )

    def _take_settings(self, loaded: Loaded | ConfigError) -> None:
        """A bad configuration keeps the old one, and says so."""
        if isinstance(loaded, ConfigError):
            self._inbox.push(SettingsRejected(error=str(loaded)))
            return
        self._loaded = loaded
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
                # A collection of everything, which would come between the stop signals of a shutdown.
                if not self.sequencer.system.episode:
                    freeze_what_stays()
                for edge in self.edges:
                    edge.prewarm()
                # What reading the program took and let go of stays with the C library's allocator, in a
                # process that then idles for months: above a mebibyte. musl has no such call, and no hoard.
                with suppress(AttributeError):
                    ctypes.CDLL(None).malloc_trim(0)
        if any(isinstance(record.event, ContainerExited | EpisodeClosed) for record in records):
            self._report_ended()
        self._stepped.set()
        self._stepped = trio.Event()
        line = self._status_line()
        if line != self._shown:
            self._shown = line
            self._host.notify(STATUS=line)
        # Not in a shutdown: encoding the checkpoint of a thousand pods must not come between
        # their stop signals.
        self._settled |= any(isinstance(record.event, EpisodeClosed) for record in records)
        if not self.sequencer.system.episode and self._is_segment_over():
            self._begin_segment()
            self._grown.set()

    def _is_segment_over(self) -> bool:
        """It is full, or has the end of a shutdown and is not of just now."""
        age_ns = self._clock.mono_ns() - self._segment_begun_ns
        settled = self._settled and age_ns >= SETTLED_SEGMENT_SECONDS_MIN * NS_PER_SECOND
        return settled or self.writer.segment_bytes > self._full_at_bytes

    def follow_local(self, local: ProcessEdge) -> None:
        """In mode process nobody starts a pod again that has ended: whose pods these are."""
        self.local = local
        local.followed = self._report_ended

    def _report_ended(self) -> None:
        # In a shutdown they are meant to end: said at its close, where the machine stays.
        if self.local is None or self.sequencer.system.episode:
            return
        ended = self.local.ended()
        names = [pod.label for pod in ended if pod.uid not in self._ended]
        self._ended = frozenset(pod.uid for pod in ended)
        if names:
            self._tell(NOTICE, ended_text(names))

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
        """Processes of our own are nobody's to list."""
        return self.status.unheard if self._options.of_node else ""


def freeze_what_stays() -> None:
    """What is here stays, and a collection in mid-shutdown need not look at it.

    Most of it: a cycle that was frozen and has been let go of since (a pod and its containers) would never be
    freed. A daemon that is armed again after each cancelled shutdown grew by that.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


#: Of glibc's mallopt.
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
#: Its first value. Left alone it grows to the largest block that was ever freed.
LARGE_BLOCK_BYTES = 128 * 1024


def keep_one_heap() -> None:
    """For the C library, before there are threads. A heap for each thread, and the buffers of connections
    among small blocks, leave free memory in so many places that a daemon of many shutdowns grows by it.
    """
    with suppress(AttributeError):  # musl has neither
        library = ctypes.CDLL(None)
        library.mallopt(M_ARENA_MAX, 1)
        library.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def _settings_or_error(load: Callable[[], Loaded]) -> Loaded | ConfigError:
    try:
        return load()
    except ConfigError as error:
        return error


# What people may ask of a running daemon. What they ask for becomes a fact, with their uid.


#: A pod's phase is its outcome once it has ended.
POD_OUTCOMES = get_args(PodOutcome)

AnswerFunction = Callable[[], dict[str, Any]]


def control_verbs(
    status: DaemonStatus,
    outlet: Outlet,
    show_status: AnswerFunction,
    show_metrics: AnswerFunction,
    show_configuration: AnswerFunction,
) -> dict[str, Verb]:
    """The control socket's table."""

    def answer_with(document: AnswerFunction) -> Verb:
        async def verb(request: Request, uid: int) -> Any:
            return document()

        return verb

    async def hurry(request: Request, uid: int) -> Any:
        _require_shutdown(status)
        found = {
            each_uid: each
            for each_uid, each in status.pods.items()
            if request.pod in (each_uid, each.label, each.label.partition("/")[2])
        }
        if not found:
            raise ControlError(f"no pod {request.pod!r} in this shutdown: see 'ebbtide status'")
        waited = {uid: each.label for uid, each in found.items() if each.phase not in POD_OUTCOMES}
        if not waited:
            ended = f"pod {request.pod!r} has ended already ({next(iter(found.values())).phase})"
            raise ControlError(f"{ended}: nobody waits for it")
        if len(waited) > 1:  # a grace that was cut short cannot be given back
            named = f"{request.pod!r} names {len(waited)} pods"
            # A pod that was made anew has the label of the one that is still going down.
            alike = len(set(waited.values())) < len(waited)
            which = sorted(f"{label} ({uid})" if alike else label for uid, label in waited.items())
            raise ControlError(f"{named}: say which, of {', '.join(which)}{', by its UID' if alike else ''}")
        await outlet.put(HurryRequested(pod=request.pod, asked_by=uid))
        return {"pod": request.pod}

    async def release(request: Request, uid: int) -> Any:
        _require_shutdown(status)
        await outlet.put(ReleaseRequested(asked_by=uid))
        return {}

    return {
        "status": answer_with(show_status),
        "metrics": answer_with(show_metrics),
        "configuration": answer_with(show_configuration),
        "hurry": hurry,
        "release": release,
    }


def _require_shutdown(status: DaemonStatus) -> None:
    if status.phase not in ("running", "cancelling"):
        raise ControlError("no shutdown is running: there is nothing to hurry or to release")


# Puts a daemon together: the journal recovered and opened, the edges of a mode, and the rest around them.


async def daemon_under_logind(options: RunOptions, loaded: Loaded, node_parts: NodeParts | None) -> Daemon:
    """Under the system's logind. ``node_parts``: for the modes of a node. Raises RuntimeTaken where another
    daemon runs here.
    """
    from ebbtide.actors.edges.logind.logind_edge import LogindEdge

    keep_one_heap()
    output = LogOutput()
    lock_runtime(options.runtime)
    service = ServiceManager.from_environment()
    logind = LogindEdge(
        service=service,
        lock_fds=inherited_fds().get(LOCK_NAME, ()),
        drop_in_folder=loaded.config.drop_in_directory,
    )
    parts = edges_of_mode(options, loaded, node_parts, output.tell)
    last_boot = partial(LastBootEdge, lasting_folder(options))
    node = node_parts.node if node_parts is not None else host_name()
    # Read again at each reload.
    config = partial(load_named, options.config)
    return await _assemble(
        options, loaded, config, parts, node, logind, service, output.tell, output.report, last_boot
    )


async def daemon_with_embedded_logind(
    options: RunOptions, config: Loaded, logind: EmbeddedLogindEdge, tell: Tell
) -> Daemon:
    """The same with a logind of its own: no bus, no root, no power-off."""
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
    """Raises JournalLocked, ForeignJournal, OSError: each in one line that says what to do.

    ``last_boot`` makes the edge that asks the machine about its last boot, from this boot's id and its id.
    """
    who = journal_identity(name)
    paths = [options.journal, *map(Path, loaded.config.journal_fallbacks)]
    storages = [DirectoryStorage(path) for path in dict.fromkeys(paths)]
    fresh_id = os.urandom(JOURNAL_ID_BYTES)
    # Before anything else is made: which number its journal goes on with, only the history says.
    recovered = await recover_in_time(storages, who.machine_id, fresh_id, SystemClock().wall_ns(), tell)
    # The writer and the edges tell the daemon, which is made of them: nothing calls before it is there.
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
    link = partial(_journal_link, recovered, lambda: made[0].writer.journal_id)
    for linked in parts.linked:
        linked.link_to(link)
    prefix = KUBELET_PREFIX if loaded.config.metrics_kubelet_names else ""
    locations = [storage.location for storage in storages]
    tracing, exported = None, None
    resource = usable_resource(os.environ, tell)
    config = with_projection(config, resource)
    destination = usable_destination(loaded, tell)
    if destination is not None:
        tracing = TracingEdge(destination, locations, writer, tell, prefix, resource)
        exported = partial(settled_seq, locations, lambda: writer.journal_id)
        for edge in parts.traced:
            edge.pass_on(lambda order: hook_context(made[0].trace_id, order))
        edges, config = (*edges, tracing), with_trace_flush(config)
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
            await storages[0].put(METERS_FILE_NAME, data)

    async def rebuild(before_seq: int) -> Meters:
        return await storages[0].call(fold_before, sources, writer.journal_id, before_seq)

    state = shipping.last_state if shipping is not None else None
    ways = MetricsBackend(keep, rebuild, time.time_ns, parts.runtime.active, exported, state)
    metering = MetricsRecorder(
        recovered.meters,
        writer,
        ways,
        MetricsOptions(loaded.config.metrics_listen, prefix, loaded.config.metrics_hosts),
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
    if parts.local is not None:
        made[0].follow_local(parts.local)
    if tracing is not None:
        made[0].sequencer.observers.append(tracing.see)
    if shipping is not None:
        made[0].shipping = shipping
        made[0].sequencer.observers.append(shipping.see)
    # Here, where nothing runs yet: a journal that another daemon holds ends the start, and nothing is undone.
    await writer.open()
    return made[0]


def boot_to_ask_about(recovered: Recovered, boot_id: str) -> str:
    """The boot that the journal was last written in, once it is over and its end is not known; or empty."""
    state = cast(EpisodeState, recovered.system.slots[(EPISODE.name, "")].state)
    if state.boot_id not in ("", boot_id):
        return state.boot_id
    # A daemon of this boot that ended before it had an answer.
    return state.ended.boot_id if state.ended is not None else ""


def _journal_link(recovered: Recovered, journal_id: Callable[[], bytes]) -> tuple[str, str]:
    """The journal's id, and its last shutdown's trace where that began before this boot."""
    clock = SystemClock()
    before_boot = recovered.status.began_wall_ns < clock.wall_ns() - clock.mono_ns()
    return journal_id().hex(), recovered.trace_id if before_boot else ""


async def recover_in_time(
    storages: Sequence[Storage], machine_id: str, fresh_id: bytes, wall_ns: int, tell: Tell
) -> Recovered:
    """The history of the first location that gives one in time; what none gives begins anew.

    A journal that cannot be read (a failing disk, a hung one, another version's) must not leave the node
    unprotected.
    """
    for at, storage in enumerate(storages):
        sources = [each.source for each in storages[at:]]
        try:
            with trio.fail_after(bounds.now.recover_seconds):
                # Locked before it is read, or another daemon might still append to what we have read. The
                # others are locked when the writer moves there.
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
    """Remove old segments, but not what is to be exported or shipped; what is in the way of that ends it.

    The names of those that are gone, also where it was cut short.
    """
    gone: list[str] = []

    def removing(name: str) -> None:
        if shipping is not None:
            shipping.removing(name)

    def removed(name: str) -> None:
        gone.append(name)
        if shipping is not None:
            shipping.removed()

    with trio.move_on_after(bounds.now.trim_seconds), suppress(OSError):
        if tracing is not None:
            # The exporter's cursor is moved on by the exporter alone: where nothing ever happens it would
            # stay at the begin, and every segment would be needed for ever.
            tracing.want()
            undelivered = await storages[0].call(tracing.keep_from)
            keep_from_seq = min(undelivered, keep_from_seq or undelivered)
        if shipping is not None:
            shipping.want()
            unshipped = await storages[0].call(shipping.backlog)
            shipping.looked(unshipped)
            keep_from_seq = min(unshipped.keep_from_seq, keep_from_seq or unshipped.keep_from_seq)
        await trim(storages, time.time_ns(), keep_from_seq, limits, removing, removed)
    return gone
