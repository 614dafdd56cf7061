"""The documentation matches the code: current pictures, working links."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("tool", ["draw_actors.py", "write_dispatch.py"])
def test_what_is_made_from_the_actors_tables_is_current(tool: str) -> None:
    """The pictures, and the path from an event to its handlers."""
    check = subprocess.run(
        [sys.executable, f"docs/tools/{tool}", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_links_between_the_pages_lead_to_files() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_the_readme_names_a_command_for_the_demo_and_one_for_the_tests() -> None:
    """CI runs the README's test command."""
    readme = (ROOT / "README.md").read_text()
    for name in ("demo", "test"):
        assert re.search(rf"<!-- {name}-command -->\n```sh\n.+?\n```", readme, re.DOTALL), name


def test_every_page_stands_once_in_the_sites_navigation() -> None:
    """In docs/site/conf.py by audience; the strict site build would find it too, but late."""
    conf = ast.parse((ROOT / "docs/site/conf.py").read_text())
    (navigation,) = (
        ast.literal_eval(node.value)
        for node in conf.body
        if isinstance(node, ast.AnnAssign)
        and node.value is not None
        and ast.unparse(node.target) == "NAVIGATION"
    )
    placed = [page for pages in navigation.values() for page in pages]
    pages = [page.relative_to(ROOT).with_suffix("").as_posix() for page in PAGES]
    assert sorted(placed) == sorted(page for page in pages if page != "README")


ELSEWHERE = {
    "script.html": '<script src="https://x/y.js"></script>',
    "img.html": '<img srcset="b.png 1x, //x/y.png 2x">',
    "link.html": '<link rel="preconnect stylesheet" href="https://x">',
    "p.html": '<p style="background: url(https://x/y.png)">',
    "style.html": "<style>@import 'https://x/y.css';</style>",
    "a.css": 'src: url("//x/y.woff2")',
    "a.svg": '<svg><image xlink:href="http://x/y.png"/></svg>',
}


def test_a_site_that_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    """Automatic fetches only; manual links and data URLs are fine."""
    spec = spec_from_file_location("check", ROOT / "docs/site/check.py")
    assert spec is not None
    assert spec.loader is not None
    check = module_from_spec(spec)
    spec.loader.exec_module(check)
    fine = (
        '<link rel="canonical" href="https://x"><a href="https://x">x</a><img src="data:image/png;base64,">'
    )
    (tmp_path / "fine.html").write_text(fine + '<script src="_static/a.js"></script><img src="b.png">')
    assert list(check.foreign(tmp_path)) == []
    for file, text in ELSEWHERE.items():
        (tmp_path / file).write_text(text)
    assert {line.split(" loads ")[0] for line in check.foreign(tmp_path)} == set(ELSEWHERE)


RECIPES = re.split(r"^## ", (ROOT / "docs" / "extending.md").read_text(), flags=re.MULTILINE)[1:]
RECIPE_FILES_MAX = 6
PATH_IN_TEXT = re.compile(
    r"`((?:actors|docs|ebbtide|events|otel|replay|tests)/[\w/.]+|README\.md|pyproject\.toml)`"
)


def test_a_recipe_names_few_files_that_are_there() -> None:
    """At most six steps, each with its file first; placeholders name an existing example."""
    for recipe in RECIPES:
        steps = [line for line in recipe.splitlines() if re.match(r"\d+\. ", line)]
        assert 1 < len(steps) <= RECIPE_FILES_MAX, recipe
        assert [step for step in steps if not PATH_IN_TEXT.search(step)] == []
        assert [name for name in PATH_IN_TEXT.findall(recipe) if not (ROOT / name).exists()] == []
