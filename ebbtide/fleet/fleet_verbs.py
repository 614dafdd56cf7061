"""A verb over all journals of a fleet. Each journal's last answer is about the journal itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ebbtide.events.base import episode_id
from ebbtide.events.codec import UnknownType
from ebbtide.events.record.episodes import headless_episode
from ebbtide.events.segment import LOGICS
from ebbtide.events.values import Period, Settings
from ebbtide.fleet.fleet_journals import (
    OF_THE_READER,
    Opened,
    Ref,
    StoreFailed,
    error_text,
    open_journals,
)
from ebbtide.fleet.fleet_rows import UNREAD
from ebbtide.replay.advise import Evidence, Trial, workload
from ebbtide.replay.journal_library import Journal

DIVERGED, NOT_ASKED = "diverged", "not-asked"


class Answer(Struct, frozen=True, kw_only=True):
    """``state``: empty for a shutdown that was decided again. ``error``: why the shutdown or the journal was
    not used, or is incomplete.
    """

    cluster: str = ""
    node: str = ""
    journal_id: str = ""
    location: str = ""
    state: str = ""
    error: str = ""


AnswerT = TypeVar("AnswerT", bound=Answer)


class Verb(NamedTuple, Generic[AnswerT]):
    answer: type[AnswerT]
    ask: Callable[[Journal], Iterator[AnswerT]]


def ask_journals(verb: Verb[AnswerT], refs: Iterable[Ref]) -> list[AnswerT]:
    """An unreadable journal is an answer with an ``error``."""
    return [answer for ref in refs for opened in open_journals(ref) for answer in _ask(opened, verb)]


def _ask(opened: Opened, verb: Verb[AnswerT]) -> list[AnswerT]:
    found: list[AnswerT] = []
    if opened.error:
        found.append(verb.answer(state=UNREAD, error=opened.error))
    if opened.sources:
        try:
            # `extend` keeps the answers before an error.
            found.extend(verb.ask(opened.journal()))
        except OF_THE_READER:
            raise
        except Exception as problem:
            found.append(verb.answer(state=UNREAD, error=error_text(problem)))
    if opened.lies:
        journal = found.pop() if found else verb.answer(state="intact")
        state = "corrupt" if journal.state in ("intact", "torn", DIVERGED) else journal.state
        said = filter(None, (journal.error, *opened.lies))
        found.append(replace(journal, state=state, error="; ".join(said)))
    return [
        replace(
            each,
            cluster=opened.cluster,
            node=opened.node if opened.names_node else each.node or opened.node,
            journal_id=opened.id,
            location=opened.location,
        )
        for each in found
    ]


# --- verify


class Verified(Answer, frozen=True, kw_only=True):
    """``headless``: a shutdown with its begin in a removed segment."""

    events: int = 0
    headless: str = ""


def _verify(journal: Journal) -> Iterator[Verified]:
    # Late: a process of a pool loads only what its verb needs.
    from ebbtide.replay.verify import verify

    found = verify(journal.history(logics=LOGICS))
    state: str = found.verdict.state
    error = ""
    if isinstance(found.failure, UnknownType):
        state = "incompatible"
    elif found.failure is not None:
        state = "corrupt"
    if found.failure is not None or state != "intact":
        error = str(found.failure or found.verdict.banner)
    if found.divergence and state in ("intact", "torn"):
        state, error = DIVERGED, str(found.divergence)
    begin = headless_episode(journal.history(logics=LOGICS)) if found.verdict.first_seq > 1 else None
    headless = "" if begin is None else episode_id(found.verdict.journal_id, begin)
    yield Verified(state=state, error=error, events=found.events, headless=headless)


VERIFY = Verb(Verified, _verify)


# --- what-if


class PodDecided(NamedTuple):
    """``change``: saved, lost, perhaps-saved, perhaps-lost, with its chance."""

    workload: str
    pod: str
    priority: int | None
    change: str
    chance_percent: int


class Decided(Answer, frozen=True, kw_only=True):
    """``shutdown``: empty for the journal itself."""

    shutdown: str = ""
    started_wall_ns: int = 0
    same: bool = False
    pods: int = 0
    changed: tuple[PodDecided, ...] = ()


def what_if_verb(settings: Settings) -> Verb[Decided]:
    return Verb(Decided, partial(_what_if, settings))


def _what_if(settings: Settings, journal: Journal) -> Iterator[Decided]:
    from ebbtide.replay.whatif.record import Changes, Diverged, WrongChange
    from ebbtide.replay.whatif.verdicts import Curves
    from ebbtide.replay.whatif.whatif_run import what_if

    shutdowns = list(journal.shutdowns())
    curves = Curves(each.account for each in shutdowns)
    for shutdown in shutdowns:
        account = shutdown.account
        row = Decided(node=account.node, shutdown=shutdown.id, started_wall_ns=account.started_wall_ns)
        if account.headless:
            yield replace(row, state=NOT_ASKED, error="its begin is not on record")
            continue
        try:
            history = journal.history(logics=LOGICS)
            found = what_if(history, account.first_seq, Changes(settings=settings), curves)
        except (*OF_THE_READER, StoreFailed):
            raise
        except Diverged as problem:
            yield replace(row, state=DIVERGED, error=f"this version decides differently: {problem}")
            continue
        except WrongChange as problem:
            yield replace(row, state=NOT_ASKED, error=str(problem))
            continue
        except Exception as problem:
            yield replace(row, state=UNREAD, error=error_text(problem))
            continue
        changed = tuple(
            PodDecided(
                workload(side.pod.namespace, side.pod.name, account.node),
                f"{side.pod.namespace}/{side.pod.name}",
                side.pod.priority,
                side.change,
                100 if side.chance_percent is None else side.chance_percent,
            )
            for side in found.pods
            if side.change != "same"
        )
        yield replace(row, same=found.is_same, pods=len(found.pods), changed=changed)
    yield Decided(**_verdict(journal))


# --- advice


class Used(Answer, frozen=True, kw_only=True):
    """``left_out``: shutdowns without their begin on record."""

    left_out: tuple[str, ...] = ()


def evidence_of(refs: Iterable[Ref], *, by_node: bool = False) -> tuple[dict[str, Evidence], list[Used]]:
    """For `replay.advise.conclude`: the evidence by node, or all as ""; and each journal's answer."""
    evidence: dict[str, Evidence] = {}

    def add_up(journal: Journal) -> Iterator[Used]:
        left_out = []
        for shutdown in journal.shutdown_records():
            evidence.setdefault(shutdown.node if by_node else "", Evidence()).add(shutdown)
            if shutdown.headless:
                left_out.append(shutdown.id)
        yield Used(left_out=tuple(left_out), **_verdict(journal))

    return evidence, ask_journals(Verb(Used, add_up), refs)


class Tried(Answer, frozen=True, kw_only=True):
    trial: Trial = Trial()


def trial_by(refs: Iterable[Ref], *, periods: tuple[Period, ...], nodes: frozenset[str] | None) -> Trial:
    """What-if of these periods on the shutdowns of ``nodes``, or of all."""
    from ebbtide.replay.whatif.whatif_run import trial_of

    def try_out(journal: Journal) -> Iterator[Tried]:
        history, shutdowns = partial(journal.history, logics=LOGICS), journal.shutdown_records()
        own = ((each, history) for each in shutdowns if nodes is None or each.node in nodes)
        yield Tried(trial=trial_of(own, periods))

    return sum((each.trial for each in ask_journals(Verb(Tried, try_out), refs)), Trial())


def _verdict(journal: Journal) -> dict[str, Any]:
    verdict = journal.verdict
    return {"state": verdict.state, "error": "" if verdict.state == "intact" else verdict.banner}
