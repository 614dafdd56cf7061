"""The bill of materials lists the lock's packages and their dependents."""

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
    """One line, and no partial bill."""
    lock = tmp_path / "some.lock"
    lock.write_text("trio==1.0\n    # via x\n")
    done = bill(lock)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{lock}: not a version with its hashes: trio==1.0\n"
