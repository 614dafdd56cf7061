"""The shipped unit and its drop-ins: limits for the daemon, not for mode process's pods."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ebbtide.supervisor import SILENT_SECONDS_MAX, START_SECONDS_MAX

DEPLOY = Path(__file__).parents[1] / "deploy/systemd"
UNITS = "etc/systemd/system"
#: In tenths: the daemon's needs, as the unit explains; systemd 257 counts 2.7, 252 3.0.
EXPOSURE_MAX = 30

#: Pods inherit these: harmless alone, or meant for them too.
KEPT = {"ProtectKernelModules", "SystemCallErrorNumber", "ReadWritePaths"}
#: Directives that a service's processes inherit, by prefix.
INHERITED = re.compile(
    "Protect|Private|Restrict|SystemCall|Capability|NoNew|Read|Device|Lock|Limit|Memory|CPU|OOMScore|UMask"
)
#: These look alike, but belong to the service manager.
OTHERS = {"RestartSec", "RestartPreventExitStatus"}


def directives(name: str) -> dict[str, list[str]]:
    """The service section's directives with their values."""
    found: dict[str, list[str]] = {}
    section = (DEPLOY / name).read_text().split("[Service]\n")[1].split("\n[")[0]
    for line in section.splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_pods_inherit_nothing_that_was_meant_for_the_daemon() -> None:
    """Mode process's drop-in repeats each restriction, or the list here explains it."""
    unit, drop_in = directives("ebbtide.service"), directives("process.conf")
    inherited = {name for name in unit if INHERITED.match(name) and name not in OTHERS}
    assert "ProtectClock" in inherited
    assert inherited - set(drop_in) == KEPT


def test_a_daemon_that_hangs_or_is_wrong_is_ended_and_stays_so() -> None:
    """systemd and ``--keep-lock`` have the same patience; no restart fixes exit code 2."""
    unit = directives("ebbtide.service")
    assert unit["RestartPreventExitStatus"] == ["2"]
    patience = [float(unit[name][0]) for name in ("WatchdogSec", "TimeoutStartSec")]
    assert patience == [SILENT_SECONDS_MAX, START_SECONDS_MAX]
    assert unit["WatchdogSignal"] == ["SIGKILL"]


def test_the_page_installs_the_drop_in_before_the_start() -> None:
    """Following the page never starts a unit without a mode, or a pod in the sandbox."""
    page = (DEPLOY.parents[1] / "docs/operations.md").read_text()
    commands = page.partition("```sh\n")[2].partition("```")[0]
    assert commands.index("node.conf") < commands.index("systemctl enable --now ebbtide")
    assert "process.conf" in page


def test_a_node_is_in_the_units_sandbox() -> None:
    """The node's drop-in names mode and memory, and loosens no limit."""
    assert set(directives("node.conf")) == {"ExecStart", "MemoryHigh"}
    assert directives("node.conf")["ExecStart"][-1].endswith("/ebbtide run --mode auto")


@pytest.mark.root
@pytest.mark.parametrize(("drop_in", "code"), [("", 0), ("node.conf", 0), ("process.conf", 1)])
def test_the_sandbox_stays_as_tight(tmp_path: Path, drop_in: str, code: int) -> None:
    """systemd's own rating; mode process's pods have no sandbox, which it reports."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    folder = tmp_path / UNITS / "ebbtide.service.d"
    folder.mkdir(parents=True)
    shutil.copy(DEPLOY / "ebbtide.service", folder.parent)
    if drop_in:
        shutil.copy(DEPLOY / drop_in, folder)
    how = ("--offline=true", f"--root={tmp_path}", f"--threshold={EXPOSURE_MAX}", "--no-pager")
    argv = ["systemd-analyze", "security", *how, "ebbtide.service"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert "Overall exposure level" in done.stdout, done.stderr
    assert done.returncode == code, done.stdout
