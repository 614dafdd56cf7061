"""Interaction scripts: the core's behaviour in text files beside this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.bench import Bench, logic_of
from tests.scripts.parse import Block, parse, render
from tests.scripts.verbs import run

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("*.txt"))


def outputs(blocks: list[Block], logic: str) -> list[list[str]]:
    bench = Bench(logic)
    return [[line for command in block.commands for line in run(bench, command)] for block in blocks]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    before = path.read_text()
    blocks = parse(before)
    after = render(blocks, outputs(blocks, logic_of(path)))
    if request.config.getoption("--rewrite", default=False):
        path.write_text(after)
    else:
        assert after == before


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) > 20
