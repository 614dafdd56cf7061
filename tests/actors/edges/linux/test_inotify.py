"""Folders that change, appear, vanish and come back are noticed, without a look in between."""

from __future__ import annotations

import shutil
from pathlib import Path

from ebbtide.actors.edges.linux.inotify import FolderWatch


async def test_a_file_by_rename(tmp_path: Path) -> None:
    """The last step of an atomic write is noticed, with the name."""
    watch = FolderWatch([tmp_path])
    (tmp_path / "new").write_text("x")
    (tmp_path / "new").rename(tmp_path / "kept")
    assert "kept" in await watch.changed()
    watch.close()


async def test_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    """It is waited for through its nearest ancestor, and watched itself from then on."""
    watch = FolderWatch([tmp_path / "a" / "b"])
    (tmp_path / "a" / "b").mkdir(parents=True)
    await watch.changed()
    (tmp_path / "a" / "b" / "file").touch()
    while "file" not in await watch.changed():
        pass
    watch.close()


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
