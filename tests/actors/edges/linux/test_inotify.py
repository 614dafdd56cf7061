"""Folders that change, appear, vanish and come back are noticed, without a look in between."""

from __future__ import annotations

import shutil
from pathlib import Path

from ebbtide.actors.edges.linux.inotify import FolderWatch


async def test_a_folder_that_comes_back(tmp_path: Path) -> None:
    """Deleted and made again, a folder is still watched."""
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
    """Without a change there is no wake-up at all; one in a sub-folder is none."""
    (tmp_path / "sub").mkdir()
    watch = FolderWatch([tmp_path])
    (tmp_path / "sub" / "file").touch()
    (tmp_path / "last").touch()
    assert await watch.changed() == {"last"}
    watch.close()
