"""``replay blame``, ``critical-chain`` and ``diff`` as a shell runs them; wrong requests to every verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.journals import SHUTDOWN

#: Golden file to command; the journal is the golden shutdown, the two shutdowns, or the refused stops.
TABLES: dict[str, tuple[str, ...]] = {
    "blame.txt": ("blame",),
    "critical-chain.txt": ("critical-chain",),
    "refused-blame.txt": ("blame", "-n", "4"),
    "two-diff.txt": ("diff", "-2", "last"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(run: Run, two: Path, refused: Path, name: str) -> None:
    journal = {"two": two, "refused": refused}.get(name.partition("-")[0], SHUTDOWN)
    ran = run("replay", *TABLES[name], "--journal", journal)
    assert ran.code == 0
    golden(name, ran.out + ran.err)


def told(run: Run, *arguments: str | Path) -> dict[str, Any]:
    ran = run("replay", *arguments, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    document: dict[str, Any] = json.loads(ran.out)
    return document


def test_diff_as_json(run: Run, two: Path) -> None:
    """Durations have units; values of one side only are left out."""
    document = told(run, "diff", "-2", "-1", "--journal", two)
    changes = {(change.get("subject", ""), change["what"]): change for change in document["changes"]}
    grant = {"section": "shutdown", "what": "grant", "aSeconds": 18.0, "bSeconds": 12.0}
    assert changes[("", "grant")] == grant
    assert "b" not in changes[("shop/old-0", "outcome")]
    assert (document["a"]["id"], document["b"]["id"], document["podsAlike"]) == (
        "00010203-12",
        "00010203-81",
        0,
    )


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
        (("verify", "-9"), "no shutdown '-9' in this journal"),
        (("verify", "--last"), "no such option"),
        (("state", "--at", "100"), "the last one is 99"),
        (("state", "--at", "0"), "there is no record 0"),
        (("state", "--at", "20", "--pod", "nobody"), "no such actor at record 20"),
        (
            ("state", "--at", "5", "--actor", "wave"),
            "there are config, logind, kubelet, node, episode, fallback",
        ),
        (("state", "--at", "sometime"), "--at 'sometime' is neither"),
        (("state", "--at", "-1s"), "before the signal"),
        (("state", "--at", "1999-01-01T00:00:00Z"), "the journal begins after that time"),
        (("what-if",), "name a change"),
        (("what-if", "-9", "--grant", "3s"), "there are 1"),
        (("what-if", "--config", "missing.yaml"), "cannot read missing.yaml"),
        (
            ("diff", "last", "last", "--other", "/nonexistent"),
            "packed journal: name the journal's directory\n",
        ),
        (
            ("blame", "--journal", "s3://x/y"),
            "s3://x/y is a URL: only 'ebbtide fleet' reads those, by --journals",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line(run: Run, arguments: tuple[str, ...], line: str) -> None:
    """Exit code 2, and no standard output."""
    ran = run("replay", *arguments, "--journal", SHUTDOWN)
    assert (ran.code, ran.out) == (2, "")
    assert line in ran.err
    assert ran.err.count("\n") == 1
