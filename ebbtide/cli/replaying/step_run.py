"""A walk from its start to its exit code: on a terminal by keys, else by lines of commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from actors.logic.flags import LOGIC_FLAGS
from ebbtide.cli.episodes import choose
from ebbtide.cli.guard import DIVERGED, DONE, INCOMPATIBLE, Refused, worst
from ebbtide.cli.output import json_line, remark
from ebbtide.cli.reading import conclude, open_journal
from ebbtide.cli.replaying.step_session import Session, Wrong
from ebbtide.cli.replaying.step_view import document, view
from replay.stepping import Stepper

PROMPT = "step> "


def walk(journals: tuple[Path, ...], episode: str | None, at: int | None, output: str) -> int:
    """Exit code 3 where this version decides otherwise within what was walked, or that of the verdict.

    Raises Refused for an episode or a record that is not there, and for a wrong command in a pipe.
    """
    chosen = choose(journals, episode or "last")
    history = open_journal(journals, logic_flags=LOGIC_FLAGS)
    verdict = history.read()
    if verdict.exit_code == INCOMPATIBLE:
        return conclude(verdict)
    session = Session(Stepper(history, chosen))
    if at is not None and not session.stepper.seek(at):
        raise Refused(f"--at {at}: this shutdown has the records {chosen.first_seq} to {chosen.last_seq}")
    if output == "table" and _has_keys():
        from ebbtide.cli.replaying.step_terminal import run

        run(session)
    else:
        _by_lines(session, _json if output == "json" else _text, prompt=sys.stdin.isatty())
    return worst((conclude(verdict), _agreed(session.stepper)))


def _has_keys() -> bool:
    terminal = os.environ.get("TERM", "dumb") != "dumb"
    return terminal and sys.stdin.isatty() and sys.stdout.isatty()


def _agreed(stepper: Stepper) -> int:
    if stepper.divergence is None:
        return DONE
    remark(
        f"ebbtide: this version decides otherwise from record {stepper.divergence.seq} on;"
        " 'ebbtide replay verify' explains it"
    )
    return DIVERGED


# --- by lines ----------------------------------------------------------------------------------


def _by_lines(session: Session, show: Callable[[Session], None], *, prompt: bool) -> None:
    """An event is shown when the place has changed; a message says why it has not."""
    show(session)
    for line in _lines(prompt=prompt):
        before = session.stepper.here.line.seq
        try:
            message = session.do(line)
        except Wrong as error:
            if not prompt:
                raise Refused(str(error)) from None
            message = str(error)
        if session.over:
            return
        if session.stepper.here.line.seq != before:
            show(session)
        if message:
            (remark if show is _json else print)(message)


def _lines(*, prompt: bool) -> Iterator[str]:
    if not prompt:
        yield from sys.stdin
        return
    while True:
        print(PROMPT, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line


def _text(session: Session) -> None:
    _print((*view(session.stepper, session.watches), ""))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()


def _json(session: Session) -> None:
    _print((json_line(document(session.stepper)),))
