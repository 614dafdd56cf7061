"""A scripted caller in virtual time: exact delays and answer sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import JSON, Answer, Unanswered


class Asked(NamedTuple):
    method: str
    path: str
    body: Any
    at_seconds: float
    traceparent: str


#: An answer after some seconds; None: it never answers.
Behaviour = Callable[[Asked], tuple[float, Answer] | None]


class Scripted:
    """Keeps the requests, and the peak of concurrent calls."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[Asked] = []
        self.at_once, self.at_once_max = 0, 0

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = JSON,
        seconds_max: float,
        traceparent: str = "",
        accept: str = JSON,
    ) -> Answer:
        asked = Asked(method, path, body, trio.current_time(), traceparent)
        self.asked.append(asked)
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            return await self._answer(asked, seconds_max)
        finally:
            self.at_once -= 1

    async def _answer(self, asked: Asked, seconds_max: float) -> Answer:
        found = self.behaviour(asked)
        seconds = seconds_max + 1 if found is None else found[0]
        await trio.sleep(min(seconds, seconds_max))
        if found is None or seconds > seconds_max:
            raise Unanswered("silence")
        return found[1]

    def methods(self) -> list[str]:
        return [each.method for each in self.asked]


def status(code: int, message: str = "", retry_after_seconds: float = 0.0) -> Answer:
    return Answer(code, msgspec.json.encode({"kind": "Status", "message": message}), retry_after_seconds)


def answers(*row: Answer | None, seconds: float = 0.01) -> Behaviour:
    """One answer per call; the last one repeats."""
    left = list(row)

    def behave(asked: Asked) -> tuple[float, Answer] | None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return None if answer is None else (seconds, answer)

    return behave
