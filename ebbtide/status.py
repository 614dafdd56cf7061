"""What ``ebbtide status`` shows, as data: made by the daemon, printed by the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from events.base import NS_PER_SECOND
from events.record import episode_id

if TYPE_CHECKING:
    from ebbtide.daemon import Daemon


def status_of(daemon: Daemon, now_ns: int) -> dict[str, Any]:
    """``kind: Status``. Times are seconds; ``shutdown`` is the running or the last one, or null."""
    standing = daemon.standing
    return {
        "kind": "Status",
        "version": 1,
        "enabled": standing.enabled,
        "armed": standing.armed,
        "whyNot": standing.why_not,
        "grantSeconds": standing.grant_ns / NS_PER_SECOND,
        "neededSeconds": standing.needed_ns / NS_PER_SECOND,
        "sufficient": standing.sufficient,
        "scheduledWallNs": standing.scheduled_wall_ns,
        "phase": standing.phase,
        "lastOutcome": standing.last_outcome,
        "sleepActionTerminatedEarlyTotal": daemon.sleeps_terminated_early,
        "journal": {
            "id": daemon.writer.journal_id.hex(),
            "location": daemon.writer.location,
            "writtenSeq": daemon.writer.written_seq,
            "syncedSeq": daemon.writer.synced_seq,
        },
        "shutdown": _shutdown(daemon, now_ns) if standing.began_ns else None,
    }


def _shutdown(daemon: Daemon, now_ns: int) -> dict[str, Any]:
    standing = daemon.standing
    return {
        "id": episode_id(daemon.writer.journal_id, standing.last_episode),
        "traceId": daemon.trace_id,
        "kind": standing.kind,
        "began": standing.began_wall_ns / NS_PER_SECOND,
        "leftSeconds": max(0, standing.deadline_ns - now_ns) / NS_PER_SECOND,
        "waves": [
            {"wave": wave.wave, "priority": wave.priority, "pods": wave.pods, "phase": wave.phase}
            for wave in standing.waves.values()
        ],
        "pods": [
            {"pod": pod.label, "wave": pod.wave, "phase": pod.phase, "reason": pod.reason}
            for pod in standing.pods.values()
        ],
    }
