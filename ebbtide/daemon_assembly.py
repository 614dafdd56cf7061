"""Assembles a daemon: recovers and opens the journal, makes the edges of its mode, and connects them."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import trio

from ebbtide.actors.edges.last_boot_reading import LastBootEdge
from ebbtide.actors.edges.service_manager import LOCK_NAME, ServiceManager, inherited_fds
from ebbtide.actors.episode import EPISODE, EpisodeState
from ebbtide.actors.interfaces import Edge, Tell
from ebbtide.config import Loaded, load_named
from ebbtide.daemon import Daemon
from ebbtide.events import bounds
from ebbtide.events.disk import DirectoryStorage, Storage
from ebbtide.events.retention import Limits, trim
from ebbtide.events.segment import JOURNAL_ID_BYTES
from ebbtide.events.units import span_s
from ebbtide.events.writer import Writer, write_last_resort
from ebbtide.host import LocalHost, Logind, SystemClock, host_name, journal_identity, lock_runtime
from ebbtide.log import LogOutput, Report, without_fields
from ebbtide.modes import ModeEdges, NodeParts, edges_of_mode, lasting_folder
from ebbtide.node_metrics import MetricsBackend, MetricsOptions, MetricsRecorder
from ebbtide.options import RunOptions
from ebbtide.otel.delivery.cursor import settled_seq
from ebbtide.otel.meters import METERS_FILE_NAME, Meters, fold_before
from ebbtide.otel.metric_table import KUBELET_PREFIX
from ebbtide.recover import Recovered, Unreadable, beside, recover
from ebbtide.shipping.shipping_edge import ShippingEdge
from ebbtide.tracing import (
    TracingEdge,
    hook_context,
    usable_destination,
    usable_resource,
    with_tracing,
)

if TYPE_CHECKING:
    # The demo makes it: an idle daemon does not load a model of logind.
    from ebbtide.actors.edges.embedded_logind import EmbeddedLogindEdge

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
    """Under the system's logind. ``node_parts``: for the modes of a node.

    Raises RuntimeTaken where another daemon runs here.
    """
    from ebbtide.actors.edges.logind_edge import LogindEdge

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
    """``last_boot``: makes the edge that reads the end of the last boot, from both boots' ids.

    Raises JournalLocked, ForeignJournal, OSError: each in one line with the cure.
    """
    who = journal_identity(name)
    paths = [options.journal, *map(Path, loaded.config.journal_fallbacks)]
    storages = [DirectoryStorage(path) for path in dict.fromkeys(paths)]
    fresh_id = os.urandom(JOURNAL_ID_BYTES)
    # First: only the history has the journal's next number.
    recovered = await recover_in_time(storages, who.machine_id, fresh_id, SystemClock().wall_ns(), tell)
    # The writer and the edges call the daemon, which is made of them; they call only once it runs.
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
    prefix = KUBELET_PREFIX if loaded.config.metrics_kubelet_names else ""
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
            await storages[0].put(METERS_FILE_NAME, data)

    async def rebuild(before_seq: int) -> Meters:
        return await storages[0].call(fold_before, sources, writer.journal_id, before_seq)

    state = shipping.last_state if shipping is not None else None
    ways = MetricsBackend(keep, rebuild, time.time_ns, parts.runtime.active, exported, state)
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
    # Before anything runs: a journal that another daemon holds ends the start, with nothing to undo.
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
    """Removes old segments, but not before they are exported and shipped. Returns their names, also if an
    error or a deadline cuts it short.
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
