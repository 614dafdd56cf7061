"""Walking through a shutdown: the same states forwards and back, however much is kept."""

from __future__ import annotations

import json
from pathlib import Path

from ebbtide.cli.replay.step import BY_KEY, COMMANDS
from ebbtide.cli.replay.step_terminal import ALIASES, FOOT
from tests.cli.replay.conftest import golden
from tests.commands import Ran, Run
from tests.journals import SHUTDOWN

# --- the command, by lines ---------------------------------------------------------------------


def by_lines(replay: Run, *commands: str, journal: Path = SHUTDOWN, json_too: bool = False) -> Ran:
    output = ("-o", "json") if json_too else ()
    return replay("step", *output, journal=journal, stdin="".join(f"{each}\n" for each in commands))


STORY = (
    "kill",
    "b",
    "watch stuck-0 phase",
    "first",
    "c",
    "c",
    "wave",
    "/exit code 143",
    "pod db-0",
    "event 90",
    "?",
)


def test_golden(replay: Run) -> None:
    """A walk by commands in a pipe, as it was read before it was committed."""
    ran = by_lines(replay, *STORY)
    assert (ran.code, ran.err) == (0, "")
    golden("step.txt", ran.out)


def test_json_is_one_object_an_event(replay: Run) -> None:
    """For scripts: the changes with their old and new values."""
    ran = by_lines(replay, "e 57", json_too=True)
    last = json.loads(ran.out.splitlines()[-1])
    assert (last["seq"], last["stepFirst"], last["stepLast"], last["causes"]) == (57, 57, 63, [])
    assert last["changes"][0] == {
        "actor": "hook:shop/stuck-0",
        "field": "downs[main].phase",
        "before": "stopping",
        "after": "killed",
    }


# --- the page about it -------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"
BEGIN, END = "<!-- commands of step: compared by a test -->\n", "<!-- end -->\n"


def test_the_page_has_the_commands_of_step() -> None:
    """Key, command and what it does, in the order of the table in the code."""
    made = "".join(
        f"| `{command.key}` | `{f'{name} {command.argument}'.rstrip()}` | {command.does} |\n".replace(
            "SEQ|TYPE", "SEQ\\|TYPE"
        )
        for name, command in COMMANDS.items()
    )
    page = PAGE.read_text()
    stands = page[page.index(BEGIN) + len(BEGIN) : page.index(END, page.index(BEGIN))]
    assert stands == f"| key | command | does |\n|---|---|---|\n{made}"


def test_every_key_means_one_command() -> None:
    """No two commands share a key, aliases lead to commands, and the foot of the screen names real keys."""
    assert len(BY_KEY) == len(COMMANDS)
    assert not {command.key for command in COMMANDS.values()} & set(ALIASES)
    assert set(ALIASES.values()) <= set(COMMANDS)
    for entry in FOOT.split("  "):
        key, name = entry.split(" ")
        assert BY_KEY[key] is COMMANDS[name]
