"""An outage's account, and the verbs on it."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from ebbtide import replay
from ebbtide.actors.outage import BRAKE_SAYS, DRY_TAINT, NOT_PROVED, PAUSED
from ebbtide.events.outage_events import LastBootStated
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import BootRecord, episodes, outage_records
from ebbtide.events.record.fold import PARTS_MAX, RecordPoint
from ebbtide.events.record.outage_causes import CURES, wait_code
from ebbtide.events.record.outage_record import EARLIER, LostPodRecord, OutageFold, OutageRecord
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.replay.report.outage_page import outage_report
from ebbtide.replay.time_spent import recovery_chain, waits_of
from ebbtide.replay.timeline import timeline
from tests.conftest import Run
from tests.journals import Files, Memory
from tests.replay import outages
from tests.replay.report.conftest import Reader
from tests.replay.shutdown import Book
from tests.scripts.verbs import benches

MS = 1_000_000


def told(files: Files) -> list[OutageRecord]:
    return list(outage_records(History([Memory(files)])))


@pytest.fixture(scope="module")
def story() -> OutageRecord:
    (record,) = told(outages.script(outages.STORY).files)
    return record


def test_the_golden_journal_verifies(run: Run) -> None:
    """After an intended change: python -m tests.replay.outages tests/golden/outage-v1"""
    assert run("replay", "verify", "--journal", outages.GOLDEN).code == 0
    assert told(outages.script(outages.STORY).files) == list(replay.open(outages.GOLDEN).outage_records())


def test_a_whole_outage(story: OutageRecord) -> None:
    """From suspicion to end, with the story's times."""
    assert (story.node, story.node_uid, story.boot_id) == ("node-1", "n1", "b1")
    assert (story.outcome, story.proof, story.effect) == ("recovered", "redfish bmc-1", "NoExecute")
    assert story.reason == "no renewal of the lease for 15 s"
    assert (story.out_ns, story.returned_ns, story.same_boot) == (25_067 * MS, 294_196 * MS, False)
    assert (story.untainted_ns, story.ended_ns) == (294_214 * MS, 294_214 * MS)
    assert [each.replica for each in story.leaders] == ["a"]
    assert not story.alarms


def test_a_pod_has_a_few_waits() -> None:
    """A stranger's journal may name thousands: the oldest ones become one, without a gap."""
    fold, pod = OutageFold.__new__(OutageFold), LostPodRecord(uid="u", namespace="n", name="p", began_ns=0)
    for at in range(PARTS_MAX * 2):
        fold.point = RecordPoint(at, at, True)
        fold.wait(pod, f"r{at}")
    assert len(pod.waits) == PARTS_MAX
    assert (pod.waits[0].at_ns, pod.waits[0].reason) == (0, EARLIER)
    assert (pod.waits[1].reason, pod.waits[-1].reason) == (f"r{PARTS_MAX + 1}", f"r{PARTS_MAX * 2 - 1}")


@pytest.mark.parametrize("verdict", ["on", "off"])
def test_a_reading_of_another_machine_is_shown_as_such(verdict: str) -> None:
    script = f"leader\nreads Unknown\nafter 1s\nsays redfish {verdict} name=b uuid=u9\n"
    (bench,) = benches(script, OUTAGE_LOGIC)
    (record,) = told(outages.book(bench.records).files)
    assert record.sources["redfish b"].reason == f"{verdict}, of another machine (u9)"


@pytest.mark.parametrize(
    ("reason", "code"),
    [(PAUSED, "paused"), (DRY_TAINT, "dry-run"), (BRAKE_SAYS, "brake"), (NOT_PROVED, "not-proved")],
)
def test_the_code_of_a_wait(reason: str, code: str) -> None:
    """By the OutageActor's own texts; each has a cure."""
    assert wait_code(reason) == code
    assert code in CURES


def test_a_new_leader_says_what_it_waits_for() -> None:
    """Its own reading of the Node is no wait."""
    (bench,) = benches("leader\nreads Unknown\ndie\nleader\nreads Unknown\ndone read\n", OUTAGE_LOGIC)
    (record,) = told(outages.book(bench.records).files)
    assert (record.course[-1].what, record.course[-1].text) == ("proof", "no proof that the machine is off")


@pytest.mark.parametrize("seed", range(40))
def test_every_world_is_told(seed: int) -> None:
    """Dying leaders and two machines' clocks included."""
    for record in told(outages.world(seed).files):
        hold(record)


@pytest.mark.parametrize("name", outages.FAILURES)
def test_a_failing_actor_is_told(name: str) -> None:
    """As an alarm; the outage without its OutageActor is abandoned."""
    alarms = set[str]()
    for record in told(outages.failing(name)):
        hold(record)
        alarms.update(each.code for each in record.alarms)
    assert alarms <= {"actor-failed", "abandoned", "proof-wrong"}
    assert bool(alarms) == (name != "outage-failures-quiet")


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


def test_how_the_boot_ended_that_it_was_about() -> None:
    """Reported after the end, repeatedly, and before the Node had its new boot ID; not an earlier boot's
    end, nor a silent boot's late fate.
    """
    book = outages.script("outage-last-boot")
    first, alarm, second = told(book.files)
    assert [each.outcome for each in (first, alarm, second)] == ["recovered", "false-alarm", "rebooted"]
    assert first.last_boot == LastBootStated(
        boot_id="b1",
        ending="cut-short",
        why="panic",
        wave=2,
        journal_id="a" * 32,
        trace_id="b" * 32,
        said_by="b2",
    )
    assert first.last_ns == first.ended_ns
    boots = list[BootRecord]()
    assert len(list(episodes(History([Memory(book.files)]), boots=boots))) == 3
    assert [(each.event.ending, each.event.wave) for each in boots] == [("cut-short", 2), ("abrupt", -1)]
    assert alarm.last_boot is None
    assert second.last_boot is not None
    assert (second.last_boot.ending, second.last_boot.why) == ("abrupt", "unrecorded")
    page = read_page(page_of(first, book))
    words = "cut short at wave 2: kernel panic or hang"
    assert page.said().count(words) == 3  # in the head, and as the lines behind the end
    assert "b" * 32 in page.said()


# --- the page


def page_of(record: OutageRecord, book: Book | None = None) -> str:
    lines = timeline(History([Memory(book.files)]).batches(), record.first_seq) if book else ()
    return outage_report(record, lines, "2026-03-01T12:00:00.000000000Z")


def read_page(page: str) -> Reader:
    """No element acts or has its own style."""
    read = Reader(page)
    assert not [
        name for _, given in read.elements for name in given if name.startswith("on") or name == "style"
    ]
    return read


def test_the_page_says_the_cause_first(story: OutageRecord) -> None:
    """Cause, then course; no script; each pod and volume."""
    page = read_page(page_of(story, outages.script(outages.STORY)))
    text = page.said()
    assert not page.all("script")
    assert "node-1 was out of service for 269.147 s, and is back." in text
    cause = text.index("Suspected because of: no renewal of the lease for 15 s.")
    assert cause < text.index("proved by redfish bmc-1") < text.index("Stages follow each other")
    assert all(each.label in text for each in story.subjects)
    assert "putting node-1 out of service" in text


# --- the verbs


def test_the_verbs_that_tell(run: Run, tmp_path: Path) -> None:
    """An outage's own answer from each."""
    place = outages.GOLDEN
    listed = json.loads(run("journal", "ls", "-o", "json", "--journal", place).out)
    (episode,) = listed["episodes"]
    assert (episode["kind"], episode["outcome"]) == ("outage", "recovered")
    assert episode["pods"] == {"recovered": 3, "waiting": 0}
    assert (
        "outage  2023-11-14 22:30:15.000 UTC  294.214 s  ✓  recovered  3 recovered"
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


def test_the_tables_of_outages(run: Run, tmp_path: Path) -> None:
    """Beside the shutdowns' tables, or alone."""
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
