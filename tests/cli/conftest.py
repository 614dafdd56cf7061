"""Commands in this process, away from this machine's bus and configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_bed import NOWHERE, Ran

Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _away(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks this machine's logind."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", NOWHERE)
    monkeypatch.delenv("EBBTIDE_DEBUG", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("journal", "ls", ...)`` without a process of its own."""
    from ebbtide.cli.common.guard import guarded

    def call(*arguments: str | Path) -> Ran:
        code = guarded([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
