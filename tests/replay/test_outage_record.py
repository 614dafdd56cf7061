"""What is told of an outage: its record, and the verbs that stand on it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from ebbtide import replay
from ebbtide.events.reader import History
from ebbtide.events.record.outages import AttachmentRecord, LastBoot, OutageRecord, outage_records, records_of
from ebbtide.replay.outages import recovery_chain, waited, waits_of
from ebbtide.replay.report.markup import span
from ebbtide.replay.report.outage_page import headline, outage_report
from ebbtide.replay.timeline import timeline
from tests.conftest import Run
from tests.journals import Memory, write_files
from tests.replay import outages
from tests.replay.shutdown import Book

MS = 1_000_000


def told(book: Book) -> list[OutageRecord]:
    return list(outage_records(History([Memory(book.files)])))


@pytest.fixture(scope="module")
def story() -> OutageRecord:
    (record,) = told(outages.script(outages.STORY))
    return record


def test_the_golden_journal_verifies(run: Run) -> None:
    """If a change of decisions is meant: python -m tests.replay.outages tests/golden/outage-v1-unreleased"""
    assert run("replay", "verify", "--journal", outages.GOLDEN).code == 0
    assert told(outages.script(outages.STORY)) == list(replay.open(outages.GOLDEN).outage_records())


def test_a_whole_outage(story: OutageRecord) -> None:
    """From the first suspicion to the end, with the times of the story."""
    assert (story.node, story.node_uid, story.boot_id) == ("node-1", "n1", "b1")
    assert (story.outcome, story.proof, story.effect) == ("recovered", "redfish bmc-1", "NoExecute")
    assert story.reason == "no renewal of the lease for 15 s"
    assert (story.out_ns, story.returned_ns, story.same_boot) == (25_067 * MS, 294_196 * MS, False)
    assert (story.untainted_ns, story.ended_ns) == (294_214 * MS, 294_214 * MS)
    assert [each.replica for each in story.leaders] == ["a"]
    assert not story.alarms


def test_who_hung_and_what_became_of_each(story: OutageRecord) -> None:
    """A DaemonSet's pod is not followed; one that tolerates is spared, and so is its volume."""
    assert {each.label: each.outcome for each in story.subjects} == {
        "default/db-0": "recovered",
        "default/web-7f-x2": "recovered",
        "default/calm-0": "spared",
        "pv-va-1": "detached",
        "pv-va-2": "kept",
    }
    assert [(pod.name, pod.node) for pod in story.pods if pod.node] == [
        ("db-0", "node-2"),
        ("web-7f-x2", "node-3"),
    ]


def test_the_statements_and_what_each_source_said_last(story: OutageRecord) -> None:
    """A proof counts until a time on the outage's own clock."""
    assert [(each.what, each.who, each.at_ns) for each in story.statements] == [
        ("accepted", "redfish bmc-1", 6_040 * MS),
        ("accepted", "redfish bmc-1", 25_040 * MS),
        ("voided", "", 85_040 * MS),
    ]
    assert [each.until_ns for each in story.statements] == [66_040 * MS, 85_040 * MS, None]
    assert {who: said.reason for who, said in story.sources.items()} == {
        "redfish bmc-1": "off",
        "peer node-2": "unknown",
    }


def test_the_chain_is_what_the_recovery_waited_for(story: OutageRecord) -> None:
    """Without a gap, and inside the longest stage who held it."""
    chain = recovery_chain(story)
    assert chain.total_ns == story.ended_ns
    assert [(each.what, each.took_ns // MS) for each in chain.segments] == [
        ("proof", 6_040),
        ("proof", 19_000),
        ("permit", 3),
        ("tainting", 24),
        ("recovering", 269_129),
        ("untainting", 18),
    ]
    (held,) = chain.segments[4].within
    assert (held.what, held.text) == ("pod", "pod default/calm-0: spared")


@pytest.mark.parametrize("name", outages.SCRIPTS)
def test_every_script_is_told(name: str) -> None:
    """Stages and waits follow each other without a gap, and every figure is in the record's own bounds."""
    for record in told(outages.script(name)):
        hold(record)


@pytest.mark.parametrize("seed", range(40))
def test_every_world_is_told(seed: int) -> None:
    """The same of whatever happens, leaders that die and clocks of two machines included."""
    for record in told(outages.world(seed)):
        hold(record)


def hold(record: OutageRecord) -> None:
    chain = recovery_chain(record)
    told_twice = [
        (a.text, b.text) for a, b in pairwise(record.course) if (a.what, a.text) == (b.what, b.text)
    ]
    assert told_twice == []
    ends = [0, *(each.ended_ns for each in chain.segments)]
    assert [each.began_ns for each in chain.segments] == ends[:-1]
    assert ends[-1] <= max(record.last_ns, record.ended_ns or 0)
    for segment in chain.segments:
        if segment.within:
            assert segment.within[0].began_ns == segment.began_ns
            assert segment.within[-1].ended_ns == segment.ended_ns
            assert sum(leaf.took_ns for leaf in segment.leaves()) == segment.took_ns
    for subject in record.subjects:
        waits = list(waits_of(record, subject))
        assert all(a.ended_ns == b.began_ns for a, b in pairwise(waits))
        assert all(each.seen for each in waits) or subject.ended_ns is None
    assert (record.ended_ns is None) == (record.outcome == "open")
    if record.outcome == "recovered":
        assert record.out_ns is not None
    if record.outcome == "proof-wrong":
        assert [each.code for each in record.alarms].count("proof-wrong") >= 1
    read_page(page_of(record))


def test_a_leader_on_another_machine() -> None:
    """Its monotonic clock is another one: from one to the next the wall clock measures."""
    book = outages.script("outage-leaders")
    (record,) = told(book)
    assert [each.replica for each in record.leaders] == ["a", "b", "a"]
    assert record.outcome == "open"


def test_how_the_boot_ended_that_it_was_about() -> None:
    """Told behind the end, told again, and told before the Node had its new boot id; not how an earlier boot
    ended, nor what became much later of a boot that was only silent.
    """
    book = outages.script("outage-last-boot")
    first, alarm, second = told(book)
    assert [each.outcome for each in (first, alarm, second)] == ["recovered", "false-alarm", "rebooted"]
    assert first.last_boot == LastBoot(
        at_ns=36_000 * MS,
        boot_id="b1",
        ending="cut-short",
        why="panic",
        wave=2,
        journal_id="a" * 32,
        trace_id="b" * 32,
        said_by="b2",
    )
    assert first.last_ns == first.ended_ns
    assert alarm.last_boot is None
    assert second.last_boot is not None
    assert (second.last_boot.ending, second.last_boot.why) == ("abrupt", "unrecorded")
    page = read_page(page_of(first, book))
    words = "cut short at wave 2: kernel panic or hang"
    assert page.text.count(words) == 3  # in the head, and as the lines behind the end
    assert "b" * 32 in page.text


def test_a_list_of_outages_says_how_their_boots_ended(run: Run, tmp_path: Path) -> None:
    """And the timeline of each, its line behind the end with it."""
    write_files(tmp_path, outages.script("outage-last-boot").files)
    listed = json.loads(run("journal", "ls", "-o", "json", "--journal", tmp_path).out)
    ids = [each["id"] for each in listed["episodes"]]
    assert [(each["bootId"], each["ending"], each["episode"]) for each in listed["boots"]] == [
        ("b1", "cut-short", ids[0]),
        ("b2", "abrupt", ids[2]),
    ]
    table = run("journal", "ls", "--journal", tmp_path).out
    assert "cut short at wave 2: kernel panic or hang" in table
    lines = [run("replay", "timeline", each, "--journal", tmp_path).out for each in ids]
    assert ["the node says of its boot b1" in each for each in lines] == [True, False, False]
    assert ["the node says of its boot b2" in each for each in lines] == [False, True, True]


# --- the page ----------------------------------------------------------------------------------


def page_of(record: OutageRecord, book: Book | None = None) -> str:
    lines = timeline(History([Memory(book.files)]).batches(), record.first_seq) if book else ()
    return outage_report(record, lines, "2026-03-01T12:00:00.000000000Z")


class Page(HTMLParser):
    """Refuses what is not nested properly; text and elements in their order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(page: str) -> Page:
    return Page(page)


def test_the_page_says_the_cause_first(story: OutageRecord) -> None:
    """Then the course; it has no script, and every pod and volume is on it."""
    page = read_page(page_of(story, outages.script(outages.STORY)))
    assert "script" not in page.names
    assert "node-1 was out of service for 269.147 s, and is back." in page.text
    cause = page.text.index("Suspected because of: no renewal of the lease for 15 s.")
    assert cause < page.text.index("on the word of redfish bmc-1") < page.text.index("suspected +0")
    assert all(each.label in page.text for each in story.subjects)
    assert "putting node-1 out of service" in page.text


def test_names_stay_names(story: OutageRecord) -> None:
    """Whatever a pod, a volume, a source or a Node is called."""
    evil = "</title><script>alert(1)</script>{{alarms}}\u202e\x1b[2J"
    pods = tuple(replace(pod, name=evil, owner=evil) for pod in story.pods)
    volumes = tuple(replace(each, volume=evil, driver=evil) for each in story.attachments)
    page = read_page(page_of(replace(story, pods=pods, attachments=volumes, node=evil, proof=evil)))
    assert "script" not in page.names
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text
    assert "{{alarms}}" in page.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("outage-same-boot", "node-1 was put out of service, and was not off."),
        ("outage-proof", "node-1 came back before it was put out of service."),
        ("outage-leaders", "after it was suspected, and is not back."),
        ("outage-never-back", "The Node object of node-1 was deleted."),
        ("outage-permit", "node-1 is suspected, and not out of service."),
        ("outage-dry-run", "Our taint on node-1 is gone; the outage is still followed."),
    ],
)
def test_the_headline(name: str, words: str) -> None:
    """One sentence for each way in which an outage stands."""
    assert any(words in headline(record) for record in told(outages.script(name)))


def test_a_wrong_proof_is_an_alarm_that_names_its_source() -> None:
    """And what may have happened because of it."""
    (record,) = told(outages.script("outage-same-boot"))
    page = read_page(page_of(record))
    assert "declared alice said that the machine was off, and it was not: it renews its lease." in page.text
    assert "Two nodes may have written the same data." in page.text


def test_a_detach_by_the_timer_is_an_alarm() -> None:
    """It names the volume, and what may have happened to its data."""
    records = told(outages.script("outage-six-minutes"))
    alarms = [each for record in records for each in record.alarms if each.code == "six-minute-detach"]
    assert alarms
    assert all("its data may be damaged" in each.text for each in alarms)
    assert any(each.outcome == "forced" for record in records for each in record.attachments)


def test_a_machine_that_is_switched_off_has_its_stage() -> None:
    """What the order took, and why it was given up."""
    names = [name for name in outages.SCRIPTS if "power" in name]
    records = [record for name in names for record in told(outages.script(name))]
    assert any(order.what == "power-off" for record in records for order in record.orders)
    assert any(each.code == "power-off-given-up" for record in records for each in record.alarms)


# --- the verbs ---------------------------------------------------------------------------------


def test_the_verbs_that_tell(run: Run, tmp_path: Path) -> None:
    """An outage's own answer from each."""
    place = outages.GOLDEN
    listed = json.loads(run("journal", "ls", "-o", "json", "--journal", place).out)
    (episode,) = listed["episodes"]
    assert (episode["kind"], episode["outcome"]) == ("outage", "recovered")
    assert episode["pods"] == {"recovered": 3, "waiting": 0}
    assert (
        "outage  2023-11-14 22:30:15.000 UTC  294.214 s  recovered  3 recovered"
        in run("journal", "ls", "--journal", place).out
    )
    assert "last outage" in run("status", "--journal", place).out
    shown = run("replay", "timeline", "--journal", place)
    assert shown.code == 0
    assert "outage closed: recovered" in shown.out
    assert "n1" not in shown.out  # a Node's UID is no pod's
    blamed = run("replay", "blame", "-n", "1", "--journal", place)
    assert "269.129 s  pod   default/calm-0  spared   it tolerates the taint" in blamed.out
    chain = run("replay", "critical-chain", "--journal", place)
    assert chain.out.startswith("outage, recovered @294.214 s\n")
    document = json.loads(run("replay", "critical-chain", "-o", "json", "--journal", place).out)
    assert document["totalSeconds"] == 294.214
    assert run("replay", "report", "-o", tmp_path / "r.html", "--journal", place).code == 0
    assert "Outage report" in (tmp_path / "r.html").read_text()
    written = run("export", "jsonl", "--journal", place).out.splitlines()
    assert [json.loads(line)["type"] for line in written][1] == "OutageBegan"
    packed = run("journal", "pack", "--all", "-o", tmp_path / "pack.zip", "--journal", place)
    assert packed.out.startswith(f"{tmp_path / 'pack.zip'}: 1 outage, records 1 to ")
    assert run("export", "perfetto", "-o", tmp_path / "o.pftrace", "--journal", place).code == 0


@pytest.mark.parametrize("verb", [("diff", "last", "last"), ("what-if", "--grant", "5s"), ("what-if",)])
def test_the_verbs_of_shutdowns_say_so(run: Run, verb: tuple[str, ...]) -> None:
    """In one line that says what to use instead."""
    asked = run("replay", *verb, "--journal", outages.GOLDEN)
    assert (asked.code, asked.out) == (2, "")
    assert "this is an outage" in asked.err
    assert asked.err.count("\n") == 1


def test_no_shutdown_is_found_in_it(run: Run) -> None:
    """What is asked of shutdowns has no evidence there, and is not misled."""
    asked = run("replay", "advise", "--journal", outages.GOLDEN)
    assert (asked.code, asked.err) == (
        1,
        "ebbtide: nothing can be advised: no shutdown that stopped a pod is on record\n",
    )


def test_an_open_outage_is_listed_as_open(run: Run, tmp_path: Path) -> None:
    """Whatever boot this machine is in: another leader goes on with it."""
    place = write_files(tmp_path / "journal", outages.script("outage-leaders").files)
    assert "  open  " in run("journal", "ls", "--journal", place).out
    assert ">" in run("replay", "blame", "--journal", place).out


def test_the_tables_of_outages(run: Run, tmp_path: Path) -> None:
    """Beside those of shutdowns where there are both, and alone where there are only outages."""
    parquet = import_module("pyarrow.parquet")
    shutdown = Path(__file__).parents[1] / "golden" / "demo-v1"
    asked = ("export", "parquet", "--journal", outages.GOLDEN)
    assert run(*asked, "-o", tmp_path / "one").code == 0
    assert sorted(file.stem for file in (tmp_path / "one").iterdir()) == [
        "outage_pods",
        "outage_statements",
        "outage_volumes",
        "outages",
    ]
    (row,) = parquet.read_table(tmp_path / "one" / "outages.parquet").to_pylist()
    assert (row["outcome"], row["proof"], row["tainted_ms"]) == ("recovered", "redfish bmc-1", 25_067)
    pods = parquet.read_table(tmp_path / "one" / "outage_pods.parquet").to_pylist()
    assert (pods[0]["name"], pods[0]["ready_on"]) == ("default/db-0", "node-2")
    assert run(*asked, "--journal", shutdown, "-o", tmp_path / "both").code == 0
    assert {"shutdowns", "outages"} < {file.stem for file in (tmp_path / "both").iterdir()}


def test_the_library() -> None:
    """The commands' own functions, on an outage."""
    journal = replay.open(outages.GOLDEN)
    assert list(journal.shutdowns()) == []
    outage = journal.outage("last")
    assert (outage.id, outage.account.outcome) == ("00010203-4", "recovered")
    assert replay.critical_chain(outage).total_ns == outage.account.ended_ns
    assert "Outage report" in replay.report_html(outage)
    assert replay.perfetto(outage)
    assert next(outage.raw()).seq == outage.account.first_seq
    assert list(replay.open(Path(__file__).parents[1] / "golden" / "demo-v1").outages()) == []


def test_a_journal_tells_of_one_kind() -> None:
    """The fold is chosen by whose journal it is."""
    history = History([Memory(outages.script(outages.STORY).files)])
    assert [type(each) for each in records_of(history)] == [OutageRecord]


def test_what_was_waited_for_longest_comes_first(story: OutageRecord) -> None:
    """Of pods and volumes together."""
    found = waited(story)
    assert [each.took_ns for each in found] == sorted((each.took_ns for each in found), reverse=True)
    assert any(isinstance(each.subject, AttachmentRecord) for each in found)
    assert span(found[0].took_ns) == "269.129 s"


def test_a_taint_that_is_refused_says_why() -> None:
    """Whoever looks on has to mend the rights: the reason stands where it is said what is waited for."""
    (record,) = told(outages.script("outage-refused"))
    tried = [each.text for each in record.course if each.what == "tainting"]
    assert tried[0] == "the taint could not be written, and is tried again: 503"


@pytest.mark.parametrize("verb", [("blame",), ("timeline",), ("timeline", "-f")])
def test_an_outage_is_called_one(run: Run, verb: tuple[str, ...]) -> None:
    """Also where the journal has none of that name."""
    ran = run("replay", *verb, "nonsense", "--journal", outages.GOLDEN)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("ebbtide: no outage 'nonsense' in this journal: there ")
