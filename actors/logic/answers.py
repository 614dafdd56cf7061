"""What the outcome of an order means for the container that it was about.

A lost outcome (``unknown``: the daemon died in between) is the interesting one: a hook counts as spent, a
stop signal and SIGKILL are sent again (design, rule 4).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from actors.logic.container import Down, Step, end_hook, kill, repeat_stop
from events.facts import OrderEnded


def _hook_answer(down: Down, event: OrderEnded, now: int) -> Step:
    if down.phase != "hook" or event.key != down.hook_key:
        return down, []
    return end_hook(down, now, event.result, event.reason)


def _stop_answer(down: Down, event: OrderEnded, now: int) -> Step:
    down = replace(down, stop_open=False)
    if down.phase == "stopping" and event.result == "unknown":
        return repeat_stop(down)
    return replace(down, error=event.reason if event.result == "failed" else ""), []


def _kill_answer(down: Down, event: OrderEnded, now: int) -> Step:
    if down.phase == "killed" and event.result == "unknown":
        return kill(down)
    return replace(down, error=event.reason if event.result == "failed" else ""), []


#: What an order's outcome means, by the order's word in its key.
ANSWERS: dict[str, Callable[[Down, OrderEnded, int], Step]] = {
    "hook": _hook_answer,
    "stop": _stop_answer,
    "kill": _kill_answer,
}
