"""Episodes by name, and as a list: the shutdowns that a journal tells of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.edges.boot import boot_id
from ebbtide.cli.events import rfc3339
from ebbtide.cli.guard import WRONG, Refused, code_of, unreadable, worst
from ebbtide.cli.output import remark, show, show_json, table
from ebbtide.cli.reading import conclude, open_journal
from events.base import NS_PER_SECOND
from events.codec import BadPayload, UnknownType
from events.episodes import Episode, episodes
from events.history import History, Unread
from events.recovery import Verdict
from replay.choice import NamedT, NoSuchShutdown, pick

if TYPE_CHECKING:
    from replay.account.model import Account

LIST_VERSION = 1

#: What begins like an option, and is none.
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
                "journal": verdict_document(_verdict(history)),
                "episodes": [document(episode) for episode in found],
            }
        )
    elif found:
        headings = ("EPISODE", "KIND", "STARTED", "TOOK", "OUTCOME", "PODS", "TRACE")
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


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """``banner`` null: there is nothing to say of an intact journal."""
    return {"state": verdict.state, "banner": None if verdict.state == "intact" else verdict.banner}


def choose(journals: Sequence[Path], name: str) -> Episode:
    """The episode that is called so. Raises Refused, naming those that there are."""
    history = open_journal(journals)
    return _pick(history, episodes(history, boot_id=boot_id()), name)


def choose_account(journals: Sequence[Path], name: str) -> tuple[Account, int]:
    """The account of the shutdown that is called so, and the exit code of the journal's verdict.

    What is wrong with the journal is said on standard error. Raises Refused, naming those that there are.
    """
    from replay.account.damage import with_verdict
    from replay.account.fold import accounts

    history = open_journal(journals)
    account = _pick(history, accounts(history, boot_id=boot_id()), name)
    verdict = _verdict(history)
    return with_verdict(account, verdict), conclude(verdict)


def _verdict(history: History) -> Verdict:
    """Reads on where a reader stopped before the end."""
    try:
        return history.verdict
    except Unread:
        return history.read()


def _pick(history: History, found: Iterable[NamedT], name: str) -> NamedT:
    """Where a damaged journal has no such shutdown, the damage may be why, and its code is the exit code."""
    if name.startswith("-") and not _BACKWARDS.fullmatch(name):
        raise Refused(f"no such option: {name}")
    try:
        return pick(found, name)
    except NoSuchShutdown as error:
        code = conclude(history.verdict) or WRONG
        raise Refused(f"{error}; 'ebbtide journal ls' lists them", code) from None


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
        episode.trace_id,
    )


def _took(episode: Episode) -> str:
    if episode.ended_wall_ns is None:
        return "-"
    return f"{(episode.ended_wall_ns - episode.started_wall_ns) / NS_PER_SECOND:.1f} s"
