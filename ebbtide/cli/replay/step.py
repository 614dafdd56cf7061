"""``ebbtide replay step``: walk through a shutdown event by event, forwards and back.

On a terminal by keys (`ebbtide.cli.replay.step_terminal`), else by lines of commands. The commands are one
table, whether they come as single keys or as lines: a command moves, or changes what is watched, and leaves
a message where it found nothing. An event is shown with what led to it, and what it changed in whom.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from ebbtide.cli.common.guard import DIVERGED, INCOMPATIBLE, Refused, worst
from ebbtide.cli.common.options import EpisodeCommand, episode_argument, journals_option, output_option
from ebbtide.cli.common.output import json_line, remark
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.selection import MOMENT_FORMS, MOMENT_METAVAR, choose_episode, parse_moment
from ebbtide.cli.replay.timeline import BAD_GLYPH, GLYPHS
from ebbtide.events.record.format import rfc3339, utc_text, visible
from ebbtide.events.segment import LOGICS
from ebbtide.events.units import json_seconds, offset
from ebbtide.replay.states import plain_state, seq_at_moment, value_text
from ebbtide.replay.step import (
    FieldChange,
    SteppedEvent,
    Stepper,
    StopCondition,
    Watch,
    contains_text,
    field_changes,
    is_about,
    is_failure,
    is_kill,
    is_type,
    is_wave,
    names_actor,
)
from ebbtide.replay.timeline import Line, actor_name, one_line

EPILOG = """\b
Examples:
  ebbtide replay step
  ebbtide replay step -2 --at 214
  printf 'kill\\nback\\nquit\\n' | ebbtide replay step
  printf 'watch shop/web-0 phase\\ncontinue\\n' | ebbtide replay step -o json | jq .changes

On a terminal a key is a command, and ? lists them; in a pipe, and on a dumb terminal, a line is one.
"""


@click.command(epilog=EPILOG, cls=EpisodeCommand)
@episode_argument
@journals_option
@click.option("--at", default="", metavar=MOMENT_METAVAR, help=f"Begin here: {MOMENT_FORMS}.")
@output_option("table", "json")
def step(episode: str, journals: tuple[Path, ...], at: str, output: str) -> int:
    """Walk through a shutdown, event by event.

    Each event is shown with what led to it and with what it changed in the state of the actors. EPISODE is
    last (the default), -1, -2, …, or an id. The journal is executed again.
    """
    place = parse_moment(at, "--at") if at else None
    # The verdict before the walk: what stops it should be known before somebody has walked for half an hour.
    chosen = choose_episode(journals, episode)
    history = open_journal(journals, logics=LOGICS)
    verdict = history.read()
    if verdict.exit_code == INCOMPATIBLE:
        return conclude(verdict)
    session = Session(Stepper(history, chosen))
    if place is not None:
        seq = seq_at_moment(history, place, chosen.first_seq)
        if seq is None or not session.stepper.seek(seq):
            raise Refused(f"--at {at}: this shutdown has the records {chosen.first_seq} to {chosen.last_seq}")
    asks = sys.stdin.isatty()
    if output == "table" and os.environ.get("TERM", "dumb") != "dumb" and asks and sys.stdout.isatty():
        from ebbtide.cli.replay.step_terminal import run_on_terminal

        run_on_terminal(session)
    else:
        walk_by_lines(session, _print_json if output == "json" else _print_text, prompt=asks)
    code = conclude(verdict)
    if session.stepper.divergence is None:
        return code
    remark(
        f"ebbtide: this version decides otherwise from record {session.stepper.divergence.seq} on;"
        " 'ebbtide replay verify' explains it"
    )
    return worst((code, DIVERGED))


# --- by lines ----------------------------------------------------------------------------------


PROMPT = "step> "


def walk_by_lines(session: Session, show: Callable[[Session], None], *, prompt: bool) -> None:
    """An event is shown when the place has changed; a message says why it has not. Raises Refused."""
    show(session)
    while not session.over:
        if prompt:
            # On standard error, where it is not between the events that somebody sends into a file.
            print(PROMPT, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            if prompt:
                print(file=sys.stderr)
            return
        before = session.stepper.here.line.seq
        try:
            message = session.do(line)
        except WrongCommand as error:
            # A script that goes on behind a mistake would take the next event for the one that it asked for.
            if not prompt:
                raise Refused(str(error)) from None
            message = str(error)
        if session.over:
            return
        if session.stepper.here.line.seq != before:
            show(session)
        if message:
            (remark if show is _print_json else print)(message)


def _print_text(session: Session) -> None:
    _print_lines((*event_view(session.stepper, session.watches), ""))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()


def _print_json(session: Session) -> None:
    _print_lines((json_line(event_document(session.stepper)),))


class WrongCommand(Exception):
    """A command that there is not, or that lacks its argument; the text says what to type instead."""


class Command(NamedTuple):
    """``argument`` is what it is called for people; empty: it takes none."""

    key: str
    does: str
    run: Callable[[Session, str], str]
    argument: str = ""


class Session:
    """A walk: the place, what is watched, and the last search. ``over`` after ``quit``."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self.watches: list[Watch] = []
        self.over = False
        self._last: StopCondition | None = None

    def do(self, line: str) -> str:
        """Carry out ``name argument``; a message, empty where there is nothing to say. Raises WrongCommand.

        An empty line goes to the next event, and ``/text`` needs no space.
        """
        line = line.strip() or "next"
        name, _, argument = (line if line[0] != "/" else f"/ {line[1:]}").partition(" ")
        command = COMMANDS.get(name) or BY_KEY.get(name)
        if command is None:
            raise WrongCommand(f"no such command {name!r}: there are {', '.join(COMMANDS)}")
        if command.argument and not argument.strip():
            raise WrongCommand(f"{name} what? write: {name} {command.argument}")
        return command.run(self, argument.strip())

    # --- moves --------------------------------------------------------------------------------

    def next(self, argument: str) -> str:
        return "" if self.stepper.next() else "this is the last event of the shutdown"

    def back(self, argument: str) -> str:
        return "" if self.stepper.back() else "this is the first event of the shutdown"

    def first(self, argument: str) -> str:
        self.stepper.seek(self.stepper.first_seq)
        return ""

    def last(self, argument: str) -> str:
        while self.stepper.next():
            pass
        return ""

    def event(self, wanted: str) -> str:
        if wanted.isascii() and wanted.isdecimal():
            first, last = self.stepper.first_seq, self.stepper.last_seq
            found = self.stepper.seek(int(wanted))
            return "" if found else f"this shutdown has the records {first} to {last}"
        return self._to(partial(is_type, wanted), f"no further event of type {wanted!r}")

    def pod(self, wanted: str) -> str:
        return self._to(partial(is_about, wanted), f"no further event of pod {wanted!r}")

    def wave(self, argument: str) -> str:
        return self._to(is_wave, "no wave begins or ends behind here")

    def kill(self, argument: str) -> str:
        return self._to(is_kill, "nothing is killed behind here")

    def failure(self, argument: str) -> str:
        return self._to(is_failure, "nothing fails behind here")

    def search(self, text: str) -> str:
        return self._to(partial(contains_text, text), f"{text!r} is not behind here")

    def again(self, argument: str) -> str:
        if self._last is None:
            return "nothing was looked for yet"
        return self._to(self._last, "not once more behind here")

    def _to(self, test: StopCondition, otherwise: str) -> str:
        # Kept also where it found nothing: from another place the same search may.
        self._last = test
        return "" if self.stepper.find(test) else otherwise

    # --- watching -----------------------------------------------------------------------------

    def watch(self, argument: str) -> str:
        """``field``, or ``actor field``."""
        actor, _, field = argument.rpartition(" ")
        # The field last: most watch a field of whomever, and write it alone.
        watch = Watch(actor.strip(), field)
        self.watches.append(watch)
        if actor and not any(
            names_actor(watch.actor, label, self.stepper.names) for label in self.stepper.known
        ):
            known = ", ".join(actor_name(label, self.stepper.names) for label in self.stepper.known)
            return f"watching, though there is no {watch.actor} yet: there are {known}"
        return f"watching {argument}: 'continue' goes to its next change"

    def unwatch(self, argument: str) -> str:
        self.watches.clear()
        return "nothing is watched any more"

    def go_on(self, argument: str) -> str:
        if not self.watches:
            return "nothing is watched: write watch [ACTOR] FIELD first"

        def changes_watched(seen: SteppedEvent) -> bool:
            return any(watch.changes(seen, self.stepper.names) for watch in self.watches)

        return self._to(changes_watched, "no watched field changes behind here")

    # --- the rest -----------------------------------------------------------------------------

    def help(self, argument: str) -> str:
        return "\n".join(
            f"  {command.key}  {f'{name} {command.argument}'.rstrip():<24} {command.does}"
            for name, command in COMMANDS.items()
        )

    def quit(self, argument: str) -> str:
        self.over = True
        return ""


COMMANDS: dict[str, Command] = {
    "next": Command("n", "to the next event", Session.next),
    "back": Command("b", "to the event before", Session.back),
    "first": Command("0", "to the first event", Session.first),
    "last": Command("$", "to the last event", Session.last),
    "event": Command("e", "to a record by its number, or to the next of a type", Session.event, "SEQ|TYPE"),
    "pod": Command("p", "to the next event of a pod", Session.pod, "POD"),
    "wave": Command("w", "to the next begin or end of a wave", Session.wave),
    "kill": Command("k", "to the next SIGKILL", Session.kill),
    "failure": Command("f", "to the next bad news", Session.failure),
    "search": Command("/", "to the next event in which a text stands", Session.search, "TEXT"),
    "again": Command("a", "look for the same once more", Session.again),
    "watch": Command("W", "watch a field, of one actor or of any", Session.watch, "[ACTOR] FIELD"),
    "continue": Command("c", "to the next change of a watched field", Session.go_on),
    "unwatch": Command("U", "watch nothing any more", Session.unwatch),
    "help": Command("?", "these commands", Session.help),
    "quit": Command("q", "end", Session.quit),
}

BY_KEY: dict[str, Command] = {command.key: command for command in COMMANDS.values()}


# --- how one event looks: what it was, what led to it, and what it changed in whom --------------


#: Changes of one event that a terminal shows; ``-o json`` has them all.
CHANGES_MAX = 40
#: A checkpoint of a thousand pods is a megabyte; ``-o json`` has all of it.
DATA_CHARACTERS_MAX = 1000
#: Elements of a list that came or went, by name.
ELEMENTS_MAX = 6

VIEW_VERSION = 1


def event_view(stepper: Stepper, watches: list[Watch]) -> Iterator[str]:
    """The lines for people, not cut to any width."""
    yield from map(visible, _event_lines(stepper, watches))


def _event_lines(stepper: Stepper, watches: list[Watch]) -> Iterator[str]:
    line, point = stepper.here.line, stepper.here.point
    first, last = stepper.step_bounds()
    place = f", {line.seq - first + 1} of {last - first + 1} in its step" if last > first else ""
    yield (
        f"record {line.seq} of {stepper.first_seq}-{stepper.last_seq}{place}"
        f"   {offset(line.since_ns)}   {utc_text(line.wall_ns)}"
    )
    yield event_text(line)
    data = one_line(line.data, stepper.names)
    cut = data if len(data) <= DATA_CHARACTERS_MAX else f"{data[:DATA_CHARACTERS_MAX]}…"
    yield f"  {line.type}{'  ' + cut if cut else ''}"
    causes = stepper.causes()
    # The causes end at the fact of the step. Where that is an order's outcome, it was the order that led to
    # it, often many steps before.
    answers = (causes[-1] if causes else stepper.here).point.answers
    if causes or answers is not None:
        yield "because of"
    for seen in causes:
        yield f"  {seen.line.seq:>6} {event_text(seen.line)}"
    if answers is not None:
        yield f"  {answers.seq:>6} > {type(answers.order).__name__}, the order that this is the outcome of"
    changes = list(field_changes(point.changes, stepper.names))
    yield "changed" if changes else "changed nobody"
    signal_ns, name = point.raw.mono_ns - line.since_ns, ""
    for change in changes[:CHANGES_MAX]:
        actor = actor_name(change.actor, stepper.names)
        text = _change_text(change, signal_ns)
        yield f"  {'' if actor == name else actor:<24} {change.path}: {text}"
        name = actor
    if len(changes) > CHANGES_MAX:
        yield f"  and {len(changes) - CHANGES_MAX} fields more"
    for watch in watches:
        mark = "*" if watch.changes(stepper.here, stepper.names) else " "
        yield f"watching {mark} {' '.join(part for part in watch if part)}"


def event_text(line: Line) -> str:
    """``! hook  shop/stuck-0  main: SIGKILL``."""
    glyph = BAD_GLYPH if line.bad else GLYPHS[line.kind]
    wave = f"wave {line.wave}"
    told_already = line.wave is None or line.text.startswith(wave)
    parts = [line.short, "" if told_already else wave, line.pod, line.text]
    return f"{glyph} {'  '.join(part for part in parts if part)}"


def _change_text(change: FieldChange, signal_ns: int) -> str:
    _, path, before, after = change
    if not (isinstance(before, list) and isinstance(after, list)):
        old, new = ("-" if value is None else value_text(path, value, signal_ns) for value in (before, after))
        return f"{old} -> {new}"
    # Of a list who came and who went: both lists whole would hide it where a wave has hundreds of pods.
    old_names, new_names = (dict.fromkeys(map(str, each)) for each in (before, after))
    gone = [f"-{each}" for each in old_names if each not in new_names]
    came = [f"+{each}" for each in new_names if each not in old_names]
    shown = [*gone[:ELEMENTS_MAX], *came[:ELEMENTS_MAX]]
    more = len(gone) + len(came) - len(shown)
    return " ".join(shown) + (f" and {more} more" if more else "") or "in another order"


def event_document(stepper: Stepper) -> dict[str, Any]:
    """The same for scripts: one object an event."""
    line, point = stepper.here.line, stepper.here.point
    first, last = stepper.step_bounds()
    changes = field_changes(point.changes, stepper.names)
    return {
        "kind": "Step",
        "version": VIEW_VERSION,
        "seq": line.seq,
        "stepFirst": first,
        "stepLast": last,
        "time": rfc3339(line.wall_ns),
        "sinceSeconds": json_seconds(line.since_ns),
        "actor": line.actor,
        "type": line.type,
        "pod": line.pod or None,
        "text": line.text,
        "data": plain_state(line.data),
        "causes": [seen.line.seq for seen in stepper.causes()],
        "answers": point.answers.seq if point.answers is not None else None,
        "changes": [
            {
                "actor": actor_name(change.actor, stepper.names),
                "field": change.path,
                "before": change.before,
                "after": change.after,
            }
            for change in changes
        ],
    }
