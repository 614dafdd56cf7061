"""Whom the advised periods save: what each stop would have under the grant of its node.

logind grants what the daemon asks it for, but not everywhere: another file is read after the drop-in, raising
is switched off, or logind does not obey. A shutdown that began with less than its configuration asked for
shows such a node. There the advised periods are shared out as the daemon does it, from the highest priority
down, and nobody is promised more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from actors.logic.budget import FLOOR_NS, FLUSH_MARGIN_NS, REAP_MARGIN_NS, RELEASE_MARGIN_NS
from actors.policy.periods import share
from events.base import NS_PER_SECOND
from events.model import Period
from replay.account.model import Account
from replay.advise.stops import Stop

Hope = Literal["saved", "perhaps", "hopeless"]

#: Without the reserve the last wave has so much less: the time to see its pods go, and to tell of it.
MARGIN_NS = RELEASE_MARGIN_NS + FLUSH_MARGIN_NS + REAP_MARGIN_NS


class Short(NamedTuple):
    """A shutdown that began with less than its node asked logind for. ``asked_ns`` is what that was."""

    shutdown: str
    node: str
    grant_ns: int
    asked_ns: int


class Room(NamedTuple):
    """What a wave has. ``is_cut``: of a grant that is too small, ``margin_ns`` of which may be missing."""

    seconds: int
    margin_ns: int = 0
    is_cut: bool = False


def short_of(account: Account) -> Short | None:
    """None: it had what it asked for, or no grant is known."""
    told = account.configuration
    asked_ns = told.requested_ns + told.reserve_ns
    if not 0 < account.grant_ns < asked_ns:
        return None
    return Short(account.id, account.node, account.grant_ns, asked_ns)


def rooms(periods: Sequence[Period], grant_ns: int | None) -> tuple[Room, ...]:
    """``grant_ns`` None: logind grants what these periods ask for."""
    if grant_ns is None:
        return tuple(Room(period.seconds) for period in periods)
    shares = share(periods, grant_ns // NS_PER_SECOND)
    last = max((at for at, each in enumerate(shares) if each.seconds), default=0)
    return tuple(
        Room(each.seconds, MARGIN_NS if at >= last else 0, is_cut=True) for at, each in enumerate(shares)
    )


def nodes(shorts: Iterable[Short]) -> tuple[Short, ...]:
    """The last of each node."""
    return tuple({short.node: short for short in shorts}.values())


def hope(stop: Stop, need_ns: int | None, room: Room) -> Hope:
    """Its grace is the period, or less if it asks for less. ``need_ns``: of its workload, None: not known."""
    wanted = stop.wanted_seconds
    grace_ns = (room.seconds if wanted is None else min(room.seconds, wanted)) * NS_PER_SECOND
    if not stop.observed.ended:
        return "perhaps" if need_ns is not None and need_ns < grace_ns - room.margin_ns else "hopeless"
    # A hook is cut early enough for the time between stop signal and SIGKILL, which does not move here.
    floor_ns = FLOOR_NS if room.margin_ns and any(part.hook_ns for part in stop.parts) else 0
    in_time = stop.observed.ns < grace_ns - room.margin_ns - floor_ns
    # Between stop signal and SIGKILL lies more than the grace, where a hook has used that up.
    as_then = not room.margin_ns and (
        stop.grace_ns == grace_ns if stop.hook_cut else stop.grace_ns <= grace_ns
    )
    if as_then or (in_time and not stop.hook_cut):
        return "saved"
    return "perhaps" if in_time or not room.is_cut else "hopeless"
