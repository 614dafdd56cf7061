"""Does the budget hold? What was measured against the time that a shutdown has beside its waves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from actors.policy.plan import Plan
from ebbtide.drill.measure import Measured
from events.base import NS_PER_SECOND

#: Synced records on the way of a shutdown: the announcement, each wave's statuses, and the release.
SYNCS_PER_WAVE = 2
SYNCS_BESIDE = 2
#: Calls to logind on the way: the inventory's none, the release's and its proof.
CALLS = 3
#: Once a wave, since its pods are asked for side by side: what goes before its first signal or delete.
ONCE_A_WAVE = ("exec", "CRI container status", "API dry-run patch", "API dry-run delete")
#: Once a shutdown.
ONCE = ("CRI list of sandboxes", "kubelet unit")


class Budget(NamedTuple):
    """``overhead_ns``: what syncs, calls and process starts would take beside the waves' periods, at the
    worst that was measured. ``slack_ns``: what is granted on top of the periods, 0 where not even they are.
    ``missing``: why it does not hold, each in a line.
    """

    overhead_ns: int
    slack_ns: int | None
    missing: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.missing


def judge(plan: Plan, measured: Sequence[Measured]) -> Budget:
    """Pure. The grant is the plan's; where it is not known the reserve counts as granted."""
    overhead_ns = _overhead_ns(len(plan.waves), measured)
    slack_ns = plan.reserve_seconds * NS_PER_SECOND
    if plan.grant_seconds is not None:
        slack_ns = min(slack_ns, (plan.grant_seconds - plan.requested_seconds) * NS_PER_SECOND)
    missing = [f"{each.what} {each.target}: {each.error}" for each in measured if each.error and each.needed]
    if not plan.enabled:
        return Budget(overhead_ns, None, ("graceful shutdown is off: set shutdownGracePeriod", *missing))
    if slack_ns < 0:
        missing.append(
            f"logind grants {plan.grant_seconds} s of the {plan.requested_seconds} s that the waves need"
        )
    elif overhead_ns > slack_ns:
        missing.append(
            f"{_ms(overhead_ns)} of overhead do not fit into {_ms(slack_ns)} of reserve: raise reserve"
        )
    return Budget(overhead_ns, max(0, slack_ns), tuple(missing))


def _overhead_ns(waves: int, measured: Sequence[Measured]) -> int:
    worst = {each.what: each.worst_ns for each in measured}
    syncs = SYNCS_BESIDE + SYNCS_PER_WAVE * waves
    return (
        syncs * worst.get("journal sync", 0)
        + CALLS * worst.get("logind call", 0)
        + sum(waves * worst.get(each, 0) for each in ONCE_A_WAVE)
        + sum(worst.get(each, 0) for each in ONCE)
    )


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1_000_000:.1f} ms"
