"""The report's text: complete without its script, closed to everybody's names, and small enough."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.fold import shutdown_records
from ebbtide.replay.critical_chain import critical_chain
from ebbtide.replay.report.page import as_script, document, holders, report
from ebbtide.replay.sim.simulate import MemorySource, SimulationRequest
from ebbtide.replay.timeline import timeline
from tests.replay.report import journals
from tests.replay.report.conftest import page_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MAKERS = ("story", "hostile", "many")
BYTES_MAX = 5_000_000
SCRIPT_LINES_MAX = 400
VOID = ("meta", "link", "input", "col", "br", "wbr")


class Reader(HTMLParser):
    """Every element with its attributes; text by element; refuses what is not nested properly."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, *tags: str) -> str:
        return "".join(text for tag, text in self.texts if not tags or tag in tags)


@pytest.fixture(params=MAKERS)
def page(request: pytest.FixtureRequest) -> str:
    return page_of(request.param)


def test_one_file(page: str) -> None:
    """Nothing is loaded: no address but those inside the page, and no element that loads."""
    read = Reader(page)
    addresses = [
        value
        for _, attributes in read.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "poster")
    ]
    assert all(value and value.startswith(("#", "data:")) for value in addresses), addresses
    assert not [
        tag for tag, _ in read.elements if tag in ("iframe", "img", "object", "embed", "form", "base")
    ]


def test_no_style_or_handler_in_attributes(page: str) -> None:
    """The content policy would refuse them, and a name could hide one."""
    names = {name for _, attributes in Reader(page).elements for name in attributes}
    assert not [name for name in names if name == "style" or name.startswith("on")]


def test_policy_names_what_stands_there(page: str) -> None:
    """The hashes of the content policy are those of the one style and the one script."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    for body in (_body(page, "<style>", "</style>"), _body(page, "<script>", "</script>")):
        digest = b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]


def _body(page: str, begin: str, end: str) -> str:
    return page.split(begin)[1].split(end)[0]


def test_two_scripts_and_no_more(page: str) -> None:
    """Whatever a pod is called: one element of data, one of code."""
    scripts = Reader(page).all("script")
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert len(Reader(page).all("style")) == 1


def test_data_can_be_read(page: str) -> None:
    """The embedded data is JSON, with a row for each pod and all columns of one length."""
    data = json.loads(_body(page, '<script type="application/json" id="data">', "</script>"))
    events = data["events"]
    assert len({len(events[name]) for name in ("seq", "at", "cause", "type", "actor", "pod", "text")}) == 1
    assert len(data["pods"]) == page.count('<th scope="row"><bdi>')


def test_structure(page: str) -> None:
    """One h1, headings without a gap, unique ids, captions on all tables, labels that point somewhere."""
    read = Reader(page)
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in read.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert len(read.all("table")) == len(read.all("caption"))
    pointed = [attributes.get("aria-labelledby") for _, attributes in read.elements]
    assert all(each in ids for each in pointed if each)
    links = [attributes["href"] for attributes in read.all("a")]
    assert all(link and link[1:] in ids for link in links), links


def test_hostile_names_are_shown() -> None:
    """Every name is there as text, with what is not printable spelt out."""
    said = Reader(page_of("hostile")).said("bdi")
    for name in journals.HOSTILE:
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
        assert f"shop/{shown}" in said
    assert not [c for c in page_of("hostile") if not c.isprintable() and c != "\n"]


def test_story_is_told_without_a_script() -> None:
    """The verdict, the straggler, the hook that held its wave and the autopsy's place stand in the text."""
    said = Reader(page_of("story")).said("h1", "p", "li", "span", "td", "th", "bdi")
    assert "is complete: the machine was let go after" in said
    assert "5 pods ended by themselves, 1 was killed." in said
    assert "held by shop/api-0" in said
    assert "main: hook exec hand-over: done" in said
    assert "ignores SIGTERM" in said


def test_size_of_a_thousand_pods() -> None:
    """Issue 5: at most 5 MB for 1 000 pods."""
    assert page_of("many").count("<bdi>") >= 1000
    assert len(page_of("many").encode()) <= BYTES_MAX


def test_script_is_short() -> None:
    """The page's script stays one file that a person can read."""
    script = _body(page_of("story"), "<script>", "</script>")
    assert script.count("\n") <= SCRIPT_LINES_MAX
    assert "innerHTML" not in script


def test_golden_data(request: pytest.FixtureRequest) -> None:
    """The data of the golden shutdown's page is what it was.

    ``pytest tests/scripts tests/replay/report --rewrite`` writes it anew; then read the diff.
    """
    source = DirectorySource(GOLDEN / "shutdown-v1")
    account = list(shutdown_records(History([source])))[-1]
    lines = timeline(History([source]).batches(), account.first_seq)
    made = document(account, lines, holders(critical_chain(account)))
    path = GOLDEN / "report" / "shutdown-v1.txt"
    text = "".join(f"{line}\n" for line in _pretty(json.loads(as_script(made))))
    if request.config.getoption("--rewrite", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def _pretty(data: dict[str, object]) -> list[str]:
    """A line a field, and a line an entry of the long ones."""
    lines = []
    for name, value in data.items():
        if isinstance(value, list):
            lines += [f"{name} {json.dumps(each, ensure_ascii=False)}" for each in value]
        elif isinstance(value, dict):
            lines += [f"{name}.{key} {json.dumps(each, ensure_ascii=False)}" for key, each in value.items()]
        else:
            lines.append(f"{name} {json.dumps(value)}")
    return lines


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happened(seed: int) -> None:
    """Crashes, cancels, second boots, late grants: every shutdown of any journal gives a whole page."""
    files = journals.run(SimulationRequest(synthetic=12), seed)
    for account in shutdown_records(History([MemorySource(files)])):
        lines = timeline(History([MemorySource(files)]).batches(), account.first_seq)
        read = Reader(report(account, lines, journals.STARTED))
        assert len(read.all("bdi")) == len(account.pods)
        assert account.trace_id in read.said("code")
