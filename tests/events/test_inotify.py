"""Folders that change, appear, vanish and return are noticed without polling."""

from __future__ import annotations

import shutil
from pathlib import Path

from ebbtide.events.inotify import FolderWatch


async def test_a_folder_that_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    watch = FolderWatch([folder])
    shutil.rmtree(folder)
    await watch.changed()
    folder.mkdir()
    await watch.changed()
    (folder / "file").touch()
    assert "file" in await watch.changed()
    watch.close()


async def test_silence_wakes_nobody(tmp_path: Path) -> None:
    """No wake-up without a change; changes in sub-folders do not count."""
    (tmp_path / "sub").mkdir()
    watch = FolderWatch([tmp_path])
    (tmp_path / "sub" / "file").touch()
    (tmp_path / "last").touch()
    assert await watch.changed() == {"last"}
    watch.close()
