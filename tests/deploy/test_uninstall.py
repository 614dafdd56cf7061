"""``ebbtide uninstall``: the node as it was before, and nothing of anybody else's gone with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.kubernetes.node_writes import CERTIFICATE_ANNOTATION, CHANGED_ANNOTATION
from ebbtide.cli import uninstall as files
from ebbtide.cli.uninstall import stopped_by_us
from ebbtide.events.decisions import AnnounceNode, StartKubelet, StopKubelet
from ebbtide.events.facts import DaemonStarted, OrderEnded
from ebbtide.host import lock_runtime, runtime_lock_owner
from tests.node.bed import Bed
from tests.node.ebbtide import COMMAND, Daemon
from tests.node.pods import STUBBORN, pod, running
from tests.waiting import until

NODE = "/api/v1/nodes/node-1"
DROP_IN = "run/systemd/logind.conf.d/zz-ebbtide.conf"
THEIRS = {"key": "example.org/theirs", "effect": "PreferNoSchedule"}
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def call(*words: object, address: str, enter: Sequence[str] = ()) -> tuple[int, dict[str, Any], str]:
    """The exit code, the document, and what was said beside it."""
    argv = [*enter, *COMMAND, "uninstall", "-o", "json", *map(str, words)]
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": address}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def results(document: dict[str, Any]) -> dict[str, str]:
    return {step["what"]: step["result"] for step in document["steps"]}


@pytest.fixture
async def abandoned(bed: Bed, tmp_path: Path) -> AsyncIterator[Daemon]:
    """A node whose daemon showed it as going down, and never came back to take that away."""
    daemon = Daemon(bed, tmp_path / "state" / "journal", "auto")
    daemon.configure(shutdownGracePeriod="60s")
    await bed.start_over(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s")
    await running(bed, pod("stubborn", "node-1", STUBBORN))
    await bed.api.patch(NODE, {"spec": {"taints": [THEIRS]}})
    await daemon.start_ready()
    try:
        await bed.logind.power_off()
        await until(lambda: shown(daemon), "the Node does not show it")
        await daemon.stop()
        await bed.logind.reset()
        yield daemon
    finally:
        await daemon.stop()
        await bed.api.patch(NODE, {"spec": {"taints": None, "unschedulable": None}})
        await bed.start_over()


def test_a_kubelet_that_somebody_else_stopped_is_left_alone() -> None:
    """The journal says who it was, and in which boot."""
    ours = [started("now"), StopKubelet(key="a")]
    assert stopped_by_us(ours, "now")
    assert not stopped_by_us([*ours, StartKubelet(key="b")], "now")
    assert not stopped_by_us([*ours, started("next")], "next")
    assert stopped_by_us([*ours, started("now")], "now")
    assert not stopped_by_us([started("now")], "now")
    assert not stopped_by_us([], "now")


def started(boot: str) -> DaemonStarted:
    return DaemonStarted(version="", pid=1, mode="auto", node="", boot_id=boot, userspace_id="")


def shown(daemon: Daemon) -> bool:
    keys = {order.key for order in daemon.events(AnnounceNode) if not order.ready}
    return any(ended.key in keys for ended in daemon.events(OrderEnded))


def words(daemon: Daemon) -> list[object]:
    run = daemon.folder / "run"
    return ["--config", daemon.folder / "config.yaml", "--journal", daemon.journal, "--runtime", run]


@pytest.mark.node
async def test_it_takes_back_exactly_what_is_ours(bed: Bed, abandoned: Daemon) -> None:
    """A dry run changes nothing; then taint, cordon, conditions and the drop-in go, and others' stay."""

    async def uninstall(*more: object) -> tuple[int, dict[str, Any], str]:
        return await trio.to_thread.run_sync(
            lambda: call(*words(abandoned), *more, address=bed.logind.address, enter=bed.enter)
        )

    before = await bed.api.get(NODE)
    assert CHANGED_ANNOTATION in before["metadata"]["annotations"]
    assert (bed.root / DROP_IN).exists()
    code, said, _ = await uninstall("--dry-run")
    assert (code, said["dryRun"], results(said)["Node"], results(said)["drop-in"]) == (
        0,
        True,
        "would",
        "would",
    )
    assert (await bed.api.get(NODE))["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert (bed.root / DROP_IN).exists()
    code, said, told = await uninstall()
    assert (code, told) == (0, ""), said
    assert results(said)["Node"] == results(said)["drop-in"] == results(said)["logind's limit"] == "done"
    after = await bed.api.get(NODE)
    assert not {CHANGED_ANNOTATION, CERTIFICATE_ANNOTATION} & set(after["metadata"]["annotations"])
    assert [taint for taint in after["spec"]["taints"] if taint["key"] != UNSCHEDULABLE] == [THEIRS]
    assert "unschedulable" not in after["spec"]
    kinds = {each["type"] for each in after["status"]["conditions"]}
    assert not {"DrainInProgress", "GracefulNodeShutdownInProgress", "Drained"} & kinds
    assert not (bed.root / DROP_IN).exists()
    assert list(abandoned.journal.glob("*.ebj"))
    code, said, _ = await uninstall("--purge")
    assert (code, results(said)["Node"], results(said)["drop-in"]) == (0, "nothing", "nothing")
    assert not abandoned.journal.exists()


def test_only_names_of_ours_are_removed(tmp_path: Path) -> None:
    """Whatever folder is named: a home is not a journal."""
    for name in ("0000000001-0a0b0c0d.ebj", "metrics", "letters.txt"):
        (tmp_path / name).touch()
    steps = files.remove_journals([tmp_path], tmp_path / "node", dry_run=True)
    assert [step.result for step in steps] == ["would", "nothing"]
    assert len(list(tmp_path.iterdir())) == 3
    assert [step.result for step in files.remove_journals([tmp_path], tmp_path / "node", dry_run=False)] == [
        "done",
        "nothing",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_claim_is_seen_without_being_taken(tmp_path: Path) -> None:
    """By its process id, and nothing is made where there is none."""
    assert runtime_lock_owner(tmp_path / "run") == ""
    descriptor = lock_runtime(tmp_path / "run")
    program = "import sys, pathlib, ebbtide.host as c; print(c.runtime_lock_owner(pathlib.Path(sys.argv[1])))"
    argv = [sys.executable, "-c", program, str(tmp_path / "run")]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == f"{os.getpid()}\n"
    os.close(descriptor)
    assert runtime_lock_owner(tmp_path / "run") == ""
    assert not (tmp_path / "none").exists()
