"""``python -m ebbtide.otel.delivery``: the exporter's process, its job on standard input.

It gives way to everybody: lowest priority, first to go when memory is short, a limit on its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
import trio

from ebbtide.otel.delivery import cursor as cursors
from ebbtide.otel.delivery.destination import (
    EXIT_DONE,
    EXIT_KEPT,
    EXIT_WRONG,
    BadDestination,
    DaemonRequest,
    ExporterReport,
    Job,
)
from ebbtide.otel.delivery.exporter import LINGER_SECONDS, Exporter
from ebbtide.otel.delivery.pipes import DaemonPipe, InputLines, innermost_error, locked
from ebbtide.otel.delivery.priority import lower_priority

#: Five times what 4 096 waiting spans, a journal's chunks and the libraries have been seen to need.
MEMORY_BYTES_MAX = 512 * 1024 * 1024
#: An exporter of a daemon before may still be finishing.
LOCK_SECONDS_MAX = 2 * LINGER_SECONDS
#: Once the daemon has gone, nobody lingers for a back end that does not answer.
UNWELL_LOOK_SECONDS = 0.1


async def run_exporter() -> int:
    """Its exit code."""
    requests, pipe = InputLines(), DaemonPipe()
    first = await requests.next()
    if first is None:
        return EXIT_WRONG
    from ebbtide.otel.delivery.export_run import ExportRun  # late: at the lowest priority

    try:
        run = ExportRun(msgspec.json.decode(first, type=Job), pipe)
    except BadDestination as error:
        pipe.log(3, f"traces: {error}")
        return EXIT_WRONG
    try:
        if not await locked(run.directory, cursors.LOCK_NAME, LOCK_SECONDS_MAX):
            pipe.log(4, f"traces: another process exports the journal in {run.directory}")
            return EXIT_KEPT
        # Until the rest of an older journal has been sent, the daemon's requests wait in the pipe.
        if await run.finish_former():
            return EXIT_KEPT
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_listen, requests, pipe, run.exporters, nursery)
            delivered = await run.run()
            nursery.cancel_scope.cancel()
        return EXIT_DONE if delivered else EXIT_KEPT
    except* OSError as group:
        pipe.log(4, f"traces: the journal cannot be read: {innermost_error(group)}")
    return EXIT_KEPT


async def _listen(
    requests: InputLines, pipe: DaemonPipe, exporters: Sequence[Exporter], nursery: trio.Nursery
) -> None:
    # What is durable concerns all of them; a flush, that somebody waits for, the traces alone.
    while (line := await requests.next()) is not None:
        request = msgspec.json.decode(line, type=DaemonRequest)
        for exporter in exporters:
            exporter.learn(request.durable)
        if request.flush:
            nursery.start_soon(_flush, pipe, exporters[0], request)
    # The daemon has gone, so the machine may be about to go: what is here is sent if it goes quickly.
    for exporter in exporters:
        exporter.leave()
    with trio.move_on_after(LINGER_SECONDS):
        while not exporters[0].unwell:
            await trio.sleep(UNWELL_LOOK_SECONDS)
    for exporter in exporters:
        exporter.stop()


async def _flush(pipe: DaemonPipe, exporter: Exporter, request: DaemonRequest) -> None:
    text = await exporter.flush(request.durable)
    pipe.send(ExporterReport(text=text, flushed=True, number=request.number))


def main() -> int:
    lower_priority(MEMORY_BYTES_MAX)
    return trio.run(run_exporter)


if __name__ == "__main__":
    sys.exit(main())
