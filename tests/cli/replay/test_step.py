"""Walking through a shutdown: the same states forwards and back, however much is kept."""

from __future__ import annotations

from pathlib import Path

from ebbtide.cli.replay.step import COMMANDS
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
