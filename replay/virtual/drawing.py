"""From a seed to a plausible node: pods as a cluster has them, how they behave, and what goes wrong.

The tables say how often each thing comes. Append new draws at the end of a function, or fork a stream for
them: then the old seeds keep their runs.
"""

from __future__ import annotations

from msgspec.structs import replace

from events.model import Container, Hook, HookKind, Period, Pod, Settings, ShutdownKind
from replay.virtual.draws import Draws
from replay.virtual.manner import HookPlan, Manner, PodPlan
from replay.virtual.plan import SIGNAL_AFTER_NS, Api, Faults, KubeletIs, Mode, Refuses
from replay.virtual.trail import MS, NS_PER_SECOND

#: What a node is configured with where nobody says anything: three waves, 60 s in all.
SETTINGS = Settings(
    by_pod_priority=(
        Period(priority=0, seconds=30),
        Period(priority=10_000, seconds=20),
        Period(priority=2_000_000_000, seconds=10),
    )
)

#: Names and priorities of synthetic pods: weight, namespace, name, priority.
APPS: tuple[tuple[int, tuple[str, str, int | None]], ...] = (
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

HOOKS: tuple[tuple[int, HookKind | None], ...] = ((12, None), (3, "exec"), (1, "httpGet"), (2, "sleep"))


# --- pods --------------------------------------------------------------------------------------


def synthetic(count: int, draws: Draws) -> tuple[Pod, ...]:
    """So many pods."""
    return tuple(_pod(index, draws.fork(f"synthetic {index}")) for index in range(count))


def _pod(index: int, draws: Draws) -> Pod:
    namespace, app, priority = draws.weighted(*APPS)
    sidecar = (Container(name="mesh", sidecar=True),) if draws.chance(1, 8) else ()
    return Pod(
        uid=f"{draws.bits():016x}",
        namespace=namespace,
        name=f"{app}-{index}",
        priority=priority,
        grace_seconds=draws.weighted((8, 30), (2, 60), (2, 10), (1, 5), (1, None)),
        containers=(*sidecar, Container(name=app, hook=_hook(draws))),
    )


def _hook(draws: Draws) -> Hook | None:
    kind = draws.weighted(*HOOKS)
    if kind is None:
        return None
    seconds = draws.weighted((4, 5), (2, 10), (1, 15)) if kind == "sleep" else 0
    return Hook(kind=kind, sleep_seconds=seconds)


# --- how they behave ---------------------------------------------------------------------------


def plans(pods: tuple[Pod, ...], draws: Draws) -> tuple[PodPlan, ...]:
    """Each pod with the manners of its containers; now and then one appears when the node goes down."""
    return tuple(_plan(pod, draws.fork(f"pod {index}")) for index, pod in enumerate(pods))


def _plan(pod: Pod, draws: Draws) -> PodPlan:
    manners = {container.name: manner(draws.fork(container.name)) for container in pod.containers}
    appears_ns = draws.between(-4000, 20_000) * MS if draws.chance(1, 60) else 0
    return PodPlan(pod, manners, appears_ns)


def manner(draws: Draws) -> Manner:
    """Most end in a moment, some take seconds, a few never listen; a few end by themselves, at any time."""
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
    return Manner(
        stop_ns=stop_ns,
        lives_ns=crashes_ns if crashes else None,
        reap_ns=draws.weighted((80, draws.between(0, 20) * MS), (1, 1500 * MS), (1, None)),
        exit_code=draws.weighted((12, 0), (3, 143), (1, 1)),
        by_signal=draws.chance(1, 8),
        hook=hook,
    )


# --- what goes wrong ---------------------------------------------------------------------------

KINDS: tuple[tuple[int, ShutdownKind], ...] = (
    (5, "poweroff"),
    (5, "reboot"),
    (1, "halt"),
    (1, "kexec"),
    (1, "soft-reboot"),
)
APIS: tuple[tuple[int, Api], ...] = ((12, "works"), (1, "fails"), (1, "hangs"))
REFUSALS: tuple[tuple[int, Refuses], ...] = ((30, "nothing"), (1, "stops"), (1, "everything"))


def faults(draws: Draws, *, calm: bool = False) -> Faults:
    """What happens to the node; ``calm``: nothing but the shutdown."""
    kind = draws.weighted(*KINDS)
    if calm:
        return Faults(kind=kind)
    drawn = Faults(
        kind=kind,
        grant_ns=_maybe(draws, 1, 7, 1, 45, NS_PER_SECOND),
        late_grant_ns=_maybe(draws, 1, 14, 1000, 40_000, MS) or 0,
        cancel_after_ns=_maybe(draws, 1, 10, 0, 40_000, MS),
        second_signal_after_ns=_maybe(draws, 1, 16, 0, 30_000, MS),
        bus_lost_after_ns=_maybe(draws, 1, 12, 0, 30_000, MS),
        api=draws.weighted(*APIS),
        api_takes_ns=draws.weighted((6, 8), (1, 900), (1, 3000)) * MS,
        runtime_refuses=draws.weighted(*REFUSALS),
        runtime_takes_ns=draws.weighted((8, 0), (1, 300), (1, 2000)) * MS,
        crash_after_ns=_maybe(draws, 1, 7, -500, 30_000, MS),
        restart_takes_ns=draws.weighted((5, 500), (2, 3000), (1, 15_000)) * MS,
        power_cut_after_ns=_maybe(draws, 1, 14, 0, 40_000, MS),
    )
    if drawn.cancel_after_ns is None:
        return drawn
    return drawn._replace(again_after_ns=_maybe(draws, 1, 2, drawn.cancel_after_ns // MS, 60_000, MS))


# --- a Kubernetes node -------------------------------------------------------------------------

KUBELETS: tuple[tuple[int, KubeletIs], ...] = ((20, "runs"), (1, "away"), (1, "stays"))


def of_node(pods: tuple[Pod, ...], draws: Draws) -> tuple[Pod, ...]:
    """The same pods with what a Kubernetes node's have: some are static, of a DaemonSet, or have volumes."""
    return tuple(_of_node(pod, draws.fork(f"node {index}")) for index, pod in enumerate(pods))


def _of_node(pod: Pod, draws: Draws) -> Pod:
    kind = draws.weighted((12, "ReplicaSet"), (2, "StatefulSet"), (2, "DaemonSet"), (1, ""))
    daemon = kind == "DaemonSet"
    return replace(
        pod,
        static=not kind,
        daemon=daemon,
        tolerates_all=daemon and draws.chance(1, 3),
        volumes=bool(kind) and draws.chance(1, 4),
        owner=f"{kind}/{pod.name.partition('-')[0]}" if kind else "",
    )


def node_faults(drawn: Faults, mode: Mode, draws: Draws, *, calm: bool) -> Faults:
    """What happens to a Kubernetes node beside what happens to any."""
    observed = mode == "observe"
    lock = observed or (mode == "auto" and draws.chance(1, 6)) or draws.chance(1, 40)
    if calm:
        return drawn._replace(mode=mode, kubelet_lock=observed)
    lost_ns = _maybe(draws, 1, 5, -3000, 40_000, MS)
    back_ns = None if lost_ns is None else _maybe(draws, 1, 3, lost_ns // MS + 1, 60_000, MS)
    return drawn._replace(
        mode=mode,
        kubelet_lock=lock,
        api_lost_after_ns=lost_ns,
        api_back_after_ns=back_ns,
        kubelet=draws.weighted(*KUBELETS),
        unmount_takes_ns=draws.weighted((6, 300), (2, 2000), (1, 40_000)) * MS,
        taints=not draws.chance(1, 6),
    )


def _maybe(draws: Draws, times: int, of: int, low: int, high: int, unit_ns: int) -> int | None:
    """Drawn whether it comes or not: the rest of the run does not hang on it."""
    comes, value_ns = draws.chance(times, of), draws.between(low, high) * unit_ns
    return value_ns if comes else None
