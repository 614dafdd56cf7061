"""What the printed forms of an account share: seconds in JSON, and which shutdown it is about."""

from __future__ import annotations

from typing import Any

from ebbtide.cli.events import rfc3339
from events.base import NS_PER_SECOND
from replay.account.model import Account


def seconds(duration_ns: int | None) -> float | None:
    """For JSON; null for what did not happen."""
    return None if duration_ns is None else duration_ns / NS_PER_SECOND


def shutdown_document(account: Account) -> dict[str, Any]:
    """Which shutdown a document is about, in the words of ``journal ls``."""
    return {
        "id": account.id,
        "traceId": account.trace_id,
        "node": account.node,
        "kind": account.kind,
        "started": rfc3339(account.started_wall_ns),
        "outcome": account.outcome,
        "endedSeconds": seconds(account.ended_ns),
        "journal": journal_document(account),
    }


def journal_document(account: Account) -> dict[str, Any]:
    """The journal's verdict. ``endsHere``: it is the record of this shutdown that the damage cuts off."""
    damage = account.damage
    if damage is None:
        return {"state": "intact", "banner": None, "endsHere": False}
    return {"state": damage.state, "banner": damage.banner, "endsHere": damage.here}
