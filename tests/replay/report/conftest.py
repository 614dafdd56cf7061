"""Pages that several tests look at, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
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
