"""The page on a phone: no column of a few letters, no row that is stretched by what lies out of sight."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.replay.report.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIDTH = 390
Urls = Callable[[str], str]

#: [the table's name, its tallest row, how many characters that row has].
TALLEST = """["waves", "hooks", "course"].flatMap((name) =>
    [...document.querySelectorAll(`#${name} tbody tr`)].map((row) =>
        [name, row.getBoundingClientRect().height, row.textContent.length]))"""


@pytest.fixture
def phone(desk: Browser) -> Browser:
    desk.size(WIDTH, 844, phone=True)
    return desk


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
