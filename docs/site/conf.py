"""The site: the pages of this repository as they are, in the order of who reads them.

    sphinx-build -W --keep-going -c docs/site . OUT

Every link and anchor is checked by that. Nothing is loaded from another host (check.py).
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]

#: Who reads, and what: each page stands here once (tests/test_docs.py).
NAVIGATION: dict[str, tuple[str, ...]] = {
    "You run nodes": (
        "docs/deployment",
        "docs/packages",
        "docs/node",
        "docs/configuration",
        "docs/operations",
        "docs/threat-model",
        "docs/node-untried",
    ),
    "You are on call": ("docs/runbooks", "docs/replay", "docs/report"),
    "You answer for a fleet": (
        "docs/whatif",
        "docs/fleet",
        "docs/notebook",
        "docs/simulate",
        "docs/exporting",
        "docs/traces",
        "docs/attributes",
        "docs/performance",
    ),
    "You keep volumes, and nodes that died": (
        "docs/outage",
        "docs/outage-configuration",
        "docs/performance-outage",
    ),
    "You develop": (
        "docs/architecture",
        "docs/actors",
        "docs/journal-format",
        "docs/cri",
        "docs/extending",
        "docs/testing",
        "docs/proofs",
        "docs/dependencies",
        "CONTRIBUTING",
    ),
    "The project": ("CHANGELOG", "SECURITY"),
}

project = "Ebbtide"
html_baseurl = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Ebbtide"
html_copy_source = html_show_sourcelink = html_show_copyright = False
# `--option` and "text" stay what they are.
smartquotes = False
html_static_path = ["static"]
html_css_files = ["site.css"]
pygments_style, pygments_dark_style = "default", "github-dark"


#: A link that is called like its file, as it should be where files are read.
FILE_NAME = re.compile(r"[\w./-]+\.md")


def _navigation(_: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        for reader, pages in NAVIGATION.items():
            source[0] += f"\n```{{toctree}}\n:caption: {reader}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def _titles(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Here a page has a title, and no file."""
    of_page = {app.builder.get_relative_uri(page, each): each for each in app.env.found_docs}
    for link in doctree.findall(nodes.reference):
        target = of_page.get(link.get("refuri", "").partition("#")[0])
        if target and FILE_NAME.fullmatch(link.astext()):
            link.children = [nodes.Text(app.env.titles[target].astext())]


def _files(app: Sphinx, failed: Exception | None) -> None:
    if failed is None:
        # What a web server is asked for first.
        shutil.copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")
        shutil.copyfile(ROOT / "LICENSE", app.outdir / "LICENSE")
        shutil.copytree(ROOT / "deploy", app.outdir / "deploy", dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    app.connect("source-read", _navigation)
    app.connect("doctree-resolved", _titles)
    app.connect("build-finished", _files)
