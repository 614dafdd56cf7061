"""The risk report of a fleet in a real browser: quiet, readable in every theme and width, its links true."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.cli.common.guard import guarded
from ebbtide.cli.simulate import write_journal
from tests.fleet.nodes import SHORT, a_machine, damage
from tests.replay.report.browser import Browser
from tests.replay.report.test_browser import LOOKS

pytestmark = pytest.mark.browser

SEEDS = range(1, 25)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two dozen nodes, one of them damaged, with pools, a gate and the reports beside it."""
    folder = tmp_path_factory.mktemp("risk")
    for seed in SEEDS:
        machine = a_machine(seed, 8, calm=False)
        write_journal(folder / "fleet" / machine.plan.node, machine.journal.files())
    damage(folder / "fleet" / "node-3")
    (folder / "short.yaml").write_text(SHORT)
    (folder / "pools.txt").write_text("node-1* batch\nnode-2* web\n")
    words = [
        *(
            "fleet",
            "what-if",
            "--journals",
            folder / "fleet",
            "--config",
            folder / "short.yaml",
            "--jobs",
            "1",
        ),
        *("--gate", "lost=0", "--gate", "not-asked=1000", "--pools", folder / "pools.txt", "-o", "json"),
        *("--html", folder / "risk.html", "--reports", folder / "nights"),
    ]
    guarded([str(word) for word in words])
    return folder / "risk.html"


def test_quiet_and_alone(desk: Browser, page: Path) -> None:
    """No error, no word on the console, no request."""
    desk.open(page.as_uri())
    assert desk.complaints() == []
    assert desk.requests() == []


def test_links_lead_to_the_nights(desk: Browser, page: Path) -> None:
    """Each to a page that loads without a complaint, and is that node's; so do those within the page."""
    desk.open(page.as_uri())
    rows = """[...document.querySelectorAll('#nights tbody tr')].map((row) =>
        [row.cells[0].textContent, row.querySelector('a').href])"""
    found = desk.run(rows)
    assert len(found) > 3
    assert desk.run(
        "[...document.querySelectorAll('nav a, .skip')].every((each) => document.querySelector(each.hash))"
    )
    for node, address in found[:5]:
        desk.open(address)
        assert desk.complaints() == []
        assert desk.run("document.querySelector('.kicker').textContent").startswith(
            f"Shutdown report · {node} ·"
        )
    desk.open(page.as_uri())
    desk.run("document.querySelector('#nights a').click()")
    desk._until(lambda: len(desk.seen("Page.loadEventFired")) > 1, "the report that the link leads to")
    assert desk.run("document.querySelector('.kicker').textContent").startswith("Shutdown report")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_contrast(desk: Browser, page: Path, scheme: str, width: int) -> None:
    """WCAG AA of every text in sight, by computed colours, with everything unfolded."""
    desk.size(width, 900)
    desk.media(prefers_color_scheme=scheme)
    desk.open(page.as_uri())
    desk.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    looked = desk.run(LOOKS)
    assert looked["looked"] > 100
    assert looked["found"] == []
