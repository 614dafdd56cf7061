"""``ebbtide replay critical-chain``: the parts of the total time, as a tree like ``systemd-analyze``'s."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ebbtide.cli.common.output import hanging, headline_text, show, show_json
from ebbtide.cli.common.selection import choose_record, episode_heading
from ebbtide.cli.common.shared_options import episode_verb
from ebbtide.events.record.format import document, visible
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.record.shutdown_record import DAMAGED_ENDS, ShutdownRecord
from ebbtide.events.units import span
from ebbtide.replay.time_spent import Away, Chain, Segment, critical_chain, recovery_chain

EPILOG = """\b
Examples:
  ebbtide replay critical-chain
  ebbtide replay critical-chain -2 --journal /mnt/old/journal
  ebbtide replay critical-chain -o json | jq '.segments[] | select(.what == "wave")'

"@" is a part's begin after the signal, "+" its length. The last part comes first. The smallest parts add up
to the total.
"""


@episode_verb("critical-chain", EPILOG, "table", "json")
def critical_chain_command(episode: str, journals: tuple[Path, ...], output: str) -> int:
    """Show the parts of the total time, down to the pod that held each wave.

    For an outage: what its recovery waited for, from the first suspicion to the node's return.

    EPISODE is last (the default), -1, -2, …, or an id. It works on any readable journal, without execution.
    """
    shutdown, code = choose_record(journals, episode)
    chain = CHAINS[type(shutdown)](shutdown)
    if output == "json":
        show_json(document("CriticalChain", CHAIN_VERSION, chain, episode=episode_heading(shutdown)))
        return code
    from rich.console import Group, RenderableType
    from rich.text import Text

    # A tree of times lacks the causes.
    if isinstance(shutdown, ShutdownRecord) and shutdown.severity != "good":
        show(headline_text(shutdown))
    damage = shutdown.damage
    ends = f": the record ends here, {DAMAGED_ENDS[damage.state]}" if damage and damage.here else ""
    tree = Text(f"{shutdown.kind}, {shutdown.outcome}{ends} @{span(chain.total_ns)}", style="bold")
    if chain.released_ns is not None:
        tree.append(f", lock given back @{span(chain.released_ns)}")
    lines: list[RenderableType] = [tree]
    # Of the smallest parts: a wave is always longer than its pod.
    longest_ns = max((leaf.took_ns for each in chain.segments for leaf in each.leaves()), default=0)
    for branch, line, style in _tree_lines(chain.segments, list(chain.daemon_away), longest_ns):
        lines.append(hanging(Text(branch, style="dim"), Text(visible(line), style=style)))
    show(Group(*lines))
    return code


CHAIN_VERSION = 2

CHAINS: dict[type[Any], Callable[[Any], Chain]] = {
    ShutdownRecord: critical_chain,
    OutageRecord: recovery_chain,
}

#: (before a line, before the lines below it).
_MORE, _LAST = ("├─", "│ "), ("└─", "  ")


def _tree_lines(
    segments: Sequence[Segment], away: list[Away], longest_ns: int, before: str = ""
) -> Iterator[tuple[str, str, str]]:
    """(prefix, line, style), from the last segment to the first, like ``systemd-analyze critical-chain``."""
    for at in range(len(segments) - 1, -1, -1):
        segment = segments[at]
        branch, below = _MORE if at else _LAST
        red = not segment.within and segment.took_ns == longest_ns
        times = f"@{span(segment.began_ns)} +{span(segment.took_ns)}"
        yield before + branch, f"{segment.text} {times}", "red" if red else ""
        for each in [each for each in away if segment.began_ns <= each.began_ns < segment.ended_ns]:
            away.remove(each)
            took = span(each.ended_ns - each.began_ns)
            words = f"no daemon ran for at most {took} @{span(each.began_ns)}"
            yield before + below, words, "yellow"
        yield from _tree_lines(segment.within, [], longest_ns, before + below)
