"""``ebbtide uninstall`` without API access, and the drop-in in any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide import modes
from ebbtide.actors.edges.logind_reading import DROP_IN_FOLDERS, DropIns
from ebbtide.cli import uninstall
from ebbtide.cli.uninstall import Step
from ebbtide.events.facts import DaemonStarted
from tests.cli.bed import Node, write
from tests.commands import Run


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No API identity, no pod, no unit and no drop-in of ours."""
    for name in ("remove_unit", "remove_drop_in"):
        monkeypatch.setattr(uninstall, name, lambda: Step("nothing", "", ""))
    monkeypatch.setattr(modes, "KUBECONFIGS", (tmp_path / "ours", tmp_path / "joining"))
    monkeypatch.setattr(modes, "JOINING", tmp_path / "joining")
    monkeypatch.setattr(modes, "in_a_pod", lambda: False)
    (tmp_path / "config.yaml").write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n")
    return tmp_path


@pytest.mark.parametrize("mode, ended", [("auto", (1, "failed")), ("observe", (0, "nothing"))])
def test_an_identity_that_is_gone(run: Run, machine: Path, mode: str, ended: tuple[int, str]) -> None:
    """It fails if a daemon may have left changes. With --node-only it is a wrong request."""
    node = Node(())
    node.feed(
        DaemonStarted(
            version="0.1", pid=1, mode=mode, node="n", boot_id="b", userspace_id="b", preparing=False
        )
    )
    write(machine / "journal", node.records)
    places = ("--journal", machine / "journal", "--runtime", machine / "run")
    words = ("uninstall", *places, "--config", machine / "config.yaml")
    ran = run(*words)
    row = ran.out.splitlines()[-1]
    assert (ran.code, row.split()[:2]) == (ended[0], [ended[1], "Node"])
    assert f"{machine / 'joining'} does not exist" in row
    assert run(*words, "--node-only").code == 2


def test_the_drop_in_goes_from_whatever_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other files stay. If logind cannot reload, a message says so."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    assert uninstall.remove_drop_in(tmp_path).result == "nothing"
    for folder in DROP_IN_FOLDERS[:2]:
        DropIns(tmp_path, folder).write(7)
        (tmp_path / folder.lstrip("/") / "other.conf").touch()
    step = uninstall.remove_drop_in(tmp_path)
    assert (step.result, "systemctl restart" in step.reason) == ("failed", True)
    assert {path.name for path in tmp_path.rglob("*.conf")} == {"other.conf"}
