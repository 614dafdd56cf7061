"""Commands in this process, on the golden journals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

GOLDEN = Path(__file__).parent / "golden"
JOURNALS = Path(__file__).parents[2] / "golden"
SHUTDOWN = JOURNALS / "shutdown-v1"
DEMO = JOURNALS / "demo-v1"
#: ``ebbtide simulate --synthetic 6 --seed 41``: logind restarts in the middle, and the shutdown is cancelled.
CANCELLED = JOURNALS / "cancelled-v1"
EVERY = (SHUTDOWN, DEMO, CANCELLED)


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _away(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks this machine's logind."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    monkeypatch.delenv("EBBTIDE_DEBUG", raising=False)


@pytest.fixture
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for a journal that was edited: no system wrote it, and it need not replay."""
    return tmp_path_factory.mktemp("spoiled")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("timeline", ..., journal=..., stdin=...)``: ``ebbtide replay``, without a process of its own."""
    import io

    from ebbtide.cli.common.guard import guarded

    def call(*arguments: str | Path, journal: Path = SHUTDOWN, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = guarded(["replay", *map(str, arguments), "--journal", str(journal)])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


def golden(name: str, text: str) -> None:
    """Compare with what was read and committed. To change it: delete the file, run, read, commit."""
    path = GOLDEN / name
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path} was not there: read what was written, and commit it")
    assert text == path.read_text()
