"""Further comparisons with the kubelet: lost Service requests, new DaemonSet pods, a small grant, a killed
daemon, a killed or hung runtime, and the time to protection.

Each is one run of one contender on a fresh node; the kubelet is measured the same way.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import trio

from ebbtide.events.facts import DaemonStarted
from tests.node import requests
from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.contenders import Contender, Setting, fresh, periods
from tests.node.ebbtide import Daemon
from tests.node.pods import PODS, STUBBORN, container, pod
from tests.node.shutdowns import NS, PRIORITIES, fill, power_off, waves
from tests.node.witness import TICK_NS, Witness, signalled
from tests.waiting import POLL_SECONDS

DAEMONSETS = "/apis/apps/v1/namespaces/default/daemonsets"
ONE_WAVE = {
    "shutdownGracePeriod": "0s",
    "shutdownGracePeriodCriticalPods": "0s",
    "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 20}],
}
LIMIT_SECONDS = 10
KILLED_AFTER_SECONDS = 2.0
SLOW_SECONDS = 6
OVER_SECONDS_MAX = 60
#: Pods of the runtime scenarios, priorities in turn.
WITNESSES = 42
WITNESS_SECONDS = 0.5
RUNTIME_KILLS = 3
#: The killed runtime's time away, and its time up.
RUNTIME_AWAY_SECONDS, RUNTIME_BACK_SECONDS = 0.5, 1.0
AGAIN_SECONDS = 8.0


class Incident(NamedTuple):
    """``figures``: what was counted, by name."""

    contender: str
    figures: dict[str, float]


async def lost_requests(bed: Bed, contender: Contender, folder: Path) -> Incident:
    """Lost of 1 250 requests through a Service to four pods on two nodes, one going down."""
    setting = Setting(ONE_WAVE, folder)
    await fresh(bed, contender, setting)
    address = await requests.serve(bed)
    try:
        async with contender.holds(bed, setting):
            await requests.start_client(bed, address)
            await trio.sleep(requests.BEFORE_SECONDS)
            await power_off(bed)
            found = await requests.lost(bed)
    finally:
        await bed.api.delete(f"{requests.SERVICES}/web")
    return Incident(contender.name, {"lost": float(len(found))})


def daemonset(name: str, **spec: Any) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container()], **spec}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


async def newcomers(bed: Bed, contender: Contender, folder: Path) -> Incident:
    """New DaemonSet pods in 30 s of shutdown, and the rejected ones. One of two tolerates everything, like
    a network agent.
    """
    setting = Setting(waves(), folder)
    await fresh(bed, contender, setting)
    await bed.api.post(DAEMONSETS, daemonset("agent"))
    await bed.api.post(DAEMONSETS, daemonset("network", tolerations=[{"operator": "Exists"}]))
    stubborn = [pod(f"slow-{name}", "node-1", STUBBORN, priorityClassName=name) for name in PRIORITIES]
    await fill(bed, stubborn)
    for name in ("agent", "network"):
        await bed.api.until(f"{DAEMONSETS}/{name}", lambda each: each["status"].get("numberReady") == 1)
    async with contender.holds(bed, setting), trio.open_nursery() as nursery:
        before = {each["metadata"]["uid"] for each in (await bed.api.get(PODS))["items"]}
        seen: dict[str, Object] = {}
        nursery.start_soon(_look, bed, seen)
        await power_off(bed)
        nursery.cancel_scope.cancel()
    new = [each for uid, each in seen.items() if uid not in before]
    rejected = [each for each in new if each["status"].get("reason") == "NodeShutdown"]
    return Incident(contender.name, {"created": float(len(new)), "rejected": float(len(rejected))})


async def _look(bed: Bed, seen: dict[str, Object]) -> None:
    while True:
        for each in (await bed.api.get(PODS))["items"]:
            seen[each["metadata"]["uid"]] = each
        await trio.sleep(0.05)


async def small_grant(bed: Bed, contender: Contender, folder: Path) -> Incident:
    """30 s requested, 10 granted: which pods got a signal before logind went on, and in what order?"""
    setting = Setting(waves(), folder, limit=str(LIMIT_SECONDS))
    await fresh(bed, contender, setting)
    witness = Witness(bed)
    await fill(bed, [witness.pod(name, slow=True, priorityClassName=name) for name in PRIORITIES])
    async with contender.holds(bed, setting):
        asked_ns, over_ns = await power_off(bed)
    seen = signalled(witness, PRIORITIES, over_ns)
    order = [name for name, _ in sorted(seen.items(), key=lambda each: each[1])]
    in_order = order == list(PRIORITIES)
    figures = {
        "signalled": float(len(seen)),
        "in order": float(in_order),
        "seconds": (over_ns - asked_ns) / NS,
    }
    return Incident(contender.name, figures)


async def killed(bed: Bed, contender: Contender, folder: Path) -> Incident:
    """The daemon is killed in the first wave: which pods survived, which started anew, which hooks ran
    twice?
    """
    setting = Setting(waves(), folder, keep_lock=True)
    await fresh(bed, contender, setting)
    witness = Witness(bed)
    await fill(
        bed,
        [
            witness.pod(name, ends_after=SLOW_SECONDS, hook=True, priorityClassName=name)
            for name in PRIORITIES
        ],
    )
    async with contender.holds(bed, setting) as daemon, trio.open_nursery() as nursery:
        nursery.start_soon(_kill_in_the_middle, bed, daemon)
        _, over_ns = await power_off(bed)
        await trio.sleep(AGAIN_SECONDS)
        if daemon:
            await daemon.verify()
    ended = {name: witness.times(name, "ended") for name in PRIORITIES}
    running = sum(not times or times[0] > over_ns for times in ended.values())
    again = sum(len(witness.times(name, "began")) - 1 for name in PRIORITIES)
    twice = sum(len(witness.times(name, "hook")) > 1 for name in PRIORITIES)
    return Incident(contender.name, {"cut off": running, "started again": again, "hooks twice": twice})


async def _kill_in_the_middle(bed: Bed, daemon: Daemon | None) -> None:
    await trio.sleep(KILLED_AFTER_SECONDS)
    if daemon is None:
        await bed.stop("kubelet-node-1")
        await bed.inside.do("again", name="kubelet-node-1")
    else:
        await bed.run("kill", "-9", str(daemon.events(DaemonStarted)[-1].pid))


async def runtime_killed(bed: Bed, contender: Contender, folder: Path) -> Incident:
    """The runtime is killed and restarted three times from the signal on."""

    async def kill(name: str, witness: Witness, names: list[str]) -> None:
        for _ in range(RUNTIME_KILLS):
            await bed.stop(name)
            await trio.sleep(RUNTIME_AWAY_SECONDS)
            await bed.inside.do("again", name=name)
            await trio.sleep(RUNTIME_BACK_SECONDS)

    return await _without_runtime(bed, contender, folder, kill)


async def runtime_hung(bed: Bed, contender: Contender, folder: Path) -> Incident:
    """The runtime stops after the first stop signal and stays stopped."""

    async def hang(name: str, witness: Witness, names: list[str]) -> None:
        while not any(witness.times(each, "signal") for each in names):
            await trio.sleep(POLL_SECONDS)
        await bed.inside.do("signal", name=name, signal_number=signal.SIGSTOP)

    return await _without_runtime(bed, contender, folder, hang)


async def _without_runtime(
    bed: Bed, contender: Contender, folder: Path, hurt: Callable[[str, Witness, list[str]], Awaitable[None]]
) -> Incident:
    """Obedient pods without a signal, pods with two, and the total time."""
    setting = Setting(waves(), folder)
    await fresh(bed, contender, setting)
    witness = Witness(bed)
    classes = tuple(PRIORITIES)
    names = [f"{classes[number % len(classes)]}-{number}" for number in range(WITNESSES)]
    pods = [
        witness.pod(name, ends_after=WITNESS_SECONDS, priorityClassName=name.split("-")[0]) for name in names
    ]
    await fill(bed, pods)
    runtime = f"containerd-{bed.members['node-1'].name}"
    async with contender.holds(bed, setting) as daemon:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hurt, runtime, witness, names)
                asked_ns, over_ns = await power_off(bed)
        finally:
            await bed.inside.do("signal", name=runtime, signal_number=signal.SIGCONT)
        if daemon:
            await daemon.verify()
    times = [[at for at in witness.times(name, "signal") if at <= over_ns + TICK_NS] for name in names]
    figures = {
        "without": float(sum(not each for each in times)),
        "twice": float(sum(len(each) > 1 for each in times)),
        "seconds": (over_ns - asked_ns) / NS,
    }
    return Incident(contender.name, figures)


async def armed(bed: Bed, contender: Contender, folder: Path) -> Incident:
    """From the process's start until logind lists its lock."""
    setting = Setting(waves(), folder)
    await fresh(bed, contender, setting)
    daemon = Daemon(bed, folder / "journal", contender.name)
    daemon.configure(shutdownGracePeriodByPodPriority=periods(setting.waves))
    began = time.monotonic()
    await daemon.start()
    seconds = time.monotonic() - began
    await daemon.stop()
    return Incident(contender.name, {"seconds": seconds})
