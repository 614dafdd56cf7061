"""``ebbtide journal show``: a stream from the segments to standard output, filtered on the way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click

from ebbtide.cli.events import Since, is_actor, json_line, known_actor, parse_since, text_line
from ebbtide.cli.follow import follow as follow_journal
from ebbtide.cli.guard import DONE, Refused
from ebbtide.cli.labels import Labels
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

    since: str = ""
    actor: str = ""
    pod: str = ""


def show_events(journals: tuple[Path, ...], wanted: Wanted, output: str, *, follow: bool) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what cannot be looked for."""
    history, labels = open_journal(journals), Labels(wanted.pod)
    tests = _tests(wanted, labels)
    if wanted.pod:
        _look_for_pod(journals, labels, must_be_there=not follow)
    printer = json_line if output == "json" else _text(labels)
    if follow:
        _write(follow_journal(sources_of(journals)), labels, tests, printer)
        return DONE
    _write(history.batches(), labels, tests, printer)
    return conclude(history.verdict)


def _look_for_pod(journals: tuple[Path, ...], labels: Labels, *, must_be_there: bool) -> None:
    """Every UID of the pod is known before the first line; one that is followed may be yet to come."""
    for raw in open_journal(journals).raw():
        labels.learn(raw)
    if must_be_there and not labels.uids:
        pod, look = labels.wanted, "'ebbtide journal show --actor edge' shows those that came"
        raise Refused(f"no pod {pod!r} in this journal: {look}")


def _write(batches: Iterable[Batch | None], labels: Labels, tests: list[Test], printer: Printer) -> None:
    """A batch at a time: neither a write for each record nor a journal in memory."""
    out = sys.stdout.buffer
    for batch in batches:
        if batch is None:
            out.flush()
            continue
        header, records = batch
        for raw in records:
            labels.learn(raw)
        for test in tests:
            records = [raw for raw in records if test(header, raw)]
        out.writelines([printer(header, raw) for raw in records])
    out.flush()


def _text(labels: Labels) -> Printer:
    coloured = sys.stdout.isatty()

    def paint(name: str, text: str) -> str:
        style = COLOURS.get(name)
        return click.style(text, **style) if coloured and style else text  # type: ignore[arg-type]

    return lambda header, raw: text_line(header, raw, labels, paint)


def _tests(wanted: Wanted, labels: Labels) -> list[Test]:
    """One for each option that is given."""
    tests: list[Test] = []
    if wanted.since:
        tests.append(_after(parse_since(wanted.since, time.time_ns())))
    if wanted.actor:
        name = known_actor(wanted.actor)
        tests.append(lambda header, raw: is_actor(name, raw.actor))
    if wanted.pod:
        tests.append(lambda header, raw: labels.concerns(raw))
    return tests


def _after(since: Since) -> Test:
    seq, wall_ns = since
    if seq:
        return lambda header, raw: raw.seq >= seq
    return lambda header, raw: header.wall_ns(raw.mono_ns) >= wall_ns
