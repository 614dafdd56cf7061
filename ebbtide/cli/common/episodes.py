"""Shutdowns by name, and the documents about them that printed results share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.cli.common.guard import WRONG, Refused, code_of, unreadable, worst
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.codec import BadPayload, UnknownType
from ebbtide.events.reader import History, Unread
from ebbtide.events.record.episodes import Episode, episodes
from ebbtide.events.record.format import rfc3339
from ebbtide.events.recovery import Verdict
from ebbtide.replay.journal import HasShutdownIdT, NoSuchShutdown, pick

if TYPE_CHECKING:
    from ebbtide.events.record.model import ShutdownRecord

#: What begins like an option, and is none.
_BACKWARDS = re.compile(r"-[1-9][0-9]{0,8}")


def read_episodes(history: History) -> tuple[list[Episode], int]:
    """The shutdowns up to where it cannot be read on; says on standard error what was wrong, and its code."""
    found: list[Episode] = []
    try:
        found.extend(episodes(history, boot_id=boot_id()))
    except (BadPayload, UnknownType) as error:
        # The shutdowns before it are worth more than an error in their place: `extend` has kept them.
        remark(f"ebbtide: {unreadable(error)}")
        return found, worst((conclude(history.read()), code_of(error)))
    return found, conclude(history.verdict)


def choose_episode(journals: Sequence[Path], name: str) -> Episode:
    """The episode that is called so. Raises Refused, naming those that there are."""
    history = open_journal(journals)
    return _pick_by_name(history, episodes(history, boot_id=boot_id()), name)


def choose_shutdown(journals: Sequence[Path], name: str) -> tuple[ShutdownRecord, int]:
    """The record of the shutdown that is called so, and the exit code of the journal's verdict.

    What is wrong with the journal is said on standard error. Raises Refused, naming those that there are.
    """
    from ebbtide.events.record.fold import shutdown_records
    from ebbtide.events.record.model import with_verdict

    history = open_journal(journals)
    shutdown = _pick_by_name(history, shutdown_records(history, boot_id=boot_id()), name)
    verdict = whole_verdict(history)
    return with_verdict(shutdown, verdict), conclude(verdict)


def whole_verdict(history: History) -> Verdict:
    """Reads on where a reader stopped before the end: damage behind a shutdown is damage all the same."""
    try:
        return history.verdict
    except Unread:
        return history.read()


def _pick_by_name(history: History, found: Iterable[HasShutdownIdT], name: str) -> HasShutdownIdT:
    # The verbs hand over what they do not know (`ignore_unknown_options`), or ``-2`` would be an option. So
    # what else begins with a dash comes here, where the person meant an option and not a shutdown.
    if name.startswith("-") and not _BACKWARDS.fullmatch(name):
        raise Refused(f"no such option: {name}")
    try:
        return pick(found, name)
    except NoSuchShutdown as error:
        # Where a journal is damaged, the damage may be why it is not there, and has the exit code.
        code = conclude(history.verdict) or WRONG
        raise Refused(f"{error}; 'ebbtide journal ls' lists them", code) from None


def outcomes_text(pods: Mapping[Any, int]) -> str:
    """``3 graceful, 1 killed``; empty where there was no pod."""
    return ", ".join(f"{count} {outcome}" for outcome, count in pods.items() if count)


def seconds_or_none(duration_ns: int | None) -> float | None:
    """For JSON, where every time is in seconds; null for what did not happen."""
    return None if duration_ns is None else duration_ns / NS_PER_SECOND


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


def shutdown_document(shutdown: ShutdownRecord) -> dict[str, Any]:
    """Which shutdown a document is about, in the words of ``journal ls``.

    ``endsHere``: it is the record of this shutdown that the journal's damage cuts off.
    """
    damage = shutdown.damage
    return {
        "id": shutdown.id,
        "traceId": shutdown.trace_id,
        "node": shutdown.node,
        "kind": shutdown.kind,
        "started": rfc3339(shutdown.started_wall_ns),
        "outcome": shutdown.outcome,
        "endedSeconds": seconds_or_none(shutdown.ended_ns),
        "journal": {
            "state": "intact" if damage is None else damage.state,
            "banner": None if damage is None else damage.banner,
            "endsHere": damage is not None and damage.here,
        },
    }
