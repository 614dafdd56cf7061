"""The report in a real browser, for the gate: render, fold, filter, print."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.replay.report import journals
from tests.replay.report.browser import Browser
from tests.replay.report.test_browser import VISIBLE, hints, tab_to, value, walk_to

pytestmark = [pytest.mark.browser, pytest.mark.gate]

Urls = Callable[[str], str]


@pytest.mark.parametrize(("name", "pods"), [("story", 6), ("hostile", len(journals.HOSTILE))])
def test_it_renders(desk: Browser, urls: Urls, name: str, pods: int) -> None:
    """A row and a bar for each pod; no error, console message or request."""
    desk.open(urls(name))
    assert len(desk.run(VISIBLE)) == pods
    assert desk.run("document.querySelectorAll(\"#lanes rect[class^='f-']\").length") >= 6
    assert desk.complaints() == []
    assert desk.requests() == []
    assert desk.run("window.hit") is None


def test_it_folds(desk: Browser, urls: Urls) -> None:
    """Enter toggles a wave; a button toggles all."""
    desk.open(urls("story"))
    whole = hints(desk)
    walk_to(desk, "Wave 0")
    desk.press("Enter")
    assert value(desk, "said").endswith("1 killed. Enter opens it.")
    folded = hints(desk)
    assert not [each for each in folded if "shop/stuck-0" in each]
    assert [each for each in folded if "shop/api-0" in each]
    desk.press("Enter")
    assert hints(desk) == whole
    desk.run("document.getElementById('fold').click()")
    assert [each.partition(" ·")[0] for each in hints(desk)] == [
        "Beside the waves",
        "Wave 0",
        "Wave 1",
        "Wave 2",
    ]
    desk.run("document.getElementById('fold').click()")
    assert hints(desk) == whole


def test_it_filters(desk: Browser, urls: Urls) -> None:
    """By keyboard: timeline and table show the matching pods and their number."""
    desk.open(urls("story"))
    tab_to(desk, "find")
    desk.type("stuck")
    assert desk.run(VISIBLE) == ["shop/stuck-0"]
    assert value(desk, "found") == "1 of 6 pods"
    names = desk.run("[...document.querySelectorAll('#lanes text')].map((each) => each.textContent)")
    assert "shop/stuck-0" in names
    assert "shop/web-0" not in names
    desk.type("-nothing")
    assert desk.run(VISIBLE) == []
    assert desk.run("document.getElementById('no-pods').checkVisibility()")


def test_it_prints(desk: Browser, urls: Urls) -> None:
    """At most two pages. Autopsies and waves open for it, and close afterwards."""
    desk.open(urls("story"))
    opened = "document.querySelectorAll('details[data-print][open]').length"
    before = hints(desk)
    assert desk.run(opened) == 0
    desk.run("dispatchEvent(new Event('beforeprint'))")
    assert desk.run(opened) == desk.run("document.querySelectorAll('details[data-print]').length") > 0
    printed = hints(desk)
    assert [each for each in printed if "shop/stuck-0" in each]
    assert len([each for each in printed if each.startswith("Wave ")]) == 3
    desk.run("dispatchEvent(new Event('afterprint'))")
    desk.frame()
    assert desk.run(opened) == 0
    assert hints(desk) == before
    assert 1 <= len(re.findall(rb"/Type /Page\b", desk.pdf(8.27, 11.69))) <= 2
