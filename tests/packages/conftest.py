"""Build the packages once for all tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.packages import build
from tests.beds.skipping import or_skip
from tests.machine.conftest import machine  # noqa: F401  # a fixture
from tests.packages.programs import nfpm

FIRST = build.project_version()
SECOND = f"{FIRST}.1"
#: A library folder that the second version lacks.
GONE = "ebbtide/only_before"


class Packages(NamedTuple):
    """``laid_out``: the content; ``first`` and ``second``: by format."""

    laid_out: Path
    first: dict[str, Path]
    second: dict[str, Path]


def make(folder: Path) -> Packages:
    """Raises Unavailable: no nFPM."""
    program = str(nfpm())
    build.lay_out(folder / "first")
    shutil.copytree(folder / "first", folder / "second", symlinks=True, copy_function=os.link)
    version = folder / "second/root" / build.SITE / "ebbtide/__init__.py"
    text = version.read_text().replace(f'"{FIRST}"', f'"{SECOND}"')
    version.unlink()
    version.write_text(text)
    build.write(folder / "first/root" / build.SITE / GONE / "__init__.py", "")
    made = {
        version: {
            form: build.pack(folder / name, folder / "made", form, nfpm=program, version=version)
            for form in build.FORMATS
        }
        for name, version in (("first", FIRST), ("second", SECOND))
    }
    return Packages(folder / "first/root", made[FIRST], made[SECOND])


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    with or_skip():
        return make(tmp_path_factory.mktemp("packages"))
