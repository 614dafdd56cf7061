"""The page about the replay names the commands of a walk as they are."""

from __future__ import annotations

from pathlib import Path

from ebbtide.cli.replay.step import BY_KEY, COMMANDS
from ebbtide.cli.replay.step_terminal import ALIASES, FOOT

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
