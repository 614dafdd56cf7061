"""Configured behaviour: distributions, rules, and their file."""

from __future__ import annotations

import pytest

from ebbtide.cli.simulate_behaviour import BehaviourError, parse_behaviour
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Container, Pod
from ebbtide.replay.sim.scenario import Behaviour, BehaviourRule, Draws, DurationQuantiles, Faults

WHOLE = b"""
apiVersion: ebbtide/v1alpha1
kind: SimulatedBehaviour
pods:
- match: {name: "web-*", namespace: shop, container: app, priority: {from: 0, below: 1000}}
  chance: {times: 1, of: 1}
  stopTakes: {quantiles: [100ms, 1s, 20s]}
  killTakes: 5ms
  exitCode: 143
  crashesAfter: {from: 1s, to: 2s}
  hook: {takes: 2s, fails: true}
- match: {name: deaf}
  ignoresSigterm: true
  hook: {hangs: true}
node:
  kind: reboot
  grant: 15s
  lateGrant: 1s
  cancelAfter: 2s
  againAfter: 9s
  secondSignalAfter: 3s
  busLostAfter: 4s
  apiFails: true
  apiTakes: 10ms
  runtimeFails: stops
  runtimeTakes: 20ms
  crashAfter: 5s
  restartTakes: 600ms
  powerCutAfter: 7s
  mode: api
  apiLostAfter: 8s
  apiBackAfter: 9s
  runtimeHangsAfter: 10s
  runtimeWakesAfter: 11s
  kubelet: stays
  kubeletLock: true
  unmountTakes: 40ms
"""


def a_pod(name: str) -> Pod:
    return Pod(uid=name, namespace="shop", name=name, containers=(Container(name="app"),))


def test_a_whole_file() -> None:
    """Each field, in the simulator's units."""
    behaviour = parse_behaviour("behaviour.yaml", WHOLE)
    first, second = behaviour.rules
    assert first == BehaviourRule(
        pod="web-*",
        namespace="shop",
        container="app",
        priority_from=0,
        priority_below=1000,
        stop=DurationQuantiles((100 * MS, NS_PER_SECOND, 20 * NS_PER_SECOND)),
        kill=DurationQuantiles((5 * MS,)),
        exit_code=143,
        crashes=DurationQuantiles((NS_PER_SECOND, 2 * NS_PER_SECOND)),
        hook=DurationQuantiles((2 * NS_PER_SECOND,)),
        hook_fails=True,
    )
    assert second == BehaviourRule(pod="deaf", ignores=True, hook_hangs=True)
    assert behaviour.faults == Faults(
        kind="reboot",
        grant_ns=15 * NS_PER_SECOND,
        late_grant_ns=NS_PER_SECOND,
        cancel_after_ns=2 * NS_PER_SECOND,
        again_after_ns=9 * NS_PER_SECOND,
        second_signal_after_ns=3 * NS_PER_SECOND,
        bus_lost_after_ns=4 * NS_PER_SECOND,
        api="fails",
        api_takes_ns=10 * MS,
        runtime_refuses="stops",
        runtime_takes_ns=20 * MS,
        crash_after_ns=5 * NS_PER_SECOND,
        restart_takes_ns=600 * MS,
        power_cut_after_ns=7 * NS_PER_SECOND,
        mode="api",
        api_lost_after_ns=8 * NS_PER_SECOND,
        api_back_after_ns=9 * NS_PER_SECOND,
        runtime_hangs_after_ns=10 * NS_PER_SECOND,
        runtime_wakes_after_ns=11 * NS_PER_SECOND,
        kubelet="stays",
        kubelet_lock=True,
        unmount_takes_ns=40 * MS,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pods:\n- stopTake: 1s", "b.yaml:2: unknown field 'stopTake' in pods[0]: did you mean stopTakes?"),
        ("node:\n  crashafter: 1s", "b.yaml:2: unknown field 'crashafter' in node: did you mean crashAfter?"),
        ("pods: [{stopTakes: {from: 2s, to: 1s}}]", "write the durations in ascending order"),
        ("pods: [{stopTakes: {quantiles: []}}]", "write the durations in ascending order, at least one"),
        (
            "pods: [{stopTakes: {from: 1s, to: 2s, quantiles: [1s]}}]",
            "b.yaml:1: pods[0].stopTakes: give from and to, or quantiles, or one duration",
        ),
        ("pods: [{chance: {times: 3, of: 2}}]", "b.yaml:1: pods[0].chance.times: 3 of 2: write at most 2"),
    ],
)
def test_wrong(text: str, message: str) -> None:
    """An error names the line and the nearest known field."""
    with pytest.raises(BehaviourError) as caught:
        parse_behaviour("b.yaml", text.encode())
    assert message in str(caught.value)


def test_saying_more_changes_nothing_else() -> None:
    """Each duration has its own stream: a hook rule does not change stop times."""
    pods = (a_pod("web"), a_pod("db"))
    plain = Behaviour().plans(pods, Draws(4))
    more = Behaviour((BehaviourRule(hook=DurationQuantiles((7,)), crashes=DurationQuantiles((1, 9))),)).plans(
        pods, Draws(4)
    )
    for one, other in zip(plain, more, strict=True):
        assert one.containers["app"].stop_ns == other.containers["app"].stop_ns
