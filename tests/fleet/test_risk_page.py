"""``fleet what-if --html``: the page says what table and JSON say, and its links are true."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from ebbtide import replay
from ebbtide.cli.common.guard import DONE, NOT_SO, WRONG
from ebbtide.cli.fleet import fleet_what_if as what_if
from ebbtide.cli.fleet.fleet_what_if import NIGHTS_MAX
from ebbtide.replay.report.page import resource
from ebbtide.replay.report.risk_page import LINES_MAX, PRINTED_MAX, headline, risk_page
from tests.commands import Run
from tests.fleet.conftest import Nodes
from tests.fleet.nodes import SHORT, shipped
from tests.replay.report.journals import HOSTILE
from tests.replay.report.test_page import Reader


def asked(run: Run, folder: Path, config: Path, *words: str | Path, code: int = DONE) -> dict[str, Any]:
    """The document, of one process."""
    ran = run(
        *("fleet", "what-if", "--journals", folder, "--config", config, "--jobs", "1", "-o", "json", *words)
    )
    assert ran.code == code, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def empty() -> dict[str, Any]:
    """A fleet of which nothing could be asked."""
    return {
        "changed": ["the configuration new.yaml"],
        "pools": None,
        **{name: [] for name in ("periods", "workloads", "nodes", "nights", "notAsked", "gates")},
        **dict.fromkeys(
            ("journals", "shutdowns", "asked", "same", "pods", "nightsCount", "notAskedCount"), 0
        ),
        **dict.fromkeys(("saved", "lost", "perhapsSaved", "perhapsLost"), 0),
    }


# --- what it says ------------------------------------------------------------------------------


def test_the_page_says_what_the_document_says(
    run: Run, nodes: Nodes, some: Path, short: Path, tmp_path: Path
) -> None:
    """The verdict, the gates, every workload, node and night, and each journal that is torn or corrupt."""
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
    assert read.said("h1").endswith(headline(found))
    assert str(found["lost"]) in headline(found)
    assert f"The gate does not hold: lost=0 (found: {found['lost']})." in said
    assert "not asked: at most 1 000, found" in said
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
    assert "No reports were written: --reports DIR" in said
    # One file: no script, nothing that is loaded; ids and captions as every page of ours has them.
    assert not [name for name, _ in read.elements if name in ("script", "img", "iframe", "object", "form")]
    assert "default-src 'none'; style-src 'sha256-" in text
    ids = [attributes["id"] for _, attributes in read.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert len(read.all("table")) == len(read.all("caption"))
    assert all((each["href"] or "")[0] == "#" and (each["href"] or "")[1:] in ids for each in read.all("a"))


def test_a_fleet_of_which_nothing_is_known() -> None:
    """It says so, and is neither good nor bad. No table is empty: a sentence stands there."""
    page = risk_page(empty(), {}, "1")
    assert "No shutdown could be asked" in Reader(page).said("h1")
    assert 'class="seal mixed"' in page
    said = Reader(risk_page(empty() | {"asked": 1, "shutdowns": 1, "pools": []}, {}, "1")).said()
    assert said.count("Nothing changes for any.") == 3
    assert "No shutdown would have lost a pod." in said
    assert "Every shutdown of every journal was asked." in said


@pytest.mark.parametrize(
    ("counts", "sentence", "kind"),
    [
        ({}, "No pod would have ended otherwise under this configuration.", "good"),
        ({"lost": 1}, "This configuration would have lost 1 pod, and saved none.", "bad"),
        (
            {"perhapsLost": 2, "saved": 1},
            "This configuration would have lost 0 to 2 pods, and saved 1.",
            "mixed",
        ),
        (
            {"lost": 3, "perhapsLost": 2},
            "This configuration would have lost 3 to 5 pods, and saved none.",
            "bad",
        ),
        (
            {"saved": 1, "perhapsSaved": 2},
            "This configuration would have lost no pod, and saved 1 to 3.",
            "good",
        ),
        ({"notAskedCount": 1}, "No pod would have ended otherwise under this configuration.", "mixed"),
    ],
)
def test_the_verdict_in_a_sentence(counts: dict[str, int], sentence: str, kind: str) -> None:
    """An interval where a record leaves something open."""
    page = risk_page(empty() | {"asked": 9, "shutdowns": 9} | counts, {}, "1")
    assert Reader(page).said("h1").endswith(sentence)
    assert f'class="seal {kind}"' in page


def test_names_stay_names() -> None:
    """Whatever a node, a workload or a reason is called."""
    nights = [
        {
            "node": name,
            "shutdown": f"00-{at}",
            "started": "2026-01-01T00:00:00Z",
            "journalId": "00",
            "location": name,
            "pods": [{"pod": name, "change": "lost"}],
            "report": None,
        }
        for at, name in enumerate(HOSTILE)
    ]
    changes = {"lost": 1, "perhapsLost": 0, "saved": 0, "perhapsSaved": 0}
    document = empty() | {
        "nights": nights,
        "nodes": [{"cluster": name, "node": name, **changes} for name in HOSTILE],
        "workloads": [{"workload": name, "priority": None, **changes} for name in HOSTILE],
        "pools": [{"pool": name, "shutdowns": 1, "pods": 1, **changes} for name in HOSTILE],
    }
    read = Reader(risk_page(document, {}, "1"))
    assert not [name for name, _ in read.elements if name in ("script", "img")]
    assert "</script><script>window.hit=1</script>" in read.said()


def test_a_large_fleet_is_a_page_that_opens() -> None:
    """The worst are there, and how many are not; printed are fewer still, as the style has it."""
    changes = {"lost": 1, "perhapsLost": 0, "saved": 0, "perhapsSaved": 0}
    count = 100_000
    page = risk_page(
        empty() | {"nodes": [{"cluster": None, "node": f"n-{at}", **changes} for at in range(count)]}, {}, "1"
    )
    assert len(page) < 1_000_000
    assert f"The worst {LINES_MAX} and 99 500 more, which -o json has." in page
    assert f"Printed are the first {PRINTED_MAX}." in page
    assert f"tr:nth-child(n+{PRINTED_MAX + 1}) {{ display: none; }}" in resource("risk.css")


# --- links -------------------------------------------------------------------------------------


def linked(page: Path) -> list[Path]:
    """Where its links to other files lead."""
    addresses = [each["href"] or "" for each in Reader(page.read_text()).all("a")]
    return [(page.parent / unquote(each)).resolve() for each in addresses if not each.startswith("#")]


def test_every_night_leads_to_its_report(
    run: Run, some: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any folder; page and JSON name the same, and each is that shutdown's report."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    place = "../beside/of last quarter, nächte"
    found = asked(run, some, short, "--html", "risk.html", "--reports", place)
    assert len(found["nights"]) == min(found["nightsCount"], NIGHTS_MAX) > 3
    assert linked(Path("risk.html")) == [Path(night["report"]).resolve() for night in found["nights"]]
    assert len({night["report"] for night in found["nights"]}) == len(found["nights"])
    for night in found["nights"][:3]:
        shutdown = replay.open(night["location"]).shutdown(night["shutdown"])
        assert Path(night["report"]).read_text() == replay.report_html(shutdown)


def test_two_journals_whose_ids_begin_alike(run: Run, nodes: Nodes, short: Path, tmp_path: Path) -> None:
    """Each night leads to the report of its own node, whatever its shutdown's id."""
    for name in ("node-70979", "node-110352"):
        shipped(nodes.folder / name, tmp_path / "fleet")
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text(SHORT.replace(": 10}", ": 1}").replace(": 5}", ": 1}"))
    found = asked(run, tmp_path / "fleet", nothing, "--reports", tmp_path / "nights")
    assert len(found["nights"]) == 2
    for night in found["nights"]:
        assert f"Shutdown report · {night['node']} · " in Path(night["report"]).read_text()


def test_a_report_that_cannot_be_made_has_no_link(
    run: Run, some: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that is gone in between: said on standard error, by the exit code and on the page."""
    shutil.copytree(some, tmp_path / "fleet")
    before = asked(run, tmp_path / "fleet", short)
    gone = before["nights"][0]
    real = what_if.write_reports

    def late(*words: Any) -> Any:
        for path in (tmp_path / "fleet").rglob(f"*-{gone['journalId'][:8]}.ebj"):
            path.unlink()
        return real(*words)

    monkeypatch.setattr(what_if, "write_reports", late)
    page = tmp_path / "risk.html"
    words = ("fleet", "what-if", "--journals", tmp_path / "fleet", "--config", short, "--jobs", "1")
    ran = run(*words, "-o", "json", "--html", page, "--reports", tmp_path / "nights")
    found = json.loads(ran.out)
    assert ran.code == WRONG
    assert f"no report of shutdown {gone['shutdown']}: StoreFailed" in ran.err
    assert [night["report"] is None for night in found["nights"]] == [
        night["journalId"] == gone["journalId"] for night in found["nights"]
    ]
    assert "1 report could not be made." in Reader(page.read_text()).said()
    assert all(path.is_file() for path in linked(page))


# --- node pools --------------------------------------------------------------------------------


def test_by_pool(run: Run, nodes: Nodes, short: Path, tmp_path: Path) -> None:
    """A name counts before a pattern, the first pattern before others; what nobody has named is said."""
    told = tmp_path / "pools.txt"
    told.write_text("# made by hand\nnode-1 batch\nnode-2 <none>\n\nnode-1* web\nnode-3* web\nnode-3? gone\n")
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
    assert "in no pool that was named" in Reader((tmp_path / "risk.html").read_text()).said()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--pools", "bad"), "bad:2: a line of --pools is a node's name and its pool: 'node-1'"),
        (("--pools", "twice"), "twice:2: node-1 is of pool a by a line before it"),
        (("--pools", "bytes"), "bytes is no text"),
        (("--html", "gone/risk.html"), "gone is no folder: make it first, or name another file with --html"),
        (("--html", "-"), "--html needs a file, such as risk.html"),
        (("--html", "0000000000-00000000.ebj"), "choose another name with --html"),
        (("--reports", "taken"), "taken is there already: name a new directory with --reports"),
    ],
)
def test_refused_before_a_journal_is_read(
    run: Run, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], line: str
) -> None:
    """In one line with the cure: there is no journal either, and nobody has looked."""
    monkeypatch.chdir(tmp_path)
    Path("bad").write_text("node-2 web\nnode-1\n")
    Path("twice").write_text("node-1 a\nnode-1 b\n")
    Path("bytes").write_bytes(b"\xff\xfe\x00")
    Path("taken").mkdir()
    Path("taken/mine").write_text("mine")
    ran = run("fleet", "what-if", "--journals", "nowhere", "--config", short, *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (WRONG, "", 1)
    assert line in ran.err
