"""``ebbtide status`` on a Kubernetes node: who answers, who ends its pods, what is safe to detach."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ebbtide.status import DaemonStatus, DetachCertificate, PodStatus, cached_pods, node_json
from tests.cli.test_status import STATUS, Daemon
from tests.commands import Run

WELL = DaemonStatus(kubelet=True, runtime=True, api=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Any:
    made = Daemon(tmp_path / "ebbtide.sock")
    yield made
    made.close()


def shown(
    run: Run, daemon: Daemon, folder: Path, standing: DaemonStatus, mode: str = "auto"
) -> dict[str, str]:
    """The table's rows by their names."""
    answer = {**STATUS, "mode": mode, "node": node_json(standing)}
    daemon.answer = {"ok": True, "data": json.loads(json.dumps(answer))}
    out = run("status", "--runtime", folder, "--journal", folder / "journal").out
    rows = [line.split("  ", 1) for line in out.splitlines() if not line.startswith(" ")]
    return {row[0]: row[1].strip() for row in rows if len(row) == 2}


def test_a_node_that_is_well(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """Mode, kubelet, runtime and API server, a line each; nothing of a shutdown that never was."""
    rows = shown(run, daemon, tmp_path, WELL)
    assert [rows[name] for name in ("mode", "kubelet", "runtime", "API server")] == [
        "auto",
        "active",
        "answers",
        "answers",
    ]
    assert not {"pods ended by", "handed over", "left undone", "volumes"} & rows.keys()


def test_what_does_not_answer_says_why(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """With the error; and what nobody has said yet is told apart."""
    standing = DaemonStatus(kubelet=False, kubelet_lock=True, runtime=False, runtime_error="gone")
    rows = shown(run, daemon, tmp_path, standing)
    assert rows["kubelet"] == "not active, holds a delay lock of its own"
    assert rows["runtime"] == "does not answer: gone"
    assert rows["API server"] == "nobody has said yet"


def test_an_identity_that_may_not_taint(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """Said where the API server answers."""
    rows = shown(run, daemon, tmp_path, msgspec.structs.replace(WELL, may_taint=False))
    assert rows["API server"] == "answers, may not taint this node"


def test_a_shutdown_on_a_node(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """By which means, why it was handed over, what is in the way of detaching, pods by name."""
    standing = msgspec.structs.replace(
        WELL,
        means="api",
        means_reason="mode api",
        handed_over="the API server refused",
        left_undone=("u-1",),
        certificate=DetachCertificate(safe=False, ended=3, running=("u-1",), mounted=(("u-1", "pv"),)),
        pods={"u-1": PodStatus(label="shop/db-0", wave=0, grace_seconds=1, priority=0)},
    )
    rows = shown(run, daemon, tmp_path, standing)
    assert rows["pods ended by"] == "api (mode api)"
    assert rows["handed over"] == "the API server refused"
    assert rows["left undone"] == "shop/db-0"
    assert rows["volumes"] == "not safe to detach: 1 pods running, 1 volumes mounted"
    assert node_json(standing)["certificate"]["mounted"] == [["shop/db-0", "pv"]]


def test_a_certificate_that_is_safe(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """One line that may be acted on."""
    standing = msgspec.structs.replace(WELL, certificate=DetachCertificate(safe=True, ended=3))
    rows = shown(run, daemon, tmp_path, standing)
    assert rows["volumes"] == "safe to detach: 3 pods ended, nothing is mounted"


def test_local_processes_have_no_such_lines(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """In mode process, and with a daemon that is older than these words."""
    assert not {"mode", "kubelet", "runtime"} & shown(run, daemon, tmp_path, DaemonStatus(), "process").keys()
    daemon.answer = {"ok": True, "data": STATUS}
    assert "API server" not in run("status", "--runtime", tmp_path, "--journal", tmp_path).out


def test_pods_known_ahead_of_time(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """How many the cache beside the journal holds, and how old its newest word is."""
    journal = tmp_path / "state" / "journal"
    cache = tmp_path / "state" / "node" / "pods.json"
    assert cached_pods(journal) is None
    cache.parent.mkdir(parents=True)
    cache.write_text('{"version": 1, "node": "node-1", "pods": [{"uid": "a"}, {"uid": "b"}]}')
    os.utime(cache, (time.time() - 60, time.time() - 60))
    found = cached_pods(journal)
    assert found is not None
    assert found["pods"] == 2
    assert 60 <= found["changedSecondsAgo"] < 120
    cache.write_bytes(b"\xff")
    assert cached_pods(journal) is None
