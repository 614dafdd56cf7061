"""What pods were when their last status was due, kept on disk by several reports at a time."""

from __future__ import annotations

import gc
import json
import os
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import pod_writes as late
from ebbtide.actors.edges.kubernetes.calls import Answer
from ebbtide.actors.edges.kubernetes.pod_writes import LATE_FILE_NAME, KnownThen, LateStatuses
from ebbtide.actors.edges.kubernetes.pods import KnownPod, PodStore
from ebbtide.actors.edges.kubernetes.runtime import Writes
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.decisions import DeletePod, DeliverStatuses, WithdrawPods
from ebbtide.events.files import write_atomically
from tests.actors.edges.kubernetes.write_fake import Asked, Scripted, status
from tests.actors.edges.process.process_bed import Outbox

WRITERS = 8
ROUNDS = 20


def found(uid: str) -> KnownPod:
    return KnownPod(uid=uid, api_uid=uid, namespace="ns", name=uid, resource_version=f"v-{uid}")


async def kept(folder: Path) -> dict[str, KnownThen]:
    """As the next boot reads it."""
    return dict(await LateStatuses(folder, lambda level, line: None).known())


async def test_reports_side_by_side(tmp_path: Path) -> None:
    """Each is kept, whoever writes last, and nothing fails."""
    said: list[str] = []
    made = LateStatuses(tmp_path / "state", lambda level, line: said.append(line))
    for turn in range(ROUNDS):
        async with trio.open_nursery() as nursery:
            for writer in range(WRITERS):
                nursery.start_soon(made.keep, [f"{turn}-{writer}"], found)
    uids = [f"{turn}-{writer}" for turn in range(ROUNDS) for writer in range(WRITERS)]
    assert said == []
    assert await kept(tmp_path / "state") == {uid: KnownThen(f"v-{uid}") for uid in uids}
    assert os.listdir(tmp_path / "state") == [LATE_FILE_NAME]


async def test_a_writer_that_the_disk_holds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody waits for any longer does not bring back what was known before."""
    free, held = threading.Event(), threading.Event()

    def slow(*arguments: Any, **more: Any) -> None:
        if not held.is_set():
            held.set()
            assert free.wait(20)
        write_atomically(*arguments, **more)

    monkeypatch.setattr(late, "write_atomically", slow)
    monkeypatch.setattr(bounds, "now", bounds.Bounds(side_file_seconds=0.05))
    made = LateStatuses(tmp_path, lambda level, line: None)
    await made.keep(["a"], found)
    assert held.is_set()
    await made.keep(["b"], found)
    free.set()
    with trio.fail_after(20):
        while await kept(tmp_path) != {"a": KnownThen("v-a"), "b": KnownThen("v-b")}:
            await trio.sleep(0.01)


async def test_a_disk_that_hangs_holds_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many reports give it up: those that everybody shares are left to the others. Once it is back,
    the last report is kept, with nobody to ask for it.
    """
    free = threading.Event()
    monkeypatch.setattr(late, "write_atomically", waiting_for(free))
    monkeypatch.setattr(bounds, "now", bounds.Bounds(side_file_seconds=0.01))
    made = LateStatuses(tmp_path, lambda level, line: None)
    uids = [f"u{number}" for number in range(20)]
    # Once the file has been read: on a busy machine that takes longer than a report waits.
    await made.known()
    try:
        for uid in uids:
            await made.keep([uid], found)
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    finally:
        free.set()
    with trio.fail_after(20):
        while await kept(tmp_path) != {uid: KnownThen(f"v-{uid}") for uid in uids}:
            await trio.sleep(0.01)


async def test_a_file_that_cannot_be_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where the disk hangs before the first report has read what is there."""
    free = threading.Event()
    monkeypatch.setattr(late, "read_own", waiting_for(free, late.read_own))
    monkeypatch.setattr(bounds, "now", bounds.Bounds(side_file_seconds=0.01))
    made = LateStatuses(tmp_path, lambda level, line: None)
    try:
        for number in range(20):
            await made.keep([f"u{number}"], found)
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    finally:
        free.set()


def waiting_for(free: threading.Event, work: Callable[..., Any] = write_atomically) -> Callable[..., Any]:
    def slow(*arguments: Any, **more: Any) -> Any:
        assert free.wait(20)
        return work(*arguments, **more)

    return slow


def test_writers_of_one_file_in_threads(tmp_path: Path) -> None:
    """None takes another's temporary file away: each finishes, and one of them stands, whole."""
    path, contents = tmp_path / "file", [bytes([48 + writer]) * 100_000 for writer in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as threads:
        for done in [threads.submit(write_atomically, path, data) for data in contents * ROUNDS]:
            done.result()
    assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["file"]


# --- a final status on its way needs no withdrawal beside it -----------------------------------

WITHDRAW = WithdrawPods(key="w", uids=("a", "b"))
ROWS = (("a", "Failed", "Terminated", "m"),)


def known(uid: str, phase: str = "Running") -> KnownPod:
    return KnownPod(uid=uid, api_uid=f"api-{uid}", namespace="default", name=uid, phase=phase)


def behave(asked: Asked) -> tuple[float, Answer]:
    """Half a second for each call, in which the other order begins."""
    found = {"metadata": {"uid": "api-a", "resourceVersion": "1"}, "status": {"phase": "Running"}}
    return 0.5, Answer(200, json.dumps(found).encode())


def refuse(asked: Asked) -> tuple[float, Answer]:
    return 0.1, status(403, "no")


async def do(writes: Writes, order: Order) -> Ending:
    ending = writes.effects[type(order)](order, Outbox())
    return ending if isinstance(ending, Ending) else await ending


def writes_on(server: Scripted, *pods: KnownPod) -> Writes:
    store = PodStore()
    store.replace(pods, "1")
    return Writes(server, store, "node-1")


def withdrawn(server: Scripted) -> list[str]:
    """The pods of which only the conditions were written."""
    return [
        asked.path.split("/")[-2]
        for asked in server.asked
        if asked.method == "PATCH" and "phase" not in asked.body["status"]
    ]


async def test_one_that_gets_its_final_status(autojump_clock: MockClock) -> None:
    """From the beginning of its delivery on, and after it; the others are withdrawn."""
    server = Scripted(behave)
    writes = writes_on(server, known("a"), known("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(do, writes, DeliverStatuses(key="d", statuses=ROWS))
        await trio.sleep(0.1)
        assert await do(writes, WITHDRAW) == Ending()
    assert await do(writes, WITHDRAW) == Ending()
    assert withdrawn(server) == ["b", "b"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_one_that_has_it_already(phase: str, autojump_clock: MockClock) -> None:
    """As the watch shows it."""
    server = Scripted(behave)
    assert await do(writes_on(server, known("a", phase), known("b")), WITHDRAW) == Ending()
    assert withdrawn(server) == ["b"]


async def test_one_whose_final_status_was_refused(autojump_clock: MockClock) -> None:
    """It still has to leave its Services."""
    server = Scripted(refuse)
    writes = writes_on(server, known("a"), known("b"))
    assert (await do(writes, DeliverStatuses(key="d", statuses=ROWS))).result == "failed"
    server.behaviour = behave
    assert await do(writes, WITHDRAW) == Ending()
    assert sorted(withdrawn(server)) == ["a", "b"]


# --- what has gone is forgotten ----------------------------------------------------------------

COMING_AND_GOING = 400
#: Of one set that keeps their UIDs it would be 40 KiB.
KEPT_BYTES_MAX = 16 * 1024


async def test_pods_that_come_and_go(autojump_clock: MockClock) -> None:
    """Deleted, and given their final status, in one shutdown after another: nothing of them is kept."""
    store, server = PodStore(), Scripted(behave)
    writes = Writes(server, store, "node-1")

    async def one(number: int) -> None:
        uid = f"{number:036}"
        store.replace([known(uid)], "1")
        await do(writes, DeletePod(key=f"x{number}", uid=uid, namespace="default", name=uid, grace_seconds=2))
        await do(writes, DeliverStatuses(key=f"d{number}", statuses=((uid, "Failed", "Terminated", "m"),)))
        server.asked.clear()

    await one(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1, COMING_AND_GOING):
            await one(number)
        gc.collect()
        kept_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept_bytes < KEPT_BYTES_MAX
