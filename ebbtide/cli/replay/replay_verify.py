"""``ebbtide replay verify``: is the whole journal a function of its facts?

The first difference is shown with both sides, its causes, the actor's state, and why, probably.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ebbtide import __version__
from ebbtide.cli.common.guard import CORRUPT, DIVERGED, DONE, NOT_SO, Refused, code_of, unreadable, worst
from ebbtide.cli.common.output import painter, remark, show, show_json
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.shared_options import (
    EpisodeCommand,
    journals_option,
    optional_episode_argument,
    output_option,
)
from ebbtide.events.base import episode_id, head_text
from ebbtide.events.messages import plural
from ebbtide.events.record.episodes import headless_episode
from ebbtide.events.record.format import visible
from ebbtide.events.recovery import Verdict
from ebbtide.events.segment import LOGICS
from ebbtide.events.units import span_s
from ebbtide.replay.replayer import STATEMENTS, Side, ValueChange
from ebbtide.replay.verify import HIDES, HeadState, NotedHead, Verification, parse_head, verify

if TYPE_CHECKING:
    from ebbtide.replay.divergence import Explanation


EPILOG = """\b
Examples:
  ebbtide replay verify
  ebbtide replay verify last --journal /mnt/old/journal
  ebbtide replay verify -o json | jq .identical
  ebbtide replay verify --head 96:5f0c…    as it was noted elsewhere
"""


@click.command("verify", epilog=EPILOG, cls=EpisodeCommand)
@optional_episode_argument
@journals_option
@click.option(
    "--head",
    default="",
    metavar="HEAD",
    help="A head that was noted outside of the journal (NUMBER:HASH, HASH, or a trace id): is it this one's?",
)
@output_option("table", "json")
def verify_command(episode: str | None, journals: tuple[Path, ...], head: str, output: str) -> int:
    """Feed the facts again and compare every decision, byte by byte.

    EPISODE (last, -1, -2, …, or an id) limits what is reported; all of the journal before it is executed in
    any case. Without it everything is. Exit code 3: it diverged; the first difference is explained.

    It says that the journal is consistent, not whose it is: who can write its files can make another that is
    consistent, too. With --head it is compared with what was noted elsewhere. Exit code 5: it is another one.
    """
    try:
        noted = parse_head(head) if head else None
    except ValueError as error:
        raise Refused(str(error)) from error
    # All is executed in any case: a state is a function of every fact before it. 0: all of it is reported
    # too.
    only = 0
    if episode is not None:
        from ebbtide.cli.common.selection import choose_episode

        only = choose_episode(journals, episode).first_seq
    history = open_journal(journals, logics=LOGICS)
    gc.disable()  # nothing here makes cycles, and looking for them takes a twentieth of the time
    try:
        began = time.perf_counter()
        result = verify(history, only, noted)
        seconds = time.perf_counter() - began
    finally:
        gc.enable()
    explained = None
    if result.divergence is not None:
        # Imported and read a second time only now: most runs have nothing to explain.
        from ebbtide.replay.divergence import explain

        again = open_journal(journals, logics=LOGICS)
        explained = explain(again, result.divergence, __version__)
    # Older segments may be gone by retention: then it is intact, and yet not all of that shutdown is here.
    number = headless_episode(open_journal(journals, logics=LOGICS))
    headless = "" if number is None else episode_id(result.verdict.journal_id, number)
    if output == "json":
        show_json(verification_document(result, explained, seconds, noted, headless))
    else:
        count = f"{result.events} events, {plural(result.episodes, 'episode')}"
        if explained is not None:
            lines = divergence_lines(explained, painter(DIVERGENCE_STYLES))
            show("\n".join((f"diverged: {count} up to the first difference", *lines)))
        elif _why_silent(result):
            show(f"not verified: {count} before what cannot be read, and no difference among them")
        else:
            speed = f"{span_s(seconds)}, {result.events / max(seconds, 1e-9):,.0f} events a second"
            show(f"identical: {count}, every decision as recorded ({speed})")
            if noted is None:
                # Not one word more than was shown: who can write the files can make all of them anew.
                show("consistent, not authentic: compare the head with one that was noted elsewhere (--head)")
                show(f"head {head_of(result.verdict)}")
        if headless:
            show(f"the journal begins in the middle of {headless}: of it only what is here was compared")
    code = DONE
    if result.failure is not None:
        remark(f"ebbtide: {_why_silent(result)}")
        code = code_of(result.failure)
    codes = [conclude(result.verdict), DIVERGED if result.divergence else DONE, code]
    if noted is not None:
        state = noted.state(result.noted_seq, result.verdict)
        sentence = head_sentence(noted, result)
        if state != "there":
            remark(f"ebbtide: {sentence}")
        elif output != "json":
            show(sentence)
        codes.append(HEAD_CODES[state])
    return worst(codes)


#: Another journal in the place of the one that was noted is a loss of what had been on record. One that
#: begins later may be the same: that it is cannot be said.
HEAD_CODES: dict[HeadState, int] = {"there": DONE, "other": CORRUPT, "gone": NOT_SO}


def head_of(verdict: Verdict) -> str:
    """As ``--head`` takes it."""
    return head_text(verdict.end.seq, verdict.head)


def head_sentence(noted: NotedHead, result: Verification) -> str:
    """What becomes of a head that was noted."""
    what = "trace id" if noted.of_trace else "hash"
    first, last = result.verdict.first_seq, result.verdict.end.seq
    if result.noted_seq:
        return f"as noted: record {result.noted_seq} has this {what}, so nothing up to it was changed since"
    at = f"record {noted.seq}" if noted.seq else f"the record with the noted {what}"
    if noted.state(0, result.verdict) == "gone":
        return f"the head cannot be compared: the journal begins at record {first}, and {at} is not in it"
    if noted.seq > last:
        return f"not the journal that was noted, or its end is lost: it ends at record {last}, before {at}"
    if noted.seq:
        return f"not the journal that was noted: {at} has another hash, so it was made anew"
    return f"this is not the journal that was noted, or its end is lost: no record has that {what}"


VERIFICATION_VERSION = 1

#: What differs stands out; column titles stand back.
DIVERGENCE_STYLES: dict[str, dict[str, Any]] = {
    "differs": {"fg": "red", "bold": True},
    "dim": {"dim": True},
}

#: Of a value in a column, and of a line of data; ``-o json`` has all of it.
COLUMN_CHARACTERS_MAX, LINE_CHARACTERS_MAX = 48, 400

NO_STATE = "none: it is not there yet, or an edge has none"

Paint = Callable[[str, str], str]


def _why_silent(result: Verification) -> str:
    """Why nothing is claimed of the whole; a torn tail was never part of it."""
    if result.failure is not None:
        return f"record {result.stopped_seq} cannot be executed: {unreadable(result.failure)}"
    return result.verdict.banner if result.verdict.state in HIDES else ""


def verification_document(
    result: Verification,
    explained: Explanation | None,
    seconds: float,
    noted: NotedHead | None = None,
    headless: str = "",
) -> dict[str, Any]:
    """The promised shape; with a ``reason`` where part of the journal could not be verified, and with the id
    of the shutdown whose begin is not on record as ``headless``.

    ``head`` is the journal's, and ``noted`` what became of the one that was given.
    """
    silent = _why_silent(result)
    return {
        "kind": "Verification",
        "version": VERIFICATION_VERSION,
        "episodes": result.episodes,
        "events": result.events,
        "identical": result.identical,
        "seconds": round(seconds, 6),
        "divergence": None if explained is None else divergence_document(explained),
        "head": head_of(result.verdict) or None,
        **({"noted": noted.state(result.noted_seq, result.verdict)} if noted else {}),
        **({"reason": silent} if silent else {}),
        **({"headless": headless} if headless else {}),
    }


def divergence_document(explained: Explanation) -> dict[str, Any]:
    """The divergence as ``replay verify -o json`` has it. A field at its default is null, or left out."""
    divergence = explained.divergence
    return {
        "seq": divergence.seq,
        "actor": explained.actor,
        "field": divergence.field,
        "expected": _side(divergence.expected),
        "produced": _side(divergence.produced),
        "differences": [_change(row, "expected", "produced") for row in explained.rows if row.differs],
        "causes": [_plain(cause._asdict()) for cause in explained.causes],
        "state": _plain(explained.before),
        "stateChanges": [_change(row, "before", "after") for row in explained.made],
        "reasons": [reason._asdict() for reason in explained.reasons],
    }


def divergence_lines(explained: Explanation, paint: Paint) -> Iterator[str]:
    """The same for people; ``paint(colour, text)`` emphasises what differs."""
    divergence = explained.divergence
    statement = divergence.field if divergence.field in STATEMENTS else f"{divergence.field} differs"
    yield f"record {divergence.seq} of {_named(explained)}: {visible(statement)}"
    yield ""
    # What stands around the event, then its fields. Times only where they differ: they mostly follow from the
    # facts, and would hide what does not.
    recorded, produced = divergence.expected, divergence.produced
    envelope = [
        ValueChange(name, getattr(recorded, name) or None, getattr(produced, name) or None)
        for name in ("type", "actor", "cause", "episode")
    ]
    envelope += [
        ValueChange(name, getattr(recorded, name), getattr(produced, name))
        for name in ("mono_ns", "wall_ns", "last")
        if produced.type and getattr(recorded, name) != getattr(produced, name)
    ]
    yield from _columns(("recorded", "produced"), [*envelope, *explained.rows], paint)
    yield ""
    yield "because of"
    for cause in explained.causes:
        head = f"{cause.seq:>8}  {visible(cause.type)} of {visible(cause.actor)}"
        yield f"{head}  {_cut(cause.data, LINE_CHARACTERS_MAX)}"
    yield ""
    yield f"state of {_named(explained)} before that step"
    before = explained.before
    yield f"  {_cut(before, LINE_CHARACTERS_MAX) if before is not None else NO_STATE}"
    if explained.made:
        yield ""
        yield "what the step makes of it"
        yield from _columns(("before", "after"), explained.made, paint)
    yield ""
    yield "why, probably"
    for reason in explained.reasons:
        yield f"  {visible(reason.sentence)}"


def _named(explained: Explanation) -> str:
    """The actor, and by name the pod that it is there for."""
    pod = explained.before.get("pod") if isinstance(explained.before, dict) else None
    name = f" ({pod.get('namespace')}/{pod.get('name')})" if isinstance(pod, dict) else ""
    return visible(f"{explained.actor}{name}")


def _columns(titles: tuple[str, str], rows: Iterable[ValueChange], paint: Paint) -> Iterator[str]:
    cells = [(visible(row.path), _cell(row.left), _cell(row.right), row.differs) for row in rows]
    width = max((len(name) for name, *_ in cells), default=0)
    left = max([len(titles[0]), *(len(cell[1]) for cell in cells)])
    yield paint("dim", f"    {'':<{width}}  {titles[0]:<{left}}  {titles[1]}".rstrip())
    for name, one, other, differs in cells:
        text = f"{name:<{width}}  {one:<{left}}  {other}"
        yield paint("differs", f"  > {text}".rstrip()) if differs else f"    {text}"


def _cell(value: Any) -> str:
    return "-" if value is None else _cut(value, COLUMN_CHARACTERS_MAX)


def _cut(value: Any, characters_max: int) -> str:
    text = visible(value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False))
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def _side(side: Side) -> dict[str, Any] | None:
    if not side.type:
        return None
    return {
        "type": side.type,
        "actor": side.actor,
        "cause": side.cause or None,
        "monoNs": side.mono_ns,
        "wallNs": side.wall_ns,
        "last": side.last,
        "data": _plain(side.data),
    }


def _change(row: ValueChange, left: str, right: str) -> dict[str, Any]:
    return {"field": row.path, left: _plain(row.left), right: _plain(row.right)}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)
