"""The report in a real browser: quiet, closed, for the keyboard, for every reader, screen and for paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.replay.report import journals
from tests.replay.report.browser import Browser

pytestmark = pytest.mark.browser

Urls = Callable[[str], str]

LOOKS = Path(__file__).with_name("looks.js").read_text()
PAGES = ("story", "hostile", "many")
TABS_MAX = 80
#: Roles whose elements a screen reader announces by name.
NAMED = (
    "application",
    "button",
    "checkbox",
    "combobox",
    "heading",
    "link",
    "navigation",
    "region",
    "search",
    "searchbox",
    "table",
)
VISIBLE = "[...document.querySelectorAll('#pod-rows > tr:not([hidden]) bdi')].map((each) => each.textContent)"


def tab_to(desk: Browser, name: str) -> None:
    """Press Tab until the element of this id has the focus."""
    for _ in range(TABS_MAX):
        desk.press("Tab")
        if desk.run("document.activeElement.id") == name:
            return
    raise AssertionError(f"#{name} is not reached by Tab")


def value(desk: Browser, name: str) -> Any:
    return desk.run(f"document.getElementById('{name}').textContent")


@pytest.mark.parametrize("name", PAGES)
def test_quiet_and_alone(desk: Browser, urls: Urls, name: str) -> None:
    """No error, no word on the console, no request: whatever names stand in it."""
    desk.open(urls(name))
    desk.frame()
    assert desk.complaints() == []
    assert desk.requests() == []
    assert desk.run("window.hit") is None
    assert desk.run("document.querySelectorAll('img, iframe, script').length") == 2


def test_policy_holds(desk: Browser, urls: Urls) -> None:
    """Even markup that got in could neither run nor load: the browser refuses it."""
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


def test_hostile_names_stay_names(desk: Browser, urls: Urls) -> None:
    """Each name is text in its cell, as it is spelt, inside of the page's width."""
    desk.open(urls("hostile"))
    shown = desk.run(VISIBLE)
    assert len(shown) == len(journals.HOSTILE)
    assert f"shop/{'x' * 253}" in shown
    assert "shop/\\u202egnp.exe" in shown
    assert "shop/🌊-ebb-👩\\u200d🚒" in shown
    desk.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert desk.run("document.documentElement.scrollWidth <= innerWidth")


def test_filter_by_keyboard(desk: Browser, urls: Urls) -> None:
    """Tab to the field, type: timeline and table show those pods, and how many is said."""
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


def test_filter_by_outcome_and_wave(desk: Browser, urls: Urls) -> None:
    """Outcomes are switched with the space bar, the wave is chosen from a list."""
    desk.open(urls("story"))
    tab_to(desk, "wave")
    desk.press("ArrowDown")
    desk.frame()
    assert desk.run(VISIBLE) == ["shop/web-0", "shop/web-1", "shop/stuck-0"]
    desk.press("Tab")
    assert desk.run("document.activeElement.value") == "graceful"
    desk.press(" ", " ")
    desk.frame()
    assert desk.run(VISIBLE) == ["shop/stuck-0"]


def test_timeline_by_keyboard(desk: Browser, urls: Urls) -> None:
    """Arrows walk from pod to pod and say each, + and 0 zoom, Enter goes to the pod's row in the table."""
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


def test_timeline_shows_what_happened(desk: Browser, urls: Urls) -> None:
    """Hooks, stop signals, SIGKILL, bounds of grace, wave deadlines, and who held a wave are drawn."""
    desk.open(urls("story"))
    for kind, least in (("hook", 2), ("mark", 6), ("kill", 1), ("bound", 6), ("limit", 3), ("holder", 3)):
        assert desk.run(f"document.querySelectorAll('#lanes .{kind}').length") >= least, kind
    bars = desk.run("""[...document.querySelectorAll("#lanes rect[class^='f-']")].map((each) =>
        [each.className.baseVal, each.getBoundingClientRect().width])""")
    assert sorted(kind for kind, _ in bars) == ["f-graceful"] * 5 + ["f-killed"]
    assert all(width > 0 for _, width in bars)


def test_timeline_by_mouse(desk: Browser, urls: Urls) -> None:
    """Dragging moves in time once zoomed, a click chooses a pod, Ctrl and the wheel zoom."""
    desk.open(urls("story"))
    desk.run("document.getElementById('chart').scrollIntoView({ block: 'center' })")
    box = desk.run("JSON.parse(JSON.stringify(document.getElementById('chart').getBoundingClientRect()))")
    x, y = box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.5
    whole = value(desk, "range")
    desk.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-240, modifiers=2)
    desk.frame()
    zoomed = value(desk, "range")
    assert zoomed != whole
    mouse(desk, "mousePressed", x, y)
    mouse(desk, "mouseMoved", x + 80, y)
    mouse(desk, "mouseReleased", x + 80, y)
    desk.frame()
    assert value(desk, "range") != zoomed
    assert value(desk, "said") == ""
    row = desk.run("document.getElementById('rows').getBoundingClientRect().top") + 22 * 5.5
    mouse(desk, "mousePressed", x, row)
    mouse(desk, "mouseReleased", x, row)
    assert "shop/" in value(desk, "said")


def mouse(desk: Browser, what: str, x: float, y: float) -> None:
    desk.call("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", buttons=1, clickCount=1)


def test_sorting(desk: Browser, urls: Urls) -> None:
    """A heading's button sorts by it, numbers as numbers, and says which way."""
    desk.open(urls("story"))
    desk.run("[...document.querySelectorAll('.sort')].find((each) => each.textContent === 'Took').focus()")
    sizes = "[...document.querySelectorAll('#pod-rows > tr')].map((each) => Number(each.cells[4].dataset.v))"
    for direction, descending in (("ascending", False), ("descending", True)):
        desk.press("Enter", "\r")
        assert desk.run("document.activeElement.closest('th').ariaSort") == direction
        assert desk.run(sizes) == sorted(desk.run(sizes), reverse=descending)


def test_events(desk: Browser, urls: Urls) -> None:
    """The events can be searched by keyboard; a record unfolds with its causes, back to the fact."""
    desk.open(urls("story"))
    desk.run("document.getElementById('wave').focus()")
    tab_to(desk, "event-find")
    desk.type("podended stuck")
    assert value(desk, "event-found").startswith("1 of ")
    desk.press("Tab")
    desk.press("Tab")
    desk.press("Tab")
    assert desk.run("document.activeElement.tagName") == "BUTTON"
    desk.press("Enter", "\r")
    card = value(desk, "event-more")
    assert "PodEnded by hook for shop/stuck-0" in card
    assert "Because of" in card
    assert "ContainerExited" in card


def test_events_are_virtual(desk: Browser, urls: Urls) -> None:
    """Of thousands of events only those in sight are in the document, and the last one can be scrolled to."""
    desk.open(urls("many"))
    count = desk.run("JSON.parse(document.getElementById('data').textContent).events.seq.length")
    assert count > 10_000
    desk.run("document.getElementById('event-frame').scrollTop = 1e9")
    desk.frame()
    rows = desk.run(
        "[...document.querySelectorAll('#event-rows [data-seq]')].map((each) => Number(each.dataset.seq))"
    )
    assert len(rows) < 60
    assert rows[-1] == desk.run("JSON.parse(document.getElementById('data').textContent).events.seq.at(-1)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_contrast(desk: Browser, urls: Urls, scheme: str, width: int) -> None:
    """WCAG AA of every text in sight, by computed colours, with everything unfolded."""
    desk.size(width, 900)
    desk.media(prefers_color_scheme=scheme)
    desk.open(urls("story"))
    desk.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    desk.run("document.querySelector('#event-rows button').click()")
    desk.run("(() => { const chart = document.getElementById('chart'); chart.focus(); })()")
    desk.press("ArrowDown")
    desk.frame()
    looked = desk.run(LOOKS)
    assert looked["looked"] > 100
    assert looked["found"] == []


def test_themes(desk: Browser, urls: Urls) -> None:
    """The page follows the system, and its own switch overrules that."""
    colour = "getComputedStyle(document.body).backgroundColor"
    desk.open(urls("story"))
    light = desk.run(colour)
    desk.media(prefers_color_scheme="dark")
    dark = desk.run(colour)
    assert light != dark
    assert value(desk, "theme") == "Light theme"
    desk.run("document.getElementById('theme').focus()")
    desk.press("Enter", "\r")
    assert desk.run(colour) == light
    assert value(desk, "theme") == "Dark theme"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 412, 768])
def test_narrow_screens(desk: Browser, urls: Urls, name: str, width: int) -> None:
    """The page never scrolls sideways; what is too wide scrolls in its own frame."""
    desk.size(width, 800, phone=True)
    desk.open(urls(name))
    desk.run("document.querySelectorAll('#pods details').forEach((each) => { each.open = true; })")
    desk.frame()
    assert desk.run("document.documentElement.scrollWidth") <= width
    desk.run("void scrollTo(200, 0)")
    desk.frame()
    assert desk.run("scrollX") == 0


def test_names_for_screen_readers(desk: Browser, urls: Urls) -> None:
    """Whatever a screen reader stops at has a name, in the browser's own accessibility tree."""
    desk.open(urls("story"))
    nodes = desk.call("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in nodes if not node.get("ignored")]
    roles = [node["role"]["value"] for node in shown]
    assert roles.count("main") == 1
    assert {"banner", "navigation", "contentinfo", "application", "table"} <= set(roles)
    nameless = [
        node["role"]["value"]
        for node in shown
        if node["role"]["value"] in NAMED and not node.get("name", {}).get("value", "").strip()
    ]
    assert nameless == []


def test_focus_can_be_seen(desk: Browser, urls: Urls) -> None:
    """Every stop of the Tab key has an outline, and is in sight."""
    desk.open(urls("story"))
    for _ in range(TABS_MAX):
        desk.press("Tab")
        stop = desk.run("""(() => {
            const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
            return [at.tagName, style.outlineStyle, parseFloat(style.outlineWidth), box.width * box.height,
                box.bottom > 0 && box.top < innerHeight];
        })()""")
        if stop[0] == "BODY":
            break
        assert stop[1] == "solid", stop
        assert stop[2] >= 2, stop
        assert stop[3] > 0, stop
        assert stop[4], stop


def test_nothing_moves_by_itself(desk: Browser, urls: Urls) -> None:
    """Nothing glides, fades or turns, for nobody."""
    desk.open(urls("story"))
    moving = """[...document.querySelectorAll("*")].filter((each) => {
        const style = getComputedStyle(each), glides = style.scrollBehavior !== "auto";
        return glides || style.animationName !== "none" || style.transitionDuration !== "0s";
    }).length"""
    assert desk.run(moving) == 0


def test_paper(desk: Browser, urls: Urls) -> None:
    """Printed, autopsies are unfolded and every pod stands on the timeline; afterwards all is as before."""
    desk.open(urls("story"))
    opened = "document.querySelectorAll('details[data-print][open]').length"
    assert desk.run(opened) == 0
    desk.run("dispatchEvent(new Event('beforeprint'))")
    assert desk.run(opened) == desk.run("document.querySelectorAll('details[data-print]').length") > 0
    names = desk.run("[...document.querySelectorAll('#lanes text')].map((each) => each.textContent)")
    assert {f"shop/{each.name}" for each in journals.STORY} <= set(names)
    desk.run("dispatchEvent(new Event('afterprint'))")
    desk.frame()
    assert desk.run(opened) == 0
    pages = len(re.findall(rb"/Type /Page\b", desk.pdf()))
    assert 2 <= pages <= 12


def test_without_script(desk: Browser, urls: Urls) -> None:
    """Where scripts are forbidden the account is there, and it is said what is not."""
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


# --- on a phone --------------------------------------------------------------------------------

WIDTH = 390

#: [the table's name, its tallest row, how many characters that row has].
TALLEST = """["waves", "hooks", "course"].flatMap((name) =>
    [...document.querySelectorAll(`#${name} tbody tr`)].map((row) =>
        [name, row.getBoundingClientRect().height, row.textContent.length]))"""


@pytest.fixture
def phone(desk: Browser) -> Browser:
    desk.size(WIDTH, 844, phone=True)
    return desk


@pytest.mark.slow
@pytest.mark.parametrize("name", ["story", "many"])
def test_what_happened_can_be_read_in_the_events(phone: Browser, urls: Urls, name: str) -> None:
    """The words have most of the width, and no blank column stands beside them."""
    phone.open(urls(name))
    left, right, frame = phone.run("""(() => {
        const cell = document.querySelector("#event-rows tr:not([hidden]):not(.pad)").lastElementChild;
        const [box, frame] = [cell, cell.closest(".frame")].map((each) => each.getBoundingClientRect());
        return [box.left, box.right, frame.right];
    })()""")
    assert right - left >= WIDTH // 2
    assert frame - right <= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["story", "many", "hostile"])
def test_rows_are_as_tall_as_what_they_say(phone: Browser, urls: Urls, name: str) -> None:
    """A row is a few lines of its own words, with each cell's heading before it."""
    phone.open(urls(name))
    rows = phone.run(TALLEST)
    assert rows
    stretched = [row for row in rows if row[1] > 90 + row[2] * 0.8]
    assert stretched == []
    label = "getComputedStyle(document.querySelector('#waves tbody td'), '::before').content"
    assert "Priority" in phone.run(label)


# --- 1 000 pods stay smooth --------------------------------------------------------------------

#: A function in the page: the steps of a gesture by its name.
GESTURES = Path(__file__).with_name("gestures.js").read_text()

#: Milliseconds of processor a step: what follows the hand, and what lays all rows out anew.
FLOWING_MS, ANEW_MS = 50.0, 600.0
ANEW = ("filter", "sort", "filter events")
FIRST_PAINT_MS = 2000

#: Rows of a virtual list that may stand in the document.
DRAWN_MAX = 2500


@pytest.mark.slow
def test_gestures(desk: Browser, urls: Urls) -> None:
    """Zooming, moving, walking, scrolling, filtering and sorting answer at once."""
    desk.open(urls("many"))
    for name in desk.run(f"({GESTURES})()"):
        before = desk.processor_ms()
        steps = len(desk.run(f"({GESTURES})('{name}')"))
        cost = (desk.processor_ms() - before) / steps
        assert 0 < cost <= (ANEW_MS if name in ANEW else FLOWING_MS), f"{name}: {cost} ms a step"


@pytest.mark.slow
def test_first_paint(desk: Browser, urls: Urls) -> None:
    """The page is seen soon after it is opened, by the browser's own clock."""
    desk.open(urls("many"))
    paints = desk.run("performance.getEntriesByType('paint').map((each) => [each.name, each.startTime])")
    assert dict(paints)["first-contentful-paint"] <= FIRST_PAINT_MS


@pytest.mark.slow
def test_timeline_draws_only_what_is_in_sight(desk: Browser, urls: Urls) -> None:
    """Of a thousand pods' bars only those in sight are in the document."""
    desk.open(urls("many"))
    assert 50 < desk.run("document.querySelectorAll('#chart *').length") < DRAWN_MAX
