"""``python -m ebbtide.shipping``: the shipper's process. Its job comes on standard input.

It has the lowest priority, is killed first when memory is short, and has its own memory limit.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

import msgspec
import trio

from ebbtide.events.catalog import DirectorySource
from ebbtide.otel.delivery.destination import EXIT_DONE, EXIT_KEPT, EXIT_WRONG
from ebbtide.otel.delivery.pipes import DaemonPipe, InputLines, innermost_error, locked
from ebbtide.otel.delivery.priority import lower_priority
from ebbtide.shipping.object_store import ObjectStore
from ebbtide.shipping.shipper import Shipper, look, state_of
from ebbtide.shipping.shipping_cursor import LOCK_NAME, load_shipped_first, save_shipped
from ebbtide.shipping.shipping_destination import BadStore
from ebbtide.shipping.shipping_messages import ShipJob, ShipReport

#: Four times the need of the largest segment, 64 MiB, in tests. Redaction of a large one may not fit.
MEMORY_BYTES_MAX = 512 * 1024 * 1024
#: After the daemon's end the machine may stop any moment: only small segments are still sent.
LINGER_SECONDS = 5.0
#: A former daemon's shipper may still be finishing.
LOCK_SECONDS_MAX = 2 * LINGER_SECONDS


async def ship() -> int:
    """Returns the exit code."""
    requests, pipe = InputLines(), DaemonPipe()
    first = await requests.next()
    if first is None:
        return EXIT_WRONG
    job = msgspec.json.decode(first, type=ShipJob)
    sources = [DirectorySource(path) for path in job.locations]
    writable = (path for path in job.locations if os.access(path, os.W_OK))
    directory = next(writable, job.locations[0])
    try:
        try:
            store = ObjectStore(job.store)
        except BadStore as error:
            pipe.log(3, f"shipping: {error}")
            found = look(sources, load_shipped_first(job.locations, job.store))
            pipe.send(ShipReport(state=state_of(*found, str(error))))
            return EXIT_WRONG
        if not await locked(directory, LOCK_NAME, LOCK_SECONDS_MAX):
            pipe.log(4, f"shipping: another process ships the journal in {directory}")
            return EXIT_KEPT
        keep = partial(save_shipped, directory)
        shipper = Shipper(sources, job.store, store, pipe, keep, time.time_ns)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_linger, requests, shipper, nursery.cancel_scope)
            reason = await shipper.run(load_shipped_first(job.locations, job.store), job.lost)
            nursery.cancel_scope.cancel()
            return EXIT_KEPT if reason else EXIT_DONE
    except* OSError as group:
        pipe.log(4, f"shipping: {innermost_error(group)}")
    return EXIT_KEPT


async def _linger(requests: InputLines, shipper: Shipper, scope: trio.CancelScope) -> None:
    while await requests.next() is not None:
        pass
    shipper.leave()
    await trio.sleep(LINGER_SECONDS)
    scope.cancel()


def main() -> None:
    lower_priority(MEMORY_BYTES_MAX)
    code = trio.run(ship)
    # Skips the interpreter's own end, which would wait for a request in a thread of the client.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
