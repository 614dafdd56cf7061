"""Interaction scripts as text: commands, then ``----`` and their expected output.

A block ends at an empty line. An indented line belongs to the command above. ``#`` lines are prose and
survive a rewrite.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

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
