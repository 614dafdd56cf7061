"""1 000 pods stay smooth: what each gesture costs in a real browser, from the event to the laid out page.

By the processor time of the page's main thread, so that a busy machine changes nothing; how long it takes on
a quiet one stands in docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replay.report.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: A function in the page: the steps of a gesture by its name.
GESTURES = Path(__file__).with_name("gestures.js").read_text()

#: Milliseconds of processor a step: what follows the hand, and what lays all rows out anew.
FLOWING_MS, ANEW_MS = 50.0, 600.0
ANEW = ("filter", "sort", "filter events")
FIRST_PAINT_MS = 2000

#: Rows of a virtual list that may stand in the document.
DRAWN_MAX = 2500


def test_gestures(desk: Browser, urls: Callable[[str], str]) -> None:
    """Zooming, moving, walking, scrolling, filtering and sorting answer at once."""
    desk.open(urls("many"))
    for name in desk.run(f"({GESTURES})()"):
        before = desk.processor_ms()
        steps = len(desk.run(f"({GESTURES})('{name}')"))
        cost = (desk.processor_ms() - before) / steps
        assert 0 < cost <= (ANEW_MS if name in ANEW else FLOWING_MS), f"{name}: {cost} ms a step"


def test_first_paint(desk: Browser, urls: Callable[[str], str]) -> None:
    """The page is seen soon after it is opened, by the browser's own clock."""
    desk.open(urls("many"))
    paints = desk.run("performance.getEntriesByType('paint').map((each) => [each.name, each.startTime])")
    assert dict(paints)["first-contentful-paint"] <= FIRST_PAINT_MS


def test_timeline_draws_only_what_is_in_sight(desk: Browser, urls: Callable[[str], str]) -> None:
    """Of a thousand pods' bars only those in sight are in the document."""
    desk.open(urls("many"))
    assert 50 < desk.run("document.querySelectorAll('#chart *').length") < DRAWN_MAX
