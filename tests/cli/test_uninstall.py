"""``ebbtide uninstall`` where the Node in the API cannot be asked: nobody is told that its cordon is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide import modes as places
from ebbtide.actors.edges.last_boot import show_alive
from ebbtide.cli.uninstall import Step, remove_journals
from ebbtide.events.facts import DaemonStarted
from tests.cli.bed import Node, write
from tests.commands import Run


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It has no identity for the API, is no pod, and its service manager knows no unit of ours."""

    async def no_unit(dry_run: bool) -> Step:
        return Step("unit", "ebbtide.service", "nothing")

    monkeypatch.setattr("ebbtide.cli.uninstall.remove_unit", no_unit)
    monkeypatch.setattr(places, "KUBECONFIGS", (tmp_path / "ours", tmp_path / "joining"))
    monkeypatch.setattr(places, "JOINING", tmp_path / "joining")
    monkeypatch.setattr(places, "in_a_pod", lambda: False)
    (tmp_path / "config.yaml").write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n")
    return tmp_path


def words(machine: Path) -> list[Any]:
    run = (
        "--journal",
        machine / "journal",
        "--runtime",
        machine / "run",
        "--config",
        machine / "config.yaml",
    )
    return ["uninstall", "--dry-run", "-o", "json", *run]


def journal(machine: Path, mode: str) -> None:
    """Of a daemon that ran in this mode."""
    node = Node(())
    started = DaemonStarted(
        version="0.1", pid=1, mode=mode, node="n", boot_id="b", userspace_id="b", preparing=False
    )
    node.feed(started)
    write(machine / "journal", node.records)


@pytest.mark.parametrize("mode, ended", [("auto", (1, "failed")), ("observe", (0, "nothing"))])
def test_an_identity_that_is_gone(run: Run, machine: Path, mode: str, ended: tuple[int, str]) -> None:
    """What its daemon may have changed may stand there still: exit code 1, and why; else there is nothing."""
    journal(machine, mode)
    ran = run(*words(machine))
    (step,) = [each for each in json.loads(ran.out)["steps"] if each["what"] == "Node"]
    assert (ran.code, step["result"]) == ended
    assert f"{machine / 'joining'} is not there" in step["reason"]


def test_what_outlives_a_boot_goes(tmp_path: Path) -> None:
    """The sign of life too, and with it the folder, which would else count as somebody's."""
    lasting = tmp_path / "node"
    show_alive(lasting, "b1")
    assert [step.result for step in remove_journals((), lasting, dry_run=False)] == ["done"]
    assert not lasting.exists()
