"""The report's text: complete without script, safe against any name, and small."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.events.catalog import DirectorySource, Source
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.replay.report.markup import counted, moment
from ebbtide.replay.report.page import as_script, chart, holders, report
from ebbtide.replay.sim.simulate import MemorySource, SimulationRequest
from ebbtide.replay.time_spent import critical_chain
from ebbtide.replay.timeline import sentence, timeline
from tests.replay.report import journals
from tests.replay.report.conftest import Reader, page_of
from tests.replay.report.journals import Files

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
#: A thousand pods take ten seconds: a proof.
MAKERS = ("story", "hostile", pytest.param("many", marks=pytest.mark.proof))


@pytest.fixture(params=MAKERS)
def page(request: pytest.FixtureRequest) -> str:
    return page_of(request.param)


def test_one_file(page: str) -> None:
    """Only page-internal addresses, and no loading element."""
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


def test_policy_names_what_stands_there(page: str) -> None:
    """The content policy has the hashes of the one style and the one script."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    for body in (_body(page, "<style>", "</style>"), _body(page, "<script>", "</script>")):
        digest = b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]


def _body(page: str, begin: str, end: str) -> str:
    return page.split(begin)[1].split(end)[0]


def test_hostile_names_are_shown() -> None:
    """Each name appears as text, with unprintable characters escaped."""
    said = Reader(page_of("hostile")).said("bdi")
    for name in journals.HOSTILE:
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
        assert f"shop/{shown}" in said
    assert not [c for c in page_of("hostile") if not c.isprintable() and c != "\n"]


def test_golden_data(request: pytest.FixtureRequest) -> None:
    """The golden shutdown's page data is unchanged.

    ``pytest tests/scripts tests/replay/report --rewrite`` rewrites it; then read the diff.
    """
    source = DirectorySource(GOLDEN / "shutdown-v1")
    account = list(shutdown_records(History([source])))[-1]
    lines = timeline(History([source]).batches(), account.first_seq)
    made = chart(account, lines, holders(critical_chain(account)))
    path = GOLDEN / "report" / "shutdown-v1.txt"
    text = "".join(f"{line}\n" for line in _pretty(json.loads(as_script(made))))
    if request.config.getoption("--rewrite", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def _pretty(data: dict[str, object]) -> list[str]:
    """One line per field, and per entry of long fields."""
    lines = []
    for name, value in data.items():
        if isinstance(value, list):
            lines += [f"{name} {json.dumps(each, ensure_ascii=False)}" for each in value]
        elif isinstance(value, dict):
            lines += [f"{name}.{key} {json.dumps(each, ensure_ascii=False)}" for key, each in value.items()]
        else:
            lines.append(f"{name} {json.dumps(value)}")
    return lines


@pytest.mark.parametrize("story", [0, 1, 2, 3, "cancelled-v1", "demo-v1", "node-v1/api", "node-v1/cri"])
def test_whatever_happened(story: int | str) -> None:
    """Crashes, cancels, second boots, late grants: each shutdown gives a whole page."""
    source: Source = (
        DirectorySource(GOLDEN / story)
        if isinstance(story, str)
        else MemorySource(journals.run(SimulationRequest(synthetic=12), story))
    )
    for account in shutdown_records(History([source])):
        lines = list(timeline(History([source]).batches(), account.first_seq))
        assert all(sentence(line).endswith((".", "!", "?")) for line in lines)
        read = Reader(report(account, lines, journals.STARTED))
        assert len(read.all("bdi")) == len(account.pods)
        assert account.trace_id in read.said("code")


# --- of a damaged journal

#: Damage after the second wave's start and before the release.
SHARE = 0.6


def torn() -> Files:
    """Its power went while it was written."""
    files = journals.story()
    first = min(files)
    return {first: files[first][: int(len(files[first]) * SHARE)]}


def corrupt() -> Files:
    files = journals.story()
    first = min(files)
    changed = bytearray(files[first])
    changed[int(len(changed) * SHARE)] ^= 1
    return {**files, first: bytes(changed)}


@pytest.mark.parametrize(("make", "state"), [(torn, "torn"), (corrupt, "corrupt")])
def test_the_page_says_that_the_record_is_damaged(make: Callable[[], Files], state: str) -> None:
    """A banner names the damage, the headline says that the record ends there, and no text says "under
    way".
    """
    account, lines = journals.told(make())
    assert account.damage is not None
    assert (account.damage.state, account.damage.here, account.outcome) == (state, True, "truncated")
    assert "record-damaged" in [notice.code for notice in account.notices]
    page = report(account, lines, journals.STARTED)
    head = page.partition("<h1>")[2].partition("</h1>")[0]
    assert "then the record ends (damaged)" in head
    assert f'<p class="damage" role="note">⚠ {state}: ' in page
    assert account.damage.banner in page.replace("&#x27;", "'")
    assert "under way" not in page
    assert "the machine went down" not in page


# --- the first sentences

ACCOUNT = journals.told(journals.story())[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"asked_by_uid": 1000, "asked_tty": "pts/0", "wall_message": "disk full"},
            "uid 1000 on pts/0: “disk full”",
        ),
        ({"wall_message": "disk full"}, "Asked for by“disk full”"),
        ({"waves": (), "beside": ()}, "No plan was made."),
        ({"pods": (replace(ACCOUNT.pods[0], grace_ns=1_500_000_000),)}, "1.500 s (planned 10 s)"),
    ],
)
def test_what_a_page_may_say(changes: dict[str, Any], said: str) -> None:
    told: ShutdownRecord = replace(ACCOUNT, **changes)
    assert said in Reader(report(told, [], journals.STARTED)).said()


def test_numbers() -> None:
    assert (counted(1, "pod"), counted(12_345, "pod")) == ("1 pod", "12 345 pods")
    assert (moment(None), moment(0), moment(1_500_000_000), moment(-7_000_000)) == (
        "–",
        "+0 s",
        "+1.500 s",
        "−7 ms",
    )
