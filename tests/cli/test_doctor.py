"""``ebbtide doctor`` on this machine: its journal and its pods."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.pod_spec import ContainerSpec, HttpGetAction, ProcessSpec
from ebbtide.actors.edges.process.process_pods import RECORD_VERSION, PodRecord, ProcessRecord
from ebbtide.config.schema import NodeSection
from ebbtide.doctor.gather import look_at_journal, look_at_pods
from ebbtide.doctor.measure import measure_connection
from ebbtide.doctor.rules import examine
from ebbtide.events.values import Container, Pod
from ebbtide.options import PROCESS, RunOptions
from tests.cli.bed import whole_shutdown
from tests.cli.test_journal import damage
from tests.commands import Run
from tests.doctor.values import MACHINE

#: Whatever this machine looks like.
HERE = ("--mode", "process")


@pytest.mark.parametrize("how, level", [("torn", "note"), ("corrupt", "warning")])
def test_a_damaged_journal_is_found(tmp_path: Path, how: str, level: str) -> None:
    damage(whole_shutdown(tmp_path), how)
    (finding,) = examine(MACHINE._replace(store=look_at_journal(tmp_path)._replace(free_bytes=None)))
    assert (finding.level, finding.code) == (level, f"journal-{how}")


def test_doctor_on_this_machine(run: Run, plain: Path, tmp_path: Path) -> None:
    """Without bus and daemon: exit code 1, and findings with fixes; equally as JSON."""
    arguments = ("doctor", "--config", plain, "--journal", tmp_path / "j", "--runtime", tmp_path, *HERE)
    ran = run(*arguments, "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["graceful"]) == (1, False)
    assert [finding["code"] for finding in document["findings"]] == ["daemon-silent", "no-logind"]
    text = run(*arguments).out
    assert text.count("cure: ") == 2
    assert not (tmp_path / "j").exists()


def test_what_a_shutdown_needs_is_measured(run: Run, plain: Path, tmp_path: Path) -> None:
    """Logind is absent, so it is not measured; no file remains."""
    arguments = ("doctor", "--config", plain, "--journal", tmp_path, "--runtime", tmp_path / "run", *HERE)
    ran = run(*arguments, "--measure", "-o", "json")
    document = json.loads(ran.out)
    assert ran.code == 1
    assert document["budget"].keys() == {"holds", "overheadSeconds", "slackSeconds"}
    assert document["budget"]["slackSeconds"] == 5
    found = document["measurements"]
    assert [(each["what"], each["error"]) for each in found] == [("journal sync", None), ("exec", None)]
    assert all(0 < each["medianMs"] <= each["worstMs"] for each in found)
    assert list(tmp_path.iterdir()) == [plain]
    assert "the budget " in run(*arguments, "--measure").out


# --- running pods


@pytest.fixture
def deaf_pod(tmp_path: Path) -> Iterator[PodRecord]:
    """The daemon's record of a process that ignores SIGTERM."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    stat = proc.read_stat(child.pid)
    assert stat is not None
    hook = HttpGetAction(port=9, path="/drain")
    record = PodRecord(
        version=RECORD_VERSION,
        boot_id=proc.boot_id_with_dashes(),
        order="start",
        pod=Pod(uid="u-1", namespace="shop", name="web-0", containers=(Container(name="web"),)),
        spec=ProcessSpec(uid="u-1", containers=(ContainerSpec(name="web", argv=("web",), pre_stop=hook),)),
        containers=(ProcessRecord(name="web", pid=child.pid, start_ticks=stat.start_ticks),),
    )
    folder = tmp_path / "process" / "pods"
    folder.mkdir(parents=True)
    (folder / "u-1").write_bytes(msgspec.msgpack.encode(record))
    (folder / "broken").write_bytes(b"\xc1")
    yield record
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()


def test_doctor_names_the_deaf_pod(run: Run, tmp_path: Path, deaf_pod: PodRecord) -> None:
    """The forecast is a finding with the pod's name."""
    ran = run("doctor", "--journal", tmp_path / "j", "--runtime", tmp_path, "-o", "json")
    (finding,) = [each for each in json.loads(ran.out)["findings"] if each["code"] == "signal-ignores"]
    assert finding["message"].startswith("shop/web-0, container web, process ")


async def test_hook_targets_are_connected_to_and_not_asked(tmp_path: Path, deaf_pod: PodRecord) -> None:
    """A finding for a closed port; no request is sent."""
    options = RunOptions(runtime=tmp_path, mode=PROCESS)
    (target,) = look_at_pods(options, NodeSection(), "").targets
    measured = await measure_connection(target)
    assert measured.target == "shop/web-0 web"
    assert "refused" in measured.error
