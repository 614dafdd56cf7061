"""``replay blame``, ``critical-chain`` and ``diff`` as a shell sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.journals import SHUTDOWN

#: Golden file to the command; the journal is the golden shutdown, that of two, or that of the refused stops.
TABLES: dict[str, tuple[str, ...]] = {
    "blame.txt": ("blame",),
    "critical-chain.txt": ("critical-chain",),
    "refused-blame.txt": ("blame", "-n", "4"),
    "two-diff.txt": ("diff", "-2", "last"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(run: Run, two: Path, refused: Path, name: str) -> None:
    """Plain in a pipe, as they stand in the golden files."""
    journal = {"two": two, "refused": refused}.get(name.partition("-")[0], SHUTDOWN)
    ran = run("replay", *TABLES[name], "--journal", journal)
    assert ran.code == 0
    golden(name, ran.out + ran.err)


def told(run: Run, *arguments: str | Path) -> dict[str, Any]:
    ran = run("replay", *arguments, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    document: dict[str, Any] = json.loads(ran.out)
    return document


def test_of_a_lost_begin_it_is_not_said_that_nothing_was_stopped(run: Run, tmp_path: Path) -> None:
    """The first segment is gone, and with it every stop: what is not on record may have been."""
    ran = run("simulate", "--synthetic", 3, "--calm", "--journal", tmp_path)
    assert ran.code == 0
    min(tmp_path.glob("*.ebj")).unlink()
    ran = run("replay", "blame", "--journal", tmp_path)
    assert "is on record without its begin" in ran.out
    assert ran.out.splitlines()[-1] == "no stop is on record"


def test_blame_as_json(run: Run) -> None:
    """Every figure in seconds, and which shutdown it is about."""
    document = told(run, "blame", "--journal", SHUTDOWN)
    assert (document["kind"], document["version"], document["episode"]["id"]) == ("Blame", 1, "00010203-12")
    assert document["entries"][0] == {
        "tookSeconds": 10.006,
        "aloneSeconds": 8.701,
        "wave": 0,
        "pod": "shop/stuck-0",
        "uid": "uid-stuck-0",
        "outcome": "killed",
        "container": "main",
        "what": "killed",
        "text": "SIGTERM, SIGKILL after 10.001 s, ended by SIGKILL",
        "beganSeconds": 0.001,
        "ended": True,
    }


def test_the_causes_as_json(run: Run, refused: Path) -> None:
    """Each with its pods and its warnings, the gravest first."""
    told_of = told(run, "blame", "--journal", refused)["episode"]
    assert told_of["severity"] == "bad"
    first, *others = told_of["causes"]
    assert told_of["headline"].startswith(f"{first['text']}. ")
    assert (first["code"], first["severity"], first["count"]) == ("stop-refused", "bad", 106)
    assert len(first["pods"]) == len(first["warnings"]) == 106
    assert {each["pod"] for each in first["pods"]} >= {"shop/web-3", "data/db-8"}
    assert first["warnings"][0]["code"] == "pod-killed"
    assert [each["code"] for each in others] == ["hook-timed-out", "hook-failed", "wave-overran", "bus-lost"]
    assert sum(len(each["warnings"]) for each in told_of["causes"]) == 117


def test_critical_chain_as_json(run: Run) -> None:
    """In the order of time, with what lies within, and the restart beside it."""
    document = told(run, "critical-chain", "--journal", SHUTDOWN)
    assert (document["kind"], document["totalSeconds"]) == ("CriticalChain", 11.611)
    segments = document["segments"]
    assert [segment["what"] for segment in segments] == ["inventory", "wave", "wave", "wave", "statuses"]
    assert (document["episode"]["endedSeconds"], document["releasedSeconds"]) == (11.611, 11.613)
    assert [part["what"] for part in segments[2]["within"][0]["within"]] == ["stop", "stop"]
    assert document["daemonAway"] == [{"beganSeconds": 1.301, "atMostSeconds": 0.8}]


def test_diff_as_json(run: Run, two: Path) -> None:
    """Durations say so; what one side does not have is null."""
    document = told(run, "diff", "-2", "-1", "--journal", two)
    changes = {(change["subject"], change["what"]): change for change in document["changes"]}
    assert changes[(None, "grant")] == {
        "section": "shutdown",
        "subject": None,
        "what": "grant",
        "unit": "seconds",
        "a": 18.0,
        "b": 12.0,
        "more": -6.0,
    }
    assert changes[("shop/old-0", "outcome")]["b"] is None
    assert (document["a"]["id"], document["b"]["id"], document["podsAlike"]) == (
        "00010203-12",
        "00010203-81",
        0,
    )


def test_diff_between_two_journals(run: Run, two: Path) -> None:
    """B may lie elsewhere: another node's journal, or the same one copied."""
    same = told(run, "diff", "last", "last", "--journal", SHUTDOWN, "--other", SHUTDOWN)
    assert (same["changes"], same["podsAlike"]) == ([], 5)
    other = told(run, "diff", "last", "-2", "--journal", SHUTDOWN, "--other", two)
    assert other["b"]["id"] == "00010203-12"
    assert other["changes"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("blame", "-7"), "no shutdown '-7' in this journal: there are 1, the last is 00010203-12"),
        (("critical-chain", "nonsense"), "no shutdown 'nonsense' in this journal"),
        (("blame", "--wave", "3"), "no wave 3 in 00010203-12: it had 0 to 2"),
        (("diff", "last", "-x"), "no such option: -x"),
        (("blame", "--jurnal", "x"), "no such option '--jurnal'. Did you mean '--journal'?"),
        (("diff", "last", "last", "--othr=x"), "no such option '--othr'. Did you mean '--other'?"),
        (("critical-chain", "last", "--wave", "0"), "no such option '--wave'"),
        (("diff", "last"), "missing argument 'B'"),
        (("diff", "last", "last", "--other", "/nonexistent"), "/nonexistent is no directory"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(run: Run, arguments: tuple[str, ...], line: str) -> None:
    """Exit code 2, and nothing on standard output."""
    ran = run("replay", *arguments, "--journal", SHUTDOWN)
    assert (ran.code, ran.out) == (2, "")
    assert line in ran.err
    assert ran.err.count("\n") == 1
