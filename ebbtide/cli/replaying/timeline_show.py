"""Printing a timeline: columns of fixed width, so that two timelines can be laid side by side and diffed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from actors.edges.boot import boot_id
from ebbtide.cli.episodes import choose
from ebbtide.cli.events import rfc3339
from ebbtide.cli.follow import follow as follow_journal
from ebbtide.cli.guard import DONE, Refused
from ebbtide.cli.output import json_line, remark
from ebbtide.cli.reading import conclude, open_journal, sources_of
from ebbtide.text import visible
from events.base import NS_PER_SECOND
from events.decisions import EpisodeClosed
from events.episodes import Episode, episodes
from events.facts import OrderEnded
from events.frames import RawRecord
from events.history import Batch
from replay.timeline import Kind, Line, Timeline, short_name
from replay.timeline_wanted import Moment, Wanted, is_actor

#: What a record is, in one character; bad news go before.
GLYPHS: dict[Kind, str] = {"fact": "<", "decision": ".", "order": ">", "mark": "#", "unknown": "?"}
BAD = "!"

LEVELS = {3: "error", 4: "warning", 5: "notice", 6: "info", 7: "debug"}

COLOURS: dict[str, dict[str, Any]] = {
    BAD: {"fg": "red"},
    "<": {"fg": "cyan"},
    ">": {"fg": "magenta"},
    "#": {"dim": True},
    "?": {"fg": "yellow"},
}

#: Time, since, number, glyph, actor, wave, pod, words. A name that is too long pushes the words aside.
COLUMNS = "{:<12} {:>10} {:>7} {:1} {:<8} {:>2} {:<28} {}"

#: What ends a release (`events.base.order_key`), in an order's outcome.
RELEASE = b"/release/"


def show_timeline(
    journals: tuple[Path, ...], episode: str | None, wanted: Wanted, output: str, *, follow: bool
) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    if follow:
        return _follow(journals, episode, wanted, output)
    told = Timeline(choose(journals, episode or "last").first_seq, wanted)
    history = open_journal(journals)
    written = _write((told.lines(batch) for batch in history.batches()), output)
    if not told.knows_pod:
        raise Refused(f"no pod {wanted.pod!r} in this journal: 'ebbtide replay timeline' names them")
    if not written:
        remark(f"ebbtide: no line fits{_filters(wanted)}{_why_none(wanted, told)}")
    return conclude(history.verdict)


def _filters(wanted: Wanted) -> str:
    """As they can be typed."""
    given = {
        "--actor": wanted.actor,
        "--pod": wanted.pod,
        "--wave": "" if wanted.wave is None else str(wanted.wave),
        "--since": _typed(wanted.since),
        "--until": _typed(wanted.until),
    }
    return "".join(f" {option} {value}" for option, value in given.items() if value)


def _typed(moment: Moment | None) -> str:
    if moment is None:
        return ""
    forms: dict[str, Callable[[int], str]] = {
        "seq": str,
        "since_ns": lambda ns: f"{since(ns)}s",
        "wall_ns": rfc3339,
    }
    return forms[moment.scale](moment.value)


def _why_none(wanted: Wanted, told: Timeline) -> str:
    """What can be told from the filters alone, or from the waves that the journal names."""
    begin, end = wanted.since, wanted.until
    if begin and end and begin.scale == end.scale and begin.value > end.value:
        return ": the end lies before the begin"
    waves = told.names.waves.values()
    if wanted.wave is not None and waves and wanted.wave > max(waves):
        return f": the waves with pods are {min(waves)} to {max(waves)}"
    return ""


def known_actor(wanted: str) -> str:
    """``wanted``, if it names one that writes records. Raises Refused, naming those that there are."""
    from actors.logic.routes import BY_NAME
    from actors.logic.system import EDGE, SYSTEM
    from events.writer import JOURNAL_ACTOR

    names = (*BY_NAME, EDGE, SYSTEM, JOURNAL_ACTOR)
    if not any(is_actor(wanted.partition(":")[0], name, short_name(name)) for name in names):
        raise Refused(f"no actor is called {wanted!r}: name one of {', '.join(map(short_name, names))}")
    return wanted


# --- a shutdown that runs ----------------------------------------------------------------------


def _follow(journals: tuple[Path, ...], episode: str | None, wanted: Wanted, output: str) -> int:
    last = _last(journals) if episode is None else choose(journals, episode)
    waiting = episode is None and (last is None or last.outcome != "running")
    told = Timeline(last.first_seq if last is not None and not waiting else 0, wanted)
    if waiting:
        remark("ebbtide: no shutdown runs; waiting for the next one")
    elif last is not None and last.outcome != "running":
        return show_timeline(journals, last.id, wanted, output, follow=False)
    after = last.last_seq if waiting and last is not None else 0
    _write(_followed(follow_journal(sources_of(journals)), told, after), output)
    return DONE


def _last(journals: tuple[Path, ...]) -> Episode | None:
    """A tail that is torn while this boot goes on may be a write under way: it does not end the shutdown."""
    history, here = open_journal(journals), boot_id()
    found = list(episodes(history, boot_id=here))
    if not found:
        return None
    last = found[-1]
    open_end = last.outcome == "truncated" and last.boot_id == here and history.verdict.state == "torn"
    return last._replace(outcome="running") if open_end else last


def _followed(batches: Iterable[Batch | None], told: Timeline, after: int) -> Iterator[Iterable[Line]]:
    """Up to the end of the shutdown; where none is chosen yet, of the first that begins behind ``after``."""
    for batch in batches:
        if batch is None:
            continue
        if not told.episode:
            told.episode = next((raw.episode for raw in batch.records if raw.episode > after), 0)
        yield told.lines(batch)
        if told.episode and any(_is_end(raw, told.episode) for raw in batch.records):
            return


def _is_end(raw: RawRecord, episode: int) -> bool:
    """The lock is given back, or the last word said."""
    if raw.episode != episode:
        return False
    return raw.tag == EpisodeClosed.__name__ or (raw.tag == OrderEnded.__name__ and RELEASE in raw.payload)


# --- how it looks ------------------------------------------------------------------------------


def _write(batches: Iterable[Iterable[Line]], output: str) -> bool:
    """A batch at a time, at once on the screen: neither a write for each line nor a journal in memory.

    Whether there was anything to write.
    """
    any_text = False
    show: Callable[[Line], str] = _object if output == "json" else Columns(coloured=sys.stdout.isatty())
    for lines in batches:
        text = "".join(f"{show(line)}\n" for line in lines)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            any_text = True
    return any_text


class Columns:
    """A line as text. The date is the heading of the first column, and is said anew when it changes."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured
        self._date = ""

    def __call__(self, line: Line) -> str:
        date, _, clock = rfc3339(line.wall_ns).partition("T")
        heading = "" if date == self._date else f"{self._heading(date)}\n"
        self._date = date
        glyph = BAD if line.bad else GLYPHS[line.kind]
        return heading + self._paint(
            COLUMNS.format(
                clock[:12],
                since(line.since_ns),
                line.seq,
                glyph,
                line.short,
                "" if line.wave is None else line.wave,
                visible(line.pod),
                visible(line.text),
            ).rstrip(),
            COLOURS.get(glyph, {}),
        )

    def _heading(self, date: str) -> str:
        words = ("SINCE", "SEQ", "", "ACTOR", "W", "POD", "WHAT (times are UTC)")
        return self._paint(COLUMNS.format(date, *words), {"bold": True})

    def _paint(self, text: str, style: dict[str, Any]) -> str:
        return click.style(text, **style) if self._coloured and style else text


def since(ns: int) -> str:
    """``+3.070``: seconds since the signal, cut to the millisecond."""
    sign, size_ms = ("-" if ns < 0 else "+"), abs(ns) // 1_000_000
    return f"{sign}{size_ms // 1000}.{size_ms % 1000:03d}"


def _object(line: Line) -> str:
    """One object. ``actor`` as in ``journal show``; what does not apply is null."""
    document = {
        "seq": line.seq,
        "time": rfc3339(line.wall_ns),
        "sinceSeconds": line.since_ns / NS_PER_SECOND,
        "episode": line.episode or None,
        "cause": line.cause or None,
        "actor": line.actor,
        "kind": line.kind,
        "type": line.type,
        "pod": line.pod or None,
        "container": line.container or None,
        "wave": line.wave,
        "level": LEVELS[line.level],
        "text": line.text,
    }
    return json_line(document)
