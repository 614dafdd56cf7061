"""What ``ebbtide status`` shows, as data: made by the daemon, printed by the command."""

from __future__ import annotations

from typing import Any

from ebbtide.standing import Standing
from ebbtide.status_node import node_json
from events.base import NS_PER_SECOND
from events.record import episode_id
from events.writer import Writer


def status_of(
    standing: Standing, writer: Writer, trace_id: str, sleeps_terminated_early: int, now_ns: int
) -> dict[str, Any]:
    """``kind: Status``. Times are seconds; ``shutdown`` is the running or the last one, or null.

    ``node`` is nulls where the pods are local processes. ``sleeps_terminated_early`` counts over all that
    the journal remembers (KEP-3960).
    """
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
        "sleepActionTerminatedEarlyTotal": sleeps_terminated_early,
        "node": node_json(standing),
        "journal": {
            "id": writer.journal_id.hex(),
            "location": writer.location,
            "writtenSeq": writer.written_seq,
            "syncedSeq": writer.synced_seq,
        },
        "shutdown": _shutdown(standing, writer.journal_id, trace_id, now_ns)
        if standing.last_episode
        else None,
    }


def _shutdown(standing: Standing, journal_id: bytes, trace_id: str, now_ns: int) -> dict[str, Any]:
    return {
        "id": episode_id(journal_id, standing.last_episode),
        "traceId": trace_id,
        "kind": standing.kind,
        "began": standing.began_wall_ns / NS_PER_SECOND,
        "leftSeconds": _left_ns(standing, now_ns) / NS_PER_SECOND,
        "waves": [
            {"wave": wave.wave, "priority": wave.priority, "pods": wave.pods, "phase": wave.phase}
            for wave in standing.waves.values()
        ],
        "pods": [
            {"pod": pod.label, "wave": pod.wave, "phase": pod.phase, "reason": pod.reason}
            for pod in standing.pods.values()
        ],
    }


def _left_ns(standing: Standing, now_ns: int) -> int:
    """The deadline of one that is over may be another boot's, on another clock."""
    return 0 if standing.phase == "idle" else max(0, standing.deadline_ns - now_ns)
