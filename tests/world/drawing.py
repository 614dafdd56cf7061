"""From a seed to a scenario. The tables have each fault's frequency.

Append new draws at the end of a function, or fork a stream: then old seeds keep their worlds.
"""

from __future__ import annotations

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.disk import TOTAL_BYTES_MAX
from ebbtide.events.values import Container, Hook, HookKind, Period, Pod, Settings, ShutdownKind
from ebbtide.replay.sim.scenario import ContainerPlan, Draws, Faults, HookPlan, PodPlan
from tests.world.node import Features
from tests.world.scenario import QUIET_BOOT, Act, BootPlan, Scenario, What

#: The usual time to boot and arm; a shutdown may come earlier.
ARMED_NS = 2 * NS_PER_SECOND


def draw(seed: int) -> Scenario:
    draws = Draws(seed)
    settings = _settings(draws.fork("settings"))
    boots = tuple(_boot(draws.fork(f"boot {index}")) for index in range(1 + draws.weighted((3, 0), (1, 1))))
    return Scenario(
        settings=settings,
        other_settings=_settings(draws.fork("other settings")),
        features=_features(draws.fork("features")),
        pods=_pods(draws.fork("pods")),
        boots=(*boots, QUIET_BOOT),
        crash_at=_crash_points(draws.fork("crashes")),
        restart_ns=draws.weighted((4, 100 * MS), (2, 1000 * MS), (1, 5000 * MS), (1, 0)),
    )


def _settings(draws: Draws) -> Settings:
    periods = tuple(
        Period(priority=priority, seconds=draws.weighted((1, 0), (2, 1), (3, draws.between(2, 12))))
        for priority in sorted({draws.between(-2, 4) * 1000 for _ in range(draws.between(1, 4))})
    )
    pair = draws.chance(1, 5)
    critical_ns = draws.between(0, 5) * NS_PER_SECOND
    return Settings(
        by_pod_priority=() if pair else periods,
        shutdown_grace_period_ns=critical_ns + draws.between(0, 15) * NS_PER_SECOND if pair else 0,
        shutdown_grace_period_critical_pods_ns=critical_ns if pair else 0,
        budget="elastic" if draws.chance(1, 4) else "strict",
        reserve_seconds=draws.weighted((1, 0), (1, 2), (4, 5)),
        raise_grant=not draws.chance(1, 4),
        status_flush_seconds=draws.between(0, 3),
        gates={"PodLifecycleSleepAction": False} if draws.chance(1, 8) else {},
    )


def _features(draws: Draws) -> Features:
    return Features(
        others_ns=draws.weighted(
            (2, None), (2, 30 * NS_PER_SECOND), (2, draws.between(1, 20) * NS_PER_SECOND), (1, 100 * MS)
        ),
        obeys_drop_in=not draws.chance(1, 6),
        faults=Faults(
            fd_store=not draws.chance(1, 5),
            stop_time_ns=draws.weighted((2, 10), (1, 2), (1, 90)) * NS_PER_SECOND,
        ),
        journal_bytes=draws.weighted((3, TOTAL_BYTES_MAX), (1, 20_000)),
    )


def _pods(draws: Draws) -> tuple[PodPlan, ...]:
    return tuple(_pod(draws.fork(f"pod {index}"), index) for index in range(draws.between(0, 6)))


def _pod(draws: Draws, index: int) -> PodPlan:
    names = [f"c{number}" for number in range(draws.weighted((5, 1), (2, 2), (1, 3)))]
    sidecars = draws.between(0, len(names) - 1)
    containers = tuple(_container(draws, name, at < sidecars) for at, name in enumerate(names))
    pod = Pod(
        uid=f"pod-{index}",
        namespace="default",
        name=f"pod-{index}",
        priority=draws.weighted((1, None), (4, draws.between(-3, 5) * 1000), (1, 2_000_000_000)),
        grace_seconds=draws.weighted((1, None), (1, 0), (4, draws.between(1, 12))),
        containers=containers,
    )
    appears_ns = draws.weighted((6, 0), (2, draws.between(0, 20_000) * MS))
    return PodPlan(pod, {name: _container_plan(draws) for name in names}, appears_ns)


def _container(draws: Draws, name: str, sidecar: bool) -> Container:
    kind = draws.weighted(*HOOK_KINDS)
    hook = None
    if kind == "sleep":
        hook = Hook(kind="sleep", sleep_seconds=draws.between(0, 8))
    elif kind is not None:
        hook = Hook(kind=kind)
    return Container(name=name, hook=hook, sidecar=sidecar)


HOOK_KINDS: tuple[tuple[int, HookKind | None], ...] = (
    (4, None),
    (2, "exec"),
    (1, "httpGet"),
    (1, "sleep"),
    (1, "tcpSocket"),
)


def _container_plan(draws: Draws) -> ContainerPlan:
    hook = HookPlan(
        takes_ns=draws.weighted((3, draws.between(0, 900) * MS), (2, draws.between(1, 9000) * MS), (1, None)),
        succeeds=not draws.chance(1, 4),
    )
    return ContainerPlan(
        stop_ns=draws.weighted(
            (2, 0), (4, draws.between(0, 1500) * MS), (2, draws.between(0, 9000) * MS), (2, None)
        ),
        lives_ns=draws.between(0, 25_000) * MS if draws.chance(1, 6) else None,
        reap_ns=draws.weighted((8, 0), (2, draws.between(0, 400) * MS), (1, 3000 * MS), (1, None)),
        exit_code=draws.weighted((3, 0), (1, 1), (1, 143)),
        by_signal=draws.chance(1, 3),
        hook=hook,
    )


def _crash_points(draws: Draws) -> tuple[int, ...]:
    """Mostly mid-shutdown: a shutdown of some pods has between a hundred and a thousand points."""
    count = draws.weighted((3, 0), (3, 1), (2, 2), (1, 4))
    return tuple(sorted(draws.weighted((3, draws.below(400)), (2, draws.below(1500))) for _ in range(count)))


def _boot(draws: Draws) -> BootPlan:
    """One shutdown, with events before, during and after it."""
    start_ns = draws.weighted((1, draws.between(0, 200) * MS), (4, ARMED_NS + draws.between(0, 2000) * MS))
    acts = [Act(start_ns, "shutdown", draws.weighted(*KINDS))]
    for what, times, of, low_ms, high_ms in MISFORTUNES:
        if draws.chance(times, of):
            at_ns = max(0, start_ns + draws.between(low_ms, high_ms) * MS)
            acts.append(_act(draws, at_ns, what))
    if any(act.what == "cancel" for act in acts) and draws.chance(1, 2):
        acts.append(Act(start_ns + draws.between(0, 20_000) * MS, "shutdown", draws.weighted(*KINDS)))
    hangs = draws.fork("runtime hangs")
    if hangs.chance(1, 6):
        at_ns = max(0, start_ns + hangs.between(-4000, 10_000) * MS)
        lasts_ns = hangs.weighted((1, 0), (2, hangs.between(1, 15_000) * MS))
        acts.append(Act(at_ns, "runtime-hang", value=lasts_ns))
    acts += _api_hangs(draws.fork("API hangs"), start_ns)
    acts += _second_episode(draws.fork("second episode"), acts)
    acts += _at_once(draws.fork("at once"), start_ns)
    return BootPlan(
        acts=tuple(sorted(acts, key=lambda act: act.at_ns)),
        uptime_ns=draws.weighted((3, 10), (1, 1_000_000)) * NS_PER_SECOND,
        final_fails_ns=draws.between(1, 2000) * MS if draws.chance(1, 8) else None,
        api=draws.weighted(*API_SERVERS),
    )


def _api_hangs(draws: Draws, start_ns: int) -> list[Act]:
    """For a while or for good, from before or during the shutdown."""
    if not draws.chance(1, 6):
        return []
    at_ns = max(0, start_ns + draws.between(-4000, 10_000) * MS)
    return [Act(at_ns, "api-hang", value=draws.weighted((1, 0), (2, draws.between(1, 20_000) * MS)))]


def _second_episode(draws: Draws, acts: list[Act]) -> list[Act]:
    """Soon after a cancel, while the first shutdown's stops continue; also cancelled."""
    cancelled = next((act.at_ns for act in acts if act.what == "cancel"), None)
    if cancelled is None or not draws.chance(1, 3):
        return []
    at_ns = cancelled + draws.between(0, 5000) * MS
    again = [Act(at_ns, "shutdown", draws.weighted(*KINDS))]
    if draws.chance(1, 4):
        again.append(Act(at_ns + draws.between(0, 8000) * MS, "cancel"))
    return again


def _at_once(draws: Draws, start_ns: int) -> list[Act]:
    """Two or three simultaneous faults: one cause often has several."""
    if not draws.chance(1, 6):
        return []
    at_ns, whats = max(0, start_ns + draws.between(-1000, 10_000) * MS), list(AT_ONCE)
    draws.shuffle(whats)
    found = []
    for what in whats[: draws.between(2, 3)]:
        act = _act(draws, at_ns + draws.weighted((1, 0), (1, draws.between(0, 50) * MS)), what)
        hangs = what in ("runtime-hang", "api-hang")
        found.append(act._replace(value=draws.between(0, 15_000) * MS) if hangs else act)
    return found


def _act(draws: Draws, at_ns: int, what: What) -> Act:
    values = {
        "logind-restart": draws.between(10, 1500) * MS,
        "wall-step": draws.between(-100_000, 100_000) * MS,
        "hurry": draws.below(6),
        "crash": 0,
        "disk-fault": draws.below(1 << 30),
    }
    text = "again" if what == "logind-restart" and draws.chance(1, 2) else ""
    return Act(at_ns, what, value=values.get(what, 0), text=text)


KINDS: tuple[tuple[int, ShutdownKind], ...] = (
    (4, "poweroff"),
    (3, "reboot"),
    (1, "halt"),
    (2, "soft-reboot"),
)

#: What, times, of, and when: milliseconds after the shutdown's start, lowest and highest.
MISFORTUNES: tuple[tuple[What, int, int, int, int], ...] = (
    ("cancel", 1, 5, 0, 12_000),
    ("logind-restart", 1, 8, -500, 10_000),
    ("bus-loss", 1, 8, -500, 10_000),
    ("wall-step", 1, 5, -1000, 10_000),
    ("hurry", 1, 6, 0, 10_000),
    ("release", 1, 12, 0, 10_000),
    ("reload", 1, 5, -1000, 10_000),
    ("crash", 1, 5, -1000, 15_000),
    ("power-cut", 1, 8, -200, 15_000),
    ("unit-stop", 1, 20, -1000, 10_000),
    ("force", 1, 15, -500, 10_000),
    ("disk-fault", 1, 3, -1500, 8_000),
)

#: Possible combinations.
AT_ONCE: tuple[What, ...] = (
    "runtime-hang",
    "api-hang",
    "bus-loss",
    "logind-restart",
    "crash",
    "disk-fault",
    "wall-step",
    "cancel",
)

API_SERVERS: tuple[tuple[int, Faults], ...] = (
    (5, Faults()),
    (1, Faults(api_takes_ns=1500 * MS)),
    (1, Faults(api="hangs")),
    (1, Faults(api="fails")),
)
