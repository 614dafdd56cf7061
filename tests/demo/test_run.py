"""Real demo runs in a pipe: output and leftovers, at any end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import pytest

from ebbtide.cli.common.guard import guarded
from ebbtide.demo.demo_run import NEXT_COMMANDS, DemoResult
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import WaveEnded, WaveStarted
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from tests.conftest import replayed
from tests.waiting import WATCHDOG_SECONDS, until_sync

COMMAND = (sys.executable, "-c", "from ebbtide.cli import main; main()", "demo")
#: The same in real time; a mode follows (`tests.demo.patient`).
PATIENT = (sys.executable, "-m", "tests.demo.patient")


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    journal: Path


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def run_demo(folder: Path, *command: str) -> Ran:
    """To its end, its files under ``folder``."""
    done = subprocess.run(
        [*command, "--journal", str(folder / "journal")],
        capture_output=True,
        text=True,
        env=_environment(folder),
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, folder / "journal")


@contextmanager
def demo_until(words: str, folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with files under ``folder``, once it printed a line with these words."""
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=_environment(folder)) as child:
        assert child.stdout is not None
        assert any(words in line for line in child.stdout)
        yield child


def left_over(folder: Path) -> list[int]:
    """A demo's pods in this folder: their environment has the folder, not the test's name."""
    ours, not_a_pod = f"TMPDIR={folder}\0".encode(), b"PYTEST_CURRENT_TEST="
    found = []
    for place in Path("/proc").iterdir():
        try:
            environ = (place / "environ").read_bytes() if place.name.isdecimal() else b""
            if ours in environ and not_a_pod not in environ:
                found.append(int(place.name))
        except OSError:
            continue
    return found


def assert_no_pod_is_left(folder: Path) -> None:
    """On a busy machine a process ends some time after its SIGKILL."""
    until_sync(lambda: not left_over(folder), lambda: f"pods are left: {left_over(folder)}")


#: The demo's promise (a proof).
SECONDS_MAX = 20.0
#: Each pod, its wave, outcome, and words of its reason.
EXPECTED = [
    # A busy machine may not look at it in time before SIGKILL, so the reason may lack "ignores SIGTERM".
    ("shop/legacy-0", "0", "killed", "SIGKILL for legacy"),
    ("shop/orders-0", "0", "graceful", "exit code 0"),
    ("batch/reports-0", "0", "graceful", "exit code 0"),
    ("batch/thumbs-0", "0", "graceful", "ended by SIGTERM"),
    ("shop/web-0", "0", "graceful", "exit code 0"),
    ("shop/api-0", "1", "graceful", "exit code 0"),
    ("shop/cache-0", "1", "graceful", "preStop failed: exit code 3"),
    ("shop/ingest-0", "1", "graceful", "exit code 0"),
    ("shop/db-0", "2", "graceful", "exit code 0"),
    ("shop/gateway-0", "2", "graceful", "exit code 0"),
    ("kube-system/dns-0", "3", "graceful", "exit code 0"),
    ("kube-system/logs-0", "3", "graceful", "exit code 0"),
    ("shop/late-0", "-", "rejected", "Pod was rejected as the node is shutting down."),
]


def assert_expected(ran: Ran) -> None:
    assert (ran.code, ran.err) == (0, "")
    for pod, wave, outcome, why in EXPECTED:
        (line,) = re.findall(rf"^{pod} .*$", ran.out, re.MULTILINE)
        assert line.split()[1] == wave
        assert outcome in line.split()[2:6]
        assert why in line


@pytest.mark.proof
def test_it_takes_the_time_that_it_promises(tmp_path: Path) -> None:
    began = time.monotonic()
    assert_expected(run_demo(tmp_path, *COMMAND))
    assert time.monotonic() - began < SECONDS_MAX


def test_a_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run_demo(tmp_path, *PATIENT, "whole")
    assert_expected(ran)
    # Plain lines, waves in order, and further commands at the end.
    assert not {"\x1b", "\r"} & set(ran.out)
    assert re.findall(r"wave (\d) \(priority", ran.out) == ["0", "1", "2", "3"]
    page = ran.out.partition("POD  ")[2]
    assert re.search(r"^! shop/legacy-0: ", page, re.MULTILINE)
    assert re.search(r"let the machine go after .* s: 1 of 13 pods was killed, 11 ended by", page)
    assert re.search(r"^trace id [0-9a-f]{32}$", page, re.MULTILINE)
    commands = re.findall(rf"ebbtide (.*) --journal {re.escape(str(ran.journal))}$", page, re.MULTILINE)
    assert commands == [command for _, command in NEXT_COMMANDS]
    # No process and no reserve. The journal is intact, replays, and has its waves in order.
    assert_no_pod_is_left(tmp_path)
    assert [path.suffix for path in ran.journal.iterdir() if path.stat().st_size > 2**20] == []
    assert not (ran.journal / "reserve").exists()
    assert replayed(ran.journal) is None
    history = History([DirectorySource(ran.journal)])
    events = [record.event for record in history.records()]
    assert history.verdict.state == "intact"
    assert [(type(event), event.wave) for event in events if isinstance(event, WaveStarted | WaveEnded)] == [
        (kind, wave) for wave in range(4) for kind in (WaveStarted, WaveEnded)
    ]
    # ``-o json``: one document on standard output, without the progress lines.
    (shutdown,) = shutdown_records(history)
    monkeypatch.setattr("ebbtide.cli.demo._play", lambda *_, **__: DemoResult(shutdown, "ab" * 16, True))
    assert guarded(["demo", "-o", "json", "--journal", str(tmp_path / "other")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["shutdown"], document["traceId"]) == ("Demo", "poweroff", "ab" * 16)
    assert document["seconds"] > 3
    assert {pod["pod"]: pod["outcome"] for pod in document["pods"]} == {row[0]: row[2] for row in EXPECTED}


@pytest.mark.parametrize(
    "number, mode, words",
    [
        (signal.SIGINT, "paused", "pods are up"),
        (signal.SIGTERM, "held", "wave 1 (priority"),
        (signal.SIGHUP, "paused", "pods are up"),
    ],
)
def test_interrupted_it_takes_its_pods_with_it(
    tmp_path: Path, number: signal.Signals, mode: str, words: str
) -> None:
    """A signal before or during the shutdown ends demo and pods, with a message."""
    with demo_until(words, tmp_path, *PATIENT, mode) as child:
        assert child.stderr is not None
        assert left_over(tmp_path)
        child.send_signal(number)
        assert child.wait(WATCHDOG_SECONDS) == -number
        (said,) = child.stderr.read().splitlines()
    begin, _, hint = said.partition("; its story: ")
    assert begin == f"ebbtide: {number.name}: the demo ends early, and its pods with it"
    assert_no_pod_is_left(tmp_path)
    # The output names the journal of a begun shutdown, and it is readable.
    (journal,) = tmp_path.glob("ebbtide-demo-*/journal")
    assert hint == ("" if mode == "paused" else f"ebbtide replay timeline --journal {journal}")
    assert not hint or guarded(hint.split()[1:]) == 0


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """``ebbtide demo | head -3`` ends like SIGPIPE, silently, and leaves no pod."""
    with demo_until("", tmp_path, *PATIENT, "held") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.wait(WATCHDOG_SECONDS) == -signal.SIGPIPE
        assert child.stderr.read() == ""
    assert_no_pod_is_left(tmp_path)
