"""Shutdowns by name, as a list, and as the documents that printed results share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.cli.common.guard import WRONG, Refused, code_of, unreadable, worst
from ebbtide.cli.common.output import remark, show, show_json, table
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.records import rfc3339
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.codec import BadPayload, UnknownType
from ebbtide.events.reader import History, Unread
from ebbtide.events.record.episodes import Episode, episodes
from ebbtide.events.recovery import Verdict
from ebbtide.replay.journal import HasShutdownIdT, NoSuchShutdown, pick

if TYPE_CHECKING:
    from ebbtide.events.record.model import ShutdownRecord


# Episodes by name, and as a list: the shutdowns that a journal tells of.


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
                "journal": verdict_document(_verdict_of(history)),
                "episodes": [episode_document(episode) for episode in found],
            }
        )
    elif found:
        headings = ("EPISODE", "KIND", "STARTED", "TOOK", "OUTCOME", "PODS", "TRACE")
        show(table(headings, map(_episode_row, found), right=("TOOK",)))
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


def episode_document(episode: Episode) -> dict[str, Any]:
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


def choose_episode(journals: Sequence[Path], name: str) -> Episode:
    """The episode that is called so. Raises Refused, naming those that there are."""
    history = open_journal(journals)
    return _pick_by_name(history, episodes(history, boot_id=boot_id()), name)


def choose_account(journals: Sequence[Path], name: str) -> tuple[ShutdownRecord, int]:
    """The account of the shutdown that is called so, and the exit code of the journal's verdict.

    What is wrong with the journal is said on standard error. Raises Refused, naming those that there are.
    """
    from ebbtide.events.record.fold import shutdown_records
    from ebbtide.events.record.model import with_verdict

    history = open_journal(journals)
    account = _pick_by_name(history, shutdown_records(history, boot_id=boot_id()), name)
    verdict = _verdict_of(history)
    return with_verdict(account, verdict), conclude(verdict)


def _verdict_of(history: History) -> Verdict:
    """Reads on where a reader stopped before the end."""
    try:
        return history.verdict
    except Unread:
        return history.read()


def _pick_by_name(history: History, found: Iterable[HasShutdownIdT], name: str) -> HasShutdownIdT:
    """Where a damaged journal has no such shutdown, the damage may be why, and its code is the exit code."""
    if name.startswith("-") and not _BACKWARDS.fullmatch(name):
        raise Refused(f"no such option: {name}")
    try:
        return pick(found, name)
    except NoSuchShutdown as error:
        code = conclude(history.verdict) or WRONG
        raise Refused(f"{error}; 'ebbtide journal ls' lists them", code) from None


def _episode_row(episode: Episode) -> tuple[str, ...]:
    pods = ", ".join(f"{count} {outcome}" for outcome, count in episode.pods.items() if count)
    started = rfc3339(episode.started_wall_ns)
    return (
        episode.id,
        episode.kind,
        f"{started[:10]} {started[11:19]} UTC",
        "-"
        if episode.ended_wall_ns is None
        else f"{(episode.ended_wall_ns - episode.started_wall_ns) / NS_PER_SECOND:.1f} s",
        episode.outcome,
        pods or "none",
        episode.trace_id,
    )


# What the printed forms of an account share: seconds in JSON, and which shutdown it is about.


def seconds_or_none(duration_ns: int | None) -> float | None:
    """For JSON; null for what did not happen."""
    return None if duration_ns is None else duration_ns / NS_PER_SECOND


def shutdown_document(account: ShutdownRecord) -> dict[str, Any]:
    """Which shutdown a document is about, in the words of ``journal ls``."""
    return {
        "id": account.id,
        "traceId": account.trace_id,
        "node": account.node,
        "kind": account.kind,
        "started": rfc3339(account.started_wall_ns),
        "outcome": account.outcome,
        "endedSeconds": seconds_or_none(account.ended_ns),
        "journal": journal_document(account),
    }


def journal_document(account: ShutdownRecord) -> dict[str, Any]:
    """The journal's verdict. ``endsHere``: it is the record of this shutdown that the damage cuts off."""
    damage = account.damage
    if damage is None:
        return {"state": "intact", "banner": None, "endsHere": False}
    return {"state": damage.state, "banner": damage.banner, "endsHere": damage.here}
