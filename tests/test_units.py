"""The shipped unit and its drop-ins: what the daemon is forbidden, its pods in mode process are not."""

from __future__ import annotations

from pathlib import Path

DEPLOY = Path(__file__).parents[1] / "deploy/systemd"

#: What pods inherit all the same: harmless without the filter it belongs to, or meant for them too.
KEPT = {"ProtectKernelModules", "SystemCallErrorNumber", "ReadWritePaths"}
#: Every directive that a service's processes inherit, by how its name begins.
INHERITED = (
    "Protect",
    "Private",
    "Restrict",
    "SystemCall",
    "Capability",
    "NoNew",
    "Read",
    "Device",
    "Lock",
    "Limit",
    "Memory",
    "CPU",
    "OOMScore",
    "UMask",
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
    inherited = {name for name in unit if name.startswith(INHERITED) and name not in OTHERS}
    assert "ProtectClock" in inherited
    assert inherited - set(drop_in) == KEPT


def test_a_wrong_option_is_not_tried_again() -> None:
    """Exit code 2 is the daemon's word that no start heals it."""
    assert directives("ebbtide.service")["RestartPreventExitStatus"] == ["2"]


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
