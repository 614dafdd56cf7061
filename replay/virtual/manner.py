"""How pods behave: the constants of one run, however they were come by (a file, a seed, a test).

All times are nanoseconds; None means never.
"""

from __future__ import annotations

from typing import NamedTuple

from events.model import Pod


class HookPlan(NamedTuple):
    """A hook with a process of its own (exec) or a request (httpGet). ``takes_ns`` None: it hangs."""

    takes_ns: int | None = 0
    succeeds: bool = True


class Manner(NamedTuple):
    """How a container behaves. None means never."""

    #: From the stop signal to the exit.
    stop_ns: int | None = 0
    #: Exits so long after its start, by itself.
    lives_ns: int | None = None
    #: From SIGKILL to being gone; more than a moment is a process in an uninterruptible sleep.
    reap_ns: int | None = 0
    exit_code: int = 0
    #: Ended by the stop signal itself, having no handler for it.
    by_signal: bool = False
    hook: HookPlan = HookPlan()


class PodPlan(NamedTuple):
    """A pod manifest and what its containers are like. ``appears_ns`` after the boot."""

    pod: Pod
    manners: dict[str, Manner]
    appears_ns: int = 0
