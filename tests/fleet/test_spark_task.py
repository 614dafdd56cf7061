"""What a task does in an executor that needs no Spark."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from ebbtide.fleet.spark_task import forget_archives


def test_archives_are_not_read_again_for_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark looks at all finders before each task; what lies in an archive is found all the same."""
    archive = tmp_path / "spark.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("first_of_archive", "second_of_archive"):
            file.writestr(f"{name}.py", f"name = {name!r}")
    monkeypatch.syspath_prepend(str(archive))
    asked = []
    monkeypatch.setattr(zipimporter, "invalidate_caches", lambda finder: asked.append(finder.archive))
    first = importlib.import_module("first_of_archive")
    importlib.invalidate_caches()
    assert str(archive) in asked
    asked.clear()
    forget_archives()
    importlib.invalidate_caches()
    assert asked == []
    second = importlib.import_module("second_of_archive")
    assert (first.name, second.name) == ("first_of_archive", "second_of_archive")
