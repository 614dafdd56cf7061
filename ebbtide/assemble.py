"""Puts a daemon together: the journal recovered and opened, the edges of a mode, and the rest around them.

Imports what arming needs and no more: what only a shutdown needs is imported once armed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from actors.edges.embedded_logind import EmbeddedLogindEdge
from actors.edges.service import LOCK_NAME, ServiceManager, inherited_fds
from actors.interfaces import Edge
from ebbtide.claim import claim
from ebbtide.clock import SystemClock
from ebbtide.config import Loaded, default_paths, load
from ebbtide.daemon import Daemon
from ebbtide.metering import Metering, Shown, Ways
from ebbtide.node import Logind, Node, host, identity
from ebbtide.options import RunOptions
from ebbtide.places import Places
from ebbtide.recover import Recovered, Unreadable, recover
from ebbtide.runtimes import Parts, PodRuntime, parts_of
from ebbtide.surroundings import Report, Tell, without_fields
from ebbtide.trace_settings import flushing, hook_context, usable
from ebbtide.tracing import TracingEdge
from ebbtide.voice import Voice
from events.base import NS_PER_SECOND
from events.lastresort import last_resort
from events.retention import Limits, trim
from events.storage import DirectoryStorage, Storage
from events.writer import Writer
from otel.delivery.cursor import settled_seq
from otel.metrics.catalog import KUBELET_PREFIX
from otel.metrics.kept import FILE_NAME, fold_before
from otel.metrics.state import Meters

#: Bytes of a journal's id.
JOURNAL_ID_BYTES = 16

#: A healthy disk gives a journal back in a tenth of a second; one that hangs gives nothing.
RECOVER_SECONDS_MAX = 5

#: A side file that can be made again is not worth more.
KEEP_SECONDS_MAX = 1

#: Removing a few files; a disk that needs longer keeps them.
TRIM_SECONDS_MAX = 10


def loader(options: RunOptions) -> Callable[[], Loaded]:
    """Reads the configuration, again at each reload. Raises ConfigError."""
    return lambda: load(options.config or default_paths())


async def real(options: RunOptions, loaded: Loaded, places: Places | None) -> Daemon:
    """Under the system's logind. ``places``: for the modes of a node. Raises RuntimeTaken where another
    daemon runs here.
    """
    from actors.edges.logind.edge import LogindEdge

    voice = Voice()
    claim(options.runtime)
    service = ServiceManager.from_environment()
    logind = LogindEdge(
        service=service,
        lock_fds=inherited_fds().get(LOCK_NAME, ()),
        drop_in_folder=loaded.options.drop_in_directory,
    )
    parts = parts_of(options, loaded, places, voice.tell)
    node = places.node if places is not None else host()
    return await _assemble(
        options, loaded, loader(options), parts, node, logind, logind, service, voice.tell, voice.report
    )


async def embedded(options: RunOptions, config: Loaded, logind: EmbeddedLogindEdge, tell: Tell) -> Daemon:
    """The same with a logind of its own: no bus, no root, no power-off."""
    parts, bare = parts_of(options, config, None, tell), without_fields(tell)
    return await _assemble(
        options, config, lambda: config, parts, host(), logind, logind, ServiceManager(""), tell, bare
    )


async def _assemble(
    options: RunOptions,
    loaded: Loaded,
    config: Callable[[], Loaded],
    parts: Parts,
    name: str,
    logind: Logind,
    logind_edge: Edge,
    service: ServiceManager,
    tell: Tell,
    report: Report,
) -> Daemon:
    """Raises JournalLocked, ForeignJournal, OSError: each in one line that says what to do."""
    who = identity(name)
    storages = _storages(options, loaded)
    fresh_id = os.urandom(JOURNAL_ID_BYTES)
    recovered = await recover_in_time(storages, who.machine_id, fresh_id, SystemClock().wall_ns(), tell)
    made: list[Daemon] = []
    writer = Writer(
        storages,
        who._replace(logic_flags=recovered.system.flags),
        recovered.verdict.start(fresh_id),
        on_failed=lambda location, error: made[0].storage_failed(location, error),
        on_moved=lambda location, first_seq: made[0].storage_moved(location, first_seq),
        on_lost=lambda error: tell(3, f"no place is left for the journal: {error}"),
        last_resort=last_resort,
    )
    node = Node(name, options.mode, logind, service, recovered.failed_starts)
    edges: tuple[Edge, ...] = (logind_edge, *parts.edges)
    trim = partial(_trim, storages, Limits(total_bytes=loaded.options.journal_bytes_max), None)
    tracing = _tracing(loaded, storages, writer, tell)
    if tracing is not None:
        for edge in parts.traced:
            edge.pass_on(lambda order: hook_context(made[0].trace_id, order))
        edges, config = (*edges, tracing), flushing(config)
        trim = partial(trim.func, *trim.args[:2], tracing)
    metering = _metering(recovered.meters, storages, writer, loaded, parts.runtime, tracing)
    made.append(
        Daemon(recovered, writer, edges, SystemClock(), node, config, options, tell, trim, report, metering)
    )
    if tracing is not None:
        made[0].sequencer.observers.append(tracing.see)
    await writer.open()
    return made[0]


async def recover_in_time(
    storages: Sequence[Storage], machine_id: str, fresh_id: bytes, wall_ns: int, tell: Tell
) -> Recovered:
    """Locked before it is read. One that cannot be read (a failing disk, a hung one, another version's
    journal) must not leave the node unprotected: then what the other locations have is read, in as much
    time each.

    What is then begun beside it has a number from the clock: it must be the newer one for the next start.
    """
    for at, storage in enumerate(storages):
        sources = [each.source for each in storages[at:]]
        try:
            with trio.fail_after(RECOVER_SECONDS_MAX):
                if at == 0:
                    with suppress(OSError):
                        await storage.acquire("ebbtide")
                recovered = await storage.call(recover, sources, machine_id, fresh_id)
            break
        except (OSError, trio.TooSlowError, Unreadable) as error:
            why = str(error) or f"no answer in {RECOVER_SECONDS_MAX} s"
            tell(3, f"the journal at {storage.location} cannot be read ({why}): going on without its history")
    else:
        at, recovered = len(storages), recover((), machine_id, fresh_id)
    if at > 0:
        number = max(recovered.verdict.next_number, wall_ns // NS_PER_SECOND)
        recovered = recovered._replace(verdict=recovered.verdict._replace(next_number=number))
    _tell_recovered(recovered, tell)
    return recovered


async def _trim(
    storages: Sequence[DirectoryStorage],
    limits: Limits,
    tracing: TracingEdge | None,
    keep_from_seq: int | None,
) -> Sequence[str]:
    """Remove old segments; whatever is in the way is a reason to leave them. Where traces are exported what
    is not delivered yet is needed, and each new segment moves the exporter's cursor on.
    """
    with trio.move_on_after(TRIM_SECONDS_MAX), suppress(OSError):
        if tracing is not None:
            tracing.want()
            undelivered = await storages[0].call(tracing.keep_from)
            keep_from_seq = min(undelivered, keep_from_seq or undelivered)
        return await trim(storages, time.time_ns(), keep_from_seq, limits)
    return ()


def _tracing(
    loaded: Loaded, storages: Sequence[DirectoryStorage], writer: Writer, tell: Tell
) -> TracingEdge | None:
    """None: traces are not exported, and nothing of it is there."""
    destination = usable(loaded, tell)
    if destination is None:
        return None
    prefix = KUBELET_PREFIX if loaded.options.metrics_kubelet_names else ""
    return TracingEdge(destination, [each.location for each in storages], writer, tell, prefix)


def _storages(options: RunOptions, loaded: Loaded) -> Sequence[DirectoryStorage]:
    paths = [options.journal, *map(Path, loaded.options.journal_fallbacks)]
    return [DirectoryStorage(path) for path in dict.fromkeys(paths)]


def _metering(
    meters: Meters | None,
    storages: Sequence[DirectoryStorage],
    writer: Writer,
    loaded: Loaded,
    runtime: PodRuntime,
    tracing: TracingEdge | None,
) -> Metering:
    sources = [storage.source for storage in storages]

    async def keep(data: bytes) -> None:
        with trio.move_on_after(KEEP_SECONDS_MAX), suppress(OSError):
            await storages[0].put(FILE_NAME, data)

    async def rebuild(before_seq: int) -> Meters:
        return await storages[0].call(fold_before, sources, writer.journal_id, before_seq)

    prefix = KUBELET_PREFIX if loaded.options.metrics_kubelet_names else ""
    exported = None
    if tracing is not None:
        places = [storage.location for storage in storages]
        exported = partial(settled_seq, places, lambda: writer.journal_id)
    ways = Ways(keep, rebuild, time.time_ns, runtime.active, exported)
    return Metering(meters, writer, ways, Shown(loaded.options.metrics_listen, prefix))


def _tell_recovered(recovered: Recovered, tell: Tell) -> None:
    if recovered.verdict.state != "intact":
        tell(4, recovered.verdict.banner)
    if recovered.divergence is not None:
        tell(
            3,
            f"the journal's decisions differ from this version's, from record {recovered.divergence.seq} on",
        )
