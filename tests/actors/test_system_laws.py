"""Laws of `System.step` under any schedule: outcomes, exits, cancels, restarts and reboots in any order."""

from __future__ import annotations

import os
import random
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ebbtide.actors.policy.termination_mode import NODE_MODES
from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, System
from ebbtide.events.base import NS_PER_SECOND, Stamp
from ebbtide.events.decisions import PodEnded, PodPlanned
from ebbtide.events.values import Container, Hook, Period, Pod, Settings
from tests.actors.play import MOVES, NODE_MOVES, Move, NodePlay, Play, on_node
from tests.scripts.bench import WALL_BASE_NS, Saboteur

PRIORITIES = (-5, 0, 1000, 2_000_000_000)

hooks = st.one_of(
    st.none(),
    st.builds(Hook, kind=st.sampled_from(["exec", "httpGet", "tcpSocket"])),
    st.builds(Hook, kind=st.just("sleep"), sleep_seconds=st.integers(0, 9)),
)

containers = st.lists(st.tuples(hooks, st.booleans(), st.integers(0, 9)), min_size=1, max_size=3).map(
    lambda drawn: tuple(
        Container(name=f"c{at}", hook=hook, sidecar=sidecar, running=running > 0)
        for at, (hook, sidecar, running) in enumerate(drawn)
    )
)


def pods(prefix: str, count: int) -> st.SearchStrategy[list[Pod]]:
    one = st.tuples(
        st.one_of(st.none(), st.sampled_from(PRIORITIES)), st.one_of(st.none(), st.integers(0, 9)), containers
    )
    return st.lists(one, max_size=count).map(
        lambda drawn: [
            Pod(
                uid=f"{prefix}{at}",
                namespace="n",
                name=f"{prefix}{at}",
                priority=p,
                grace_seconds=g,
                containers=c,
            )
            for at, (p, g, c) in enumerate(drawn)
        ]
    )


configurations = st.builds(
    Settings,
    by_pod_priority=st.lists(
        st.builds(Period, priority=st.sampled_from(PRIORITIES), seconds=st.integers(0, 6)),
        min_size=1,
        max_size=4,
    ).map(tuple),
    budget=st.sampled_from(["strict", "elastic"]),
    reserve_seconds=st.integers(0, 5),
    status_flush_seconds=st.integers(0, 3),
)

#: Usual moves are drawn more often than disturbances.
USUAL = ("advance", "answer", "answer-all", "exit") * 3
moves: st.SearchStrategy[Move] = st.tuples(st.sampled_from((*USUAL, *MOVES)), st.integers(0, 60))
plays = st.builds(
    Play,
    settings=configurations,
    pods=pods("a", 4).filter(bool),
    late=pods("z", 2),
    grant_ns=st.integers(0, 40).map(lambda seconds: seconds * NS_PER_SECOND),
)


means = st.sampled_from([{}, {"reboot": "api"}, {"poweroff": "cri"}])
node_configurations = st.builds(
    lambda settings, means, unready, left: replace(settings, means=means, unready=unready, left_pods=left),
    configurations,
    means,
    st.sampled_from(["poweroff", "always", "never"]),
    st.sampled_from(["keep", "delete"]),
)


def node_pods(prefix: str, count: int) -> st.SearchStrategy[list[Pod]]:
    return st.tuples(pods(prefix, count), st.lists(st.integers(0, 29), min_size=count, max_size=count)).map(
        lambda drawn: [on_node(pod, number) for pod, number in zip(*drawn, strict=False)]
    )


node_moves: st.SearchStrategy[Move] = st.tuples(
    st.sampled_from((*USUAL, *(each for each in NODE_MOVES if each != "appear"))), st.integers(0, 60)
)
node_plays = st.builds(
    NodePlay,
    settings=node_configurations,
    pods=node_pods("a", 4).filter(bool),
    late=node_pods("z", 2),
    grant_ns=st.integers(0, 40).map(lambda seconds: seconds * NS_PER_SECOND),
    mode=st.sampled_from(NODE_MODES),
)


#: Fixed plays, so failures are reproducible. ``LAWS_PLAYS=5000`` draws more at random.
PLAYS = os.environ.get("LAWS_PLAYS", "")
LAWS = settings(
    max_examples=int(PLAYS or 150),
    derandomize=not PLAYS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


#: An actor, and the event at which it fails; empty: at all.
failures = st.sampled_from(sorted(ACTOR_TYPE_BY_NAME)).flatmap(
    lambda actor: st.tuples(
        st.just(actor),
        st.sampled_from(
            ["", *sorted(each.__name__ for each in ACTOR_TYPE_BY_NAME[actor].transitions.events)]
        ),
    )
)


def perform(play: Play, drawn: list[Move], failing: tuple[str, str] = ("", ""), at: int = -1) -> None:
    """One shutdown; from move ``at`` on an actor fails, if named."""
    # Failing starts lead to the fallback: one failure at a time.
    play.may_fail_to_start = failing[0] != "FallbackActor"
    play.make(("answer-all", 0))
    play.make(("signal", 1))
    for number, move in enumerate(drawn):
        if number == at:
            play.bench.saboteurs = (Saboteur(*failing),)
        play.make(move)
    play.finish()


@LAWS
@given(plays, st.lists(moves, max_size=40))
def test_laws_hold_under_any_schedule(play: Play, drawn: list[Move]) -> None:
    """Outcomes, hooks, floors, waves, fates and releases keep their laws; a restored system is the same."""
    perform(play, drawn)


@LAWS
@given(plays, st.lists(moves, max_size=25), failures, st.integers(0, 20))
def test_laws_hold_when_an_actor_fails(
    play: Play, drawn: list[Move], failing: tuple[str, str], at: int
) -> None:
    """Whichever actor raises at whatever event: every pod still has one fate, and the lock goes."""
    perform(play, drawn, failing, at)


@LAWS
@given(node_plays, st.lists(node_moves, max_size=40))
def test_laws_hold_on_a_kubernetes_node(play: NodePlay, drawn: list[Move]) -> None:
    """Also: no hook after a delete, none beside the kubelet's, no final status for a returning pod."""
    perform(play, drawn)


@LAWS
@given(node_plays, st.lists(node_moves, max_size=25), failures, st.integers(0, 20))
def test_laws_hold_on_a_node_when_an_actor_fails(
    play: NodePlay, drawn: list[Move], failing: tuple[str, str], at: int
) -> None:
    """Any actor at any event, including the one that chooses the means."""
    perform(play, drawn, failing, at)


@LAWS
@given(plays, st.lists(moves, max_size=30))
def test_the_same_facts_give_the_same_records(play: Play, drawn: list[Move]) -> None:
    """A system that is fed the recorded facts decides every record again (the one rule)."""
    perform(play, drawn)
    twin = System()
    records = [
        record
        for fact, mono_ns in play.facts()
        for record in twin.step(fact, Stamp(mono_ns, WALL_BASE_NS + mono_ns))
    ]
    assert records == play.bench.records


#: The kubelet's restarts in a shutdown, and other moves.
AGAIN = ("advance", "answer", "answer-all", "exit", "exit", "again", "again", "die", "cancel")
AGAIN_PLAYS = int(PLAYS or 150)


def test_laws_hold_when_pods_are_started_again() -> None:
    """Each life has its hook, signal and outcome."""
    met = Counter[str]()
    for seed in range(AGAIN_PLAYS):
        drawn = random.Random(seed)
        play = NodePlay(
            settings=Settings(by_pod_priority=tuple(Period(priority=p, seconds=5) for p in PRIORITIES)),
            pods=[on_node(_drawn_pod(drawn, at), drawn.randrange(30)) for at in range(3)],
            late=[],
            grant_ns=40 * NS_PER_SECOND,
            mode=drawn.choice(["cri", "api", "auto"]),
        )
        perform(play, [(drawn.choice(AGAIN), drawn.randrange(61)) for _ in range(40)])
        for record in play.bench.records:
            if isinstance(record.event, PodPlanned) and record.event.again:
                met["planned again"] += 1
            if isinstance(record.event, PodEnded):
                met["in its place"] += "was started again" in record.event.reason
                met["too late"] += record.event.again
    assert min(met.values()) > 2, met


def _drawn_pod(drawn: random.Random, at: int) -> Pod:
    hook = Hook(kind="exec") if drawn.random() < 0.5 else None
    made = (Container(name="c0", hook=hook), Container(name="c1"))[: drawn.randint(1, 2)]
    priority = drawn.choice(PRIORITIES)
    return Pod(
        uid=f"a{at}", namespace="n", name=f"a{at}", priority=priority, grace_seconds=5, containers=made
    )
