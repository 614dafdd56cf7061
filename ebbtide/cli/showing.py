"""``ebbtide journal show``: a stream from the segments to standard output, filtered on the way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click

from ebbtide.cli.events import Labels, Since, introduced, is_actor, json_line, parse_since, text_line
from ebbtide.cli.follow import follow as follow_journal
from ebbtide.cli.guard import DONE, Refused
from ebbtide.cli.reading import conclude, open_journal, sources_of
from events.frames import RawRecord
from events.history import Batch
from events.segment import Header

COLOURS = {
    "dim": {"dim": True},
    "fact": {"fg": "cyan"},
    "order": {"fg": "magenta"},
    "decision": {"fg": "green"},
}

Test = Callable[[Header, RawRecord], bool]
Printer = Callable[[Header, RawRecord], bytes]


class Wanted(NamedTuple):
    """What the options say."""

    since: str | None
    actor: str | None
    pod: str | None


def show_events(journals: tuple[Path, ...], wanted: Wanted, output: str, *, follow: bool) -> int:
    """Exit code 0, or that of the journal's verdict."""
    history = open_journal(journals)
    tests, printer = _tests(journals, wanted), _printer(output)
    if follow:
        _write(follow_journal(sources_of(journals)), tests, printer)
        return DONE
    _write(history.batches(), tests, printer)
    return conclude(history.verdict)


def _write(
    batches: Iterable[Batch | tuple[Header, list[RawRecord]] | None], tests: list[Test], printer: Printer
) -> None:
    """A batch at a time: neither a write for each record nor a journal in memory."""
    out = sys.stdout.buffer
    for batch in batches:
        if batch is None:
            out.flush()
            continue
        header, records = batch
        for test in tests:
            records = [raw for raw in records if test(header, raw)]
        out.writelines([printer(header, raw) for raw in records])
    out.flush()


def _printer(output: str) -> Printer:
    if output == "json":
        return json_line
    coloured = sys.stdout.isatty()

    labels = Labels()

    def paint(name: str, text: str) -> str:
        style = COLOURS.get(name)
        return click.style(text, **style) if coloured and style else text  # type: ignore[arg-type]

    return lambda header, raw: text_line(header, raw, labels, paint)


def _tests(journals: tuple[Path, ...], wanted: Wanted) -> list[Test]:
    """Raises Refused for what cannot be looked for."""
    tests: list[Test] = []
    if wanted.since is not None:
        tests.append(_after(parse_since(wanted.since, time.time_ns())))
    if wanted.actor is not None:
        name = wanted.actor
        tests.append(lambda header, raw: is_actor(name, raw.actor))
    if wanted.pod is not None:
        tests.append(_names(_uids(journals, wanted.pod)))
    return tests


def _after(since: Since) -> Test:
    seq, wall_ns = since
    if seq:
        return lambda header, raw: raw.seq >= seq
    return lambda header, raw: header.wall_ns(raw.mono_ns) >= wall_ns


# --- one pod -----------------------------------------------------------------------------------


def _names(uids: frozenset[str]) -> Test:
    needles = [uid.encode() for uid in uids]
    return lambda header, raw: any(needle in raw.payload for needle in needles) or _subject(raw) in uids


def _subject(raw: RawRecord) -> str:
    return raw.actor.partition(":")[2]


def _uids(journals: tuple[Path, ...], pod: str) -> frozenset[str]:
    """Every UID that the journal knows under this name. Raises Refused when there is none."""
    found = {
        uid
        for raw in open_journal(journals).raw()
        for uid, label in introduced(raw)
        if pod in (uid, label, label.partition("/")[2])
    }
    if not found:
        raise Refused(
            f"no pod {pod!r} in this journal: 'ebbtide journal show --actor edge' shows those that came"
        )
    return frozenset(found)
