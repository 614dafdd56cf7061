"""``ebbtide replay timeline``: a shutdown, a line a transition.

The columns have a fixed width, so that two timelines can be laid side by side and diffed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.cli.common.episodes import choose_episode
from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.options import output_option
from ebbtide.cli.common.output import json_line, remark
from ebbtide.cli.common.reading import conclude, journals_option, open_journal, sources_of
from ebbtide.cli.common.records import follow_journal, rfc3339
from ebbtide.cli.common.selection import MOMENT_FORMS, MOMENT_METAVAR, known_actor, parse_moment
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.codec import RawRecord
from ebbtide.events.decisions import EpisodeClosed
from ebbtide.events.facts import OrderEnded
from ebbtide.events.reader import Batch
from ebbtide.events.record.episodes import Episode, episodes
from ebbtide.replay.timeline import Line, LineFilter, LineKind, Moment, Timeline
from ebbtide.text import visible

EPILOG = """\b
Examples:
  ebbtide replay timeline
  ebbtide replay timeline -2 --pod shop/web-0 --all
  ebbtide replay timeline --wave 1 --since +10s --until +20s
  ebbtide replay timeline -f
  ebbtide replay timeline -2 | cut -c14- | diff - other.txt

\b
The column without a heading: < is a fact, . a decision, > an order, # bookkeeping, ? of another version,
! bad news, whatever it is.
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the machine is let go, or the shutdown closed."
)
@click.option("--all", "every", is_flag=True, help="Every record, bookkeeping too.")
@click.option("--actor", default="", metavar="NAME", help="Only what this actor wrote (hook, wave, edge).")
@click.option("--pod", default="", metavar="POD", help="Only what is about this pod: any of its names.")
@click.option("--wave", type=click.IntRange(min=0), default=None, metavar="N", help="Only this wave's.")
@click.option("--since", default="", metavar=MOMENT_METAVAR, help=f"From here: {MOMENT_FORMS}.")
@click.option("--until", default="", metavar=MOMENT_METAVAR, help="Up to here.")
@output_option("table", "json")
def timeline(
    episode: str | None,
    journals: tuple[Path, ...],
    follow: bool,
    every: bool,
    actor: str,
    pod: str,
    wave: int | None,
    since: str,
    until: str,
    output: str,
) -> int:
    """Tell a shutdown, a line a transition.

    EPISODE is last (the default), -1, -2, …, or an id. With -f and without an EPISODE the next shutdown is
    waited for where none is running. Nothing is executed again: it works on any journal that can be read.
    """
    from ebbtide.replay.timeline import LineFilter

    wanted = LineFilter(
        actor=known_actor(actor) if actor else "",
        pod=pod,
        wave=wave,
        since=parse_moment(since, "--since") if since else None,
        until=parse_moment(until, "--until") if until else None,
        all=every,
    )
    return show_timeline(journals, episode, wanted, output, follow=follow)


#: What a record is, in one character; bad news go before.
GLYPHS: dict[LineKind, str] = {"fact": "<", "decision": ".", "order": ">", "mark": "#", "unknown": "?"}
BAD_GLYPH = "!"

LEVEL_NAMES = {3: "error", 4: "warning", 5: "notice", 6: "info", 7: "debug"}

GLYPH_COLOURS: dict[str, dict[str, Any]] = {
    BAD_GLYPH: {"fg": "red"},
    "<": {"fg": "cyan"},
    ">": {"fg": "magenta"},
    "#": {"dim": True},
    "?": {"fg": "yellow"},
}

#: Time, since, number, glyph, actor, wave, pod, words. A name that is too long pushes the words aside.
LINE_FORMAT = "{:<12} {:>10} {:>7} {:1} {:<8} {:>2} {:<28} {}"

#: What ends a release (`events.base.order_key`), in an order's outcome.
RELEASE_KEY = b"/release/"


def show_timeline(
    journals: tuple[Path, ...], episode: str | None, wanted: LineFilter, output: str, *, follow: bool
) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    if follow:
        return _follow_shutdown(journals, episode, wanted, output)
    transitions = Timeline(choose_episode(journals, episode or "last").first_seq, wanted)
    history = open_journal(journals)
    written = _write_lines((transitions.lines(batch) for batch in history.batches()), output)
    if not transitions.knows_pod:
        raise Refused(f"no pod {wanted.pod!r} in this journal: 'ebbtide replay timeline' names them")
    if not written:
        remark(f"ebbtide: no line fits{_filters_text(wanted)}{_why_none(wanted, transitions)}")
    return conclude(history.verdict)


def _filters_text(wanted: LineFilter) -> str:
    """As they can be typed."""
    given = {
        "--actor": wanted.actor,
        "--pod": wanted.pod,
        "--wave": "" if wanted.wave is None else str(wanted.wave),
        "--since": _moment_text(wanted.since),
        "--until": _moment_text(wanted.until),
    }
    return "".join(f" {option} {value}" for option, value in given.items() if value)


def _moment_text(moment: Moment | None) -> str:
    if moment is None:
        return ""
    forms: dict[str, Callable[[int], str]] = {
        "seq": str,
        "since_ns": lambda ns: f"{signal_offset(ns)}s",
        "wall_ns": rfc3339,
    }
    return forms[moment.scale](moment.value)


def _why_none(wanted: LineFilter, transitions: Timeline) -> str:
    """What can be told from the filters alone, or from the waves that the journal names."""
    begin, end = wanted.since, wanted.until
    if begin and end and begin.scale == end.scale and begin.value > end.value:
        return ": the end lies before the begin"
    waves = transitions.names.waves.values()
    if wanted.wave is not None and waves and wanted.wave > max(waves):
        return f": the waves with pods are {min(waves)} to {max(waves)}"
    return ""


# --- a shutdown that runs ----------------------------------------------------------------------


def _follow_shutdown(journals: tuple[Path, ...], episode: str | None, wanted: LineFilter, output: str) -> int:
    last = _last_episode(journals) if episode is None else choose_episode(journals, episode)
    waiting = episode is None and (last is None or last.outcome != "running")
    transitions = Timeline(last.first_seq if last is not None and not waiting else 0, wanted)
    if waiting:
        remark("ebbtide: no shutdown runs; waiting for the next one")
    elif last is not None and last.outcome != "running":
        return show_timeline(journals, last.id, wanted, output, follow=False)
    after = last.last_seq if waiting and last is not None else 0
    _write_lines(_followed_lines(follow_journal(sources_of(journals)), transitions, after), output)
    return DONE


def _last_episode(journals: tuple[Path, ...]) -> Episode | None:
    """A tail that is torn while this boot goes on may be a write under way: it does not end the shutdown."""
    history, here = open_journal(journals), boot_id()
    found = list(episodes(history, boot_id=here))
    if not found:
        return None
    last = found[-1]
    open_end = last.outcome == "truncated" and last.boot_id == here and history.verdict.state == "torn"
    return last._replace(outcome="running") if open_end else last


def _followed_lines(
    batches: Iterable[Batch | None], transitions: Timeline, after: int
) -> Iterator[Iterable[Line]]:
    """Up to the end of the shutdown; where none is chosen yet, of the first that begins behind ``after``."""
    for batch in batches:
        if batch is None:
            continue
        if not transitions.episode:
            transitions.episode = next((raw.episode for raw in batch.records if raw.episode > after), 0)
        yield transitions.lines(batch)
        if transitions.episode and any(_is_shutdown_end(raw, transitions.episode) for raw in batch.records):
            return


def _is_shutdown_end(raw: RawRecord, episode: int) -> bool:
    """The lock is given back, or the last word said."""
    if raw.episode != episode:
        return False
    return raw.tag == EpisodeClosed.__name__ or (
        raw.tag == OrderEnded.__name__ and RELEASE_KEY in raw.payload
    )


# --- how it looks ------------------------------------------------------------------------------


def _write_lines(batches: Iterable[Iterable[Line]], output: str) -> bool:
    """A batch at a time, at once on the screen: neither a write for each line nor a journal in memory.

    Whether there was anything to write.
    """
    any_text = False
    show: Callable[[Line], str] = (
        _line_json if output == "json" else LinePrinter(coloured=sys.stdout.isatty())
    )
    for lines in batches:
        text = "".join(f"{show(line)}\n" for line in lines)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            any_text = True
    return any_text


class LinePrinter:
    """A line as text. The date is the heading of the first column, and is said anew when it changes."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured
        self._date = ""

    def __call__(self, line: Line) -> str:
        date, _, clock = rfc3339(line.wall_ns).partition("T")
        heading = "" if date == self._date else f"{self._heading(date)}\n"
        self._date = date
        glyph = BAD_GLYPH if line.bad else GLYPHS[line.kind]
        return heading + self._paint(
            LINE_FORMAT.format(
                clock[:12],
                signal_offset(line.since_ns),
                line.seq,
                glyph,
                line.short,
                "" if line.wave is None else line.wave,
                visible(line.pod),
                visible(line.text),
            ).rstrip(),
            GLYPH_COLOURS.get(glyph, {}),
        )

    def _heading(self, date: str) -> str:
        words = ("SINCE", "SEQ", "", "ACTOR", "W", "POD", "WHAT (times are UTC)")
        return self._paint(LINE_FORMAT.format(date, *words), {"bold": True})

    def _paint(self, text: str, style: dict[str, Any]) -> str:
        return click.style(text, **style) if self._coloured and style else text


def signal_offset(ns: int) -> str:
    """``+3.070``: seconds since the signal, cut to the millisecond."""
    sign, size_ms = ("-" if ns < 0 else "+"), abs(ns) // 1_000_000
    return f"{sign}{size_ms // 1000}.{size_ms % 1000:03d}"


def _line_json(line: Line) -> str:
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
        "level": LEVEL_NAMES[line.level],
        "text": line.text,
    }
    return json_line(document)
