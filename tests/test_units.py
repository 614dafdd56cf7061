"""The shipped unit and its drop-ins: what the daemon is forbidden, its pods in mode process are not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ebbtide.supervisor import SILENT_SECONDS_MAX, START_SECONDS_MAX

DEPLOY = Path(__file__).parents[1] / "deploy/systemd"
UNITS = "etc/systemd/system"
#: In tenths. What is left is the daemon's work, as the unit says; systemd 257 counts it as 2.7, 252 as 3.0.
EXPOSURE_MAX = 30

#: What pods inherit all the same: harmless without the filter it belongs to, or meant for them too.
KEPT = {"ProtectKernelModules", "SystemCallErrorNumber", "ReadWritePaths"}
#: Every directive that a service's processes inherit, by how its name begins.
INHERITED = re.compile(
    "Protect|Private|Restrict|SystemCall|Capability|NoNew|Read|Device|Lock|Limit|Memory|CPU|OOMScore|UMask"
)
#: Begin like these, and are the service manager's own.
OTHERS = {"RestartSec", "RestartPreventExitStatus"}


def directives(name: str) -> dict[str, list[str]]:
    """Each directive of a unit file's service section, with its values."""
    found: dict[str, list[str]] = {}
    section = (DEPLOY / name).read_text().split("[Service]\n")[1].split("\n[")[0]
    for line in section.splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_pods_inherit_nothing_that_was_meant_for_the_daemon() -> None:
    """Whatever the unit restricts, the drop-in of mode process says again, or the list here says why not."""
    unit, drop_in = directives("ebbtide.service"), directives("process.conf")
    inherited = {name for name in unit if INHERITED.match(name) and name not in OTHERS}
    assert "ProtectClock" in inherited
    assert inherited - set(drop_in) == KEPT


def test_a_daemon_that_hangs_or_is_wrong_is_ended_and_stays_so() -> None:
    """systemd and the parent process of ``--keep-lock`` are as patient; no start cures exit code 2."""
    unit = directives("ebbtide.service")
    assert unit["RestartPreventExitStatus"] == ["2"]
    patience = [float(unit[name][0]) for name in ("WatchdogSec", "TimeoutStartSec")]
    assert patience == [SILENT_SECONDS_MAX, START_SECONDS_MAX]
    assert unit["WatchdogSignal"] == ["SIGKILL"]


def test_the_page_installs_the_drop_in_before_the_start() -> None:
    """Whoever follows the page line by line starts no unit without a mode, and no pod in the sandbox."""
    page = (DEPLOY.parents[1] / "docs/operations.md").read_text()
    commands = page.partition("```sh\n")[2].partition("```")[0]
    assert commands.index("node.conf") < commands.index("systemctl enable --now ebbtide")
    assert "process.conf" in page


def test_a_node_is_in_the_units_sandbox() -> None:
    """The drop-in of a Kubernetes node names the mode and the memory, and loosens nothing."""
    assert set(directives("node.conf")) == {"ExecStart", "MemoryHigh"}
    assert directives("node.conf")["ExecStart"][-1].endswith("/ebbtide run --mode auto")


@pytest.mark.root
@pytest.mark.parametrize(("drop_in", "code"), [("", 0), ("node.conf", 0), ("process.conf", 1)])
def test_the_sandbox_stays_as_tight(tmp_path: Path, drop_in: str, code: int) -> None:
    """systemd's own judgement of the files; the pods of mode process live in no sandbox, which it notices."""
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
