"""A fleet's journals on all processors of one machine: asked bin by bin, by a pool of processes.

Bins are handed out in order and answers come back in that order, so that a result is the same for any number
of processes. Only a few bins are under way at a time: nothing here grows with the fleet but its plan.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

import pyarrow as pa

from ebbtide.fleet import VERBS, HasBytesT, Ref, bins, map_journals, table_batches

Answer = TypeVar("Answer")

#: Journals of a bin, at most: some seconds of work for the slowest verb, so that the end of a run is not one
#: process at work and all others idle, and a few hundred times what it takes to hand a bin over.
BIN_JOURNALS_MAX = 100
BIN_BYTES_MAX = 32 << 20
#: Bins a process: fewer journals in each where the fleet is small.
BINS_A_PROCESS_MIN = 4
#: Bins under way for each process: one at work, and one to begin with at once when that is done.
BINS_UNDER_WAY = 2


class WorkerLost(Exception):
    """What was asked of a worker has no answer. The text is one line with its cure."""


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def over_bins(
    work: Callable[[Sequence[HasBytesT]], Answer], refs: Sequence[HasBytesT], jobs: int
) -> Iterator[tuple[int, Answer]]:
    """What ``work`` says of each bin, in order, and how many refs that was. ``work`` and answers are pickled.

    With one job no other process is begun. Whoever stops in the middle, as Ctrl-C does, ends the workers at
    once: they only read. Raises WorkerLost, and what ``work`` raises.
    """
    parts = parts_for(refs, jobs)
    if jobs == 1:
        for each in parts:
            yield len(each), work(each)
        return
    # Not by a fork: pyarrow and the store's client have threads, of which a child would have the locks.
    others = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)
    whole = False
    try:
        yield from in_order(lambda part: pool.submit(work, part), parts, lambda: jobs)
        whole = True
    except BrokenProcessPool as error:
        raise WorkerLost(
            f"one of {jobs} processes ended in the middle of its work: if memory is short, ask for fewer"
            " (--jobs 1)"
        ) from error
    finally:
        if not whole:
            for worker in set(active_children()) - others:
                worker.terminate()
        pool.shutdown(cancel_futures=True)


def parts_for(refs: Sequence[HasBytesT], jobs: int) -> list[list[HasBytesT]]:
    """The bins of so many processes."""
    count = max(1, min(BIN_JOURNALS_MAX, len(refs) // (jobs * BINS_A_PROCESS_MIN)))
    return bins(refs, BIN_BYTES_MAX, count)


def in_order(
    submit: Callable[[Sequence[HasBytesT]], Future[Answer]],
    parts: Iterable[Sequence[HasBytesT]],
    jobs: Callable[[], int],
) -> Iterator[tuple[int, Answer]]:
    """The answer to each part, and how many refs that had; a few are under way for each of ``jobs``, which
    may become more. Raises what a part raises.
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
    # Ctrl-C reaches every process of the terminal: the one that was called ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    # What has been imported is there to stay: nothing of it needs to be looked at again.
    gc.freeze()


def _end_with_parent() -> None:
    # A worker waits for its next bin on a pipe that its own end keeps open: one whose parent was killed would
    # wait for ever.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# --- what is asked of a bin ---------------------------------------------------------------------


def verb_batches(verb: str, asked: Mapping[str, Any], refs: Sequence[Ref]) -> list[pa.RecordBatch]:
    """``verb``: one of `ebbtide.fleet.VERBS`."""
    return list(map_journals(refs, VERBS[verb], **asked))


def all_tables(
    tables: Collection[str], refs: Sequence[Ref], *, settled: bool = False
) -> list[tuple[str, pa.RecordBatch]]:
    """Rows of these tables, in one pass; ``settled`` as for `table_batches`."""
    return list(table_batches(refs, tables, settled=settled))
