"""No command here asks this machine's logind or gives up on a slow machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.events import bounds
from tests.cli.bed import whole_shutdown
from tests.commands import NOWHERE


@pytest.fixture(autouse=True)
def _away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", NOWHERE)
    monkeypatch.delenv("EBBTIDE_DEBUG", raising=False)
    monkeypatch.setattr(bounds, "now", bounds.Bounds().widened(60))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of a start and one shutdown."""
    whole_shutdown(tmp_path / "journal")
    return tmp_path / "journal"


@pytest.fixture
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for an edited journal, which need not replay."""
    return tmp_path_factory.mktemp("spoiled")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A configuration of one period of 30 s."""
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nshutdownGracePeriod: 30s\n")
    return path
