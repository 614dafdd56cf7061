"""Lines out of an answer that comes piece by piece, bounded in size and in silence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from actors.edges.kubernetes.calling import Answer, Unanswered

#: etcd takes objects of 1.5 MiB by default, the API server requests of 3 MiB; JSON may double it.
LINE_BYTES_MAX = 16 * 1024 * 1024


class Silent(Unanswered):
    """Not a byte for so long. The stream is as it was: it may be asked again."""


class Stream:
    """``code`` is HTTP's; ``read`` gives the next piece, nothing at the end, and raises Unanswered."""

    def __init__(
        self, code: int, read: Callable[[], Awaitable[bytes]], retry_after_seconds: float = 0.0
    ) -> None:
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        self._read = read
        self._pieces: list[bytes] = []
        self._size = 0
        self._lines: list[bytes] = []

    async def line(self, silence_seconds_max: float) -> bytes | None:
        """The next whole line; None at the end. Raises Silent, and Unanswered for a connection that is lost
        and for a line that is longer than any object.
        """
        while not self._lines:
            piece = await self._next_piece(silence_seconds_max)
            if not piece:
                return None
            self._take(piece)
        return self._lines.pop()

    async def answer(self, silence_seconds_max: float) -> Answer:
        """All of it, for a refusal: those are short. Raises as `line` does."""
        lines = []
        while (line := await self.line(silence_seconds_max)) is not None:
            lines.append(line)
        return Answer(self.code, b"\n".join((*lines, *self._pieces)), self.retry_after_seconds)

    async def _next_piece(self, seconds: float) -> bytes:
        with trio.move_on_after(seconds):
            return await self._read()
        raise Silent(f"silent for {seconds:g} s")

    def _take(self, piece: bytes) -> None:
        """Pieces are joined once, when their line is whole: a large object comes in many."""
        *ended, rest = piece.split(b"\n")
        if ended:
            ended[0] = b"".join((*self._pieces, ended[0]))
            self._lines = ended[::-1]
            self._pieces, self._size = [], 0
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size > LINE_BYTES_MAX:
            raise Unanswered(f"a line of more than {LINE_BYTES_MAX} bytes")
