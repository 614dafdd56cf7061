"""The promises of ``--help``, for every command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from ebbtide.actors.policy.termination_mode import NODE_MODES
from ebbtide.cli.app import cli
from ebbtide.options import MODES, PROCESS
from tests.commands import Run


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every executable command, by its words."""
    if not isinstance(command, click.Group):
        yield path
        return
    with click.Context(command) as ctx:
        for name in command.list_commands(ctx):
            sub = command.get_command(ctx, name)
            assert sub is not None
            yield from leaves(sub, (*path, name))


LEAVES = list(leaves(cli))

COMMANDS = """
config check, config show, demo, doctor, export jsonl, export otlp, export
otlp-json, export parquet, fleet advise, fleet ingest, fleet tables, fleet verify,
fleet what-if, hurry, journal check, journal ls, journal pack, journal show,
metrics, outage close, outage declare, outage doctor, outage explain, outage ls, outage pause,
outage run, outage status, plan,
release, replay advise, replay blame, replay critical-chain, replay diff, replay report, replay
state, replay timeline, replay verify, replay what-if, run, simulate, status,
uninstall, view
"""


def test_the_commands_of_the_interface_are_there() -> None:
    assert sorted(" ".join(path) for path in LEAVES) == COMMANDS.replace("\n", " ").strip().split(", ")


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help(run: Run, path: tuple[str, ...]) -> None:
    """An example with existing commands; 80 columns except examples; a help for every option."""
    ran = run(*path, "--help")
    assert ran.code == 0
    examples = [line.strip() for line in ran.out.partition("Examples:")[2].splitlines() if "ebbtide" in line]
    assert examples
    for example in examples:
        words = shlex.split(example)
        words = words[words.index("ebbtide") + 1 :]
        assert tuple(words[: len(path)]) == path
    lines = ran.out.splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith("    ")] == []
    assert all(line.isprintable() for line in lines)
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    assert all(each.help for each in command.params if isinstance(each, click.Option))


@pytest.mark.parametrize("words", [(), ("journal",)], ids=str)
def test_without_a_command_the_help_is_shown_and_nothing_done(run: Run, words: tuple[str, ...]) -> None:
    """A group alone is a wrong request; the answer lists its commands."""
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: ebbtide" in ran.err


def test_modes_are_the_cores_own() -> None:
    """The command line repeats the core's modes, so that it loads less."""
    assert (*NODE_MODES, PROCESS) == MODES
