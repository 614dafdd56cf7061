"""Whether a built site, and the text that a package index shows, hold by themselves.

    hatchling metadata | python docs/site/check.py OUT

No page, style sheet or picture of the site loads anything from another host. The README of the metadata on
standard input renders as an index renders it, and each link in it into the site leads somewhere. Links and
anchors between the pages are the build's own check.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

#: Attributes whose address a browser fetches by itself, by tag. Of links, those of these relations.
LOADED = {
    **dict.fromkeys(
        ("script", "img", "iframe", "embed", "source", "video", "audio", "track", "input"), "src"
    ),
    **dict.fromkeys(("image", "use", "link"), "href"),
    "object": "data",
}
RELATIONS_NOT_LOADED = {"alternate", "author", "canonical", "index", "license", "next", "prev", "search"}
IN_STYLE = re.compile(r"""url\(\s*["']?([^)"']+)|@import\s+["']([^"']+)""")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:(?!$)|//", re.IGNORECASE)


class Page(HTMLParser):
    """What a page loads, where it links to, and what in it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name.removeprefix("xlink:"): value or "" for name, value in attrs}
        relations = set(told.get("rel", "").split())
        if tag in LOADED and not (tag == "link" and relations and relations <= RELATIONS_NOT_LOADED):
            self.loaded.append(told.get(LOADED[tag], ""))
        self.loaded += [part.split()[0] for part in told.get("srcset", "").split(",") if part.strip()]
        self.loaded += addresses(told.get("style", ""))
        if tag == "a":
            self.links.append(told.get("href", ""))
        self.anchors += [told[name] for name in ("id", "name") if name in told]


def addresses(style: str) -> list[str]:
    return [first or second for first, second in IN_STYLE.findall(style)]


def foreign(site: Path) -> Iterator[str]:
    """A line for each thing that a file of the site would load from elsewhere."""
    for file in sorted(site.rglob("*")):
        if file.suffix not in (".html", ".svg", ".css"):
            continue
        text = file.read_text()
        loaded = addresses(text) + ([] if file.suffix == ".css" else Page(text).loaded)
        for address in loaded:
            if ELSEWHERE.match(address) and not address.startswith("data:"):
                yield f"{file.relative_to(site)} loads {address}"


def broken(readme: str, base: str, site: Path) -> Iterator[str]:
    """A line for each link or picture of the rendered README that leads nowhere."""
    from readme_renderer import markdown  # of the site's own environment, as nothing else here

    rendered = markdown.render(readme)
    if rendered is None:
        yield "the README does not render"
        return
    page = Page(rendered)
    anchors = page.anchors
    for address in (*page.links, *page.loaded):
        path, _, anchor = address.removeprefix(base).partition("#")
        if address.startswith("#"):
            fine = anchor in anchors or f"user-content-{anchor}" in anchors
        elif address.startswith(base):
            target = site / (path or "index.html")
            fine = target.is_file() and (not anchor or anchor in Page(target.read_text()).anchors)
        else:
            fine = address.startswith("https://")
        if not fine:
            yield f"the README leads to {address}, which is not there"
    if not any(address.startswith(base) for address in page.loaded):
        yield "the README shows no picture"


def main() -> None:
    site, metadata = Path(sys.argv[1]), json.load(sys.stdin)
    readme = metadata["readme"]
    text = readme["text"] if isinstance(readme, dict) else readme
    wrong = [*foreign(site), *broken(text, metadata["urls"]["Documentation"], site)]
    wrong += [
        f"{name} leads to {url}"
        for name, url in metadata["urls"].items()
        if not (site / (url.removeprefix(metadata["urls"]["Documentation"]) or "index.html")).is_file()
    ]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
