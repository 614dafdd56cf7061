"""The image's build file copies existing files and pins its packages. `built_image` builds it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text()


def copied() -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_everything_that_is_copied_is_there() -> None:
    """And every package of the wheel is copied."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert set(packages) <= set(copied())


def test_nothing_is_fetched_but_by_its_hash() -> None:
    """Runtime and build packages come from the hashed locks, plus our own wheel."""
    installs = re.findall(r"pip install (.*?)(?=&&|\n(?! )|\Z)", CONTAINERFILE, re.DOTALL)
    locked, own = installs[:-1], installs[-1]
    locks = [re.findall(r"-r (\S+)", each) for each in locked]
    assert locks == [["requirements-node.lock"], ["requirements-build.lock"]]
    assert all("--require-hashes" in each for each in locked)
    assert {"--no-index", "--no-deps"} <= set(own.split())
    for (lock,) in locks:
        entries = re.split(r"\n(?=[a-z0-9])", (ROOT / lock).read_text())
        assert [entry.partition(" ")[0] for entry in entries if "--hash=sha256:" not in entry] == []
        assert all("==" in entry.partition("\n")[0] for entry in entries)


def test_the_base_is_pinned_by_its_digest() -> None:
    """Both stages use the same base, named once."""
    (base,) = re.findall(r"^ARG BASE=(\S+)$", CONTAINERFILE, re.MULTILINE)
    assert re.fullmatch(r"[a-z0-9./]+:[\w.-]+@sha256:[0-9a-f]{64}", base)
    assert re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]


def test_the_controllers_tool_is_there_unless_it_is_left_out() -> None:
    """The distribution's only package, checked by starting it; a build without it is possible."""
    (line,) = re.findall(r"^RUN (.*apt-get(?:.*\\\n)*.*)$", CONTAINERFILE, re.MULTILINE)
    assert re.findall(r"apt-get install (.*?) \\", line) == ["-y --no-install-recommends ipmitool"]
    assert line.startswith('test "$IPMITOOL" = no || {')
    assert line.endswith("&& ipmitool -V; }")
    assert "ARG IPMITOOL=yes\n" in CONTAINERFILE


def test_the_locks_have_what_is_needed() -> None:
    """One lock has the extras node and ship, the other the ``build-system`` requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for lock, needed in (
        ("requirements-node.lock", [*extras["node"], *extras["ship"]]),
        ("requirements-build.lock", project["build-system"]["requires"]),
    ):
        locked = re.findall(r"^([\w.-]+)==", (ROOT / lock).read_text(), re.MULTILINE)
        assert {re.split(r"[^\w.-]", each)[0] for each in needed} <= set(locked)
