"""The selection of a shutdown, a moment or a pod; and documents about shutdowns.

A moment (``--since``, ``--until``, ``--at``) is ``214``, a record's number; ``+3.5s`` or ``-2s`` since the
shutdown's signal; ``10m`` ago; or ``2026-03-01T12:00:00Z``, a time (RFC 3339, or as in tables; UTC without a
zone).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.cli.common.guard import WRONG, Refused, code_of, unreadable, worst
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.events.base import JOURNAL_ACTOR, NS_PER_SECOND
from ebbtide.events.codec import BadPayload, RawRecord, UnknownType
from ebbtide.events.reader import History, Unread
from ebbtide.events.record.episodes import Episode, episodes
from ebbtide.events.record.fold import BootRecord
from ebbtide.events.record.format import json_object
from ebbtide.events.recovery import Verdict
from ebbtide.events.units import json_seconds
from ebbtide.replay.journal_library import HasShutdownIdT, NoSuchShutdown, pick

if TYPE_CHECKING:
    from ebbtide.events.messages import Names
    from ebbtide.events.record.causes import CauseGroup, RootCause
    from ebbtide.events.record.episodes import EpisodeRecord
    from ebbtide.events.record.outage_causes import OutageCause
    from ebbtide.events.record.shutdown_record import ShutdownRecord
    from ebbtide.replay.timeline import Moment

#: An episode that looks like an option.
_BACKWARDS = re.compile(r"-[1-9][0-9]{0,8}")


def read_episodes(history: History, boots: list[BootRecord] | None = None) -> tuple[list[Episode], int]:
    """The readable episodes, and the exit code; reports defects. ``boots`` takes the ends of boots."""
    found: list[Episode] = []
    try:
        found.extend(episodes(history, boot_id=boot_id(), boots=boots))
    except (BadPayload, UnknownType) as error:
        # `extend` has kept the shutdowns before the error.
        remark(f"ebbtide: {unreadable(error)}")
        return found, worst((conclude(history.read()), code_of(error)))
    return found, conclude(history.verdict)


def choose_episode(journals: Sequence[Path], name: str) -> Episode:
    """Raises Refused with the existing names."""
    history = open_journal(journals)
    return _pick_by_name(history, episodes(history, boot_id=boot_id()), name)


def choose_shutdown(journals: Sequence[Path], name: str) -> tuple[ShutdownRecord, int]:
    """With the exit code of the journal's verdict; reports defects. Raises Refused with the existing names,
    and for an outage.
    """
    from ebbtide.events.record.outage_record import OutageRecord

    found, code = choose_record(journals, name)
    if isinstance(found, OutageRecord):
        raise Refused(f"{found.id}: this is an outage; {INSTEAD_OF_OUTAGE}")
    return found, code


INSTEAD_OF_OUTAGE = (
    "this can be asked of shutdowns only: 'ebbtide replay critical-chain' says what an outage waited for,"
    " and 'ebbtide replay blame' what each pod and volume did"
)


def choose_record(journals: Sequence[Path], name: str) -> tuple[EpisodeRecord, int]:
    """A shutdown or an outage, as `choose_shutdown`."""
    from ebbtide.events.record.episodes import records_of
    from ebbtide.events.record.shutdown_record import with_verdict

    history = open_journal(journals)
    found = _pick_by_name(history, records_of(history, boot_id=boot_id()), name)
    verdict = whole_verdict(history)
    return with_verdict(found, verdict), conclude(verdict)


def whole_verdict(history: History) -> Verdict:
    """Of the whole journal: damage behind a shutdown also counts."""
    try:
        return history.verdict
    except Unread:
        return history.read()


def history_kind(history: History) -> str:
    return "outage" if history.of_outages else "shutdown"


def _pick_by_name(history: History, found: Iterable[HasShutdownIdT], name: str) -> HasShutdownIdT:
    # `ignore_unknown_options` lets ``-2`` through, and every other unknown option.
    if name.startswith("-") and not _BACKWARDS.fullmatch(name):
        raise Refused(f"no such option: {name}")
    try:
        return pick(found, name, history_kind(history))
    except NoSuchShutdown as error:
        # A damaged journal may miss it because of the damage.
        code = conclude(history.verdict) or WRONG
        raise Refused(f"{error}{listed_by(error)}", code) from None


def listed_by(error: NoSuchShutdown) -> str:
    """Empty without any."""
    return "; 'ebbtide journal ls' lists them" if error.count else ""


MOMENT_METAVAR = "SEQ|+TIME|AGO|TIME"
#: For an option's help.
MOMENT_FORMS = "214, +3.5s since the signal, 10m ago, or a time"


def parse_moment(text: str, option: str, now_ns: int | None = None) -> Moment:
    """``now_ns``: Unix time. Raises Refused."""
    from ebbtide.replay.timeline import Moment

    if text.isascii() and text.isdecimal():
        return Moment("seq", int(text))
    from ebbtide.config.fields import parse_duration

    try:
        duration_ns = parse_duration(text)
    except ValueError:
        duration_ns = None
    if duration_ns is not None:
        if text.lstrip().startswith(("+", "-")):
            return Moment("since_ns", duration_ns)
        return Moment("wall_ns", (time.time_ns() if now_ns is None else now_ns) - duration_ns)
    written = text.removesuffix(" UTC")
    # `datetime` keeps only microseconds.
    fraction = re.search(r"\.(\d{1,9})\d*", written)
    try:
        whole = datetime.fromisoformat(written.replace(fraction[0], "") if fraction else written)
        seconds = int((whole if whole.tzinfo else whole.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise Refused(
            f"{option} {text!r} is neither a record's number (214), nor a time since the signal (+3.5s), nor"
            " a duration back from now (10m), nor a time (2026-03-01T12:00:00Z)"
        ) from None
    return Moment("wall_ns", seconds * NS_PER_SECOND + int(fraction[1].ljust(9, "0") if fraction else 0))


def known_actor(wanted: str) -> str:
    """Raises Refused with the existing names."""
    from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, EDGE, SYSTEM
    from ebbtide.replay.timeline import is_actor, short_name

    names = (*ACTOR_TYPE_BY_NAME, EDGE, SYSTEM, JOURNAL_ACTOR)
    if not any(is_actor(wanted.partition(":")[0], name, short_name(name)) for name in names):
        known = ", ".join(map(short_name, names))
        raise Refused(f"no actor is called {wanted!r}: name one of {known}, or NAME:SUBJECT")
    return wanted


def pod_uids(wanted: str, names: Names) -> Callable[[], Sequence[str]]:
    """The pod's UIDs in the records so far: a recreated pod has several. ``wanted``: namespace/name, a name,
    or a UID.
    """
    from ebbtide.replay.timeline import is_pod

    @lru_cache(maxsize=1)
    def uids(known: int) -> list[str]:
        return [uid for uid, label in names.labels.items() if is_pod(wanted, uid, label)]

    # Names only grow, so their number shows a new one.
    return lambda: uids(len(names.labels))


def names_pod(raw: RawRecord, uids: Sequence[str]) -> bool:
    """The pod's actor wrote it, or it has the UID as a value or in an order's key."""
    return raw.actor.partition(":")[2] in uids or any(
        needle in raw.payload for uid in uids for needle in (msgspec.msgpack.encode(uid), f"/{uid}/".encode())
    )


def outcomes_text(pods: Mapping[Any, int], running: int = 0) -> str:
    """``3 graceful, 1 killed``; empty without pods. ``running``: so many of the unknown ones run."""
    shown = {**pods, "unknown": pods.get("unknown", 0) - running, "running": running}
    return ", ".join(f"{count} {outcome}" for outcome, count in shown.items() if count)


def journal_state(verdict: Verdict) -> dict[str, str | None]:
    """``banner`` null: the journal is intact."""
    return {"state": verdict.state, "banner": None if verdict.state == "intact" else verdict.banner}


def boot_heading(boot: BootRecord) -> dict[str, Any]:
    """``episode`` null: no shutdown; ``wave`` null: not cut short in one."""
    end, wave = boot.event, boot.event.wave if boot.event.wave >= 0 else None
    fields = {"boot_id": end.boot_id, "ending": end.ending, "why": end.why, "wave": wave}
    return json_object(fields | {"alive_wall_ns": end.alive_wall_ns or None, "episode": boot.episode or None})


_OF_EPISODE = ("id", "trace_id", "node", "kind", "started_wall_ns", "outcome", "ended_ns")


def episode_heading(episode: EpisodeRecord) -> dict[str, Any]:
    """Only a shutdown has a severity and ``causes``; without ``cause`` it went well. ``endsHere``: the damage
    cuts this episode's record.
    """
    from ebbtide.events.record.causes import cause_tree, headline, root_cause
    from ebbtide.events.record.outage_causes import outage_cause, outage_headline
    from ebbtide.events.record.shutdown_record import ShutdownRecord

    heading, damage = json_object({name: getattr(episode, name) for name in _OF_EPISODE}), episode.damage
    state = ("intact", None, False) if damage is None else (damage.state, damage.banner, damage.here)
    heading["journal"] = dict(zip(("state", "banner", "endsHere"), state, strict=True))
    root: RootCause | OutageCause | None
    if isinstance(episode, ShutdownRecord):
        root, line = root_cause(episode), headline(episode)
        heading["severity"] = episode.severity
        heading["causes"] = [shown_cause(episode, each) for each in cause_tree(episode)]
    else:
        root, line = outage_cause(episode), outage_headline(episode)
    return heading | {"headline": line} | ({} if root is None else {"cause": root.code, "do": root.do})


def shown_cause(shutdown: ShutdownRecord, root: RootCause) -> dict[str, Any]:
    """With its consequences: a group for each kind of warning, with its pods."""
    labels = {pod.uid: pod.label for pod in shutdown.pods}

    def shown(group: CauseGroup) -> dict[str, Any]:
        fields = {name: getattr(group, name) for name in ("code", "severity", "count", "text")}
        fields["pods"] = [{"pod": labels[uid], "uid": uid} for uid in group.pods]
        fields["warnings"] = [
            {
                "seq": each.seq,
                "sinceSeconds": json_seconds(each.at_ns),
                "code": each.code,
                "text": each.text,
                "uid": each.pod or None,
            }
            for each in group.notices
        ]
        return fields

    consequences = list(map(shown, root.within))
    return shown(root) | {"level": root.level, "do": root.do, "consequences": consequences}
