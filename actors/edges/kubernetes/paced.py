"""The controller's own request rate, with urgent requests first.

A hundred nodes that die at once begin a hundred journals. First come a Node and its lease, then the journals,
without which nothing may be done, then the rest; each in the order of arrival. Every fourth request is the
oldest of all.
"""

from __future__ import annotations

from bisect import insort
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import trio

from ebbtide.actors.edges.kubernetes.api_calls import Answer, ApiCaller, Unanswered
from ebbtide.actors.edges.kubernetes.node_view import LEASES_PATH, NODES_PATH

#: The documentation promises 20 with a hundred outages: with the burst no ten seconds have more.
REQUESTS_PER_SECOND = 19
INTERVAL_SECONDS = 1 / REQUESTS_PER_SECOND
#: After a calm. One outage begins with fewer, so it is not delayed.
BURST = 10
FIRST_EVERY = 4
#: The part of a call's time that may pass before it is sent.
WAIT_FRACTION = 0.5

NODE, JOURNAL, OTHER = range(3)


def rank_of(method: str, path: str) -> int:
    """The lowest goes first. Lists have a query, and a delete can wait."""
    parts = path.split("/")
    if "?" in path or method == "DELETE":
        return OTHER
    if path.startswith((f"{NODES_PATH}/", f"{LEASES_PATH}/")):
        return NODE
    # A piece: "/api/v1/namespaces/ebbtide/configmaps", or one by name.
    return JOURNAL if "configmaps" in parts[5:6] else OTHER


class _Turn:
    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.number = rank, number
        self.news = trio.Event()


class Waiting(NamedTuple):
    nodes: int
    journals: int
    others: int


class PacedCaller:
    """A call that could not be sent in time raises Unanswered, not ``sent``. If its task asks again, it keeps
    its place.
    """

    def __init__(self, caller: ApiCaller) -> None:
        self._caller = caller
        #: When everything sent so far would have been sent at exactly the rate.
        self._even_at = -float("inf")
        #: By rank, in the order of their numbers.
        self._turns: tuple[list[_Turn], ...] = ([], [], [])
        self._numbers: WeakKeyDictionary[trio.lowlevel.Task, int] = WeakKeyDictionary()
        self._came = self._sent = 0

    @property
    def waiting(self) -> Waiting:
        return Waiting(*map(len, self._turns))

    async def call(self, method: str, path: str, *, seconds_max: float, **fields: Any) -> Answer:
        began = trio.current_time()
        with trio.move_on_after(seconds_max * WAIT_FRACTION) as waiting:
            await self._turn(rank_of(method, path))
        if waiting.cancelled_caught:
            raise Unanswered("too many requests of our own wait to be sent", sent=False)
        left = seconds_max - (trio.current_time() - began)
        return await self._caller.call(method, path, seconds_max=left, **fields)

    async def _turn(self, rank: int) -> None:
        task = trio.lowlevel.current_task()
        self._came += 1
        turn = _Turn(rank, self._numbers.pop(task, self._came))
        insort(self._turns[rank], turn, key=lambda each: each.number)
        is_sent = False
        try:
            while not is_sent:
                now, at = trio.current_time(), self._even_at - (BURST - 1) * INTERVAL_SECONDS
                if self._next() is not turn:
                    await turn.news.wait()
                    turn.news = trio.Event()
                elif now < at:
                    await trio.sleep_until(at)
                else:
                    self._even_at = max(self._even_at, now) + INTERVAL_SECONDS
                    self._sent += 1
                    is_sent = True
        finally:
            self._turns[rank].remove(turn)
            if not is_sent:
                self._numbers[task] = turn.number
            if (following := self._next()) is not None:
                following.news.set()

    def _next(self) -> _Turn | None:
        heads = [turns[0] for turns in self._turns if turns]
        if self._sent % FIRST_EVERY == FIRST_EVERY - 1:
            return min(heads, key=lambda each: each.number, default=None)
        return heads[0] if heads else None
