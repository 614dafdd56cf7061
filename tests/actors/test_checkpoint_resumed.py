"""An open shutdown that an earlier program wrote down goes on, from every phase of the node's actors.

`GOLDEN` was written by the program that had no phases yet: the checkpoint of a golden journal, a script or a
simulated shutdown at some point, the facts of a restart in the same boot (all open orders unknown, logind
read, the next deadlines), and what that program decided on each. See the file's form in `Case`.
"""

from __future__ import annotations

import gzip
from functools import cache
from typing import NamedTuple

import msgspec
import pytest

from ebbtide.actors.checkpoint import as_checkpoint, restore
from ebbtide.actors.system import ACTOR_TYPE_BY_NAME
from ebbtide.events.base import Checkpoint, Stamp
from ebbtide.events.codec import decode_event
from tests.core_modules import ROOT

GOLDEN = ROOT / "tests" / "golden" / "resumed-v1.msgpack.gz"
ACTORS = ("ConfigReconciler", "LogindActor", "KubeletActor", "NodeStatusActor")


class Made(NamedTuple):
    """A record; ``payload`` as in a journal."""

    actor: str
    cause: int
    episode: int
    type: str
    payload: bytes


class Case(NamedTuple):
    """``phases`` are of `ACTORS`, each with its name; each step begins with its fact."""

    phases: list[str]
    next_seq: int
    checkpoint: bytes
    steps: list[tuple[int, list[Made]]]

    def decoded(self) -> Checkpoint:
        return msgspec.msgpack.decode(self.checkpoint, type=Checkpoint)


@cache
def cases() -> list[Case]:
    return msgspec.msgpack.decode(gzip.decompress(GOLDEN.read_bytes()), type=list[Case])


@pytest.mark.parametrize("at", range(41))
def test_an_open_shutdown_goes_on(at: int) -> None:
    """The checkpoint is in its phases and encoded as it was; each decision after a restart is the same."""
    case = cases()[at]
    system = restore(case.decoded(), case.next_seq)
    kinds = [system.slots[(name, "")] for name in ACTORS]
    assert case.phases == [f"{slot.kind.name} {slot.kind.transitions.phase_of(slot.state)}" for slot in kinds]
    assert msgspec.msgpack.encode(as_checkpoint(system)) == case.checkpoint
    for now_ns, expected in case.steps:
        fact = decode_event(expected[0].type, expected[0].payload)
        records = system.step(fact, Stamp(now_ns, now_ns))
        assert [
            Made(
                each.actor,
                each.cause,
                each.episode,
                type(each.event).__name__,
                msgspec.msgpack.encode(each.event),
            )
            for each in records
        ] == expected


@pytest.mark.parametrize("name", ACTORS)
def test_every_phase_of_each_region_is_resumed(name: str) -> None:
    """A new phase comes with a checkpoint in it."""
    assert len(cases()) == 41
    found = [phase for case in cases() for phase in case.phases if phase.startswith(name)]
    resumed = {part for phase in found for part in phase.partition(" ")[2].split("+")}
    assert resumed == {part for region in ACTOR_TYPE_BY_NAME[name].transitions.regions for part in region}
