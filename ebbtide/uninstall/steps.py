"""One step of the way back: what it is about, and how it ended."""

from __future__ import annotations

from typing import Literal, NamedTuple

#: ``nothing``: there was nothing to do; ``would``: a dry run, or it is left on purpose; see the reason.
Result = Literal["done", "nothing", "would", "kept", "failed"]


class Step(NamedTuple):
    """``target`` is a unit, a path or a Node; ``reason`` says why, or what to do."""

    what: str
    target: str
    result: Result
    reason: str = ""


def holds(steps: list[Step]) -> bool:
    """Is the node as it was, or would it be?"""
    return all(step.result != "failed" for step in steps)
