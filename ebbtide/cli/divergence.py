"""The first difference of a replay, explained: what led to it, and what its actor knew just before.

A second pass over the journal, up to the step before, gives the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ebbtide.cli.labels import payload_of
from events.frames import FLAG_LAST, RawRecord
from events.history import History
from replay.difference import Side
from replay.engine import Divergence, Replayer


class Explained(NamedTuple):
    """``causes``: the chain from the differing record to its fact. ``state``: None for an edge's fact."""

    divergence: Divergence
    actor: str
    causes: list[dict[str, Any]]
    state: Any

    def document(self) -> dict[str, Any]:
        """The divergence as ``replay verify -o json`` has it."""
        return {
            "seq": self.divergence.seq,
            "actor": self.actor,
            "field": self.divergence.field,
            "expected": _side(self.divergence.expected),
            "produced": _side(self.divergence.produced),
            "causes": self.causes,
            "state": self.state,
        }

    def lines(self) -> Iterator[str]:
        """The same for people."""
        yield f"record {self.divergence.seq} of {self.actor}: {self.divergence.field} differs"
        yield f"  recorded  {_words(self.divergence.expected)}"
        yield f"  produced  {_words(self.divergence.produced)}"
        yield "because of"
        for cause in self.causes:
            yield f"  {cause['seq']:>6}  {cause['type']} of {cause['actor']}  {_json(cause['data'])}"
        yield f"state of {self.actor} before that step"
        yield f"  {_json(self.state) if self.state is not None else 'none: it is not there yet, or an edge'}"


def explain(history: History, divergence: Divergence) -> Explained:
    """Read up to the step of the difference; ``history`` must be fresh."""
    actor = divergence.expected.actor or divergence.produced.actor
    replayer, step = Replayer(), list[RawRecord]()
    for raw in history.raw():
        step.append(raw)
        if raw.seq >= divergence.seq:
            break
        if raw.flags & FLAG_LAST:
            replayer.feed(step)
            step = []
    return Explained(divergence, actor, _causes(step, divergence), _state(replayer, actor))


def _causes(step: list[RawRecord], divergence: Divergence) -> list[dict[str, Any]]:
    """From the nearest cause to the fact, which has none."""
    by_seq = {raw.seq: raw for raw in step}
    cause = divergence.expected.cause or divergence.produced.cause
    chain = []
    while cause in by_seq:
        raw = by_seq[cause]
        chain.append({"seq": raw.seq, "actor": raw.actor, "type": raw.tag, "data": payload_of(raw)})
        cause = raw.cause if raw.cause < raw.seq else 0
    return chain


def _state(replayer: Replayer, label: str) -> Any:
    name, _, subject = label.partition(":")
    slot = replayer.system.slots.get((name, subject))
    return None if slot is None else msgspec.to_builtins(slot.state)


def _side(side: Side) -> dict[str, Any] | None:
    if not side.type:
        return None
    plain = msgspec.to_builtins(side.data)
    return {"type": side.type, "actor": side.actor, "cause": side.cause or None, "data": plain}


def _words(side: Side) -> str:
    if not side.type:
        return "nothing"
    return f"{side.type} of {side.actor}, answering {side.cause or 'nothing'}: {_json(side.data)}"


def _json(data: Any) -> str:
    return json.dumps(msgspec.to_builtins(data), ensure_ascii=False)
