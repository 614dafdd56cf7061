"""1 000 pods stay smooth: what each gesture costs in a real browser, from the event to the drawn page.

The limits leave room for a busy machine; what a quiet one needs stands in docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Runs in the page: ``gestures()`` gives the milliseconds of each step of each gesture.
GESTURES = Path(__file__).with_name("gestures.js").read_text()

#: Milliseconds: the median of a gesture's steps, and the slowest one. Sorting lays all rows out anew.
MEDIAN_MS, SLOWEST_MS = 100, 600
SORT_MS = 1000
FIRST_PAINT_MS = 2000

#: Rows of a virtual list that may stand in the document.
DRAWN_MAX = 2500


def test_gestures(desk: Browser, urls: Callable[[str], str]) -> None:
    """Zooming, moving, walking, scrolling, filtering and sorting answer at once."""
    desk.open(urls("many"))
    for name, steps in desk.run(GESTURES).items():
        ranked = sorted(steps)
        assert len(ranked) >= 6, name
        median, slowest = (SORT_MS, SORT_MS) if name == "sort" else (MEDIAN_MS, SLOWEST_MS)
        assert ranked[len(ranked) // 2] <= median, (name, ranked)
        assert ranked[-1] <= slowest, (name, ranked)


def test_first_paint(desk: Browser, urls: Callable[[str], str]) -> None:
    """The page is seen soon after it is opened, by the browser's own clock."""
    desk.open(urls("many"))
    paints = desk.run("performance.getEntriesByType('paint').map((each) => [each.name, each.startTime])")
    assert dict(paints)["first-contentful-paint"] <= FIRST_PAINT_MS


def test_timeline_draws_only_what_is_in_sight(desk: Browser, urls: Callable[[str], str]) -> None:
    """Of a thousand pods' bars only those in sight are in the document."""
    desk.open(urls("many"))
    assert 50 < desk.run("document.querySelectorAll('#chart *').length") < DRAWN_MAX
