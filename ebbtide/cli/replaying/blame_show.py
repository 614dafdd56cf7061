"""Printing what was blamed, in the manner of ``systemd-analyze blame``: time first, longest first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebbtide.cli.episodes import choose_account
from ebbtide.cli.guard import Refused
from ebbtide.cli.output import show, show_json, table
from ebbtide.cli.replaying.told import seconds, shutdown_document
from replay.account.model import Account
from replay.account.words import span
from replay.blamed import Cost, blame

BLAME_VERSION = 1

HEADINGS = ("TIME", "ALONE", "WAVE", "POD", "CONTAINER", "OUTCOME", "WHAT")


def show_blame(
    journals: Sequence[Path], episode: str, wave: int | None, count: int | None, output: str
) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for a wave that the shutdown had not."""
    account, code = choose_account(journals, episode)
    if wave is not None and wave >= len(account.waves):
        waves = f"0 to {len(account.waves) - 1}" if account.waves else "none"
        raise Refused(f"no wave {wave} in {account.id}: it had {waves}")
    costs = blame(account, wave=wave)[:count]
    if output == "json":
        show_json(document(account, costs))
    elif costs:
        show(table(HEADINGS, map(_row, costs), right=("TIME", "ALONE", "WAVE")))
    else:
        show("nothing was stopped")
    return code


def document(account: Account, costs: Sequence[Cost]) -> dict[str, Any]:
    """Times in seconds since the signal."""
    return {
        "kind": "Blame",
        "version": BLAME_VERSION,
        "episode": shutdown_document(account),
        "entries": [
            {
                "tookSeconds": seconds(cost.took_ns),
                "aloneSeconds": seconds(cost.alone_ns),
                "wave": cost.pod.wave if cost.pod.wave >= 0 else None,
                "pod": cost.pod.label,
                "uid": cost.pod.uid,
                "outcome": cost.pod.outcome,
                "container": cost.part.container,
                "what": cost.part.what,
                "text": cost.part.text,
                "beganSeconds": seconds(cost.part.began_ns),
                "ended": cost.part.seen,
            }
            for cost in costs
        ],
    }


def _row(cost: Cost) -> tuple[str, ...]:
    pod, part = cost.pod, cost.part
    return (
        f"{'' if part.seen else '>'}{span(cost.took_ns)}",
        span(cost.alone_ns) if cost.alone_ns else "-",
        str(pod.wave) if pod.wave >= 0 else "-",
        pod.label,
        part.container,
        pod.outcome or "unknown",
        part.text,
    )
