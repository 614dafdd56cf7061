"""The report in a real browser. The gate renders, folds, filters and prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.replay.report import journals
from tests.replay.report.browser import Browser

pytestmark = pytest.mark.browser

Urls = Callable[[str], str]

TABS_MAX = 80
VISIBLE = "[...document.querySelectorAll('#pod-rows > tr:not([hidden]) bdi')].map((each) => each.textContent)"


def tab_to(desk: Browser, name: str) -> None:
    """Press Tab until this element has the focus."""
    for _ in range(TABS_MAX):
        desk.press("Tab")
        if desk.run("document.activeElement.id") == name:
            return
    raise AssertionError(f"#{name} is not reached by Tab")


def value(desk: Browser, name: str) -> Any:
    return desk.run(f"document.getElementById('{name}').textContent")


def hints(desk: Browser) -> list[str]:
    desk.frame()
    made: list[str] = desk.run(
        "[...document.querySelectorAll('#lanes title')].map((each) => each.textContent)"
    )
    return made


def walk_to(desk: Browser, text: str) -> None:
    desk.run("document.getElementById('chart').focus()")
    for _ in range(TABS_MAX):
        if text in value(desk, "said"):
            return
        desk.press("ArrowDown")
    raise AssertionError(f"no row of the timeline says {text!r}")


@pytest.mark.gate
@pytest.mark.parametrize(("name", "pods"), [("story", 6), ("hostile", len(journals.HOSTILE))])
def test_it_renders(desk: Browser, urls: Urls, name: str, pods: int) -> None:
    """A row and a bar for each pod; no error, console message or request."""
    desk.open(urls(name))
    assert len(desk.run(VISIBLE)) == pods
    assert desk.run("document.querySelectorAll(\"#lanes rect[class^='f-']\").length") >= 6
    assert desk.complaints() == []
    assert desk.requests() == []
    assert desk.run("window.hit") is None


@pytest.mark.gate
def test_it_folds(desk: Browser, urls: Urls) -> None:
    """Enter toggles a wave; a button toggles all."""
    desk.open(urls("story"))
    whole = hints(desk)
    walk_to(desk, "Wave 0")
    desk.press("Enter")
    assert value(desk, "said").endswith("1 killed, 2 graceful. Enter opens it.")
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


@pytest.mark.gate
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


@pytest.mark.gate
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


def test_policy_holds(desk: Browser, urls: Urls) -> None:
    """Injected markup can neither run nor load."""
    desk.open(urls("story"))
    desk.run("""(() => {
        const script = document.createElement("script");
        script.textContent = "window.hit = 1";
        document.body.append(script);
        const picture = '<img src="http://127.0.0.1:9/x.png" onerror="window.hit=1">';
        document.body.insertAdjacentHTML("beforeend", picture);
        return new Promise((done) => setTimeout(done, 50));
    })()""")
    assert desk.run("window.hit") is None
    refused = [each for each in desk.complaints() if "Content Security Policy" in each]
    assert len(refused) >= 2
    blocked = desk.seen("Network.loadingFailed")
    assert len(desk.requests()) == len([each for each in blocked if each.get("blockedReason") == "csp"])


def test_timeline_by_keyboard(desk: Browser, urls: Urls) -> None:
    """Arrows move between pods with a label each, + and 0 zoom, Enter goes to the table row."""
    desk.open(urls("story"))
    tab_to(desk, "chart")
    whole = value(desk, "range")
    for _ in range(3):
        desk.press("ArrowDown")
    assert "shop/stuck-0, wave 0: killed" in value(desk, "said")
    assert "ignores SIGTERM" in value(desk, "said")
    desk.press("+", "+")
    desk.frame()
    assert value(desk, "range") != whole
    desk.press("0", "0")
    desk.frame()
    assert value(desk, "range") == whole
    desk.press("Enter")
    assert desk.run("document.activeElement.closest('tr').querySelector('bdi').textContent") == "shop/stuck-0"
    assert desk.run("document.activeElement.closest('details').open")


def test_without_script(desk: Browser, urls: Urls) -> None:
    """Without scripts the account is complete, and a notice lists the missing features."""
    desk.call("Emulation.setScriptExecutionDisabled", value=True)
    desk.open(urls("story"), scripts=False)
    root = desk.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
    text = {}
    for what in ("noscript", "#pod-rows", "#chain", "#tools"):
        node = desk.call("DOM.querySelector", nodeId=root, selector=what)["nodeId"]
        text[what] = desk.call("DOM.getOuterHTML", nodeId=node)["outerHTML"]
    assert "this page's own script" in text["noscript"]
    assert "shop/stuck-0" in text["#pod-rows"]
    assert "shop/api-0" in text["#chain"]
    assert "hidden" in text["#tools"].partition(">")[0]
