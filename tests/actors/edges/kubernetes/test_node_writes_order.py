"""The Node ends in the last ordered state, although a sent request cannot be recalled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import Answer, Unanswered
from ebbtide.actors.edges.kubernetes.node_writes import LAST_BOOT_ANNOTATION
from ebbtide.actors.edges.linux.proc import BOOT_ID_FILE
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Order
from ebbtide.events.decisions import AnnounceNode, PublishCertificate, PublishLastBoot
from tests.actors.edges.kubernetes.write_fake import status
from tests.actors.edges.kubernetes.write_rig import Hand

DOWN = AnnounceNode(key="down", ready=False, unready=False, cordon=True, conditions=("DrainInProgress",))
UP = AnnounceNode(key="up", ready=True)
CERTIFIED = PublishCertificate(key="certified", safe=True)


class Server:
    """One Node. A write takes effect ``late_seconds`` after its arrival, even without its client."""

    def __init__(self, work: trio.Nursery, late_seconds: float = 0.0) -> None:
        self.node: dict[str, Any] = {"annotations": {}, "unschedulable": None, "conditions": {}}
        self.version, self.late_seconds = 1, late_seconds
        self._work = work
        #: Answers before any write, one each.
        self.refusals: list[Answer] = []
        #: Bodies of the executed writes.
        self.taken: list[Any] = []

    async def call(self, method: str, path: str, *, body: Any = None, **fields: Any) -> Answer:
        await trio.sleep(0.01)
        if method == "GET":
            return Answer(200, self._as_json())
        if self.refusals:
            return self.refusals.pop(0)
        answers: list[Answer] = []
        arrived = trio.Event()
        self._work.start_soon(self._carry_out, body, answers, arrived, self.late_seconds)
        with trio.move_on_after(fields["seconds_max"]):
            await arrived.wait()
            return answers[0]
        raise Unanswered("silence")

    async def _carry_out(self, body: Any, answers: list[Answer], done: trio.Event, seconds: float) -> None:
        await trio.sleep(seconds)
        if body["metadata"].get("resourceVersion", str(self.version)) == str(self.version):
            self._merge(body)
            self.taken.append(body)
            answers.append(Answer(200, self._as_json()))
        else:
            answers.append(status(409, "the object has been modified"))
        done.set()

    def _merge(self, body: Any) -> None:
        self.version += 1
        annotations = {**self.node["annotations"], **body["metadata"].get("annotations", {})}
        self.node["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        spec = body.get("spec", {})
        self.node["unschedulable"] = spec.get("unschedulable", self.node["unschedulable"])
        self.node["taints"] = spec.get("taints", self.node.get("taints"))
        for each in body.get("status", {}).get("conditions", []):
            if each.get("$patch") == "delete":
                self.node["conditions"].pop(each["type"], None)
            else:
                self.node["conditions"][each["type"]] = each

    def _as_json(self) -> bytes:
        meta = {"resourceVersion": str(self.version), "annotations": self.node["annotations"]}
        spec = {"unschedulable": bool(self.node["unschedulable"]), "taints": self.node.get("taints") or []}
        state = {"conditions": list(self.node["conditions"].values())}
        return msgspec.json.encode({"metadata": meta, "spec": spec, "status": state})

    def is_untouched(self) -> bool:
        spec = (self.node["unschedulable"], self.node.get("taints"), self.node["conditions"])
        return not any(spec) and not self.node["annotations"]


@pytest.mark.parametrize("late_seconds", [0.0, 0.1, 0.5, 4.0, 8.0, 12.0])
@pytest.mark.parametrize("after_seconds", [0.005, 0.015, 0.2, 1.0])
@pytest.mark.parametrize("orders", [(DOWN,), (CERTIFIED,), (DOWN, CERTIFIED)], ids=range(3))
async def test_taken_back_is_taken_back(
    orders: tuple[Order, ...], after_seconds: float, late_seconds: float, autojump_clock: MockClock
) -> None:
    """However late the server executes the shutdown's writes, a cancel leaves the Node untouched."""
    async with trio.open_nursery() as nursery:
        server = Server(nursery, late_seconds)
        hand = Hand(server, link=lambda: ("4a", "4b"))
        for order in orders:
            nursery.start_soon(hand.do, order)
        await trio.sleep(after_seconds)
        server.late_seconds = 0.0
        with trio.fail_after(30):
            assert await hand.do(UP) == Ending()
        await trio.sleep(60)
        assert server.is_untouched(), server.node


async def test_a_certificate_that_is_still_refused(autojump_clock: MockClock) -> None:
    """A retry that waits is dropped at once, and never follows its revocation."""
    async with trio.open_nursery() as nursery:
        server = Server(nursery)
        server.refusals = [status(429, "later", 1.0)]
        hand = Hand(server, link=lambda: ("4a", "4b"))
        ended: list[Ending] = []

        async def publish() -> None:
            ended.append(await hand.do(CERTIFIED))

        nursery.start_soon(publish)
        await trio.sleep(0.1)
        began = trio.current_time()
        assert await hand.do(UP) == Ending()
        assert trio.current_time() - began < 0.2
        await trio.sleep(60)
        assert [each.result for each in ended] == ["cancelled"]
        assert server.taken == []


# --- how the last boot ended

CUT = PublishLastBoot(
    key="cut",
    boot_id="0123456789abcdef0123456789abcdef",
    ending="cut-short",
    why="unrecorded",
    wave=2,
    recorded=True,
    alive_wall_ns=1_800_000_000 * 10**9,
)
SILENT = PublishLastBoot(key="silent", boot_id="f" * 32, ending="unknown")
CUT_SAID = {
    "bootId": "01234567-89ab-cdef-0123-456789abcdef",
    "ending": "cut-short",
    "why": "unrecorded",
    "wave": 2,
    "aliveAt": "2027-01-15T08:00:00Z",
    "journal": "4a",
    "trace": "4b",
    "saidBy": BOOT_ID_FILE.read_text().strip(),
}


async def test_the_last_boots_end_stays_beside_all_else(autojump_clock: MockClock) -> None:
    """Other writes keep it. Repeated, it is one write; a later one replaces it."""
    async with trio.open_nursery() as nursery:
        server = Server(nursery)
        hand = Hand(server, link=lambda: ("4a", "4b"))
        for order in (DOWN, CUT, CERTIFIED, UP, CUT):
            assert await hand.do(order) == Ending()
        assert msgspec.json.decode(server.node["annotations"].pop(LAST_BOOT_ANNOTATION)) == CUT_SAID
        assert server.is_untouched()
        assert sum(LAST_BOOT_ANNOTATION in body["metadata"]["annotations"] for body in server.taken) == 1
        assert await hand.do(SILENT) == Ending()
        said = msgspec.json.decode(server.node["annotations"][LAST_BOOT_ANNOTATION])
        assert set(said) == {"bootId", "ending", "journal", "saidBy"}
        assert await hand.do(PublishLastBoot(key="gone", boot_id="", ending="unknown")) == Ending()
        assert server.is_untouched()
