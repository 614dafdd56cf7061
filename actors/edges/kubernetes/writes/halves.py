"""Writes to the Node, so that none overtakes another: what stands there at the end is what was said last.

A request that was sent cannot be called back: whoever gives it up does not know whether, or when, the server
carries it out. So a later order takes over at once from an earlier one that waits or reads, but lets a write
end first; and each write names the version that it was made from. Where one was left unanswered all the same,
a Node that seems to need nothing is written to once more (`memory.fence`): what comes late is then refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import trio

from actors.edges.kubernetes.calling import Answer, Caller, Unanswered
from actors.edges.kubernetes.writes import memory
from actors.edges.kubernetes.writes.insisting import CONFLICT, Call, is_doubtful, words
from actors.edges.kubernetes.writes.shapes import NodeObject, Object, node_path


class Half(NamedTuple):
    """One request: to the Node or to its status, with what ``change`` makes of it; None: nothing to do."""

    part: str
    content_type: str
    change: Callable[[NodeObject], Object | None]


class Hold:
    """One order's time with the Node; ``kind`` says whom it gives way to."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self._is_writing = self._is_unwanted = False

    def give_up(self) -> None:
        """Now, or when the write that was sent has ended, which is bounded."""
        self._is_unwanted = True
        if not self._is_writing:
            self.scope.cancel()

    async def write(self, work: Callable[[], Any]) -> Answer:
        self._is_writing = True
        try:
            answer: Answer = await work()
            return answer
        finally:
            self._is_writing = False
            if self._is_unwanted:
                self.scope.cancel()


class NodeWrites:
    """All that this daemon writes to its Node. ``caller`` as everybody's."""

    def __init__(self, caller: Caller, node: str) -> None:
        self._caller, self._path = caller, node_path(node)
        self._holds: list[Hold] = []
        #: A write of ours may still be carried out.
        self._in_doubt = False

    @asynccontextmanager
    async def hold(self, kind: str, overtakes: tuple[str, ...]) -> AsyncIterator[Hold]:
        """For the time of the block, once those before it of the kinds that it overtakes have ended. When it
        is overtaken itself the block is cancelled; ask ``scope.cancelled_caught``.
        """
        earlier = [each for each in self._holds if each.kind in overtakes]
        for each in earlier:
            each.give_up()
        mine = Hold(kind)
        self._holds.append(mine)
        try:
            with mine.scope:
                for each in earlier:
                    await each.over.wait()
                yield mine
        finally:
            self._holds.remove(mine)
            mine.over.set()

    def call(self, hold: Hold, seconds_max: float, traceparent: str) -> Call:
        """The calls of an order that holds the Node."""
        return Call(_Held(self, self._caller, hold), seconds_max, traceparent)

    async def change(self, call: Call, half: Half) -> str:
        """Read, change, and write if nobody else wrote in between. Why not, if not. Raises Unanswered."""
        while True:
            read = await call.insist("GET", self._path)
            if not read.ok:
                return f"the node cannot be read: {words(read)}"
            try:
                node = msgspec.json.decode(read.body, type=NodeObject)
            except msgspec.DecodeError as error:
                return f"the node cannot be read: {error}"
            body = half.change(node)
            if body is None and not self._in_doubt:
                return ""
            body = body or memory.fence(node)
            answer = await call.insist("PATCH", self._path + half.part, body, half.content_type)
            if answer.code != CONFLICT:
                return "" if answer.ok else f"the node cannot be changed: {words(answer)}"

    async def noting(self, work: Callable[[], Any]) -> Answer:
        """A write: one that was taken keeps out whatever else was made from the same version, or an older."""
        before, self._in_doubt = self._in_doubt, True
        try:
            answer: Answer = await work()
        except Unanswered as error:
            self._in_doubt = before or error.sent
            raise
        self._in_doubt = not answer.ok and (before or is_doubtful(answer))
        return answer


class _Held:
    """A caller whose writes end before anybody takes over."""

    def __init__(self, writes: NodeWrites, caller: Caller, hold: Hold) -> None:
        self._writes, self._caller, self._hold = writes, caller, hold

    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        if method == "GET":
            return await self._caller.call(method, path, **fields)
        return await self._hold.write(
            lambda: self._writes.noting(lambda: self._caller.call(method, path, **fields))
        )
