"""The documentation says what the code does: pictures are current, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_the_picture_of_the_actors_is_current() -> None:
    """docs/actors.svg is what docs/tools/draw_actors.py draws from the code of now."""
    check = subprocess.run(
        [sys.executable, "docs/tools/draw_actors.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_pages_lead_to_files(page: Path) -> None:
    """Every relative link of a page names a file of this repository."""
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [link for link in targets if not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_names_a_command_for_the_demo_and_one_for_the_tests() -> None:
    """CI runs the README's own test command, so it must be found there."""
    readme = (ROOT / "README.md").read_text()
    for name in ("demo", "test"):
        assert re.search(rf"<!-- {name}-command -->\n```sh\n.+?\n```", readme, re.DOTALL), name
