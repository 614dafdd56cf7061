"""How a shutdown's time is laid out from its signal: waves, the last SIGKILL, the release.

    signal ... waves ... deadline ... (2 s floor) ... kill_by ... give_up ... release_by ... logind's limit

All are monotonic nanoseconds. With the reserve granted the last SIGKILL comes up to `FLOOR_NS` after
the budget; without it the margins are taken from the last wave, because a fate that is not on record
before logind's own timer fires is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from events.base import NS_PER_SECOND

#: Least time between stop signal and SIGKILL, whatever a hook has used (facts-kubelet 4.1, step 6).
FLOOR_NS = 2 * NS_PER_SECOND

#: Kept free before logind's own timer: its clock and ours start some milliseconds apart.
RELEASE_MARGIN_NS = 250_000_000

#: Kept free before the release for the last statuses.
FLUSH_MARGIN_NS = 250_000_000

#: Kept free between the last moment of the regular release and the fallback's.
FALLBACK_LEAD_NS = 50_000_000

#: Kept free after the last SIGKILL to see the processes go.
REAP_MARGIN_NS = 250_000_000


class Layout(NamedTuple):
    deadline_ns: int
    kill_by_ns: int
    release_by_ns: int

    @property
    def give_up_ns(self) -> int:
        """From here on nothing is waited for but the last statuses."""
        return self.release_by_ns - min(FLUSH_MARGIN_NS, (self.release_by_ns - self.kill_by_ns) // 2)


def lay_out(now_ns: int, grant_ns: int, requested_ns: int, reserve_ns: int) -> Layout:
    """The end points of a shutdown signalled at ``now_ns``; none lies before ``now_ns``.

    Below a second the margins shrink with the limit: also then every pod gets its stop signal first.
    """
    budget_ns = min(grant_ns, requested_ns)
    limit_ns = max(0, min(grant_ns, budget_ns + reserve_ns))
    release_by_ns = now_ns + limit_ns - min(RELEASE_MARGIN_NS, limit_ns // 4)
    last_kill_ns = release_by_ns - min(FLUSH_MARGIN_NS + REAP_MARGIN_NS, limit_ns // 2)
    deadline_ns = now_ns + budget_ns
    kill_by_ns = max(now_ns, min(deadline_ns + FLOOR_NS, last_kill_ns))
    return Layout(deadline_ns, kill_by_ns, release_by_ns)
