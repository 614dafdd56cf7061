"""Following the durable part of a journal while the writer writes."""

from __future__ import annotations

from pathlib import Path

import trio

from ebbtide.events.disk import DirectoryStorage
from ebbtide.otel.delivery.journal_tail import Tail
from tests.events.making import running, step, write_steps


def given(tail: Tail) -> list[int]:
    return [raw.seq for batch in tail.read(10_000) for raw in batch.records]


async def test_what_is_not_synced_is_held_back(tmp_path: Path) -> None:
    """A power cut could revoke unsynced records, and with them their spans."""
    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        await writer.wait_synced(writer.last_seq)
        await write_steps(writer, 2, synced=True)
        tail = Tail([storage.source])
        first = given(tail)
        assert first == list(range(1, len(first) + 1))
        assert len(first) < writer.last_seq
        tail.learn(writer.synced_seq)
        assert first + given(tail) == list(range(1, writer.synced_seq + 1))
        assert given(tail) == []


async def test_steps_stay_whole(tmp_path: Path) -> None:
    """A half-durable step is withheld: none of its orders was released."""
    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        whole = writer.last_seq
        writer.append(step(writer.last_seq + 1, whole=False))
        await writer.wait_synced(writer.last_seq)
        tail = Tail([storage.source])
        tail.learn(writer.last_seq)
        assert given(tail) == list(range(1, whole + 1))
        writer.append([step(writer.last_seq + 1)[0], *step(writer.last_seq + 2)[:0]])
        await trio.lowlevel.checkpoint()


async def test_what_is_synced_in_memory_only_is_not_durable(tmp_path: Path) -> None:
    """A memory-only location is no proof, whatever its frames claim."""
    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        await write_steps(writer, 3, synced=True)
        lasting = Tail([storage.source])
        volatile = Tail([storage.source], volatile=(str(tmp_path),))
        assert given(lasting)
        assert given(volatile) == []


async def test_a_daemon_that_died_in_a_step_leaves_no_trace_of_it(tmp_path: Path) -> None:
    """The next process continues after the last whole step; drop records read beyond it."""
    from ebbtide.events.reader import History

    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        await write_steps(writer, 1, synced=True)
        writer.append(step(writer.last_seq + 1, whole=False))
        await writer.wait_synced(writer.last_seq)
        tail = Tail([storage.source])
        before = given(tail)
    await storage.release()
    verdict = History([storage.source]).read()
    again = DirectoryStorage(tmp_path)
    async with running([again], verdict.start(bytes(16))) as writer:
        await write_steps(writer, 1, synced=True)
        last = writer.last_seq
        tail.learn(last)
        assert before + given(tail) == list(range(1, last + 1))
