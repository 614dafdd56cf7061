"""One snapshot of the node: a running daemon's configuration replaces the default."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebbtide.cli.common.guard import guarded
from ebbtide.config import ConfigError, Loaded, parse
from ebbtide.daemon import Daemon
from ebbtide.node import LocalNode
from ebbtide.options import RunOptions
from tests.cli.test_status import STATUS
from tests.cli.test_status import Daemon as FakeDaemon

HEAD = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
TEXT = f"""{HEAD}shutdownGracePeriod: 47s
shutdownGracePeriodCriticalPods: 7s
featureGates: {{PodLifecycleSleepAction: false}}
node: {{means: {{reboot: cri}}, nodeName: node-a}}
tracing: {{endpoint: "http://127.0.0.1:4318", headers: {{authorization: "Bearer hunter2"}}}}
"""


def answer(loaded: Loaded, options: RunOptions) -> dict[str, Any]:
    """The answer of a daemon with this configuration."""
    daemon = Daemon.__new__(Daemon)
    daemon._loaded, daemon._options = loaded, options
    return json.loads(json.dumps(daemon._configuration()))  # type: ignore[no-any-return]


class Running(FakeDaemon):
    """A daemon of mode process with settable answers."""

    def __init__(self, folder: Path) -> None:
        self.options = RunOptions(journal=folder / "journal", runtime=folder, mode="process")
        self.options.journal.mkdir()
        configuration = answer(parse([("/etc/site.yaml", TEXT.encode())]), self.options)
        super().__init__(self.options.control_socket)
        self.answers = {"status": STATUS | {"mode": "process"}, "configuration": configuration}
        self.node = LocalNode(RunOptions(runtime=folder))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.close()


def test_the_running_daemons_configuration_counts(running: Running) -> None:
    """Its values, their sources and its journal; the output says so."""
    node, given = running.node, parse([("/etc/site.yaml", TEXT.encode())])
    assert node.configuration.settings == given.settings
    assert node.configuration.config.node == given.config.node
    assert node.configuration.sources["shutdownGracePeriod"] == "/etc/site.yaml:3"
    assert node.options.journal == running.options.journal
    assert node.source == "with the running daemon's configuration"


def test_nothing_secret_is_handed_out(running: Running) -> None:
    """The reader drops header values and trace endpoints."""
    text = json.dumps(running.answers["configuration"])
    assert "hunter2" not in text
    assert running.node.configuration.config.tracing == parse([("x", HEAD.encode())]).config.tracing


def test_the_files_that_a_reload_would_read_are_checked_too(running: Running, tmp_path: Path) -> None:
    """The daemon keeps its settings; the doctor reports that the next start would fail."""
    broken = tmp_path / "site.yaml"
    broken.write_text("kind: 7\n")
    running.answers["configuration"]["files"] = [str(broken), str(tmp_path / "not-here.yaml")]
    with pytest.raises(ConfigError, match=r"site\.yaml:1"):
        running.node.check_files()


@pytest.mark.parametrize("verb", ["plan", "doctor"])
def test_the_verbs_judge_by_it_and_say_so(
    running: Running, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line beside the result, so parsed output stays the same."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    guarded([verb, "--runtime", os.fspath(running.options.runtime), "-o", "json"])
    written = capsys.readouterr()
    assert "with the running daemon's configuration" in written.err
    document = json.loads(written.out)
    if verb != "doctor":
        assert document["budgetSeconds"] == 47
