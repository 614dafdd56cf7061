"""The API requests of a stuck outage: a hundred at once may use 20 per second.

The core with one node, two sources (0.3 s and 1.2 s), and the journal's pace
(`actors.edges.kubernetes.config_maps`): immediate creates, batched creates, and looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from ebbtide.actors.edges.kubernetes.config_maps import GATHER_SECONDS, UNSYNCED_SECONDS
from ebbtide.actors.system import System
from ebbtide.events import outage_events as o
from ebbtide.events.base import Fact, Order, Record
from ebbtide.events.facts import OrderEnded, Result
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.replay.sim.loop import Agenda, Loop
from ebbtide.replay.sim.sim_outage import COUNTED

MS, MINUTE_MS = 1_000_000, 60_000
GATHER_MS, UNSYNCED_MS, CREATE_MS = int(GATHER_SECONDS * 1000), int(UNSYNCED_SECONDS * 1000), 60
#: Per order: a taint reads Node and lease first. Leftovers come from the shared watch.
REQUESTS: dict[type[Order], int] = {o.SetTaint: 3, o.ReadNode: 2}

#: No proof; proof but the brake refuses; the API server refuses the taint; out of service with a hung pod.
Stuck = Literal["unproved", "braked", "refused", "out"]
EVERY_WAY: tuple[Stuck, ...] = ("unproved", "braked", "refused", "out")


class Load:
    """``requests``: by minute."""

    def __init__(self, stuck: Stuck, minutes: int) -> None:
        self.stuck = stuck
        self.requests: Counter[int] = Counter()
        self._agenda = Agenda()
        self._loop = Loop(System(logic=OUTAGE_LOGIC), self._agenda, self, 0)
        #: Times of the next create, of the last one, and of the next look; -1: none.
        self._create_at, self._busy_until, self._look_at = -1, 0, -1
        self._loop.admit(o.LeaderStarted(version="0", replica="r", node="node-1", node_uid="n1"))
        self._loop.admit(
            o.NodeRead(uid="n1", boot_id="b1", ready="Unknown", resource_version="1", system_uuid="u1")
        )
        self._loop.run(minutes * MINUTE_MS * MS)

    @property
    def _now(self) -> int:
        return self._agenda.now_ns // MS

    def per_second(self, minute: int) -> float:
        return self.requests[minute] * 100 / 60

    def _after(self, delay: int, what: Fact | Callable[[], None]) -> None:
        self._agenda.after(delay * MS, what)

    def _ask(self, requests: int = 1) -> None:
        self.requests[self._now // MINUTE_MS] += requests

    # --- the journal

    def _append(self, *, confirmed: bool) -> None:
        at = max(self._now + (0 if confirmed else GATHER_MS), self._busy_until)
        if self._create_at < 0 or at < self._create_at:
            self._create_at = at
            self._after(at - self._now, lambda: self._create(at))
        if confirmed:
            self._look_at = -1
            self._ask()

    def _create(self, at: int) -> None:
        if self._create_at != at:
            return
        self._create_at, self._busy_until = -1, self._now + CREATE_MS
        self._ask()
        if self._look_at < 0:
            look_at = self._look_at = self._now + UNSYNCED_MS
            self._after(UNSYNCED_MS, lambda: self._look(look_at))

    def _look(self, at: int) -> None:
        if self._look_at == at:
            self._look_at = -1
            self._ask()

    # --- the orders

    def answer(self, records: Sequence[Record]) -> None:
        orders = [record.event for record in records if isinstance(record.event, Order)]
        self._append(confirmed=any(order.barrier == "confirmed" for order in orders))
        for order in orders:
            self._ask(REQUESTS.get(type(order), 0))
            self._carry_out(order)

    def _carry_out(self, order: Any) -> None:
        begun_ns = self._now * MS + 1
        result: Result = "done"
        match order:
            case o.ReadSources():
                verdict: o.Verdict = "on" if self.stuck == "unproved" else "off"
                said = {"begun_ns": begun_ns, "identity_kind": "systemUUID", "identity": "u1"}
                bmc = o.EvidenceRead(source="redfish", name="bmc", verdict=verdict, **said)
                kubelet = o.EvidenceRead(source="kubelet", name="", verdict="unknown", begun_ns=begun_ns)
                self._after(300, bmc)
                self._after(1_200, kubelet)
                return self._after(1_200, OrderEnded(key=order.key, result="done"))
            case o.ListWork():
                pod = o.LostPod(uid="p1", namespace="d", name="db-0", owner_uid="w", terminating=True)
                self._after(40, o.WorkListed(key=order.key, pods=(pod,)))
            case o.RequestPermit():
                recovering = 5 if self.stuck == "braked" else 0
                result = "failed" if recovering else "done"
                counted = replace(COUNTED, key=order.key, recovering=recovering)
                self._after(40, counted)
            case o.SetTaint() if self.stuck == "refused":
                result = "failed"
        return self._after(50, OrderEnded(key=order.key, result=result, reason="503"))
