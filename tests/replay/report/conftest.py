"""Pages that several tests look at, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.replay.report import journals
from tests.replay.report.browser import Browser, browser

MAKERS = {
    "story": journals.story,
    "hostile": journals.hostile,
    "many": journals.many,
    "hundred": journals.hundred,
}


VOID = ("meta", "link", "input", "col", "br", "wbr")


class Reader(HTMLParser):
    """Collects elements, attributes and texts; rejects bad nesting."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, *tags: str) -> str:
        return "".join(text for tag, text in self.texts if not tags or tag in tags)


@cache
def page_of(name: str) -> str:
    return journals.page(MAKERS[name]())


@pytest.fixture(scope="session")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    folder = tmp_path_factory.mktemp("pages")

    def address(name: str) -> str:
        path = Path(folder / f"{name}.html")
        if not path.exists():
            path.write_text(page_of(name), encoding="utf-8")
        return path.as_uri()

    return address


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests; a new page for each."""
    with browser() as made:
        yield made


@pytest.fixture
def desk(chromium: Browser) -> Browser:
    """A desktop browser: wide window, light theme, scripts."""
    chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    chromium.call("Emulation.setTimezoneOverride", timezoneId="UTC")
    chromium.media(prefers_color_scheme="light")
    chromium.size(1200, 900)
    return chromium
