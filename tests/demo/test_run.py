"""One real run of the demo in a pipe: what it shows, what it leaves, and how long it takes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from ebbtide.cli.common.guard import guarded
from ebbtide.demo.run import DemoResult
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.fold import shutdown_records
from ebbtide.replay.replayer import Replayer
from tests.demo.bed import COMMAND, SECONDS_MAX, Ran, left_over, run_demo

#: A look at all processes is some ten milliseconds; on a busy machine more.
GONE_SECONDS_MAX = 10.0
#: Every pod, its wave, its outcome, and words of its reason.
EXPECTED = [
    ("shop/legacy-0", "0", "killed", "ignores SIGTERM"),
    ("shop/orders-0", "0", "graceful", "ended early, the container has exited"),
    ("batch/reports-0", "0", "graceful", "asked for 60 s, its wave has 4 s"),
    ("batch/thumbs-0", "0", "graceful", "ended by SIGTERM"),
    ("shop/web-0", "0", "graceful", "preStop httpGet"),
    ("shop/api-0", "1", "graceful", "sidecar proxy ended"),
    ("shop/cache-0", "1", "graceful", "preStop failed: exit code 3"),
    ("shop/ingest-0", "1", "graceful", "stopped with SIGQUIT"),
    ("shop/db-0", "2", "graceful", "preStop exec"),
    ("shop/gateway-0", "2", "graceful", "preStop sleep 1"),
    ("kube-system/dns-0", "3", "graceful", "exit code 0"),
    ("kube-system/logs-0", "3", "graceful", "exit code 0"),
    ("shop/late-0", "-", "rejected", "Pod was rejected as the node is shutting down."),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_demo(tmp_path_factory.mktemp("demo"))


def test_it_ends_well_and_in_time(ran: Ran) -> None:
    """Exit code 0, nothing on standard error, under 20 s."""
    assert (ran.code, ran.err) == (0, "")
    assert ran.seconds < SECONDS_MAX


@pytest.mark.parametrize("pod, wave, outcome, why", EXPECTED, ids=[row[0] for row in EXPECTED])
def test_every_pod_has_its_outcome_and_why(ran: Ran, pod: str, wave: str, outcome: str, why: str) -> None:
    """The table at the end has each pod of the plot, with what became of it and the reason."""
    (line,) = re.findall(rf"^{pod} .*$", ran.out, re.MULTILINE)
    words = line.split()
    assert words[1] == wave
    assert outcome in words[2:5]
    assert why in line


def test_lines_in_a_pipe_are_plain(ran: Ran) -> None:
    """One line a transition, without colours or cursor movements, waves in their order."""
    assert "\x1b" not in ran.out
    assert "\r" not in ran.out
    assert re.findall(r"wave (\d) \(priority", ran.out) == ["0", "1", "2", "3"]


def test_the_autopsy_is_shown(ran: Ran) -> None:
    """What the deaf pod was doing: its process, what it ignores, and its last words."""
    page = ran.out.partition("Autopsy of shop/legacy-0, container legacy")[2]
    assert re.search(r"python3\S* \(\d+\) sleeping", page)
    assert "ignores SIGTERM" in page
    assert "still busy with last year's invoices" in page


def test_the_end_says_where_to_look_further(ran: Ran, tmp_path: Path) -> None:
    """Total time, trace id, and commands that name the journal and work as they are printed."""
    assert re.search(r"^! shop/legacy-0: the first process ignores the stop signal\. ", ran.out, re.M)
    assert re.search(r"let the machine go after \d+\.\d{3} s: 1 of 13 pods was killed, 11 ended by", ran.out)
    assert re.search(r"^trace id [0-9a-f]{32}$", ran.out, re.MULTILINE)
    commands = re.findall(
        rf"(?:journal|replay) .*--journal {re.escape(str(ran.journal))}$", ran.out, re.MULTILINE
    )
    assert len(commands) == 7
    for command in commands:
        argv = [*COMMAND[:-1], *command.split()]
        done = subprocess.run(argv, capture_output=True, timeout=30, check=False, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout or list(tmp_path.iterdir())


def test_its_journal_replays(ran: Ran) -> None:
    """The journal is intact and a function of its facts."""
    history, replayer = History([DirectorySource(ran.journal)]), Replayer()
    assert replayer.feed(history.raw()) is None
    assert history.verdict.state == "intact"


def test_waves_do_not_overlap_and_keep_their_periods(ran: Ran) -> None:
    """Each wave begins when the one before has ended, and takes no longer than its period."""
    began: dict[int, int] = {}
    ended: dict[int, int] = {}
    for record in History([DirectorySource(ran.journal)]).records():
        kind = type(record.event).__name__
        if kind == "WaveStarted":
            began[record.event.wave] = record.mono_ns  # type: ignore[attr-defined]
        elif kind == "WaveEnded":
            ended[record.event.wave] = record.mono_ns  # type: ignore[attr-defined]
    periods = dict(enumerate((4, 3, 3, 2)))
    assert list(began) == list(ended) == list(periods)
    for wave, seconds in periods.items():
        assert ended[wave] - began[wave] <= seconds * 1_000_000_000
        assert wave == 0 or began[wave] >= ended[wave - 1]


def test_nothing_is_left_running(ran: Ran) -> None:
    """No process of any pod survives the demo."""
    assert left_over(ran.journal.parent) == []


def test_json(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``-o json``: one document on standard output, and the director's words are not in it."""
    (shutdown,) = shutdown_records(History([DirectorySource(ran.journal)]))
    monkeypatch.setattr("ebbtide.cli.demo._play", lambda *_, **__: DemoResult(shutdown, "ab" * 16, True))
    assert guarded(["demo", "-o", "json", "--journal", str(tmp_path / "journal")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["shutdown"], document["traceId"]) == ("Demo", "poweroff", "ab" * 16)
    assert 5 < document["seconds"] < 12
    assert {pod["pod"]: pod["outcome"] for pod in document["pods"]} == {row[0]: row[2] for row in EXPECTED}


@contextmanager
def demo_until(words: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo in a pipe, with its files below ``folder``, when it has printed a line with these words."""
    environ = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(COMMAND, stdout=PIPE, stderr=PIPE, text=True, env=environ) as child:
        assert child.stdout is not None
        assert any(words in line for line in child.stdout)
        yield child


@pytest.mark.parametrize(
    "number, words",
    [
        (signal.SIGINT, "pods are up"),
        (signal.SIGINT, "wave 1 (priority"),
        (signal.SIGTERM, "pods are up"),
        (signal.SIGTERM, "wave 1 (priority"),
        (signal.SIGHUP, "pods are up"),
    ],
)
def test_interrupted_it_takes_its_pods_with_it(tmp_path: Path, number: signal.Signals, words: str) -> None:
    """A signal, before or in mid-shutdown, ends the demo as it ends any program, with a word and its pods."""
    with demo_until(words, tmp_path) as child:
        assert child.stderr is not None
        assert left_over(tmp_path)
        child.send_signal(number)
        assert child.wait(timeout=10) == -number
        (said,) = child.stderr.read().splitlines()
    begin, _, hint = said.partition("; what it came to: ")
    assert begin == f"ebbtide: {number.name}: the demo ends early, and its pods with it"
    assert left_over(tmp_path) == []
    # Of a shutdown that had begun its journal is named, and can be read.
    (journal,) = tmp_path.glob("ebbtide-demo-*/journal")
    assert hint == ("" if "up" in words else f"ebbtide replay timeline --journal {journal}")
    assert not hint or guarded(hint.split()[1:]) == 0


@pytest.mark.parametrize("words", ["come up as local", "pods are up", "wave 1 (priority"])
def test_killed_outright_it_leaves_neither_pods_nor_its_folder(tmp_path: Path, words: str) -> None:
    """SIGKILL leaves it no time: a process beside it sees to both. Whoever reads its output sees the end."""
    with demo_until(words, tmp_path) as child:
        assert child.stderr is not None
        child.kill()
        assert child.wait(timeout=10) == -signal.SIGKILL
        assert child.stderr.read() == ""
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while list(tmp_path.glob("ebbtide-demo-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
    assert left_over(tmp_path) == []


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """``ebbtide demo | head -3`` ends as SIGPIPE does, says nothing, and leaves no pod."""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(COMMAND, stdout=PIPE, stderr=PIPE, text=True, env=environ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline()
        child.stdout.close()
        assert child.wait(timeout=10) == -signal.SIGPIPE
        assert child.stderr.read() == ""
    assert left_over(tmp_path) == []


def test_it_leaves_a_journal_and_no_reserve(ran: Ran) -> None:
    """The space that a daemon keeps for bad times is given back."""
    assert [path.suffix for path in ran.journal.iterdir() if path.stat().st_size > 2**20] == []
    assert not (ran.journal / "reserve").exists()
