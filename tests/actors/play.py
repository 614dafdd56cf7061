"""A node with drawn behaviour: pods, logind, restarts, outcomes in any order.

It keeps only the edges' contract: at most one outcome per order, an inventory of unexited containers, one
exit per container. `NodePlay` is a Kubernetes node whose kubelet, runtime and API server come and go too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, TYPES, Order
from ebbtide.events.decisions import AwaitStatuses, CancelOrder, CheckMounts, Leave, TakeInventory
from ebbtide.events.values import Pod, Settings, ShutdownKind
from tests.actors.laws import Laws, NodeLaws
from tests.scripts.bench import Bench

#: Everything is answered by the play itself.
ORDERS = tuple(name for name, kind in TYPES.items() if issubclass(kind, Order))

RESULTS: tuple[f.Result, ...] = ("done", "failed", "timed-out", "cancelled", "unknown")
KINDS: tuple[ShutdownKind, ...] = ("poweroff", "reboot", "unknown")

#: Drawn moves, the later ones rarer.
Move = tuple[str, int]


@dataclass
class Play:
    """``pods`` on the node; a refresh shows ``late`` more."""

    settings: Settings
    pods: list[Pod]
    late: list[Pod]
    grant_ns: int
    bench: Bench = field(default_factory=Bench)
    laws: Laws = field(default_factory=Laws)
    preparing: bool = False
    alive: dict[tuple[str, str], bool] = field(default_factory=dict)
    boots: int = 1
    may_fail_to_start: bool = True
    mode: str = "process"

    def __post_init__(self) -> None:
        self.bench.manual = ORDERS
        for pod in self.pods:
            self._place(pod)
        self._start()
        self._settings(0)

    def _place(self, pod: Pod) -> None:
        self.alive.update({(pod.uid, each.name): True for each in pod.containers if each.running})

    @property
    def moves(self) -> dict[str, Callable[[Any, int], None]]:
        return MOVES

    # --- moves

    def make(self, move: Move) -> None:
        name, number = move
        self.moves[name](self, number)
        self._check()

    def _check(self) -> None:
        fresh = self.bench.records[self.laws.seen :]
        for record in fresh:
            self.laws.observe(record)
        for record in fresh:
            if isinstance(record.event, CancelOrder) and record.event.target in self.bench.orders:
                self._end(record.event.target, "timed-out" if record.event.timed_out else "cancelled")
                self._check()
        if any(isinstance(record.event, Leave) for record in fresh):
            self._start()
            self._check()

    def _advance(self, number: int) -> None:
        self.bench.advance(self.bench.now_ns + number * 50_000_000)

    def _answer(self, number: int) -> None:
        """Answer an open order, preferably an old one; an inventory comes with its facts."""
        keys = list(self.bench.orders)
        if keys:
            key = keys[number % len(keys)]
            self._end(key, "done" if number % 5 else RESULTS[number % len(RESULTS)])

    def _answer_all(self, number: int) -> None:
        for key in list(self.bench.orders):
            if key in self.bench.orders:
                self._end(key, "done")

    def _end(self, key: str, result: f.Result) -> None:
        if isinstance(self.bench.orders[key], TakeInventory) and result == "done":
            self._list(key)
        self.bench.feed(f.OrderEnded(key=key, result=result, reason="" if result == "done" else "drawn"))

    def _list(self, key: str) -> None:
        here = [pod for pod in self.pods if any(self.alive.get((pod.uid, c.name)) for c in pod.containers)]
        order = self.bench.orders[key]
        if isinstance(order, TakeInventory) and order.refresh:
            here += self.late
            for pod in self.late:
                self._place(pod)
            self.pods += self.late
            self.late = []
        half = len(here) // 2
        for part, pods in enumerate((here[:half], here[half:]), 1):
            self.bench.feed(
                f.InventoryTaken(
                    key=key, as_of_ns=self.bench.now_ns, source="play", part=part, parts=2, pods=tuple(pods)
                )
            )

    def _exit(self, number: int) -> None:
        left = [place for place, alive in self.alive.items() if alive]
        if left:
            uid, container = left[number % len(left)]
            self.alive[(uid, container)] = False
            code, signal = ((0, ""), (3, ""), (None, "SIGKILL"), (None, ""))[number % 4]
            self.bench.feed(f.ContainerExited(uid=uid, container=container, exit_code=code, signal=signal))

    def _signal(self, number: int) -> None:
        self.preparing = True
        grant_ns = self.grant_ns if number % 3 else number * NS_PER_SECOND
        self.bench.feed(
            f.PrepareForShutdown(
                active=True, kind=KINDS[number % 3], grant_ns=grant_ns, lock_held=bool(number % 2)
            )
        )

    def _cancel(self, number: int) -> None:
        self.preparing = False
        fact = f.PrepareForShutdown(active=False) if number % 2 else f.PreparingRead(preparing=False)
        self.bench.feed(fact)

    def _read(self, number: int) -> None:
        self.bench.feed(
            f.LogindRead(owner=":1", grant_ns=self.grant_ns, preparing=self.preparing, kind="reboot")
        )

    def _die(self, number: int) -> None:
        """SIGKILL, a pause, a restart; open orders end as unknown, some later."""
        self.bench.system = self.bench.restored()
        self.bench.now_ns += number * 100_000_000
        lost = list(self.bench.orders)[number % 3 :]
        self._start(failed=number % 4 if self.may_fail_to_start else 0)
        self._lose(lost)
        self._settings(number)

    def _lose(self, keys: list[str]) -> None:
        for key in keys:
            self.bench.feed(f.OrderEnded(key=key, result="unknown"))

    def _reboot(self, number: int) -> None:
        """A reboot removes processes, orders and the clock."""
        self.boots += 1
        self.bench.system = self.bench.restored()
        self.bench.now_ns = (1 + number) * NS_PER_SECOND
        self.preparing = False
        self.laws.rebooted()
        lost = list(self.bench.orders)
        self._start()
        self._lose(lost)
        self._settings(number)

    def _start(self, failed: int = 0) -> None:
        self.laws.started(self.bench.now_ns)
        self.bench.feed(
            f.DaemonStarted(
                version="0",
                pid=1,
                mode=self.mode,
                node="n",
                boot_id=f"b{self.boots}",
                userspace_id=f"u{self.boots}",
                preparing=self.preparing,
                kind="poweroff",
                grant_ns=self.grant_ns,
                failed_starts=failed if failed > 1 else 0,
            )
        )

    def _settings(self, number: int) -> None:
        self.bench.feed(f.SettingsLoaded(settings=self.settings))

    def _hurry(self, number: int) -> None:
        pod = self.pods[number % len(self.pods)]
        self.laws.hurried(pod.uid, self.bench.now_ns)
        self.bench.feed(f.HurryRequested(pod=pod.uid, asked_by=0))

    def _release(self, number: int) -> None:
        self.bench.feed(f.ReleaseRequested(asked_by=0))

    def _stop(self, number: int) -> None:
        self.bench.feed(
            f.StopRequested(system_stopping=bool(number % 2), stop_time_ns=number * NS_PER_SECOND)
        )

    def _appear(self, number: int) -> None:
        self.bench.feed(f.PodAppeared(pod=self.pods[number % len(self.pods)]))

    def _rest(self, number: int) -> None:
        pod = self.pods[number % len(self.pods)]
        facts = (
            f.BusLost(error="drawn"),
            f.DropInsRead(others_ns=number * NS_PER_SECOND, ours_ns=None if number % 2 else NS_PER_SECOND),
            f.AutopsyTaken(uid=pod.uid, container="app"),
        )
        self.bench.feed(facts[number % len(facts)])

    # --- the end

    def finish(self) -> None:
        """Answer all orders and let time pass, without further events."""
        for _ in range(6):
            self._answer_all(0)
            self._check()
            self._advance(400)
            self._check()
        self.laws.settled(self.bench.system.episode)

    def facts(self) -> Iterator[tuple[object, int]]:
        return ((record.event, record.mono_ns) for record in self.bench.records if record.cause == 0)


MOVES: dict[str, Callable[[Any, int], None]] = {
    "advance": Play._advance,
    "answer": Play._answer,
    "answer-all": Play._answer_all,
    "exit": Play._exit,
    "signal": Play._signal,
    "cancel": Play._cancel,
    "read": Play._read,
    "die": Play._die,
    "reboot": Play._reboot,
    "hurry": Play._hurry,
    "release": Play._release,
    "stop": Play._stop,
    "appear": Play._appear,
    "settings": Play._settings,
    "rest": Play._rest,
}


# --- a Kubernetes node

OWNERS = ("", "Deployment/web", "DaemonSet/agent")


def on_node(pod: Pod, number: int) -> Pod:
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
        self.bench.feed(f.KubeletRead(unit="kubelet.service", active=True))
        self.bench.feed(f.RuntimeRead(reachable=True))
        self.bench.feed(f.ApiRead(reachable=True))

    def _end(self, key: str, result: f.Result) -> None:
        order = self.bench.orders[key]
        if isinstance(order, CheckMounts) and result != "unknown":
            mounted = (("a0", "data"),) if len(key) % 2 else ()
            self.bench.feed(f.MountsRead(key=key, mounted=mounted))
        if isinstance(order, AwaitStatuses):
            missing = () if result == "done" else order.uids[:1]
            self.bench.feed(f.StatusesSeen(key=key, missing=missing))
        super()._end(key, result)

    def _health(self, number: int) -> None:
        facts = (
            f.ApiRead(reachable=number % 2 == 0, taint=number % 6 > 0),
            f.RuntimeRead(reachable=number % 4 > 0),
            f.KubeletRead(unit="kubelet.service", active=(True, False, None)[number // 4 % 3]),
            f.LogindRead(
                owner=":1", grant_ns=self.grant_ns, preparing=self.preparing, kubelet_lock=number % 8 > 4
            ),
        )
        self.bench.feed(facts[number % len(facts)])

    def _join(self, number: int) -> None:
        if self.late:
            pod = self.late.pop()
            self._place(pod)
            self.pods.append(pod)
            self.bench.feed(f.PodJoined(pod=pod))

    def _start_again(self, number: int) -> None:
        """The kubelet restarts a container with a reported end."""
        over = [place for place, alive in self.alive.items() if not alive]
        if over:
            uid, container = over[number % len(over)]
            self.alive[(uid, container)] = True
            pod = next(each for each in self.pods if each.uid == uid)
            made = tuple(
                replace(each, running=self.alive.get((uid, each.name), False)) for each in pod.containers
            )
            self.bench.feed(f.PodJoined(pod=replace(pod, containers=made)))

    def _unmount(self, number: int) -> None:
        self.bench.feed(f.VolumesUnmounted(uid=self.pods[number % len(self.pods)].uid))

    def _wait(self, number: int) -> None:
        """Long enough for an undeleted pod, a retry, an overdue status."""
        self.bench.advance(self.bench.now_ns + number * NS_PER_SECOND)


NODE_MOVES: dict[str, Callable[[Any, int], None]] = {
    **MOVES,
    "health": NodePlay._health,
    "join": NodePlay._join,
    "again": NodePlay._start_again,
    "unmount": NodePlay._unmount,
    "wait": NodePlay._wait,
}
