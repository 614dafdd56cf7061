"""A simulated run is a function of this plan, and a seed draws the plan.

Append new draws at the end of a function, or fork a stream for them: then earlier seeds keep their runs.
A time None means never.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, Self, TypeVar

from msgspec.structs import replace

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Container, Hook, HookKind, Period, Pod, Settings, ShutdownKind


class HookPlan(NamedTuple):
    """An exec or httpGet hook. ``takes_ns`` None: it hangs."""

    takes_ns: int | None = 0
    succeeds: bool = True


class ContainerPlan(NamedTuple):
    #: From the stop signal to the exit.
    stop_ns: int | None = 0
    #: After its start, by itself.
    lives_ns: int | None = None
    #: From SIGKILL to its end: long for an uninterruptible process.
    reap_ns: int | None = 0
    exit_code: int = 0
    #: Without a handler for the stop signal.
    by_signal: bool = False
    hook: HookPlan = HookPlan()

    def after_start_ns(self) -> int | None:
        return self.lives_ns

    def after_signal_ns(self) -> int | None:
        return self.stop_ns

    def after_kill_ns(self) -> int | None:
        return self.reap_ns


class PodPlan(NamedTuple):
    """``appears_ns``: after the boot."""

    pod: Pod
    containers: dict[str, ContainerPlan]
    appears_ns: int = 0


# --- the plan of one run
#
# Times count from the shutdown's signal, unless the name says otherwise.

ApiIs = Literal["works", "fails", "hangs"]

#: Stop signals, or SIGKILL too.
RuntimeRefuses = Literal["nothing", "stops", "everything"]

NodeMode = Literal["", "auto", "api", "cri", "observe"]

#: stays: it ignores stop orders; slow: it takes seconds to stop.
KubeletIs = Literal["runs", "away", "stays", "slow"]


class Faults(NamedTuple):
    kind: ShutdownKind = "poweroff"
    #: logind's limit; None: it obeys our drop-in.
    grant_ns: int | None = None
    #: Until logind obeys the drop-in.
    late_grant_ns: int = 0
    cancel_after_ns: int | None = None
    #: logind restarts, and the shutdown is requested again.
    second_signal_after_ns: int | None = None
    bus_lost_after_ns: int | None = None
    api: ApiIs = "works"
    api_takes_ns: int = 8 * MS
    runtime_refuses: RuntimeRefuses = "nothing"
    runtime_takes_ns: int = 0
    crash_after_ns: int | None = None
    restart_takes_ns: int = 500 * MS
    power_cut_after_ns: int | None = None
    #: The shutdown is requested again: after a cancel it is another one.
    again_after_ns: int | None = None
    # A Kubernetes node. Without ``mode`` the daemon starts the pods.
    mode: NodeMode = ""
    api_lost_after_ns: int | None = None
    api_back_after_ns: int | None = None
    #: A hung runtime stays connected and does not answer.
    runtime_hangs_after_ns: int | None = None
    runtime_wakes_after_ns: int | None = None
    #: A hung kubelet does not answer or act; its unit is active and its lock held.
    kubelet_hangs_after_ns: int | None = None
    kubelet_wakes_after_ns: int | None = None
    #: It has a health endpoint.
    kubelet_health: bool = True
    #: A hung API server accepts requests and does not answer.
    api_hangs_after_ns: int | None = None
    api_wakes_after_ns: int | None = None
    #: The daemon's first start on this node. None: an earlier daemon has the API server's list.
    first_start_after_ns: int | None = None
    first_list_takes_ns: int = 0
    #: Our identity may taint the node.
    taints: bool = True
    kubelet: KubeletIs = "runs"
    #: The kubelet does its own graceful shutdown.
    kubelet_lock: bool = False
    unmount_takes_ns: int = 300 * MS
    #: The service manager keeps the lock over a crash.
    fd_store: bool = True
    #: The unit's time to stop.
    stop_time_ns: int = 10 * NS_PER_SECOND

    def afterwards(self) -> Faults:
        """In the next boot."""
        return Faults(
            kind=self.kind,
            grant_ns=self.grant_ns,
            mode=self.mode,
            taints=self.taints,
            kubelet_lock=self.kubelet_lock,
        )


class SimulationPlan(NamedTuple):
    """``seed``: for ids and latencies."""

    settings: Settings
    pods: tuple[PodPlan, ...]
    faults: Faults = Faults()
    seed: int = 0
    sources: dict[str, str] = {}
    version: str = "0"
    node: str = "simulated"


#: The machine's uptime at the daemon's first and second start.
UPTIME_NS = 20 * NS_PER_SECOND
NEXT_UPTIME_NS = 12 * NS_PER_SECOND

#: From the daemon's start to the signal: it is armed by then, unless logind is slow.
SIGNAL_AFTER_NS = 10 * NS_PER_SECOND

#: A node is watched after its shutdown, until it is armed again after a cancel.
AFTERMATH_NS = 45 * NS_PER_SECOND

#: Between two boots, by the wall clock.
OFF_NS = 20 * NS_PER_SECOND

#: In the next boot its daemon looks back and arms.
NEXT_BOOT_NS = 3 * NS_PER_SECOND

#: At the first daemon's start: 2026-01-01T00:00:00Z.
WALL_NS = 1_767_225_600 * NS_PER_SECOND


#: Steps between two quantiles.
_QUANTILE_STEPS = 1 << 32


class DurationQuantiles(NamedTuple):
    """Evenly spaced, in ascending order: one value is a constant, two are uniform, eleven are the deciles. A
    draw between two is linear.
    """

    quantiles_ns: tuple[int, ...]

    def draw(self, draws: Draws) -> int:
        if len(self.quantiles_ns) == 1:
            return self.quantiles_ns[0]
        at, within = divmod(draws.below((len(self.quantiles_ns) - 1) * _QUANTILE_STEPS), _QUANTILE_STEPS)
        low, high = self.quantiles_ns[at : at + 2]
        return low + (high - low) * within // _QUANTILE_STEPS


class BehaviourRule(NamedTuple):
    """Shell patterns match pods. None: not given. ``crashes``: after the shutdown's signal."""

    pod: str = "*"
    namespace: str = "*"
    container: str = "*"
    priority_from: int | None = None
    priority_below: int | None = None
    stop: DurationQuantiles | None = None
    ignores: bool | None = None
    kill: DurationQuantiles | None = None
    exit_code: int | None = None
    crashes: DurationQuantiles | None = None
    hook: DurationQuantiles | None = None
    hook_fails: bool | None = None
    hook_hangs: bool | None = None
    #: The rule applies so many times of so many.
    times: int = 1
    of: int = 1

    def matches(self, pod: Pod, container: str) -> bool:
        priority = pod.priority or 0
        return (
            fnmatchcase(pod.name, self.pod)
            and fnmatchcase(pod.namespace, self.namespace)
            and fnmatchcase(container, self.container)
            and (self.priority_from is None or priority >= self.priority_from)
            and (self.priority_below is None or priority < self.priority_below)
        )


#: Without a rule.
CALM_RULE = BehaviourRule(
    stop=DurationQuantiles((50 * MS, 400 * MS, 2000 * MS)),
    ignores=False,
    kill=DurationQuantiles((0, 20 * MS)),
    exit_code=0,
    hook=DurationQuantiles((20 * MS, 200 * MS)),
    hook_fails=False,
    hook_hangs=False,
)

_RULE_FIELDS = ("stop", "ignores", "kill", "exit_code", "crashes", "hook", "hook_fails", "hook_hangs")


class Behaviour(NamedTuple):
    rules: tuple[BehaviourRule, ...] = ()
    faults: Faults = Faults()

    def plans(self, pods: tuple[Pod, ...], draws: Draws) -> tuple[PodPlan, ...]:
        """A pod's index decides its draws, not its name."""
        plans = []
        for index, pod in enumerate(pods):
            own, names = draws.fork(f"pod {index}"), [container.name for container in pod.containers]
            behaves = {name: self._container_plan(pod, name, own.fork(name)) for name in names}
            plans.append(PodPlan(pod, behaves))
        return tuple(plans)

    def _container_plan(self, pod: Pod, container: str, draws: Draws) -> ContainerPlan:
        said = CALM_RULE
        for rule in self.rules:
            if rule.matches(pod, container) and draws.chance(rule.times, rule.of):
                news = {field: getattr(rule, field) for field in _RULE_FIELDS}
                said = said._replace(**{field: value for field, value in news.items() if value is not None})
        # Each duration has its own stream, so a rule changes no other duration.
        stop = _draw_duration(said.stop, draws.fork("stop"))
        kill = _draw_duration(said.kill, draws.fork("kill"))
        hook = _draw_duration(said.hook, draws.fork("hook"))
        crashes = _draw_duration(said.crashes, draws.fork("crash"))
        return ContainerPlan(
            stop_ns=None if said.ignores else stop,
            lives_ns=None if crashes is None else SIGNAL_AFTER_NS + crashes,
            reap_ns=kill,
            exit_code=said.exit_code or 0,
            hook=HookPlan(takes_ns=None if said.hook_hangs else hook, succeeds=not said.hook_fails),
        )


def _draw_duration(takes: DurationQuantiles | None, draws: Draws) -> int | None:
    return None if takes is None else takes.draw(draws)


# --- from a seed to a plausible node

#: Three waves, 60 s in all.
DEFAULT_SETTINGS = Settings(
    by_pod_priority=(
        Period(priority=0, seconds=30),
        Period(priority=10_000, seconds=20),
        Period(priority=2_000_000_000, seconds=10),
    )
)

#: Weight, namespace, name, priority.
APP_WEIGHTS: tuple[tuple[int, tuple[str, str, int | None]], ...] = (
    (6, ("shop", "web", 0)),
    (4, ("shop", "cart", 0)),
    (4, ("shop", "search", None)),
    (3, ("batch", "report", -10)),
    (3, ("shop", "checkout", 10_000)),
    (2, ("data", "cache", 10_000)),
    (2, ("data", "db", 20_000)),
    (1, ("monitoring", "metrics", 30_000)),
    (1, ("ingress", "proxy", 30_000)),
    (1, ("kube-system", "dns", 2_000_000_000)),
    (1, ("kube-system", "network", 2_000_001_000)),
)

HOOK_WEIGHTS: tuple[tuple[int, HookKind | None], ...] = (
    (12, None),
    (3, "exec"),
    (1, "httpGet"),
    (2, "sleep"),
)


def synthetic_pods(count: int, draws: Draws) -> tuple[Pod, ...]:
    """Each pod has its own stream: ``count`` does not change the first ones."""
    pods = []
    for index in range(count):
        own = draws.fork(f"synthetic {index}")
        namespace, app, priority = own.weighted(*APP_WEIGHTS)
        sidecar = (Container(name="mesh", sidecar=True),) if own.chance(1, 8) else ()
        uid = f"{own.bits():016x}"
        grace_seconds = own.weighted((8, 30), (2, 60), (2, 10), (1, 5), (1, None))
        kind = own.weighted(*HOOK_WEIGHTS)
        sleep_seconds = own.weighted((4, 5), (2, 10), (1, 15)) if kind == "sleep" else 0
        hook = None if kind is None else Hook(kind=kind, sleep_seconds=sleep_seconds)
        pod = Pod(
            uid=uid,
            namespace=namespace,
            name=f"{app}-{index}",
            priority=priority,
            grace_seconds=grace_seconds,
            containers=(*sidecar, Container(name=app, hook=hook)),
        )
        pods.append(pod)
    return tuple(pods)


def draw_pod_plans(pods: tuple[Pod, ...], draws: Draws) -> tuple[PodPlan, ...]:
    """Some pods appear while the node goes down."""
    plans = []
    for index, pod in enumerate(pods):
        own = draws.fork(f"pod {index}")
        behaves = {each.name: draw_container_plan(own.fork(each.name)) for each in pod.containers}
        plans.append(PodPlan(pod, behaves, own.between(-4000, 20_000) * MS if own.chance(1, 60) else 0))
    return tuple(plans)


def draw_container_plan(draws: Draws) -> ContainerPlan:
    stop_ns = draws.weighted(
        (60, draws.between(30, 900) * MS),
        (24, draws.between(500, 5000) * MS),
        (8, draws.between(3000, 26_000) * MS),
        (4, None),
    )
    hook = HookPlan(
        takes_ns=draws.weighted(
            (6, draws.between(10, 1500) * MS), (3, draws.between(1000, 12_000) * MS), (1, None)
        ),
        succeeds=not draws.chance(1, 10),
    )
    crashes = draws.chance(1, 40)
    crashes_ns = SIGNAL_AFTER_NS + draws.between(-9000, 30_000) * MS
    return ContainerPlan(
        stop_ns=stop_ns,
        lives_ns=crashes_ns if crashes else None,
        reap_ns=draws.weighted((80, draws.between(0, 20) * MS), (1, 1500 * MS), (1, None)),
        exit_code=draws.weighted((12, 0), (3, 143), (1, 1)),
        by_signal=draws.chance(1, 8),
        hook=hook,
    )


# --- what goes wrong

KIND_WEIGHTS: tuple[tuple[int, ShutdownKind], ...] = (
    (5, "poweroff"),
    (5, "reboot"),
    (1, "halt"),
    (1, "kexec"),
    (1, "soft-reboot"),
)
API_WEIGHTS: tuple[tuple[int, ApiIs], ...] = ((12, "works"), (1, "fails"), (1, "hangs"))
REFUSAL_WEIGHTS: tuple[tuple[int, RuntimeRefuses], ...] = ((30, "nothing"), (1, "stops"), (1, "everything"))


def draw_faults(draws: Draws, *, calm: bool = False) -> Faults:
    """``calm``: only the shutdown."""
    kind = draws.weighted(*KIND_WEIGHTS)
    if calm:
        return Faults(kind=kind)
    drawn = Faults(
        kind=kind,
        grant_ns=_maybe(draws, 1, 7, 1, 45, NS_PER_SECOND),
        late_grant_ns=_maybe(draws, 1, 14, 1000, 40_000, MS) or 0,
        cancel_after_ns=_maybe(draws, 1, 10, 0, 40_000, MS),
        second_signal_after_ns=_maybe(draws, 1, 16, 0, 30_000, MS),
        bus_lost_after_ns=_maybe(draws, 1, 12, 0, 30_000, MS),
        api=draws.weighted(*API_WEIGHTS),
        api_takes_ns=draws.weighted((6, 8), (1, 900), (1, 3000)) * MS,
        runtime_refuses=draws.weighted(*REFUSAL_WEIGHTS),
        runtime_takes_ns=draws.weighted((8, 0), (1, 300), (1, 2000)) * MS,
        crash_after_ns=_maybe(draws, 1, 7, -500, 30_000, MS),
        restart_takes_ns=draws.weighted((5, 500), (2, 3000), (1, 15_000)) * MS,
        power_cut_after_ns=_maybe(draws, 1, 14, 0, 40_000, MS),
    )
    if drawn.cancel_after_ns is None:
        return drawn
    return drawn._replace(again_after_ns=_maybe(draws, 1, 2, drawn.cancel_after_ns // MS, 60_000, MS))


# --- a Kubernetes node

KUBELET_WEIGHTS: tuple[tuple[int, KubeletIs], ...] = ((20, "runs"), (1, "away"), (1, "stays"))


def pods_of_node(pods: tuple[Pod, ...], draws: Draws) -> tuple[Pod, ...]:
    found = []
    for index, pod in enumerate(pods):
        own = draws.fork(f"node {index}")
        kind = own.weighted((12, "ReplicaSet"), (2, "StatefulSet"), (2, "DaemonSet"), (1, ""))
        of_node = replace(
            pod,
            static=not kind,
            daemon=kind == "DaemonSet",
            tolerates_all=kind == "DaemonSet" and own.chance(1, 3),
            volumes=bool(kind) and own.chance(1, 4),
            owner=f"{kind}/{pod.name.partition('-')[0]}" if kind else "",
        )
        found.append(of_node)
    return tuple(found)


def draw_node_faults(drawn: Faults, mode: NodeMode, draws: Draws, *, calm: bool) -> Faults:
    observed = mode == "observe"
    lock = observed or (mode == "auto" and draws.chance(1, 6)) or draws.chance(1, 40)
    if calm:
        return drawn._replace(mode=mode, kubelet_lock=observed)
    lost_ns = _maybe(draws, 1, 5, -3000, 40_000, MS)
    back_ns = None if lost_ns is None else _maybe(draws, 1, 3, lost_ns // MS + 1, 60_000, MS)
    drawn = drawn._replace(
        mode=mode,
        kubelet_lock=lock,
        api_lost_after_ns=lost_ns,
        api_back_after_ns=back_ns,
        kubelet=draws.weighted(*KUBELET_WEIGHTS),
        unmount_takes_ns=draws.weighted((6, 300), (2, 2000), (1, 40_000)) * MS,
        taints=not draws.chance(1, 6),
    )
    # Separate streams do not change other draws.
    if drawn.kubelet == "runs" and draws.fork("kubelet is slow").chance(1, 10):
        drawn = drawn._replace(kubelet="slow")
    hangs = draws.fork("runtime hangs")
    hangs_ns = _maybe(hangs, 1, 6, -9000, 40_000, MS)
    wakes_ns = None if hangs_ns is None else _maybe(hangs, 2, 3, hangs_ns // MS + 1, 60_000, MS)
    # A hang does not show in a runtime that refuses every call.
    if drawn.runtime_refuses == "nothing":
        drawn = drawn._replace(runtime_hangs_after_ns=hangs_ns, runtime_wakes_after_ns=wakes_ns)
    kubelet_hangs = draws.fork("kubelet hangs")
    hangs_ns, wakes_ns = _pause(kubelet_hangs)
    health = not kubelet_hangs.chance(1, 4)
    if drawn.kubelet == "runs":
        drawn = drawn._replace(
            kubelet_hangs_after_ns=hangs_ns, kubelet_wakes_after_ns=wakes_ns, kubelet_health=health
        )
    hangs_ns, wakes_ns = _pause(draws.fork("API hangs"))
    if _api_can_hang(drawn):
        drawn = drawn._replace(api_hangs_after_ns=hangs_ns, api_wakes_after_ns=wakes_ns)
    # The signal comes before the API server's list, or just after.
    first_start = draws.fork("first start")
    starts_ns = _maybe(first_start, 1, 8, -4000, -20, MS)
    if starts_ns is not None:
        list_ns = first_start.between(100, 4000) * MS
        drawn = drawn._replace(first_start_after_ns=starts_ns, first_list_takes_ns=list_ns)
    # Soon after a cancel, while the first shutdown still ends its pods.
    second = draws.fork("second episode")
    cancel_ns, again_ns = _maybe(second, 1, 12, 0, 15_000, MS), second.between(0, 8000) * MS
    cancel_ns = cancel_ns if drawn.cancel_after_ns is None else drawn.cancel_after_ns
    if cancel_ns is not None and drawn.again_after_ns is None:
        drawn = drawn._replace(cancel_after_ns=cancel_ns, again_after_ns=cancel_ns + again_ns)
    return _at_once(drawn, draws.fork("at once"))


def _pause(draws: Draws) -> tuple[int | None, int | None]:
    hangs_ns = _maybe(draws, 1, 6, -4000, draws.weighted((2, 6000), (1, 40_000)), MS)
    wakes_ns = None if hangs_ns is None else _maybe(draws, 2, 3, 1, 30_000, MS)
    return hangs_ns, None if hangs_ns is None or wakes_ns is None else hangs_ns + wakes_ns


def _api_can_hang(drawn: Faults) -> bool:
    """A server that refuses, is lost or never answers does not hang besides."""
    return drawn.api == "works" and drawn.api_lost_after_ns is None


#: Fields of `Faults` for a fault's begin and end.
AT_ONCE: tuple[tuple[str, str], ...] = (
    ("runtime_hangs_after_ns", "runtime_wakes_after_ns"),
    ("kubelet_hangs_after_ns", "kubelet_wakes_after_ns"),
    ("api_hangs_after_ns", "api_wakes_after_ns"),
    ("crash_after_ns", ""),
    ("bus_lost_after_ns", ""),
    ("second_signal_after_ns", ""),
)


def _at_once(drawn: Faults, draws: Draws) -> Faults:
    """Two or three faults at once: one often brings another."""
    comes, at_ms, several = draws.chance(1, 8), draws.between(-500, 8000), draws.between(2, 3)
    possible = {
        "runtime_hangs_after_ns": drawn.runtime_refuses == "nothing",
        "kubelet_hangs_after_ns": drawn.kubelet == "runs",
        "api_hangs_after_ns": _api_can_hang(drawn),
        "second_signal_after_ns": at_ms >= 0,
    }
    together = [each for each in AT_ONCE if possible.get(each[0], True)]
    draws.shuffle(together)
    for begins, ends in together[:several] if comes else ():
        begins_ms = at_ms + draws.weighted((1, 0), (1, draws.between(0, 300)))
        news: dict[str, Any] = {begins: begins_ms * MS}
        if ends:
            news[ends] = _maybe(draws, 2, 3, begins_ms + 1, begins_ms + 20_000, MS)
        drawn = drawn._replace(**news)
    return drawn


def _maybe(draws: Draws, times: int, of: int, low: int, high: int, unit_ns: int) -> int | None:
    """Always draws, so that other draws do not depend on it."""
    comes, value_ns = draws.chance(times, of), draws.between(low, high) * unit_ns
    return value_ns if comes else None


# SplitMix64: a seed means the same world on every machine and version.

ItemT = TypeVar("ItemT")

MASK_64 = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MIX_A = 0xBF58476D1CE4E5B9
_MIX_B = 0x94D049BB133111EB

#: FNV-1a turns a stream's name into 64 bits.
_FNV_BASIS = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def mix(value: int) -> int:
    """SplitMix64's finalizer."""
    value = ((value ^ (value >> 30)) * _MIX_A) & MASK_64
    value = ((value ^ (value >> 27)) * _MIX_B) & MASK_64
    return value ^ (value >> 31)


def name_bits(name: str) -> int:
    value = _FNV_BASIS
    for byte in name.encode():
        value = ((value ^ byte) * _FNV_PRIME) & MASK_64
    return value


class Draws:
    """`fork` gives an independent stream."""

    def __init__(self, seed: int) -> None:
        self._seed = seed & MASK_64
        self._state = self._seed

    def fork(self, name: str) -> Self:
        """Earlier draws do not change it."""
        return type(self)(mix(self._seed ^ name_bits(name)))

    def bits(self) -> int:
        self._state = (self._state + GOLDEN_GAMMA) & MASK_64
        return mix(self._state)

    def below(self, bound: int) -> int:
        """0 to ``bound`` - 1, with a bias below bound / 2**64."""
        return (self.bits() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """Both included."""
        return low + self.below(high - low + 1)

    def chance(self, times: int, of: int) -> bool:
        return self.below(of) < times

    def pick(self, items: Sequence[ItemT]) -> ItemT:
        return items[self.below(len(items))]

    def weighted(self, *table: tuple[int, ItemT]) -> ItemT:
        """Of (weight, value)."""
        at = self.below(sum(weight for weight, _ in table))
        for weight, value in table:
            at -= weight
            if at < 0:
                return value
        raise AssertionError("the weights add up to less than their sum")

    def shuffle(self, items: MutableSequence[ItemT]) -> None:
        """Fisher and Yates. Trio's scheduler uses it in the tests' world."""
        for at in range(len(items) - 1, 0, -1):
            other = self.below(at + 1)
            items[at], items[other] = items[other], items[at]
