"""A wrong request: exit code 2, and one line on standard error with the fix."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from ebbtide.events import bounds
from tests.cli.bed import Node, write
from tests.commands import Ran, Run, ebbtide

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0}\nspec: {containers: [{name: web}]}\n"
CONFIG = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"

#: Files by name, and their command; {d} is their folder.
FILES = {
    "good.yaml": POD.encode(),
    "config.yaml": f"{CONFIG}shutdownGracePeriod: 30s\n".encode(),
    "misspelt.yaml": f"{CONFIG}shutdownGracePeriodd: 30s\n".encode(),
    "elsewhere.yaml": f"{CONFIG}dropInDirectory: /foo\n".encode(),
    "kubelets-metrics.yaml": f"{CONFIG}metricsKubeletNames: true\n".encode(),
    "binary.yaml": bytes(range(256)),
    "empty.yaml": b"",
    "wide.yaml": POD.replace("{containers", "{priority: 4294967296, containers").encode(),
    "odd.yaml": b"current-context: [a]\nclusters: 3\n",
    "odd-identity.yaml": f"{CONFIG}node: {{kubeconfig: /etc/os-release}}\n".encode(),
}

WRONG = [
    "nosuch",
    "--nosuch",
    "plan extra",
    "plan --grant 30",
    "plan --grant NaN",
    "plan -o xml",
    "plan --config {d}/missing.yaml",
    "plan --config {d}",
    "plan --config {d}/misspelt.yaml",
    "plan --config {d}/good.yaml",
    "plan --config {d}/config.yaml --pods {d}/missing.yaml",
    "plan --config {d}/config.yaml --pods {d}/wide.yaml",
    "plan --config {d}/config.yaml --pods {d}/binary.yaml",
    "config check --config {d}/elsewhere.yaml",
    "config check --config /dev/zero",
    "run --mode process --pods {d}/good.yaml --config {d}/elsewhere.yaml --journal {d}/j --runtime {d}/r",
    "config check --config {d}/misspelt.yaml",
    "journal ls --journal {d}/nowhere",
    "journal ls --journal {d}",
    "journal show --journal {d}",
    "journal show --journal {d} --since yesterday",
    "journal pack --all last --journal {d} -o {d}/one.zip",
    "journal show --journal {d} --since -10m",
    "replay verify --journal {d}",
    "replay nosuch",
    "hurry",
    "hurry web-0 --runtime {d}/none",
    "hurry web-0 --runtime {d}/good.yaml",
    "release --runtime {d}/none",
    "run --mode banana",
    "run --pods {d}",
    "run --mode api --kubeconfig {d}",
    "run --mode observe --kubeconfig {d}",
    "run --mode observe --config {d}/kubelets-metrics.yaml",
    "run --mode cri --cri {d}/good.yaml",
    "run --node-name Node_1",
    "run --kubeconfig {d}/good.yaml",
    "run --mode cri --cri {d}/none.sock --kubeconfig {d}/binary.yaml",
    "run --mode api --kubeconfig {d}/empty.yaml",
    "run --mode api --config {d}/odd-identity.yaml",
    "run --mode observe --config {d}/odd-identity.yaml",
    "run --mode observe --kubeconfig /dev/zero",
    "plan --cri {d}/good.yaml",
    "plan --mode cri --cri {d}/none.sock --node-name Node_1",
    "plan --mode api --kubeconfig {d}/odd.yaml",
    "run --mode process --pods {d} --cri {d}/none.sock",
    "run --mode process --pods {d} --node-name node-1",
    "run --mode process",
    "run --mode process --pods {d} --config {d}/misspelt.yaml --journal {d}/j --runtime {d}/r",
    "demo --journal {d}/good.yaml",
    "demo --journal /proc/nowhere",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def assert_one_line(ran: Ran) -> None:
    assert ran.code == 2, ran
    assert ran.out == ""
    assert ran.err.startswith("ebbtide: ")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("line", WRONG)
def test_wrong_request(run: Run, folder: Path, line: str) -> None:
    before = sorted(folder.rglob("*"))
    assert_one_line(run(*line.format(d=folder).split()))
    assert sorted(folder.rglob("*")) == before


def test_a_real_process_ends_so_as_well(folder: Path) -> None:
    """No traceback, no usage; unencodable output is replaced."""
    ran = ebbtide("config", "check", "--config", folder / "config-\u2713.yaml", PYTHONIOENCODING="ascii")
    assert_one_line(ran)
    assert "config-?.yaml" in ran.err


def test_wider_bounds(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By environment, for every command; an invalid factor is a wrong request."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds())
    monkeypatch.setenv("EBBTIDE_BOUNDS_FACTOR", "wide")
    assert_one_line(ran := run("--version"))
    assert "EBBTIDE_BOUNDS_FACTOR is 'wide': give a number from 1 on, or leave it out" in ran.err
    assert bounds.now == bounds.Bounds()
    monkeypatch.setenv("EBBTIDE_BOUNDS_FACTOR", "10")
    assert run("--version").code == 0
    assert bounds.now == bounds.Bounds().widened(10)


@pytest.mark.parametrize(("factor", "times"), [("10", ["=10: every bound is 10 times as wide"]), ("1", [])])
def test_a_daemon_warns_of_wider_bounds(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path, factor: str, times: list[str]
) -> None:
    """A node's operator must see them; other commands are silent."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds())
    monkeypatch.setattr(trio, "run", lambda *_: None)
    monkeypatch.setenv("EBBTIDE_BOUNDS_FACTOR", factor)
    assert run("--version").err == ""
    ran = run("run", "--mode", "process", "--pods", folder / "good.yaml", "--config", folder / "config.yaml")
    assert ran.err.splitlines() == [f"ebbtide: EBBTIDE_BOUNDS_FACTOR{each}; for tests only" for each in times]


def test_an_unexpected_failure_is_one_line_that_names_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Exit code 1, with the error's name and the way to see more."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("ebbtide.cli.config.show_configuration", broken)
    ran = run("config", "show", "--config", folder / "config.yaml")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "ebbtide: unexpected ZeroDivisionError: by design; EBBTIDE_DEBUG=1 shows where, please report it\n"
    )
    monkeypatch.setenv("EBBTIDE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError, match="by design"):
        run("config", "show", "--config", folder / "config.yaml")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """``ebbtide journal show | head -1`` ends quietly, like other tools."""
    node = Node()
    node.start()
    for number in range(3000):
        node.feed_clock(number)
    write(tmp_path / "journal", node.records)
    command = [sys.executable, "-c", "from ebbtide.cli import main; main()", "journal", "show", "--journal"]
    with subprocess.Popen([*command, tmp_path / "journal"], stdout=PIPE, stderr=PIPE) as shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        assert shown.stdout.readline()
        shown.stdout.close()
        assert shown.stderr.read() == b""
        assert shown.wait() == -signal.SIGPIPE
