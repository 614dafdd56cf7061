"""Commands in this process, simulated journals on disk, and golden files that can be written anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ebbtide import replay
from ebbtide.cli.common.guard import guarded

GOLDEN = Path(__file__).parent / "golden"
SHUTDOWN = Path(__file__).parents[2] / "golden" / "shutdown-v1"
NOWHERE = "unix:path=/nonexistent/bus"

#: What is special about each simulated node, by its seed.
NODES = {"calm": 3, "restarted": 12, "withdrawn": 18, "cut-short": 9}


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("replay", "what-if", ...)``, away from this machine's bus."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", NOWHERE)
    monkeypatch.delenv("EBBTIDE_DEBUG", raising=False)

    def call(*arguments: str | Path) -> Ran:
        code = guarded([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a journal for each node."""
    folder = tmp_path_factory.mktemp("fleet")
    for name, seed in NODES.items():
        (folder / name).mkdir()
        for file, data in replay.simulate(seed, synthetic=9, calm=name == "calm").files().items():
            (folder / name / file).write_bytes(data)
    return folder


def same_as_golden(name: str, text: str) -> None:
    """The text stands in the golden file. A missing file is written, and fails: read it, then commit it."""
    path = GOLDEN / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was written: read it, and run again")
    assert text == path.read_text(), f"if it is meant: remove {path}, run again, and read the new one"
