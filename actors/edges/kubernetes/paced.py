"""The controller's own rate: no more requests a second than it allows itself, and the urgent ones first.

A hundred nodes that die at once are a hundred journals that begin, and the API server has just lost a part of
its own machines as well. What waits for the cure goes before what only looks: a Node and its lease (read
again, then tainted, or freed), then the journals, without which nothing may be done, then all else. Within
each in the order in which they came; and so that nobody waits for ever, every fourth goes to whoever came
first of all.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple
from weakref import WeakKeyDictionary

import trio

from ebbtide.actors.edges.kubernetes.api_calls import JSON, Answer, ApiCaller, Unanswered
from ebbtide.actors.edges.kubernetes.node_view import LEASES_PATH, NODES_PATH

#: The documentation promises 20 of a hundred outages at once: with what goes at once after a calm, no ten
#: seconds have more. A node's own kubelet may ask 50 times a second.
REQUESTS_PER_SECOND = 19
#: At once after a calm: one outage begins with fewer, and is not slowed.
BURST = 10
#: One in so many is for whoever came first.
FIRST_EVERY = 4
#: Of a call's time so much may pass before it is sent: less than the rest, and the answer would come too late
#: to be heard.
WAIT_FRACTION = 0.5

NODE, JOURNAL, OTHER = range(3)


def rank_of(method: str, path: str) -> int:
    """What it is about: the lower goes first. Lists have a query, and a delete can wait."""
    parts = path.split("/")
    if "?" in path or method == "DELETE":
        return OTHER
    if path.startswith((f"{NODES_PATH}/", f"{LEASES_PATH}/")):
        return NODE
    # A piece that is created, or looked for: "/api/v1/namespaces/ebbtide/configmaps", and one by name.
    return JOURNAL if "configmaps" in parts[5:6] else OTHER


class _Turn:
    """Somebody who waits. ``news``: it may be the next one."""

    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.number = rank, number
        self.news = trio.Event()


class Waiting(NamedTuple):
    """How many wait, by what they are about."""

    nodes: int
    journals: int
    others: int


class PacedCaller:
    """`ApiCaller`: another one's calls, at the controller's own rate. Without a task of its own.

    A call that could not be sent in time raises Unanswered, not ``sent``; a task that then asks again has the
    place in the order that it had before.
    """

    def __init__(
        self, caller: ApiCaller, per_second: float = REQUESTS_PER_SECOND, burst: int = BURST
    ) -> None:
        self._caller, self._interval_seconds, self._burst = caller, 1 / per_second, burst
        #: When all that was sent would have been sent at exactly the rate.
        self._even_at = -float("inf")
        #: Of each rank, in the order of their numbers.
        self._turns: tuple[list[_Turn], ...] = ([], [], [])
        self._numbers: WeakKeyDictionary[trio.lowlevel.Task, int] = WeakKeyDictionary()
        self._came = self._sent = 0

    @property
    def waiting(self) -> Waiting:
        return Waiting(*map(len, self._turns))

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
        """When it is its turn. Raises Unanswered."""
        began = trio.current_time()
        with trio.move_on_after(seconds_max * WAIT_FRACTION) as waiting:
            await self._turn(rank_of(method, path))
        if waiting.cancelled_caught:
            raise Unanswered("too many requests of our own wait to be sent", sent=False)
        return await self._caller.call(
            method,
            path,
            body=body,
            content_type=content_type,
            seconds_max=seconds_max - (trio.current_time() - began),
            traceparent=traceparent,
            accept=accept,
        )

    async def _turn(self, rank: int) -> None:
        task = trio.lowlevel.current_task()
        self._came += 1
        turn = _Turn(rank, self._numbers.pop(task, self._came))
        insort(self._turns[rank], turn, key=lambda each: each.number)
        is_sent = False
        try:
            while not is_sent:
                now, at = trio.current_time(), self._free_at()
                if self._next() is not turn:
                    await turn.news.wait()
                    turn.news = trio.Event()
                elif now < at:
                    await trio.sleep_until(at)
                else:
                    self._even_at = max(self._even_at, now) + self._interval_seconds
                    self._sent += 1
                    is_sent = True
        finally:
            self._turns[rank].remove(turn)
            if not is_sent:
                self._numbers[task] = turn.number
            if (following := self._next()) is not None:
                following.news.set()

    def _free_at(self) -> float:
        """When one more may be sent."""
        return self._even_at - (self._burst - 1) * self._interval_seconds

    def _next(self) -> _Turn | None:
        heads = [turns[0] for turns in self._turns if turns]
        if self._sent % FIRST_EVERY == FIRST_EVERY - 1:
            return min(heads, key=lambda each: each.number, default=None)
        return heads[0] if heads else None
