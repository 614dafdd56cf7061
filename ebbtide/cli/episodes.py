"""Episodes by name, and as a list: the shutdowns that a journal tells of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.edges.boot import boot_id
from ebbtide.cli.events import rfc3339
from ebbtide.cli.guard import Refused, code_of, unreadable, worst
from ebbtide.cli.output import remark, show, show_json, table
from ebbtide.cli.reading import conclude, open_journal
from events.base import NS_PER_SECOND
from events.codec import BadPayload, UnknownType
from events.episodes import Episode, episodes
from events.history import History

LIST_VERSION = 1

#: ``last`` is ``-1``.
_BACKWARDS = re.compile(r"-[1-9][0-9]{0,8}")


def list_episodes(journals: Sequence[Path], output: str) -> int:
    """``journal ls``; the exit code of the journal's verdict."""
    history = open_journal(journals)
    found, code = read_episodes(history)
    if output == "json":
        show_json(
            {
                "kind": "EpisodeList",
                "version": LIST_VERSION,
                "journalId": history.journal_id.hex(),
                "episodes": [document(episode) for episode in found],
            }
        )
    elif found:
        headings = ("EPISODE", "KIND", "STARTED", "TOOK", "OUTCOME", "PODS")
        show(table(headings, map(_row, found), right=("TOOK",)))
    else:
        show("no shutdown yet")
    return code


def read_episodes(history: History) -> tuple[list[Episode], int]:
    """The shutdowns up to where it cannot be read on; says on standard error what was wrong, and its code."""
    found: list[Episode] = []
    try:
        found.extend(episodes(history, boot_id=boot_id()))
    except (BadPayload, UnknownType) as error:
        remark(f"ebbtide: {unreadable(error)}")
        return found, worst((conclude(history.read()), code_of(error)))
    return found, conclude(history.verdict)


def document(episode: Episode) -> dict[str, Any]:
    """The promised shape, and where the episode stands in the journal."""
    return {
        "id": episode.id,
        "traceId": episode.trace_id,
        "kind": episode.kind,
        "started": rfc3339(episode.started_wall_ns),
        "ended": None if episode.ended_wall_ns is None else rfc3339(episode.ended_wall_ns),
        "outcome": episode.outcome,
        "pods": dict(episode.pods),
        "firstSeq": episode.first_seq,
        "lastSeq": episode.last_seq,
        "bootId": episode.boot_id,
    }


def choose(journals: Sequence[Path], name: str) -> Episode:
    """The episode that is called so. Raises Refused, naming those that there are."""
    if name != "last" and name.startswith("-") and not _BACKWARDS.fullmatch(name):
        raise Refused(f"no such option: {name}")
    found = list(episodes(open_journal(journals), boot_id=boot_id()))
    back = 1 if name == "last" else int(name[1:]) if _BACKWARDS.fullmatch(name) else 0
    if 0 < back <= len(found):
        return found[-back]
    chosen = [episode for episode in found if episode.id == name]
    if not chosen:
        known = f"there are {len(found)}, the last is {found[-1].id}" if found else "there is none yet"
        raise Refused(f"no episode {name!r} in this journal: {known}; 'ebbtide journal ls' lists them")
    return chosen[0]


def _row(episode: Episode) -> tuple[str, ...]:
    pods = ", ".join(f"{count} {outcome}" for outcome, count in episode.pods.items() if count)
    started = rfc3339(episode.started_wall_ns)
    return (
        episode.id,
        episode.kind,
        f"{started[:10]} {started[11:19]} UTC",
        _took(episode),
        episode.outcome,
        pods or "none",
    )


def _took(episode: Episode) -> str:
    if episode.ended_wall_ns is None:
        return "-"
    return f"{(episode.ended_wall_ns - episode.started_wall_ns) / NS_PER_SECOND:.1f} s"
