"""What the edge's parts ask of the connection (`actors.edges.cri.link.Link`), and what calls may cost."""

from __future__ import annotations

from typing import Protocol, TypeVar

from google.protobuf.message import Message

AnswerT = TypeVar("AnswerT", bound=Message)

#: A list, or one state: a runtime that needs longer is not well.
LOOK_SECONDS_MAX = 5.0
#: How long what is asked of the edge waits for the first look.
WARM_SECONDS_MAX = 5.0


class Caller(Protocol):
    """Calls to the runtime. All raise `actors.edges.cri.errors.CallFailed`."""

    async def ready(self, seconds: float) -> None:
        """Return once the runtime is connected; raises Lost when it is not in time."""

    async def call(
        self,
        name: str,
        request: Message,
        answer: type[AnswerT],
        seconds: float,
        *,
        wait: bool = True,
        traceparent: str = "",
    ) -> AnswerT:
        """One call, sent at most once. ``wait``: for a runtime that is away; else it is Lost at once."""

    async def repeat(
        self,
        name: str,
        request: Message,
        answer: type[AnswerT],
        seconds: float,
        *,
        traceparent: str = "",
    ) -> AnswerT:
        """A call that may be sent again when it is lost, while there is time."""
