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
from tests.replay.test_edges import GOLDEN as EDGES


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
    Mutation("simulated", "config_reconciler", 'event.result == "done" else now',
             'event.result != "done" else now',
             "", "Checkpoint", "Checkpoint", "ConfigReconciler retry_at_ns"),
    Mutation("today", "logind", 'if event.result == "done":', 'if event.result != "done":',
             "LogindActor", "Armed", "Disarmed", "type"),
    Mutation("today", "logind", "preparing == state.in_episode or", "preparing != state.in_episode or",
             "LogindActor", "DropInsRead", "ShutdownWithdrawn", "type"),
    Mutation("today", "node_status", "event.outcome in WITHOUT_STATUS", "event.outcome not in WITHOUT_STATUS",
             "", "Checkpoint", "Checkpoint", "NodeStatusActor pending"),
    Mutation("today", "node_status", 'event.result == "done" or not statuses',
             'event.result != "done" or not statuses',
             "", "StatesDigest", "StatesDigest", "NodeStatusActor undelivered"),
    Mutation("today", "episode", "event.part < event.parts", "event.part <= event.parts",
             "EpisodeActor", "PlanMade", "", NO_FACT),
    Mutation("today", "episode", "event.wave != state.wave:", "event.wave == state.wave:",
             "EpisodeActor", "WaveStarted", "StatesDigest", "type"),
    Mutation("today", "wave", "event.deadline_ns > now", "event.deadline_ns < now",
             "WaveActor", "HookStarted", "WaveEnded", "type"),
    Mutation("today", "wave", "if late_ns >= 0 else", "if late_ns < 0 else",
             "WaveActor", "StragglerEnded", "", NO_FACT),
    Mutation("today", "hook", "down.kill_at_ns <= now", "down.kill_at_ns > now",
             "HookActor", "TakeAutopsy", "KillContainer", "type"),
    Mutation("today", "hook", "down.spec.name != event.container", "down.spec.name == event.container",
             "HookActor", "PodEnded", "", NO_FACT),
    Mutation("today", "hook", "not other.spec.sidecar or at > index", "other.spec.sidecar or at > index",
             "HookActor", "SendSignal", "", NO_FACT),
    Mutation("today", "container", "if down.stop_by_ns <= now:", "if down.stop_by_ns > now:",
             "HookActor", "HookStarted", "HookEnded", "type"),
    Mutation("today", "container", 'hook.kind == "sleep"', 'hook.kind != "sleep"',
             "HookActor", "HookStarted", "HookEnded", "type"),
    Mutation("today", "container", 'down.exit_signal == "SIGKILL" or', 'down.exit_signal != "SIGKILL" or',
             "HookActor", "PodEnded", "PodEnded", "reason"),
    Mutation("fallback", "fallback", "event.container not in pod.left", "event.container in pod.left",
             "FallbackActor", "PodEnded", "", NO_FACT),
    Mutation("fallback", "fallback", "state.last_kill_ns) <= now", "state.last_kill_ns) > now",
             "FallbackActor", "OrderEnded", "KillContainer", "type"),
    Mutation("fallback", "fallback", "pod.wave <= state.wave or now",
             "pod.wave > state.wave or now",
             "FallbackActor", "SendSignal", "PodStopBegan", "type"),
    Mutation("edges", "wave", "event.deadline_ns > now", "event.deadline_ns >= now",
             "WaveActor", "WaveEnded", "HookEnded", "type"),
    Mutation("edges", "hook", "down.stop_by_ns <= now", "down.stop_by_ns < now",
             "HookActor", "SendSignal", "HookEnded", "type"),
    Mutation("edges", "wave", "if late_ns >= 0 else", "if late_ns > 0 else",
             "WaveActor", "StragglerEnded", "", NO_FACT),
    Mutation("edges", "container", "down.stop_by_ns <= now:", "down.stop_by_ns < now:",
             "HookActor", "HookEnded", "HookStarted", "type"),
    Mutation("edges", "container", "hook.sleep_seconds <= 0:", "hook.sleep_seconds < 0:",
             "HookActor", "HookEnded", "HookStarted", "type"),
    Mutation("edges", "config_reconciler", "files.others_ns) >= state.needed_ns",
             "files.others_ns) > state.needed_ns",
             "ConfigReconciler", "OrderEnded", "WriteDropIn", "type"),
    Mutation("edges", "fallback", "state.release_by_ns <= now", "state.release_by_ns < now",
             "FallbackActor", "PodsEnded", "ActorFailed", "type"),
    Mutation("edges", "episode", '"truncated" if state.wave >= 0', '"truncated" if state.wave > 0',
             "EpisodeActor", "EpisodeClosed", "EpisodeClosed", "outcome"),
    Mutation("node", "kubelet", 'if choice.means != "cri":', 'if choice.means == "cri":',
             "KubeletActor", "AnnounceNode", "StopKubelet", "type"),
    Mutation("node", "hook", 'if state.means == "observe":\n        # Only',
             'if state.means != "observe":\n        # Only',
             "HookActor", "DeletePod", "", NO_FACT),
    Mutation("node", "policy.termination_mode", "if kubelet_lock:", "if not kubelet_lock:",
             "KubeletActor", "MeansChosen", "MeansChosen", "means"),
    Mutation("today", "policy.grace_periods", "return index if exact", "return index if not exact",
             "EpisodeActor", "PlanMade", "PlanMade", "waves"),
    Mutation("today", "policy.grace_periods", "min(period_seconds, wanted", "max(period_seconds, wanted",
             "EpisodeActor", "PlanMade", "PlanMade", "waves"),
    Mutation("outage-recovered", "outage_proof", "first_ns >= READ_PAUSE_NS", "first_ns < READ_PAUSE_NS",
             "ProofActor", "Tick", "ProofAccepted", "type"),
    Mutation("outage-recovered", "outage", 'elif state.ready == "True":\n        why = IS_READY',
             'elif state.ready != "True":\n        why = IS_READY',
             "OutageActor", "OutageWaits", "RequestPermit", "type"),
    Mutation("outage-recovered", "outage_work", "len(ready) <= place", "len(ready) > place",
             "StuckPodActor", "PodWaits", "ActorFailed", "type"),
    Mutation("outage-recovered", "outage_work", 'state.phase == "detaching":', 'state.phase != "detaching":',
             "DetachActor", "DetachWaits", "DetachWaits", "reason"),
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
    return History([DirectorySource(EDGES if name == "edges" else SHUTDOWN)])


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
