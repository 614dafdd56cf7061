"""The image's build file: it copies what there is, and pins what a node needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from ebbtide import __version__

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text()
RUN_SECONDS_MAX = 60


def copied() -> list[str]:
    """The sources of what is copied from the checkout."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_everything_that_is_copied_is_there() -> None:
    """And every package of the wheel is copied."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert set(packages) <= set(copied())


def test_nothing_is_fetched_but_by_its_hash() -> None:
    """One installation, of the lock alone, and each line of that has its hashes."""
    installed = re.findall(r"pip install (.*?)(?:\n(?! )|\Z)", CONTAINERFILE, re.DOTALL)
    assert len(installed) == 1
    assert {"--require-hashes", "requirements-node.lock"} <= set(installed[0].split())
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / "requirements-node.lock").read_text())
    pinned = [entry for entry in entries if "==" in entry.partition("\n")[0]]
    assert pinned
    assert [entry.partition(" ")[0] for entry in pinned if "--hash=sha256:" not in entry] == []


def test_the_controllers_tool_is_there_unless_it_is_left_out() -> None:
    """The one package of the distribution, checked by starting it; a build without it is possible."""
    (line,) = re.findall(r"^RUN (.*apt-get(?:.*\\\n)*.*)$", CONTAINERFILE, re.MULTILINE)
    assert re.findall(r"apt-get install (.*?) \\", line) == ["-y --no-install-recommends ipmitool"]
    assert line.startswith('test "$IPMITOOL" = no || {')
    assert line.endswith("&& ipmitool -V; }")
    assert "ARG IPMITOOL=yes\n" in CONTAINERFILE


def test_the_lock_has_what_a_node_needs() -> None:
    """The default mode is a node's: requirements-node.lock is made with the extra ``node``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [re.split(r"[^\w.-]", each)[0] for each in project["project"]["optional-dependencies"]["node"]]
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements-node.lock").read_text(), re.MULTILINE)
    assert [name for name in wanted if name not in locked] == []


def test_the_command_in_the_image_is_ebbtide() -> None:
    """The file that becomes it works as the installed one does."""
    argv = [sys.executable, str(ROOT / "deploy/entrypoint.py"), "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=True, cwd=ROOT)
    assert done.stdout == f"entrypoint.py {__version__}\n" or done.stdout == f"ebbtide {__version__}\n"
