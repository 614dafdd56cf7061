"""``ebbtide replay verify``: is the whole journal a function of its facts?"""

from __future__ import annotations

import gc
import time
from pathlib import Path

import click

from ebbtide import __version__
from ebbtide.cli.common.guard import CORRUPT, DIVERGED, DONE, NOT_SO, Refused, code_of, worst
from ebbtide.cli.common.output import painter, remark, show, show_json
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.shared_options import OPTIONAL_EPISODE, episode_verb
from ebbtide.cli.replay import divergence_view
from ebbtide.events.base import episode_id
from ebbtide.events.messages import plural
from ebbtide.events.record.episodes import headless_episode
from ebbtide.events.segment import LOGICS
from ebbtide.events.units import span_s
from ebbtide.replay.verify import HeadState, NotedHead, Verification, parse_head, verify

EPILOG = """\b
Examples:
  ebbtide replay verify
  ebbtide replay verify last --journal /mnt/old/journal
  ebbtide replay verify -o json | jq .identical
  ebbtide replay verify --head 96:5f0c…    as it was noted elsewhere
"""


@episode_verb("verify", EPILOG, "table", "json", episode=OPTIONAL_EPISODE)
@click.option(
    "--head",
    default="",
    metavar="HEAD",
    help="Compare with a head that was stored elsewhere: NUMBER:HASH, HASH, or a trace id.",
)
def verify_command(episode: str | None, journals: tuple[Path, ...], head: str, output: str) -> int:
    """Execute the facts again and compare every decision, byte by byte.

    EPISODE (last, -1, -2, …, or an id) limits the report; everything before it is executed in any case.
    Exit code 3: it diverged; the first difference is explained.

    The result proves that the journal is consistent, not its origin: a user who can write its files can
    make another consistent one. --head compares it with a noted head. Exit code 5: it is another journal.
    """
    try:
        noted = parse_head(head) if head else None
    except ValueError as error:
        raise Refused(str(error)) from error
    # A state depends on every earlier fact, so all of them are executed. 0: report everything too.
    only = 0
    if episode is not None:
        from ebbtide.cli.common.selection import choose_episode

        only = choose_episode(journals, episode).first_seq
    history = open_journal(journals, logics=LOGICS)
    gc.disable()  # no code here makes cycles, and the search for them takes a twentieth of the time
    try:
        began = time.perf_counter()
        result = verify(history, only, noted)
        seconds = time.perf_counter() - began
    finally:
        gc.enable()
    explained = None
    if result.divergence is not None:
        # Only now: most runs have no difference.
        from ebbtide.replay.divergence import explain

        again = open_journal(journals, logics=LOGICS)
        explained = explain(again, result.divergence, __version__)
    # Retention may have removed older segments: the journal is intact without all of that shutdown.
    number = headless_episode(open_journal(journals, logics=LOGICS))
    headless = "" if number is None else episode_id(result.verdict.journal_id, number)
    if output == "json":
        show_json(divergence_view.verification_document(result, explained, seconds, noted, headless))
    else:
        count = f"{result.events} events, {plural(result.episodes, 'episode')}"
        if explained is not None:
            lines = divergence_view.divergence_lines(explained, painter(divergence_view.DIVERGENCE_STYLES))
            show("\n".join((f"diverged: {count} up to the first difference", *lines)))
        elif divergence_view.why_silent(result):
            show(f"not verified: {count} before what cannot be read, and no difference among them")
        else:
            speed = f"{span_s(seconds)}, {result.events / max(seconds, 1e-9):,.0f} events a second"
            show(f"identical: {count}, every decision as recorded ({speed})")
            if noted is None:
                # A user who can write the files can replace all of them: claim no more than the check proves.
                show("consistent, not authentic: compare the head with one that was noted elsewhere (--head)")
                show(f"head {divergence_view.head_of(result.verdict)}")
        if headless:
            show(f"the journal begins in the middle of {headless}: only its present part was compared")
    code = DONE
    if result.failure is not None:
        remark(f"ebbtide: {divergence_view.why_silent(result)}")
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


#: Another journal in place of the noted one is a loss of records. One that begins later may be the same.
HEAD_CODES: dict[HeadState, int] = {"there": DONE, "other": CORRUPT, "gone": NOT_SO}


def head_sentence(noted: NotedHead, result: Verification) -> str:
    what = "trace id" if noted.of_trace else "hash"
    first, last = result.verdict.first_seq, result.verdict.end.seq
    if result.noted_seq:
        return f"as noted: record {result.noted_seq} has this {what}, so no record up to it was changed since"
    at = f"record {noted.seq}" if noted.seq else f"the record with the noted {what}"
    if noted.state(0, result.verdict) == "gone":
        return f"the head cannot be compared: the journal begins at record {first}, and {at} is not in it"
    if noted.seq > last:
        return f"not the journal that was noted, or its end is lost: it ends at record {last}, before {at}"
    if noted.seq:
        return f"not the journal that was noted: {at} has another hash, so it was made anew"
    return f"this is not the journal that was noted, or its end is lost: no record has that {what}"
