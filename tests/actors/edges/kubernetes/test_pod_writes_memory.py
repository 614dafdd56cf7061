"""Pods at their last status, stored on disk by concurrent reports."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import api_writes as late
from ebbtide.actors.edges.kubernetes.api_calls import Answer, ApiPod, PodState
from ebbtide.actors.edges.kubernetes.api_writes import LateStatuses, final_status
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, Metadata
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.decisions import DeliverStatuses, WithdrawPods
from ebbtide.events.facts import StatusesSeen
from ebbtide.events.files import write_atomically
from tests.actors.edges.kubernetes.write_fake import Asked, Scripted, status
from tests.actors.edges.kubernetes.write_rig import Hand
from tests.waiting import WATCHDOG_SECONDS, until


def found(uid: str) -> KnownPod:
    return KnownPod(uid=uid, api_uid=uid, namespace="ns", name=uid, resource_version=f"v-{uid}")


async def is_kept(folder: Path, *uids: str) -> bool:
    known = await LateStatuses(folder, lambda level, line: None).known()
    return dict(known) == {uid: f"v-{uid}" for uid in uids}


async def test_a_disk_that_hangs_holds_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared threads stay free. After the disk recovers, the next report stores all."""
    free = threading.Event()

    def slow(*arguments: Any, **more: Any) -> None:
        free.wait()
        write_atomically(*arguments, **more)

    monkeypatch.setattr(late, "write_atomically", slow)
    monkeypatch.setattr(bounds, "now", bounds.Bounds(side_file_seconds=0.01))
    made = LateStatuses(tmp_path, lambda level, line: None)
    uids = [f"u{number}" for number in range(20)]
    # Wait for the first read: on a busy machine it outlasts a report's wait.
    await made.known()
    try:
        for uid in uids:
            await made.keep([uid], found)
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    finally:
        free.set()
    monkeypatch.setattr(bounds, "now", bounds.Bounds(side_file_seconds=WATCHDOG_SECONDS))
    await made.keep(["last"], found)
    await until(partial(is_kept, tmp_path, *uids, "last"), "all are kept")


# --- a final status on its way needs no withdrawal beside it

WITHDRAW = WithdrawPods(key="w", uids=("a", "b"))
ROWS = (("a", "Failed", "Terminated", "m"),)


def known(uid: str) -> KnownPod:
    return KnownPod(uid=uid, api_uid=f"api-{uid}", namespace="default", name=uid, phase="Running")


def shown(uid: str) -> Answer:
    found = {"metadata": {"uid": f"api-{uid}", "resourceVersion": "1"}, "status": {"phase": "Running"}}
    return Answer(200, json.dumps(found).encode())


def behave(asked: Asked) -> tuple[float, Answer]:
    """Half a second for each call; the other order begins meanwhile."""
    return 0.5, shown("a")


def withdrawn(server: Scripted) -> list[str]:
    """Pods with only their conditions written."""
    return [
        asked.path.split("/")[-2]
        for asked in server.asked
        if asked.method == "PATCH" and "phase" not in asked.body["status"]
    ]


async def test_one_that_gets_its_final_status(autojump_clock: MockClock) -> None:
    """From the start of its delivery on it keeps that status; the others are withdrawn."""
    server = Scripted(behave)
    hand = Hand(server, [known("a"), known("b")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hand.do, DeliverStatuses(key="d", statuses=ROWS))
        await trio.sleep(0.1)
        assert await hand.do(WITHDRAW) == Ending()
    assert await hand.do(WITHDRAW) == Ending()
    assert withdrawn(server) == ["b", "b"]


async def test_what_a_slow_delivery_reports(autojump_clock: MockClock) -> None:
    """The missing pods while it goes on, once for each change, and at its end."""

    def slow(asked: Asked) -> tuple[float, Answer] | None:
        uid = asked.path.split("/")[6]
        return (0.15, shown(uid)) if asked.method == "GET" or uid == "a" else None

    hand = Hand(Scripted(slow), [known("a"), known("b")])
    rows = tuple((uid, "Failed", "Terminated", "m") for uid in "ab")
    assert (await hand.do(DeliverStatuses(key="d", statuses=rows))).result == "failed"
    assert hand.outbox.facts == [StatusesSeen(key="d", missing=("b",))] * 2


async def test_one_whose_final_status_was_refused(autojump_clock: MockClock) -> None:
    """It still has to leave its Services."""
    server = Scripted(lambda asked: (0.1, status(403, "no")))
    hand = Hand(server, [known("a"), known("b")])
    assert (await hand.do(DeliverStatuses(key="d", statuses=ROWS))).result == "failed"
    server.behaviour = behave
    assert await hand.do(WITHDRAW) == Ending()
    assert sorted(withdrawn(server)) == ["a", "b"]


SHOWN_RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
SHOWN_ENDED = {"state": {"terminated": {"exitCode": 4, "reason": "Error"}}}
SHOWN_WAITING: dict[str, Any] = {"state": {"waiting": {}}}


@pytest.mark.parametrize(
    "phase, codes, expected",
    [
        # A Job: the main ended well, its sidecar after the stop signal.
        ("Succeeded", {"app": 0, "mesh": 143}, {"mesh": 143, "app": 0}),
        ("Succeeded", {"mesh": 143}, {"mesh": 143, "app": 0}),
        ("Succeeded", {}, {"mesh": "unknown", "app": 0}),
        ("Failed", {"app": 0, "mesh": 143}, {"mesh": 143, "app": 0}),
        ("Failed", {"app": 42}, {"mesh": "unknown", "app": 42}),
        ("Failed", {}, {"mesh": "unknown", "app": "unknown"}),
    ],
)
def test_a_known_exit_code_is_reported(phase: str, codes: dict[str, int], expected: dict[str, Any]) -> None:
    """137 with ContainerStatusUnknown only without one. An end that the API server has is never changed."""
    pod = ApiPod(metadata=Metadata(name="job"), status=PodState(phase="Running"))
    pod.status.init_container_statuses = [
        {"name": "setup", **SHOWN_ENDED},
        {"name": "mesh", **SHOWN_RUNNING},
        {"name": "never", **SHOWN_WAITING},
    ]
    pod.status.container_statuses = [{"name": "app", **SHOWN_RUNNING}, {"name": "done", **SHOWN_ENDED}]
    made = final_status(pod, phase, "Terminated", "m", tuple(codes.items()))["status"]
    now = {each["name"]: each for each in made["initContainerStatuses"] + made["containerStatuses"]}
    assert now["setup"] == {"name": "setup", **SHOWN_ENDED}
    assert now["done"] == {"name": "done", **SHOWN_ENDED}
    assert now["never"] == {"name": "never", **SHOWN_WAITING}
    for name, code in expected.items():
        ended = now[name]["state"]["terminated"]
        unknown = ended["reason"] == "ContainerStatusUnknown"
        assert ("unknown" if unknown else ended["exitCode"]) == code
        assert ended["exitCode"] == 137 or not unknown
        assert ended["startedAt"] == SHOWN_RUNNING["state"]["running"]["startedAt"]
