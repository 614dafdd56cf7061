"""One bad input must not take the daemon down: what fails here leaves the pods to be ended another way.

A file that nobody thought of, a package that is half installed, a bug: the daemon goes on without the API
server (docs/node.md has who ends the pods then), says so, and tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

WARNING = 4
#: Between two tries: a package may be installed, or a file mended, while we run. From the first to the last.
AGAIN_SECONDS = 1.0
AGAIN_SECONDS_MAX = 60.0


async def kept_up(
    name: str, work: Callable[[], Awaitable[None]], failed: Callable[[str], Awaitable[None]]
) -> None:
    """Do ``work``, which only ends by failing, again and again until cancelled; ``failed`` takes why."""
    pause = AGAIN_SECONDS
    while True:
        began, why = trio.current_time(), "it ended"
        try:
            await work()
        except Exception as error:
            why = _words(error)
        if trio.current_time() - began > AGAIN_SECONDS_MAX:
            pause = AGAIN_SECONDS
        await failed(f"{name} cannot be used, which is tried again: {why}")
        await trio.sleep(pause)
        pause = min(AGAIN_SECONDS_MAX, pause * 2)


def _words(error: BaseException) -> str:
    """Of the first of a group. One that is none of ours may quote anything: only its type and place."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if type(error).__module__.startswith("actors.") or isinstance(error, ImportError):
        return " ".join(str(error).split())
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_name}, line {place.tb_lineno}"
    return f"{type(error).__name__}{where}"
