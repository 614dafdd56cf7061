"""Foreign code in CI with our rights: pinned, with minimal rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

GITHUB = Path(__file__).parents[1] / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
#: A commit with its release.
PINNED = re.compile(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_what_others_wrote_is_pinned(file: Path) -> None:
    """Actions by commit, containers by digest: tags can move."""
    used = [line.strip(" -") for line in file.read_text().splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []
    images = [job["container"]["image"] for job in read(file)["jobs"].values() if "container" in job]
    assert [image for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_rights_are_the_least(file: Path) -> None:
    """Read only; the site's publisher may only publish; no step keeps the token."""
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    given = [job["permissions"] for job in workflow["jobs"].values() if "permissions" in job]
    assert all(rights == {"pages": "write", "id-token": "write"} for rights in given)
    assert len(given) == (file.stem == "site")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    checkouts = [step for step in steps if "checkout" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    # A pull request's text never becomes a command.
    assert not any("${{" in step.get("run", "") for step in steps)


def test_ci_is_the_one_script() -> None:
    steps = read(GITHUB / "workflows/ci.yml")["jobs"]["run"]["steps"]
    assert [step["run"] for step in steps if "run" in step][-1] == "bash .ci/run"


def test_the_forms_are_what_the_hosting_reads() -> None:
    """Name, description and labelled fields."""
    form = read(GITHUB / "ISSUE_TEMPLATE/fault.yml")
    assert {"name", "description", "body"} == set(form)
    assert all(field["attributes"].get("label") for field in form["body"] if field["type"] != "markdown")
