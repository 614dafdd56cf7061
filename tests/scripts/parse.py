"""Interaction scripts as text: commands, then ``----`` and their expected output.

A block ends at an empty line. An indented line belongs to the command above. ``#`` lines are prose and
survive a rewrite.

``30s`` and ``250ms`` are durations. A pod is a line: name, ``p=PRIORITY``, ``grace=SECONDS``, then a word per
container: ``app``, with ``*`` for a sidecar, ``!`` for not running, ``@SIGQUIT`` for its stop signal, and its
hook in brackets: ``app[exec]``, ``app[sleep:5]``. Without one it has ``main``; ``-`` means none.
``deleted=2s/8``: since 2 s before the script's begin, with 8 s of grace; ``~`` marks a hook that has ended.
``is=static,assigned,daemon,tolerant,volumes`` and ``owner=Deployment/web`` are the API's data.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import cast

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Container, Deletion, Hook, HookKind, Pod
from tests.scripts.show import BASE_NS

SEPARATOR = "----"


class ScriptError(Exception):
    """An unknown command; the error has its line."""


@dataclass
class Command:
    """Verb, plain words, ``name=value`` words, and indented lines."""

    line: int
    verb: str
    words: list[str]
    options: dict[str, str]
    body: list[str] = field(default_factory=list)


@dataclass
class Block:
    """``source``: the lines above the separator."""

    source: list[str]
    commands: list[Command]
    expected: list[str]
    runs: bool

    def text(self, output: list[str]) -> str:
        lines = [*self.source, SEPARATOR, *output] if self.runs else self.source
        return "\n".join(lines)


def parse(text: str) -> list[Block]:
    """A script's blocks. Raises ScriptError on an indented line without a command."""
    blocks: list[Block] = []
    lines: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            first = first if lines else number
            lines.append(line.rstrip())
        elif lines:
            blocks.append(_block(lines, first))
            lines = []
    return blocks


def _block(lines: list[str], first: int) -> Block:
    at = lines.index(SEPARATOR) if SEPARATOR in lines else len(lines)
    source = lines[:at]
    commands: list[Command] = []
    for number, line in enumerate(source, first):
        if line.startswith(" "):
            if not commands:
                raise ScriptError(f"line {number}: indented, but there is no command above it")
            commands[-1].body.append(line.strip())
        elif not line.startswith("#"):
            commands.append(_command(line, number))
    return Block(source, commands, lines[at + 1 :], runs=bool(commands))


def _command(line: str, number: int) -> Command:
    verb, *rest = shlex.split(line)
    options: dict[str, str] = {}
    words: list[str] = []
    for word in rest:
        name, equals, value = word.partition("=")
        if equals:
            options[name] = value
        else:
            words.append(word)
    return Command(number, verb, words, options)


def render(blocks: list[Block], outputs: list[list[str]]) -> str:
    return "\n\n".join(block.text(out) for block, out in zip(blocks, outputs, strict=True)) + "\n"


# --- durations, pods and containers


_UNITS = {"s": NS_PER_SECOND, "ms": 1_000_000}
_DURATION = re.compile(r"(\d+)(s|ms)")
_CONTAINER = re.compile(
    r"(?P<name>[a-z0-9-]+)(?P<marks>[*!~]*)(@(?P<signal>[A-Z0-9+]+))?(\[(?P<hook>[^\]]+)\])?"
)


def duration_ns(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ScriptError(f"{text!r} is no duration: write 30s or 250ms")
    return int(found[1]) * _UNITS[found[2]]


def pod(line: str) -> Pod:
    name, *words = line.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    traits = options.get("is", "").split(",")
    containers = tuple(_container(word) for word in words if "=" not in word and word != "-")
    return Pod(
        uid=name,
        namespace="default",
        name=name,
        priority=int(options["p"]) if "p" in options else None,
        grace_seconds=int(options["grace"]) if "grace" in options else None,
        containers=() if "-" in words else containers or (Container(name="main"),),
        static="static" in traits,
        priority_assigned="assigned" in traits,
        daemon="daemon" in traits,
        tolerates_all="tolerant" in traits,
        volumes="volumes" in traits,
        owner=options.get("owner", ""),
        deletion=_deletion(options["deleted"]) if "deleted" in options else None,
    )


def _deletion(text: str) -> Deletion:
    ago, _, grace = text.partition("/")
    return Deletion(since_ns=BASE_NS - duration_ns(ago), grace_seconds=int(grace))


def _container(word: str) -> Container:
    found = _CONTAINER.fullmatch(word)
    if found is None:
        raise ScriptError(f"{word!r} is no container: write app, proxy*, done!, app@SIGQUIT, app[sleep:5]")
    return Container(
        name=found["name"],
        hook=_hook(found["hook"]),
        stop_signal=found["signal"] or "SIGTERM",
        sidecar="*" in found["marks"],
        running="!" not in found["marks"],
        hook_over="~" in found["marks"],
    )


def _hook(text: str | None) -> Hook | None:
    if text is None:
        return None
    kind, _, seconds = text.partition(":")
    return Hook(kind=cast("HookKind", kind), sleep_seconds=int(seconds or 0))
