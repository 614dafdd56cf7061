"""A fleet's journals, bin by bin, by a pool of processes on one machine.

Bins begin and answers arrive in order, so the result is the same for any number of processes. Only a few bins
are under way at a time: only the plan grows with the fleet.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import TypeVar

from ebbtide.fleet.fleet_plan import HasBytesT, bins

Answer = TypeVar("Answer")

#: A bin is some seconds of work for the slowest verb: short enough that no process is idle for long at the
#: end of a run, and a few hundred times the cost of sending it.
BIN_JOURNALS_MAX = 100
BIN_BYTES_MAX = 32 << 20
#: Bins a process: in a small fleet each has fewer journals.
BINS_A_PROCESS_MIN = 4
#: For each process: one at work, and the next one.
BINS_UNDER_WAY = 2


class WorkerLost(Exception):
    """A worker gave no answer. The text is one line with its cure."""


def processors() -> int:
    """The number that this process may use."""
    return len(os.sched_getaffinity(0))


def over_bins(
    work: Callable[[Sequence[HasBytesT]], Answer], refs: Sequence[HasBytesT], jobs: int
) -> Iterator[tuple[int, Answer]]:
    """The number of refs of each bin and the answer of ``work``, in order. ``work`` and answers are pickled.

    One job begins no other process. Closing the iterator, or Ctrl-C, ends the workers at once: they only
    read. Raises WorkerLost, and what ``work`` raises.
    """
    parts = parts_for(refs, jobs)
    if jobs == 1:
        for each in parts:
            yield len(each), work(each)
        return
    # No fork: it would copy the locks of pyarrow's and the client's threads.
    others = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)
    whole = False
    try:
        yield from in_order(lambda part: pool.submit(work, part), parts, lambda: jobs)
        whole = True
    except BrokenProcessPool as error:
        raise WorkerLost(
            f"one of {jobs} processes ended in its work: if memory is short, use fewer (--jobs 1)"
        ) from error
    finally:
        if not whole:
            for worker in set(active_children()) - others:
                worker.terminate()
        pool.shutdown(cancel_futures=True)


def parts_for(refs: Sequence[HasBytesT], jobs: int) -> list[list[HasBytesT]]:
    """The bins for so many processes."""
    count = max(1, min(BIN_JOURNALS_MAX, len(refs) // (jobs * BINS_A_PROCESS_MIN)))
    return bins(refs, BIN_BYTES_MAX, count)


def in_order(
    submit: Callable[[Sequence[HasBytesT]], Future[Answer]],
    parts: Iterable[Sequence[HasBytesT]],
    jobs: Callable[[], int],
) -> Iterator[tuple[int, Answer]]:
    """The number of refs of each part and its answer; a few are under way for each of ``jobs``, which may
    grow. Raises what a part raises.
    """
    waiting = iter(parts)
    under_way: deque[tuple[int, Future[Answer]]] = deque()

    def fill() -> None:
        room = jobs() * BINS_UNDER_WAY - len(under_way)
        under_way.extend((len(part), submit(part)) for part in islice(waiting, max(0, room)))

    fill()
    while under_way:
        size, future = under_way.popleft()
        answer = future.result()
        fill()
        yield size, answer


def _begin_worker() -> None:
    # Ctrl-C reaches every process of the terminal: the command itself ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    # Imported modules stay: the collector need not look at them.
    gc.freeze()


def _end_with_parent() -> None:
    # A worker holds its own end of the pipe to its parent open: after a kill of the parent it would wait for
    # ever.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
