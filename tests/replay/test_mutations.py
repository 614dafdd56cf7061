"""With one changed comparison the golden journals do not verify, and the report names the event.

Each mutation lists the first differing record, its actor and part. A different state shows in its wave's
digest or the next checkpoint.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from ebbtide.actors.system import ACTOR_TYPE_BY_NAME
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.replay.verify import verify
from tests.journals import SHUTDOWN, Memory
from tests.replay import fallback_story, outages
from tests.replay.mutated import mutated


class Mutation(NamedTuple):
    """``actor``: the differing one; ``expected`` and ``produced``: types, "" for none."""

    journal: str
    module: str
    before: str
    after: str
    actor: str
    expected: str
    produced: str
    field: str

    def __str__(self) -> str:
        return f"{self.journal} {self.module} {self.before}"


#: A Kubernetes node with a hand-over to the runtime.
NODE_SEED = 1

NO_FACT = "a fact is expected here"

# fmt: off
TABLE = (
    Mutation("simulated", "config_reconciler", "min(state.grant_ns, files.others_ns) >= state.needed_ns",
             "min(state.grant_ns, files.others_ns) < state.needed_ns",
             "ConfigReconciler", "WriteDropIn", "", NO_FACT),
    Mutation("today", "logind", 'if event.result == "done":', 'if event.result != "done":',
             "LogindActor", "Armed", "Disarmed", "type"),
    Mutation("today", "node_status", 'event.result == "done" or not statuses',
             'event.result != "done" or not statuses',
             "", "StatesDigest", "StatesDigest", "NodeStatusActor missing"),
    Mutation("today", "episode", "event.part < event.parts", "event.part <= event.parts",
             "EpisodeActor", "PlanMade", "", NO_FACT),
    Mutation("today", "wave", "event.deadline_ns > now", "event.deadline_ns < now",
             "WaveActor", "HookStarted", "WaveEnded", "type"),
    Mutation("today", "hook", "down.kill_at_ns <= now", "down.kill_at_ns > now",
             "HookActor", "TakeAutopsy", "KillContainer", "type"),
    Mutation("today", "hook", 'return down.exit_signal == "SIGKILL" or (',
             'return down.exit_signal != "SIGKILL" or (',
             "HookActor", "PodEnded", "PodEnded", "reason"),
    Mutation("fallback", "fallback", "state.last_kill_ns) <= now", "state.last_kill_ns) > now",
             "FallbackActor", "OrderEnded", "KillContainer", "type"),
    Mutation("node", "kubelet", 'if choice.means != "cri":', 'if choice.means == "cri":',
             "KubeletActor", "AnnounceNode", "StopKubelet", "type"),
    Mutation("today", "policy.grace_periods", "min(period_seconds, pod.", "max(period_seconds, pod.",
             "EpisodeActor", "PlanMade", "PlanMade", "waves"),
    Mutation("outage-recovered", "outage_proof", "first_ns >= READ_PAUSE_NS", "first_ns < READ_PAUSE_NS",
             "ProofActor", "Tick", "ProofAccepted", "type"),
    Mutation("outage-recovered", "outage", 'elif state.ready == "True":\n        why = IS_READY',
             'elif state.ready != "True":\n        why = IS_READY',
             "OutageActor", "OutageWaits", "RequestPermit", "type"),
    Mutation("outage-recovered", "outage_work", "len(ready) > place", "len(ready) <= place",
             "StuckPodActor", "PodWaits", "ActorFailed", "type"),
    Mutation("outage-recovered", "outage_work", 'state.phase == "detaching":', 'state.phase != "detaching":',
             "DetachActor", "DetachWaits", "DetachWaits", "reason"),
    Mutation("outage-recovered", "node_events", "event.level <= WARNING", "event.level > WARNING",
             "NodeEventsActor", "PostOutageEvent", "PostOutageEvent", "warning"),
    Mutation("outage-dry-run", "outage", 'tainted=event.taint == "ours"', 'tainted=event.taint != "ours"',
             "", "Checkpoint", "Checkpoint", "OutageFallbackActor tainted"),
)
# fmt: on


@cache
def journal(name: str) -> History:
    if name == "simulated":
        return History([simulate(SimulationRequest(synthetic=12), 1).machine.journal.source()])
    if name == "node":
        return History(
            [simulate(SimulationRequest(synthetic=12, mode="api"), NODE_SEED).machine.journal.source()]
        )
    if name in outages.SCRIPTS:
        return History([Memory(outages.script(name).files)])
    if name == "fallback":
        return History([Memory(fallback_story.write().files)])
    return History([DirectorySource(SHUTDOWN)])


@pytest.mark.parametrize("mutation", TABLE, ids=str)
def test_a_changed_comparison_is_caught_and_named(mutation: Mutation) -> None:
    """The journal verifies with the real logic, and not with the mutation."""
    found = journal(mutation.journal)
    assert verify(found).identical
    module = f"ebbtide.actors.{mutation.module}"
    with mutated(module, mutation.before, mutation.after) as changed:
        divergence = changed.verify(found).divergence
    assert divergence is not None
    assert (divergence.expected.type, divergence.produced.type, divergence.field) == (
        mutation.expected,
        mutation.produced,
        mutation.field,
    )
    sides = [side.actor.partition(":")[0] for side in (divergence.expected, divergence.produced)]
    assert not mutation.actor or mutation.actor in sides


def test_the_real_logic_is_untouched() -> None:
    """A mutation leaves no trace for other tests."""
    with mutated("ebbtide.actors.wave", "event.deadline_ns > now", "event.deadline_ns < now") as changed:
        assert changed.verify is not verify
        assert not changed.verify(journal("today")).identical
    assert verify(journal("today")).identical


def test_every_actor_has_a_mutation() -> None:
    named = {mutation.actor for mutation in TABLE} | {mutation.field.partition(" ")[0] for mutation in TABLE}
    assert set(ACTOR_TYPE_BY_NAME) <= named
