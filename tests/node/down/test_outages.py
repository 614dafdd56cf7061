"""Faults during a shutdown: the API server, the runtime, logind, the network."""

from __future__ import annotations

import signal

import pytest
import trio

from ebbtide.events.bounds import Bounds
from ebbtide.events.decisions import DeletePod, HandedOver, ShutdownBegan
from ebbtide.events.facts import ApiRead, KubeletRead, RuntimeRead
from tests.node.going import Going
from tests.node.witness import NS, TICK_NS, Witness

pytestmark = [pytest.mark.node]
WAVES = ((1000, 8), (3000, 8))
#: The edge repeats a stop whose call failed within a tenth of a second (docs/cri.md).
SURE_SECONDS = 0.5
#: From the last pod's end to the release, with a hung API server.
HUNG_SECONDS_MAX = 1.5
#: Each answer's delay. In mode api longer than a mark may take, but shorter than a delete may.
MARK_SECONDS, DELETE_SECONDS = Bounds().mark_seconds, Bounds().delete_seconds
LATE_SECONDS = {"cri": 1.0, "api": MARK_SECONDS + (DELETE_SECONDS - 2 * MARK_SECONDS) / 2}


def two(witness: Witness, *, low_seconds: float = 2.0, **more: object) -> list[dict[str, object]]:
    """One pod in each of two waves; both obey, the first slowly."""
    return [
        witness.pod("low", ends_after=low_seconds, hook=True, priorityClassName="low", **more),
        witness.pod("high", ends_after=0.3, hook=True, priorityClassName="high", **more),
    ]


def in_time(node: Going, asked_ns: int, over_ns: int) -> None:
    """Both waves in order, each hook once, no wasted wave."""
    node.in_order("low", "high")
    assert [len(node.witness.times(name, "hook")) for name in ("low", "high")] == [1, 1]
    assert node.outcomes() == {"low": "graceful", "high": "graceful"}
    assert over_ns - asked_ns < 18 * NS


async def test_api_gone_before(node: Going) -> None:
    """Without an API server the waves use the stored pods at once."""
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    await node.bed.stop("kube-apiserver")
    await node.daemon.until(lambda: not node.daemon.events(ApiRead)[-1].reachable, "it does not notice")
    asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    assert node.means() == "cri"


async def test_api_gone_at_the_signal(node: Going) -> None:
    """An API server that dies at the signal delays no wave."""
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    await node.bed.stop("kube-apiserver")
    asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    if node.mode == "api":
        assert node.daemon.events(HandedOver) or node.means() == "cri"


async def test_api_gone_during(node: Going) -> None:
    """Lost in the first wave: the next wave uses the runtime, and no hook repeats."""
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_api_in_the_first_wave, node)
        asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    if node.mode == "api":
        assert len(node.daemon.events(HandedOver)) == 1


async def _stop_api_in_the_first_wave(node: Going) -> None:
    await node.signalled("low")
    await node.bed.stop("kube-apiserver")


async def test_api_gone_after(node: Going) -> None:
    """Lost after the last signal: the release waits for statuses only within its bound."""
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_api_at_the_end, node)
        asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)


async def _stop_api_at_the_end(node: Going) -> None:
    await node.signalled("high")
    await node.bed.stop("kube-apiserver")


async def test_api_hangs(node: Going) -> None:
    """A hung server delays no longer than a dead one."""
    await node.run(*two(node.witness, low_seconds=5))
    await node.arm(*WAVES)
    await node.bed.inside.do("signal", name="kube-apiserver", signal_number=signal.SIGSTOP)
    try:
        _, over_ns = await node.down()
    finally:
        await node.bed.inside.do("signal", name="kube-apiserver", signal_number=signal.SIGCONT)
    node.in_order("low", "high")
    assert node.outcomes() == {"low": "graceful", "high": "graceful"}
    (ended_ns,) = node.witness.times("high", "ended")
    assert over_ns - ended_ns <= HUNG_SECONDS_MAX * NS
    # The daemon may already have seen its recovery.
    assert not all(read.reachable for read in node.daemon.events(ApiRead))


async def test_containerd_restarts(node: Going) -> None:
    """The daemon reconnects to a killed runtime; each pod gets one signal."""
    await node.run(*two(node.witness, low_seconds=4))
    await node.arm(*WAVES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_restart_containerd, node)
        asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    assert node.daemon.events(RuntimeRead)[-1].reachable


#: The runtime's absence: less than a second causes no hand-over (docs/node.md).
BREAK_SECONDS = 0.7


async def _restart_containerd(node: Going) -> None:
    await node.signalled("low")
    await trio.sleep(SURE_SECONDS)
    name = f"containerd-{node.member.name}"
    await node.bed.stop(name)
    await node.bed.inside.do("again", name=name)


async def test_containerd_restarts_as_pods_are_deleted(by_api: Going) -> None:
    """The kubelet retries a stop, or its delete is overdue: each pod gets its signal."""
    node = by_api
    lows = [f"low-{number}" for number in range(6)]
    await node.run(
        *(node.witness.pod(name, ends_after=0.3, priorityClassName="low") for name in lows),
        node.witness.pod("high", ends_after=0.3, priorityClassName="high"),
    )
    await node.arm(*WAVES)
    name = f"containerd-{node.member.name}"
    await node.bed.stop(name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_start_once_deleted, node, name)
        await node.down()
    assert all(node.witness.times(each, "signal") for each in (*lows, "high"))
    assert node.outcomes() == dict.fromkeys([*lows, "high"], "graceful")


async def _start_once_deleted(node: Going, name: str) -> None:
    await node.daemon.until(lambda: node.daemon.events(DeletePod), "it deletes nothing")
    await trio.sleep(BREAK_SECONDS)
    await node.bed.inside.do("again", name=name)


@pytest.mark.parametrize("when", ["before", "at the signal"])
async def test_kubelet_hangs(by_api: Going, when: str) -> None:
    """Ebbtide takes over the pods of a hung kubelet: each gets its stop signal."""
    node = by_api
    names = ("low", "quick", "high")
    await node.run(
        node.witness.pod("low", ends_after=1, priorityClassName="low"),
        node.witness.pod("quick", priorityClassName="low"),
        node.witness.pod("high", priorityClassName="high"),
    )
    await node.arm(*WAVES)
    await node.bed.inside.do("signal", name=f"kubelet-{node.member.name}", signal_number=signal.SIGSTOP)
    if when == "before":
        await node.daemon.until(
            lambda: node.daemon.events(KubeletRead)[-1].healthy is False, "it does not notice"
        )
    asked_ns, over_ns = await node.down()
    assert [len(node.witness.times(name, "signal")) for name in names] == [1, 1, 1]
    node.in_order("low", "high")
    assert node.outcomes() == dict.fromkeys(names, "graceful")
    # In the wave of the hang, not at its end.
    assert node.witness.times("low", "signal")[0] - asked_ns < 6 * NS
    assert over_ns - asked_ns < 12 * NS
    if when == "before":
        assert node.means() == "cri"
    else:
        assert len(node.daemon.events(HandedOver)) == 1


async def test_containerd_hangs(node: Going) -> None:
    """With any means each pod gets one stop signal in its wave."""
    await node.run(
        node.witness.pod("low", ends_after=1, priorityClassName="low"),
        node.witness.pod("high", ends_after=0.3, priorityClassName="high"),
    )
    await node.arm(*WAVES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_hang_containerd, node)
        try:
            asked_ns, over_ns = await node.down()
        finally:
            await _signal_containerd(node, signal.SIGCONT)
    node.in_order("low", "high")
    assert node.outcomes() == {"low": "graceful", "high": "graceful"}
    assert over_ns - asked_ns < 12 * NS


async def _hang_containerd(node: Going) -> None:
    await node.signalled("low")
    await _signal_containerd(node, signal.SIGSTOP)


async def _signal_containerd(node: Going, number: signal.Signals) -> None:
    await node.bed.inside.do("signal", name=f"containerd-{node.member.name}", signal_number=number)


async def test_logind_restarts(node: Going) -> None:
    """After logind's restart the shutdown either completes or is cancelled."""
    await node.run(*two(node.witness, low_seconds=3))
    await node.arm(*WAVES)
    await node.bed.logind.power_off()
    await node.signalled("low")
    await node.bed.logind.restart_logind()
    await node.daemon.until(lambda: "low" in node.outcomes(), "the first wave's pod has no end on record")
    assert node.outcomes()["low"] == "graceful"
    assert len(node.daemon.events(ShutdownBegan)) == 1
    assert len(node.witness.times("low", "signal")) == 1


@pytest.mark.parametrize("code", [429, 500])
async def test_storm(node: Going, code: int) -> None:
    """The API server refuses all changes; the pods still go down in time."""
    weather = await node.under_weather()
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    weather.becomes(answer=code, methods=["DELETE", "PATCH", "PUT", "POST"], retry_after=1)
    asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    if node.mode == "api":
        assert len(node.daemon.events(HandedOver)) == 1


async def test_passing_storm(by_api: Going) -> None:
    """Refusals for a second: deletes are retried, without a hand-over."""
    weather = await by_api.under_weather()
    await by_api.run(*two(by_api.witness))
    await by_api.arm(*WAVES)
    weather.becomes(answer=429, methods=["DELETE"], retry_after=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(by_api.down)
        await by_api.daemon.until(lambda: by_api.daemon.events(DeletePod), "it deletes nothing")
        await trio.sleep(0.5)
        weather.becomes()
    assert by_api.outcomes() == {"low": "graceful", "high": "graceful"}
    assert not by_api.daemon.events(HandedOver)
    assert by_api.witness.times("low", "ended")[0] <= by_api.witness.times("high", "signal")[0] + TICK_NS


async def test_slow_api(node: Going) -> None:
    """In mode cri slow answers delay no stop signal and no wave. In mode api they lose the mark, but not
    the delete.
    """
    weather = await node.under_weather()
    await node.run(*two(node.witness))
    await node.arm(*WAVES)
    weather.becomes(delay_seconds=LATE_SECONDS[node.mode])
    asked_ns, over_ns = await node.down()
    in_time(node, asked_ns, over_ns)
    if node.mode == "cri":
        assert node.witness.times("low", "hook")[0] - asked_ns < NS
