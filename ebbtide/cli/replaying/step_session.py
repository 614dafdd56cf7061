"""The commands of a walk: one table, whether they come as single keys or as lines.

A command moves, or changes what is watched, and leaves a message where it found nothing. Printing and keys
are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from replay.stepping import Seen, Stepper, Test
from replay.stepping_changes import (
    Watch,
    holds,
    is_about,
    is_failure,
    is_kill,
    is_type,
    is_wave,
    means,
)
from replay.timeline import actor_name


class Wrong(Exception):
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
        self._last: Test | None = None

    def do(self, line: str) -> str:
        """Carry out ``name argument``; a message, empty where there is nothing to say. Raises Wrong.

        An empty line goes to the next event, and ``/text`` needs no space.
        """
        line = line.strip() or "next"
        name, _, argument = (line if line[0] != "/" else f"/ {line[1:]}").partition(" ")
        command = COMMANDS.get(name) or BY_KEY.get(name)
        if command is None:
            raise Wrong(f"no such command {name!r}: there are {', '.join(COMMANDS)}")
        if command.argument and not argument.strip():
            raise Wrong(f"{name} what? write: {name} {command.argument}")
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
        return self._to(partial(holds, text), f"{text!r} is not behind here")

    def again(self, argument: str) -> str:
        return (
            self._to(self._last, "not once more behind here") if self._last else "nothing was looked for yet"
        )

    def _to(self, test: Test, otherwise: str) -> str:
        self._last = test
        return "" if self.stepper.find(test) else otherwise

    # --- watching -----------------------------------------------------------------------------

    def watch(self, argument: str) -> str:
        """``field``, or ``actor field``."""
        actor, _, field = argument.rpartition(" ")
        watch = Watch(actor.strip(), field)
        self.watches.append(watch)
        if actor and not any(means(watch.actor, label, self.stepper.names) for label in self.stepper.known):
            known = ", ".join(actor_name(label, self.stepper.names) for label in self.stepper.known)
            return f"watching, though there is no {watch.actor} yet: there are {known}"
        return f"watching {argument}: 'continue' goes to its next change"

    def unwatch(self, argument: str) -> str:
        self.watches.clear()
        return "nothing is watched any more"

    def go_on(self, argument: str) -> str:
        if not self.watches:
            return "nothing is watched: write watch [ACTOR] FIELD first"
        return self._to(self._changes_watched, "no watched field changes behind here")

    def _changes_watched(self, seen: Seen) -> bool:
        return any(watch.changes(seen, self.stepper.names) for watch in self.watches)

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
