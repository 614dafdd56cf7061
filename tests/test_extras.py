"""Every verb runs on the base wheel, or names the missing extra in a line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ebbtide import __version__
from ebbtide.extras import EXTRAS, PackagesMissing, extra_of, install_command, missing_packages, require

ROOT = Path(__file__).parent.parent
#: Runs a command without any extra's package.
HIDDEN = f"""
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {sorted({name for names in EXTRAS.values() for name in names})!r}:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
from ebbtide.cli import main
main()
"""


def on_the_base_wheel(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"}
    return subprocess.run(
        [sys.executable, "-c", HIDDEN, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_what_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that begins with the command."""
    monkeypatch.setitem(EXTRAS, "node", ("trio", "no_such_package", "no_such_other"))
    assert missing_packages("node") == ("no_such_package", "no_such_other")
    with pytest.raises(PackagesMissing) as refused:
        require("node", "mode api")
    assert str(refused.value) == f"mode api needs no_such_package, no_such_other: {install_command('node')}"


def test_every_extra_of_the_project_is_in_the_table() -> None:
    """Except the developers' extra. Transitive packages are in no row."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) - {"dev"} == set(EXTRAS)
    assert (extra_of("trio_asyncio._loop"), extra_of("pyarrow"), extra_of("trio")) == ("node", "tables", "")


@pytest.mark.parametrize(
    "words, extra",
    [
        ("run --mode api --journal {d}/j --runtime {d}", "node"),
        ("export parquet --journal {d}/j -o {d}/tables", "tables"),
        ("fleet advise --journals s3://bucket", "fleet"),
        ("fleet ingest --journals {d}/j --lake {d}/lake", "lake"),
    ],
)
def test_what_needs_an_extra_says_so_in_a_line(tmp_path: Path, words: str, extra: str) -> None:
    """Exit code 2, no effect."""
    (tmp_path / "j").mkdir()
    ran = on_the_base_wheel(*words.format(d=tmp_path).split())
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran
    assert install_command(extra) in ran.stderr


def test_a_checkout_or_a_wheel_is_named_and_never_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    assert install_command("node") == f"pip install '{ROOT}[node]'"
    monkeypatch.setattr("ebbtide.extras.__file__", "/nowhere/ebbtide/extras.py")
    wheel = f"ebbtide-{__version__}-py3-none-any.whl"
    assert install_command("node") == f"pip install '{wheel}[node]'"


def test_no_text_names_us_as_an_index_would() -> None:
    """Only `install_command` tells what to install: any project may own our name on an index."""
    sources = (
        path
        for part in ("actors", "events", "otel", "replay", "ebbtide")
        for path in (ROOT / part).rglob("*.py")
    )
    by_name = re.compile(r"install (['\"]?)ebbtide\b|\bebbtide\[\w+\]|the extra '\w+' of this")
    found = [str(path.relative_to(ROOT)) for path in sources if by_name.search(path.read_text())]
    assert not found
