"""Commands in this process, and golden files that can be written anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ebbtide.cli.common.guard import guarded
from tests.replay.two_shutdowns import write_two

GOLDEN = Path(__file__).parent / "golden"
SHUTDOWN = Path(__file__).parent.parent / "golden" / "shutdown-v1"


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("replay", "blame", ...)``, away from this machine's configuration."""
    monkeypatch.delenv("EBBTIDE_DEBUG", raising=False)

    def call(*arguments: str | Path) -> Ran:
        code = guarded([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of two shutdowns."""
    return write_two(tmp_path_factory.mktemp("two"))


def same_as_golden(name: str, text: str) -> None:
    """The text stands in the golden file. A missing file is written, and fails: read it, then commit it."""
    path = GOLDEN / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was written: read it, and run again")
    assert text == path.read_text(), f"if it is meant: remove {path}, run again, and read the new one"
