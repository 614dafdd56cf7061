"""A write in a shutdown has one short time, and a server that says "later" within it is asked again.

Whoever calls gets the server's last word or `Unanswered`, never an answer after the time. What the answers
mean for a pod that may have gone meanwhile is said here as well, once for all writers.
"""

from __future__ import annotations

import msgspec
import trio

from actors.edges.kubernetes.calling import JSON, Answer, Caller, Unanswered
from actors.interfaces import Ending

NOT_FOUND, CONFLICT, FORBIDDEN = 404, 409, 403
TOO_MANY, TIMED_OUT = 429, 504
#: Between two tries where the server names no time: doubled from the first, up to the last.
AGAIN_SECONDS = 0.05
AGAIN_SECONDS_MAX = 0.5
#: A connection that is silent for so long may be a dead one, and the next need not be.
TRY_SECONDS_MAX = 5.0
#: The caller says itself when its time is over, and whether anything was sent; this is for one that does not.
LATE_SECONDS_MAX = 0.2
#: Of a server's own words; the journal keeps them.
WORDS_MAX = 200
#: By code, how the server says that the object of that name is another one by now (a patch's words, and a
#: delete's), and that it is not, or no longer, on the node whose identity asks (NodeRestriction, and the node
#: authorizer since 1.32).
GONE = {
    NOT_FOUND: ("",),
    CONFLICT: ("UID in precondition", "UID in the precondition"),
    FORBIDDEN: ("with spec.nodeName set to itself", "no relationship found between node"),
}


class _Status(msgspec.Struct):
    """What the API server answers with when it does not do what it was asked for."""

    message: str = ""


class Call:
    """The calls of one order: to the same server, under the same trace, and within the same time."""

    def __init__(self, caller: Caller, seconds_max: float, traceparent: str) -> None:
        self._caller = caller
        self._traceparent = traceparent
        self.until = trio.current_time() + seconds_max
        #: Something was sent, and nothing has said yet whether it was taken.
        self.in_doubt = False

    @property
    def left_seconds(self) -> float:
        return max(0.0, self.until - trio.current_time())

    async def once(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = JSON,
        seconds_max: float = TRY_SECONDS_MAX,
    ) -> Answer:
        """One try, within what is left and ``seconds_max``. Raises Unanswered."""
        seconds = min(seconds_max, self.left_seconds)
        if seconds <= 0:
            raise Unanswered("there was no time left to ask", sent=False)
        try:
            with trio.move_on_after(seconds + LATE_SECONDS_MAX):
                answer = await self._caller.call(
                    method,
                    path,
                    body=body,
                    content_type=content_type,
                    seconds_max=seconds,
                    traceparent=self._traceparent,
                )
                self.in_doubt = self.in_doubt or is_doubtful(answer)
                return answer
            raise Unanswered(f"no answer in {seconds:.1f} s")
        except Unanswered as error:
            self.in_doubt = self.in_doubt or error.sent
            raise

    async def insist(self, method: str, path: str, body: object = None, content_type: str = JSON) -> Answer:
        """Again after 429, 5xx and silence while there is time. Raises Unanswered."""
        again = AGAIN_SECONDS
        while True:
            last: Answer | Unanswered
            try:
                last = await self.once(method, path, body, content_type)
            except Unanswered as error:
                last = error
            if isinstance(last, Answer) and last.code != TOO_MANY and last.code < 500:
                return last
            asked = last.retry_after_seconds if isinstance(last, Answer) else 0.0
            pause = asked or again
            # One that says "in ten seconds" to somebody who has two has refused.
            if pause >= self.left_seconds:
                return _end(last)
            await trio.sleep(pause)
            again = min(again * 2, AGAIN_SECONDS_MAX)


def _end(last: Answer | Unanswered) -> Answer:
    if isinstance(last, Unanswered):
        raise last
    return last


def words(answer: Answer) -> str:
    """The code and what the server says to it, for people; bounded."""
    try:
        said = msgspec.json.decode(answer.body, type=_Status).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = answer.body[:WORDS_MAX].decode(errors="replace")
    return f"{answer.code} {said[:WORDS_MAX]}".rstrip()


def is_gone(answer: Answer) -> bool:
    """Is what was asked for no longer there, or no longer on this node?"""
    said = answer.body.decode(errors="replace")
    return any(each in said for each in GONE.get(answer.code, ()))


def is_doubtful(answer: Answer) -> bool:
    """The server gave up on what it may still have written: its own time, or etcd's, was over."""
    return answer.code == TIMED_OUT or (answer.code >= 500 and b"timed out" in answer.body)


def ending(answer: Answer) -> Ending:
    """Of an order that was this one call."""
    return Ending() if answer.ok else Ending("failed", f"the API server answered {words(answer)}")


def silence(error: Unanswered) -> Ending:
    return Ending("timed-out", f"the API server: {str(error)[:WORDS_MAX]}")
