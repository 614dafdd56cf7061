"""Several questions at once, whose answers are needed together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio


async def side_by_side(failure: type[Exception], *questions: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Their answers in order; raises the first ``failure`` after all have ended, so that none is cut off."""
    answers: list[Any] = [None] * len(questions)
    failures: list[Exception] = []

    async def run(index: int, question: Callable[[], Awaitable[Any]]) -> None:
        try:
            answers[index] = await question()
        except failure as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for index, question in enumerate(questions):
            nursery.start_soon(run, index, question)
    if failures:
        raise failures[0]
    return answers
