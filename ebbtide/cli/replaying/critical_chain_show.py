"""Printing a critical chain as a tree, in the manner of ``systemd-analyze``: the last first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ebbtide.cli.episodes import choose_account
from ebbtide.cli.output import show, show_json
from ebbtide.cli.replaying.told import seconds, shutdown_document
from ebbtide.text import visible
from replay.account.damage import ENDS
from replay.account.model import Account
from replay.account.words import span
from replay.chain import Away, Chain, Segment, critical_chain

CHAIN_VERSION = 1

#: (before a line, before the lines below it), for one that others follow and for the last one.
_MORE, _LAST = ("├─", "│ "), ("└─", "  ")


def show_chain(journals: Sequence[Path], episode: str, output: str) -> int:
    """Exit code 0, or that of the journal's verdict."""
    account, code = choose_account(journals, episode)
    chain = critical_chain(account)
    if output == "json":
        show_json(document(account, chain))
    else:
        show(_tree(account, chain))
    return code


def document(account: Account, chain: Chain) -> dict[str, Any]:
    """Times in seconds; the segments in the order of time."""
    return {
        "kind": "CriticalChain",
        "version": CHAIN_VERSION,
        "episode": shutdown_document(account),
        "totalSeconds": seconds(chain.total_ns),
        "releasedSeconds": seconds(chain.released_ns),
        "segments": [_segment(segment) for segment in chain.segments],
        "daemonAway": [
            {"beganSeconds": seconds(each.began_ns), "atMostSeconds": seconds(each.ended_ns - each.began_ns)}
            for each in chain.away
        ],
    }


def _segment(segment: Segment) -> dict[str, Any]:
    within = {"within": [_segment(each) for each in segment.within]} if segment.within else {}
    return {
        "what": segment.what,
        "text": segment.text,
        "beganSeconds": seconds(segment.began_ns),
        "tookSeconds": seconds(segment.took_ns),
        "wave": segment.wave if segment.wave >= 0 else None,
        "uid": segment.uid or None,
        **within,
    }


# --- the tree ----------------------------------------------------------------------------------


def _tree(account: Account, chain: Chain) -> Any:
    from rich.text import Text

    damage = account.damage
    ends = f": the record ends here, {ENDS[damage.state]}" if damage is not None and damage.here else ""
    how = f"{account.outcome}{ends}"
    tree = Text(f"{account.kind}, {how} @{span(chain.total_ns)}", style="bold")
    if chain.released_ns is not None:
        tree.append(f", lock given back @{span(chain.released_ns)}")
    longest_ns = max((leaf.took_ns for each in chain.segments for leaf in each.leaves()), default=0)
    away = list(chain.away)
    for lead, line, style in _lines(chain.segments, away, longest_ns):
        tree.append(f"\n{lead}", style="not bold dim").append(visible(line), style=style)
    return tree


def _lines(
    segments: Sequence[Segment], away: list[Away], longest_ns: int, lead: str = ""
) -> Iterator[tuple[str, str, str]]:
    """(what stands before it, the line, its style), from the last segment to the first."""
    for at in range(len(segments) - 1, -1, -1):
        segment = segments[at]
        branch, below = _MORE if at else _LAST
        red = not segment.within and segment.took_ns == longest_ns
        times = f"@{span(segment.began_ns)} +{span(segment.took_ns)}"
        yield lead + branch, f"{segment.text} {times}", "not bold red" if red else "not bold"
        for each in [each for each in away if segment.began_ns <= each.began_ns < segment.ended_ns]:
            away.remove(each)
            took = span(each.ended_ns - each.began_ns)
            words = f"no daemon ran for at most {took} @{span(each.began_ns)}"
            yield lead + below, words, "not bold yellow"
        yield from _lines(segment.within, [], longest_ns, lead + below)
