"""The image's build file (`built_image` builds it), and its bill of materials."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from ebbtide import __version__

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text()


def copied() -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_everything_that_is_copied_is_there() -> None:
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


# --- the bill of materials lists the lock's packages and their dependents


LOCKS = {"requirements.lock": (), "requirements-node.lock": ("node", "ship")}


def bill(lock: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-S", str(ROOT / "deploy/sbom.py"), str(lock)]
    return subprocess.run(argv, capture_output=True, text=True)


def plain(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_it_has_what_the_lock_pins(lock: str) -> None:
    """Each package with version and hashes, nothing else; reproducible to the byte."""
    done = bill(ROOT / lock)
    made, text = json.loads(done.stdout), (ROOT / lock).read_text()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["metadata"]["component"]["version"] == __version__
    pinned = re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE)
    assert [(each["name"], each["version"]) for each in made["components"]] == pinned
    assert [each["purl"] for each in made["components"]] == [f"pkg:pypi/{name}@{of}" for name, of in pinned]
    files = [file for each in made["components"] for file in each["externalReferences"]]
    hashes = [each["content"] for file in files for each in file["hashes"]]
    assert hashes == re.findall(r"sha256:(\w+)", text)
    assert bill(ROOT / lock).stdout == done.stdout


@pytest.mark.parametrize("lock", LOCKS)
def test_it_knows_who_needs_whom(lock: str) -> None:
    """The project's requirements, and those of the installed packages."""
    made = json.loads(bill(ROOT / lock).stdout)
    names = {each["bom-ref"]: each["name"] for each in made["components"]}
    (root,) = (each for each in made["dependencies"] if each["ref"] not in names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: Any = (project["optional-dependencies"][extra] for extra in LOCKS[lock])
    wanted = {plain(each) for list_ in (project["dependencies"], *extras) for each in list_}
    assert {names[each] for each in root["dependsOn"]} == wanted
    needed = {names[ref] for each in made["dependencies"] for ref in each["dependsOn"]}
    assert needed == set(names.values())
    for each in made["dependencies"]:
        if each is root:
            continue
        try:
            requires = distribution(names[each["ref"]]).requires or []
        except PackageNotFoundError:
            continue
        assert {names[ref] for ref in each["dependsOn"]} <= {plain(one) for one in requires}


def test_a_lock_without_a_hash_is_none(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("trio==1.0\n    # via x\n")
    done = bill(lock)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{lock}: not a version with its hashes: trio==1.0\n"
