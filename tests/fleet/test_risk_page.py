"""``fleet what-if --html``: the page agrees with table and JSON, and its links work."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.fleet import fleet_risk
from ebbtide.replay.report.page import resource
from tests.commands import Run
from tests.fleet.conftest import Nodes
from tests.replay.report.journals import HOSTILE
from tests.replay.report.test_page import Reader


def asked(run: Run, folder: Path, config: Path, *words: str | Path, code: int = DONE) -> dict[str, Any]:
    ran = run(
        *("fleet", "what-if", "--journals", folder, "--config", config, "--jobs", "1", "-o", "json", *words)
    )
    assert ran.code == code, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def empty(**fields: Any) -> fleet_risk.FleetWhatIf:
    return fleet_risk.FleetWhatIf(changed=["the configuration new.yaml"], periods=[], **fields)


# --- what it says


def test_the_page_says_what_the_document_says(
    run: Run, nodes: Nodes, some: Path, short: Path, tmp_path: Path
) -> None:
    """Verdict, gates, workloads, nodes, nights, and each torn or corrupt journal."""
    shutil.copytree(some, tmp_path / "fleet")
    for name in ("node-2", "node-3"):
        shutil.rmtree(tmp_path / "fleet" / name)
        shutil.copytree(nodes.hurt / name, tmp_path / "fleet" / name)
    page = tmp_path / "risk.html"
    found = asked(
        *(run, tmp_path / "fleet", short, "--html", page, "--gate", "lost=0", "--gate", "not-asked=1000"),
        code=NOT_SO,
    )
    text = page.read_text()
    read = Reader(text)
    said = read.said()
    assert f"would have lost {found['lost']} " in read.said("h1")
    assert f"Gates that do not hold: lost=0 (found: {found['lost']})." in said
    for part, name in (("workloads", "workload"), ("nodes", "node"), ("nights", "shutdown")):
        assert found[part]
        for each in found[part]:
            assert each[name] in said
    for name, state in (("node-2", "torn"), ("node-3", "corrupt")):
        assert str(tmp_path / "fleet" / name) in said
        assert state in said
    assert all(each["why"] in said for each in found["notAsked"])
    assert "could not be asked" in said
    assert "priority 10000: 10 s" in said
    # One file without scripts or loaded parts; IDs and captions as in our other pages.
    assert not [name for name, _ in read.elements if name in ("script", "img", "iframe", "object", "form")]
    assert "default-src 'none'; style-src 'sha256-" in text
    ids = [attributes["id"] for _, attributes in read.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert len(read.all("table")) == len(read.all("caption"))
    assert all((each["href"] or "")[0] == "#" and (each["href"] or "")[1:] in ids for each in read.all("a"))


def test_a_fleet_of_which_nothing_is_known() -> None:
    """The page says so, neither good nor bad, with sentences instead of empty tables."""
    page = fleet_risk.risk_page(empty())
    assert "No shutdown could be asked" in Reader(page).said("h1")
    assert 'class="seal mixed"' in page
    said = Reader(fleet_risk.risk_page(empty(asked=1, shutdowns=1, pools=[]))).said()
    assert said.count("Nothing changes for any.") == 3
    assert "No shutdown would have lost a pod." in said
    assert "Every shutdown of every journal was asked." in said


@pytest.mark.parametrize(
    ("counts", "would", "kind"),
    [
        ({}, "", "good"),
        ({"lost": 1}, "lost 1 pod, and saved none", "bad"),
        ({"perhaps_lost": 2, "saved": 1}, "lost 0 to 2 pods, and saved 1", "mixed"),
        ({"lost": 3, "perhaps_lost": 2}, "lost 3 to 5 pods, and saved none", "bad"),
        ({"saved": 1, "perhaps_saved": 2}, "lost no pod, and saved 1 to 3", "good"),
        ({"not_asked_count": 1}, "", "mixed"),
    ],
)
def test_the_verdict_in_a_sentence(counts: dict[str, int], would: str, kind: str) -> None:
    """An interval where a record leaves something open."""
    page = fleet_risk.risk_page(empty(asked=9, shutdowns=9, **counts))
    nothing = "No pod would have ended otherwise under this configuration."
    assert Reader(page).said("h1").endswith(f"This configuration would have {would}." if would else nothing)
    assert f'class="seal {kind}"' in page


def test_names_stay_names() -> None:
    found = empty(
        nights=[
            fleet_risk.Night(
                node=name,
                shutdown=f"00-{at}",
                started="2026-01-01T00:00:00Z",
                lost=1,
                perhaps_lost=0,
                journal_id="00",
                location=name,
                pods=[fleet_risk.PodChange(name, "lost")],
            )
            for at, name in enumerate(HOSTILE)
        ],
        nodes=[fleet_risk.NodeRisk(cluster=name, node=name, lost=1) for name in HOSTILE],
        workloads=[fleet_risk.WorkloadRisk(workload=name, priority=None, lost=1) for name in HOSTILE],
        pools=[fleet_risk.PoolRisk(pool=name, shutdowns=1, pods=1, lost=1) for name in HOSTILE],
    )
    read = Reader(fleet_risk.risk_page(found))
    assert not [name for name, _ in read.elements if name in ("script", "img")]
    assert "</script><script>window.hit=1</script>" in read.said()


def test_a_large_fleet_is_a_page_that_opens() -> None:
    """The worst are there with the number of the others; the print style shows fewer."""
    count = 100_000
    page = fleet_risk.risk_page(
        empty(nodes=[fleet_risk.NodeRisk(cluster=None, node=f"n-{at}", lost=1) for at in range(count)])
    )
    assert len(page) < 1_000_000
    assert f"The worst {fleet_risk.LINES_MAX} and 99 500 more." in page
    assert f"Printed are the first {fleet_risk.PRINTED_MAX}." in page
    assert f"tr:nth-child(n+{fleet_risk.PRINTED_MAX + 1}) {{ display: none; }}" in resource("risk.css")


# --- node pools


def test_by_pool(run: Run, nodes: Nodes, short: Path, tmp_path: Path) -> None:
    """A name precedes patterns, earlier patterns precede later ones; unmatched nodes are listed."""
    told = tmp_path / "pools.txt"
    told.write_text("# made by hand\nnode-1* web\nnode-1 batch\nnode-2 <none>\n\nnode-3* web\nnode-3? gone\n")
    found = asked(run, nodes.folder, short, "--pools", told, "--html", tmp_path / "risk.html")
    by_pool = {each["pool"]: each for each in found["pools"]}
    assert set(by_pool) == {"batch", "web", None}
    assert by_pool["batch"]["shutdowns"] == 1
    assert sum(each["shutdowns"] for each in found["pools"]) == found["asked"]
    for field in ("pods", "lost", "saved", "perhapsLost", "perhapsSaved"):
        assert sum(each[field] for each in found["pools"]) == found[field]
    of_web = Counter[str]()
    for each in found["nodes"]:
        if each["node"].startswith(("node-1", "node-3")) and each["node"] != "node-1":
            of_web["lost"] += each["lost"]
    assert by_pool["web"]["lost"] == of_web["lost"] > 0
