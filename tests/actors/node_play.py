"""The same play on a Kubernetes node: its kubelet, runtime and API server come and go by drawn numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import AwaitStatuses, CheckMounts
from ebbtide.events.facts import (
    ApiRead,
    KubeletRead,
    LogindRead,
    MountsRead,
    PodJoined,
    Result,
    RuntimeRead,
    StatusesSeen,
    VolumesUnmounted,
)
from ebbtide.events.model import Pod
from tests.actors.laws import Laws
from tests.actors.node_laws import NodeLaws
from tests.actors.play import MOVES, Play

OWNERS = ("", "Deployment/web", "DaemonSet/agent")


def on_node(pod: Pod, number: int) -> Pod:
    """What the API knows of it, by a drawn number."""
    return replace(
        pod,
        static=number % 5 == 0,
        daemon=number % 3 == 0,
        tolerates_all=number % 6 == 0,
        volumes=number % 4 == 1,
        owner=OWNERS[number % len(OWNERS)],
    )


@dataclass
class NodePlay(Play):
    """In one of the modes of a node."""

    mode: str = "auto"
    laws: Laws = field(default_factory=NodeLaws)

    @property
    def moves(self) -> dict[str, Callable[[Any, int], None]]:
        return NODE_MOVES

    def _start(self, failed: int = 0) -> None:
        super()._start(failed)
        self.bench.feed(KubeletRead(unit="kubelet.service", active=True))
        self.bench.feed(RuntimeRead(reachable=True))
        self.bench.feed(ApiRead(reachable=True))

    def _end(self, key: str, result: Result) -> None:
        order = self.bench.orders[key]
        if isinstance(order, CheckMounts) and result != "unknown":
            mounted = (("a0", "data"),) if len(key) % 2 else ()
            self.bench.feed(MountsRead(key=key, mounted=mounted))
        if isinstance(order, AwaitStatuses):
            missing = () if result == "done" else order.uids[:1]
            self.bench.feed(StatusesSeen(key=key, missing=missing))
        super()._end(key, result)

    def _health(self, number: int) -> None:
        facts = (
            ApiRead(reachable=number % 2 == 0, taint=number % 6 > 0),
            RuntimeRead(reachable=number % 4 > 0),
            KubeletRead(unit="kubelet.service", active=(True, False, None)[number // 4 % 3]),
            LogindRead(
                owner=":1", grant_ns=self.grant_ns, preparing=self.preparing, kubelet_lock=number % 8 > 4
            ),
        )
        self.bench.feed(facts[number % len(facts)])

    def _join(self, number: int) -> None:
        if self.late:
            pod = self.late.pop()
            self._place(pod)
            self.pods.append(pod)
            self.bench.feed(PodJoined(pod=pod))

    def _unmount(self, number: int) -> None:
        self.bench.feed(VolumesUnmounted(uid=self.pods[number % len(self.pods)].uid))

    def _wait(self, number: int) -> None:
        """Long enough for an undeleted pod's turn, a retry, an overdue status."""
        self.bench.advance(self.bench.now_ns + number * NS_PER_SECOND)


NODE_MOVES: dict[str, Callable[[Any, int], None]] = {
    **MOVES,
    "health": NodePlay._health,
    "join": NodePlay._join,
    "unmount": NodePlay._unmount,
    "wait": NodePlay._wait,
}
