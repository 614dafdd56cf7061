"""``ebbtide journal``: lists, records, checks, and exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.selection import parse_moment
from ebbtide.events import segment
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import BusLost, PodAppeared
from ebbtide.events.reader import History
from tests.cli.bed import WALL_NS, Node, pod, whole_shutdown, write
from tests.commands import NOWHERE, Run
from tests.journals import SHUTDOWN

GOLDEN = Path(__file__).parent / "golden"


def damage(path: Path, how: str) -> None:
    """Break a journal's file in one way."""
    data = path.read_bytes()
    middle = len(data) // 2
    broken = {"torn": data[:-10], "corrupt": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]}
    path.write_bytes(broken[how])


# --- ls


@pytest.mark.parametrize(("state", "code"), [("", 0), ("torn", 4), ("corrupt", 5)])
def test_ls_of_a_journal_without_a_shutdown(run: Run, tmp_path: Path, state: str, code: int) -> None:
    """Exit code 0, unless unreadable records may have been a shutdown."""
    node = Node()
    node.start()
    file = write(tmp_path, node.records)
    if state:
        damage(file, state)
    ran = run("journal", "ls", "--journal", tmp_path)
    damaged = f"no shutdown in what can be read: the journal is {state}\n"
    assert (ran.code, ran.out) == (code, damaged if state else "no shutdown yet\n")


def test_ls_json_has_the_promised_shape(run: Run, journal: Path) -> None:
    """One object with ``episodes``; pod counts sum to the inventory."""
    ran = run("journal", "ls", "--journal", journal, "-o", "json")
    assert ran.code == 0
    (episode,) = json.loads(ran.out)["episodes"]
    assert episode["kind"] == "poweroff"
    assert episode["outcome"] == "complete"
    assert re.fullmatch(r"[0-9a-f]{32}", episode["traceId"])
    assert episode["id"] == f"00010203-{episode['firstSeq']}"
    assert episode["started"] < episode["ended"]
    fates = ("graceful", "killed", "failed", "spared", "rejected", "unknown")
    assert episode["pods"] == dict.fromkeys(fates, 0) | {"graceful": 3}


# --- show


def test_show_json_is_one_object_a_line_in_order(run: Run, journal: Path) -> None:
    """Each line has the promised fields; causes are earlier numbers, or null for facts."""
    ran = run("journal", "show", "--journal", journal, "-o", "json")
    assert ran.code == 0
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    for line in lines:
        assert {"seq", "time", "cause", "actor", "type", "data"} <= set(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", line["time"])
        assert line["cause"] is None or line["cause"] < line["seq"]
        assert (line["cause"] is None) == (line["actor"] in ("edge", "journal"))


def test_show_golden(run: Run, tmp_path: Path) -> None:
    node = Node([pod("web-0")])
    node.feed_clock(3)
    node.feed(PodAppeared(pod=node.pods[0]))
    node.feed(BusLost(error="the bus connection ended (EOFError)"))
    write(tmp_path, node.records)
    shown = run("journal", "show", "--journal", tmp_path, "--actor", "edge").out
    assert shown == (GOLDEN / "journal-show.txt").read_text()


@pytest.mark.parametrize("name", ["web-1", "shop/web-1", pod("web-1").uid])
def test_show_of_one_pod(run: Run, journal: Path, name: str) -> None:
    """``--pod`` accepts any of its names and shows each mention, including its end."""
    lines = run("journal", "show", "--journal", journal, "--pod", name, "-o", "json").out.splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert types[0] == "PodAppeared"
    assert "PodEnded" in types
    assert all(pod("web-1").uid in line for line in lines)


def test_since_is_a_number_a_duration_or_a_time() -> None:
    """All four forms, exact to the nanosecond."""
    now_ns = 100 * NS_PER_SECOND
    assert parse_moment("12", "--since") == ("seq", 12)
    assert parse_moment("1m30s", "--since", now_ns) == ("wall_ns", 10 * NS_PER_SECOND)
    assert parse_moment("+1.5s", "--since", now_ns) == ("since_ns", 1_500_000_000)
    assert parse_moment("-2s", "--since", now_ns) == ("since_ns", -2 * NS_PER_SECOND)
    assert parse_moment("2023-11-14T22:13:20.000000007Z", "--since") == ("wall_ns", WALL_NS + 7)
    assert parse_moment("2023-11-14T23:13:20+01:00", "--since") == ("wall_ns", WALL_NS)
    with pytest.raises(Refused, match="neither a record's number"):
        parse_moment("soon", "--since")


def test_show_follows_what_is_written(tmp_path: Path) -> None:
    """``-f`` shows existing records, then new ones, in whole steps, across segments."""
    node = Node()
    node.start()
    whole = write(tmp_path / "whole", node.records).read_bytes()
    folder = tmp_path / "journal"
    folder.mkdir()
    name = next((tmp_path / "whole").iterdir()).name
    half = len(whole) // 2
    (folder / name).write_bytes(whole[:half])
    arguments = ["journal", "show", "-f", "-o", "json", "--journal", str(folder)]
    command = [sys.executable, "-c", "from ebbtide.cli import main; main()", *arguments]
    environ = {"DBUS_SYSTEM_BUS_ADDRESS": NOWHERE, "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as shown:
        assert shown.stdout is not None
        first = json.loads(shown.stdout.readline())
        with open(folder / name, "ab") as file:
            file.write(whole[half:])
        seqs = [first["seq"]]
        while seqs[-1] < node.records[-1].seq:
            seqs.append(json.loads(shown.stdout.readline())["seq"])
        shown.kill()
    assert seqs == list(range(1, node.records[-1].seq + 1))


def test_following_ends_a_shutdown_with_its_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ebbtide.cli.journal_show.follow_journal", lambda sources: iter(History(sources).batches())
    )
    ran = run("journal", "show", "-f", "--journal", SHUTDOWN)
    assert ran.err.startswith("ebbtide: shop/stuck-0: the first process ignores the stop signal. The reboot")


# --- check


@pytest.mark.parametrize("how, code", [("torn", 4), ("corrupt", 5)])
@pytest.mark.parametrize(
    "command",
    [("journal", "ls"), ("journal", "show"), ("journal", "check"), ("replay", "verify")],
    ids=" ".join,
)
def test_damage_has_its_exit_code_and_one_line(
    run: Run, tmp_path: Path, how: str, code: int, command: tuple[str, str]
) -> None:
    """The intact part is used; file, byte and record of the damage are named; the code tells which."""
    path = whole_shutdown(tmp_path)
    damage(path, how)
    ran = run(*command, "--journal", tmp_path)
    assert ran.code == code
    assert ran.out
    assert ran.err.count("\n") == 1
    assert path.name in ran.err
    assert re.search(r"at byte \d+, record \d+", ran.err)


@pytest.mark.parametrize("command", [("journal", "ls"), ("replay", "verify")], ids=" ".join)
def test_another_format_version_is_6(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str]
) -> None:
    with monkeypatch.context() as future:
        future.setattr(segment, "FORMAT_VERSION", 99)
        whole_shutdown(tmp_path)
    ran = run(*command, "--journal", tmp_path)
    assert ran.code == 6
    assert "version" in ran.err
