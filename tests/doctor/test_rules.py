"""The doctor's rules on plain values: each problem has its finding and its fix."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ebbtide import manifests as manifest_pods
from ebbtide.actors.edges.linux.proc import SignalForecast
from ebbtide.actors.edges.logind_reading import DROP_IN_FOLDERS, DropIns
from ebbtide.actors.policy import planning as explain
from ebbtide.actors.policy.planning import Plan
from ebbtide.doctor.rules import (
    CURES,
    FREE_BYTES_MIN,
    GRANT_WARNINGS,
    NEEDED_RIGHTS,
    ApiServerState,
    JournalState,
    KubeletState,
    Measured,
    NeededRight,
    NodeSnapshot,
    RuntimeState,
    Snapshot,
    examine,
    judge_budget,
    overridden_cure,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import LockHolder
from ebbtide.machine_lock import Holder
from tests.doctor.values import API, BUS, KUBELET, MACHINE, OVERRIDDEN, RUNTIME, STATUS, WELL, grades, node

HOLDER = LockHolder(who="dnf", why="installing", pid=8, uid=0)
LOCKED = BUS._replace(kubelet_lock=True)
AWAY = RUNTIME._replace(problem="nothing listens there")
SILENT = API._replace(problem="no answer in 5 s")
GONE = KUBELET._replace(loaded=False, active=False)
K3S = KubeletState(unit="k3s.service", loaded=True, active=True)

SMALL = BUS._replace(grant_ns=10 * NS_PER_SECOND)
DEAF = SignalForecast(
    uid="u-1", container="web", pid=7, signal="SIGTERM", verdict="ignores", why="it ignores it"
)

#: Two syncs take six seconds; the reserve is five.
SLOW = Measured("journal sync", "/j", 20_000_000, (1_000_000, 3 * NS_PER_SECOND))
CLOSED = Measured("httpGet target", "shop/web-0 web", 1, error="Connection refused")


def test_a_machine_that_is_well_has_no_finding() -> None:
    assert examine(MACHINE) == []


#: A change of the healthy node; the finding's level and code; words of its fix.
ILL: list[tuple[dict[str, Any], str, str, str]] = [
    ({"config_error": "config.yaml:3: no", "plan": None}, "critical", "config-invalid", "config check"),
    ({"plan": Plan(enabled=False)}, "critical", "switched-off", "shutdownGracePeriod"),
    ({"status": None, "status_error": "nobody"}, "critical", "daemon-silent", "systemctl start"),
    (
        {"status": None, "status_error": "other", "foreign": True},
        "warning",
        "journal-of-another",
        "leave --journal out",
    ),
    ({"status": {**STATUS, "waiting": ["process 9: ebbtide run"]}}, "warning", "another-waits", "end one"),
    ({"protector": Holder(8, 0, "ebbtide run")}, "critical", "another-daemon", "--runtime"),
    ({"bus": None, "bus_error": "no bus"}, "critical", "no-logind", "systemd-logind"),
    ({"status": {**STATUS, "armed": False, "whyNot": "x"}}, "critical", "not-armed", "log"),
    ({"bus": BUS._replace(our_lock=False)}, "critical", "lock-missing", "systemd-inhibit"),
    ({"bus": SMALL}, "critical", "grant-too-small", "drop-in"),
    ({"bus": SMALL, "files": OVERRIDDEN}, "critical", "grant-too-small", "zzz-site.conf"),
    ({"bus": SMALL, "raise_grant": False}, "critical", "grant-too-small", "raiseGrant"),
    ({"bus": BUS._replace(grant_ns=31 * NS_PER_SECOND)}, "warning", "grant-too-small", "log"),
    ({"bus": BUS._replace(kubelet_lock=True)}, "warning", "kubelet-too", "shutdownGracePeriod: 0s"),
    ({"bus": BUS._replace(holders=(HOLDER,))}, "note", "other-lock", "see that program"),
    ({"bus": BUS._replace(systemd="249.11")}, "warning", "systemd-old", "systemctl poweroff"),
    ({"bus": BUS._replace(power_key="ignore")}, "warning", "power-key-ignored", "HandlePowerKey"),
    ({"store": JournalState("/j", exists=True, writable=False)}, "warning", "journal-read-only", "writable"),
    ({"store": JournalState("/j", free_bytes=FREE_BYTES_MIN - 1)}, "warning", "journal-space", "free"),
    ({"store": JournalState("/j", error="/j: Permission denied")}, "warning", "journal-unreadable", "sudo"),
    ({"measured": (SLOW,)}, "critical", "budget-exceeded", "raise reserve"),
    ({"measured": (CLOSED,)}, "warning", "call-failed", "preStop hook"),
    ({"forecasts": (DEAF,)}, "warning", "signal-ignores", "tini"),
    (
        {"plan": msgspec.structs.replace(MACHINE.plan, warnings=(("sleep-cut", "web-0 sleeps too long"),))},
        "warning",
        "sleep-cut",
        "shorten the sleep",
    ),
]


@pytest.mark.parametrize(
    "changes, level, code, cure", ILL, ids=[f"{row[2]}-{at}" for at, row in enumerate(ILL)]
)
def test_each_ill_has_its_finding_and_its_cure(
    changes: dict[str, Any], level: str, code: str, cure: str
) -> None:
    (finding,) = examine(MACHINE._replace(**changes))
    assert (finding.level, finding.code) == (level, code)
    assert cure in finding.cure


def test_every_warning_of_a_plan_has_a_cure() -> None:
    sources = [inspect.getsource(module) for module in (explain, manifest_pods)]
    codes = set(re.findall(r'"((?:grace|reserve|wave|priority|hook|sleep)-[a-z-]+)"', "".join(sources)))
    assert codes - GRANT_WARNINGS == set(CURES)


def test_the_budget_holds_while_the_calls_fit_beside_the_waves() -> None:
    """Each wave pays for its syncs and first call; a smaller grant leaves less, down to zero."""
    sync = Measured("journal sync", "/j", 1, (10, 20))
    delete = Measured("API dry-run delete", "shop/web-0", 1, (3, 5))
    sight = WELL._replace(measured=(sync, delete, CLOSED))
    assert judge_budget(sight) == (6 * 20 + 2 * 5, 5 * NS_PER_SECOND)
    for grant_seconds, slack_seconds in ((34, 4), (29, 0)):
        bus = BUS._replace(grant_ns=grant_seconds * NS_PER_SECOND)
        assert judge_budget(sight._replace(bus=bus)).slack_ns == slack_seconds * NS_PER_SECOND
        assert judge_budget(sight._replace(bus=bus)).holds == bool(slack_seconds)
    # A daemon that starts will raise the limit.
    assert judge_budget(sight._replace(bus=SMALL, status=None)).slack_ns == 5 * NS_PER_SECOND
    assert not judge_budget(sight._replace(plan=Plan(enabled=False))).holds


@pytest.mark.parametrize("mode, level", [("api", "critical"), ("auto", "warning")])
def test_a_delete_that_is_refused_leaves_one_mode_without_a_way(mode: str, level: str) -> None:
    """If the runtime can end the pods too, it is a warning."""
    refused = Measured("API dry-run delete", "shop/web-0", 1, error="403 admission webhook")
    assert (level, "call-failed") in grades(node(mode=mode)._replace(measured=(refused,)))


def test_a_grant_that_the_daemon_would_raise_is_a_note() -> None:
    """Before the daemon's first start a small limit needs no fix."""
    findings = examine(
        MACHINE._replace(bus=SMALL._replace(our_lock=False), status=None, status_error="nobody")
    )
    assert [finding.code for finding in findings] == ["daemon-silent", "grant-will-be-raised"]


def test_a_machine_that_goes_down_already_is_a_note() -> None:
    bus = BUS._replace(preparing=True, our_lock=False)
    status = {**STATUS, "armed": False, "phase": "running"}
    assert [finding.code for finding in examine(MACHINE._replace(bus=bus, status=status))] == ["going-down"]


def test_the_gravest_comes_first() -> None:
    snapshot = MACHINE._replace(
        store=JournalState("/j", free_bytes=0), bus=SMALL._replace(power_key="ignore")
    )
    assert [finding.level for finding in examine(snapshot)] == ["critical", "warning", "warning"]


# --- a Kubernetes node: kubelet, runtime, API server and time


def in_mode(mode: str, **changes: object) -> Snapshot:
    """Mode observe needs a kubelet with a lock."""
    made = node(mode=mode, **changes)
    return made._replace(bus=LOCKED) if mode == "observe" else made


def asking(seconds: int | None) -> KubeletState:
    return KUBELET._replace(grace_ns=None if seconds is None else seconds * NS_PER_SECOND)


DOWN = KUBELET._replace(active=False, pid=0)
BESIDE = KUBELET._replace(beside=("rke2-agent.service",))
K3S_SOCKET = RUNTIME._replace(socket="/run/k3s/containerd/containerd.sock")
DELETE = next(need.right for need in NEEDED_RIGHTS if need.right.text == "delete pods")

#: The modes; a change of the node; each finding's level and code; words of the first.
ON_NODE: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("auto api cri observe", {}, [], ""),
    # Unknown or unexamined parts cause no finding.
    ("auto", {"kubelet": KubeletState()}, [], ""),
    ("auto", {"runtime": RuntimeState()}, [], ""),
    # It would take a lock at its next start.
    ("auto", {"kubelet": asking(30)}, ["warning kubelet-configured"], "config.yaml asks for 30 s"),
    # A running kubelet restarts stopped containers.
    ("cri", {"kubelet": GONE}, ["critical kubelet-unit-missing"], "node.kubeletUnit"),
    ("auto api", {"kubelet": GONE}, ["warning kubelet-unit-missing"], "node.kubeletUnit"),
    ("cri", {"kubelet": GONE._replace(pid=0)}, ["warning kubelet-unit-missing"], ""),
    # No kubelet carries out deletes; mode cri wants that.
    ("api", {"kubelet": DOWN}, ["warning kubelet-down"], ""),
    ("cri", {"kubelet": DOWN}, [], ""),
    # Detected by its unit, another active unit, or the socket's path.
    ("cri", {"kubelet": K3S}, ["critical one-unit"], ""),
    ("auto api", {"kubelet": K3S}, ["warning one-unit"], ""),
    ("auto", {"kubelet": BESIDE}, ["warning one-unit"], ""),
    ("auto", {"runtime": K3S_SOCKET}, ["warning one-unit"], ""),
    ("cri", {"runtime": AWAY}, ["critical runtime-away"], "containerd.sock cannot be used: nothing listens"),
    ("auto api observe", {"runtime": AWAY}, ["warning runtime-away"], ""),
    ("auto api cri observe", {"api": SILENT}, ["warning api-away"], "no answer in 5 s; "),
    ("auto api cri", {"runtime": AWAY, "api": SILENT}, ["critical runtime-away", "warning api-away"], ""),
    ("cri", {"api": ApiServerState()}, ["note kubeconfig-missing"], ""),
    ("auto", {"api": ApiServerState()}, ["warning kubeconfig-missing"], ""),
    ("auto", {"api": API._replace(known=False)}, ["critical node-unknown"], "no Node called node-1"),
    # Where pods are deleted, DaemonSet pods then use the runtime; a failed dry run is no proof.
    ("auto api", {"api": API._replace(taint=False)}, ["warning no-taint"], "NodeRestriction"),
    ("cri", {"api": API._replace(taint=False)}, [], ""),
    ("auto", {"api": API._replace(taint=None)}, [], ""),
    # In auto there is another way.
    ("api", {"api": API._replace(denied=(DELETE,))}, ["critical rbac-delete-pods"], ""),
    ("auto", {"api": API._replace(denied=(DELETE,))}, ["warning rbac-delete-pods"], ""),
    ("cri", {"api": API._replace(denied=(DELETE,))}, [], ""),
    ("auto", {"api": API._replace(user="system:node:node-2")}, ["critical foreign-identity"], "node-2"),
]

#: The same, with a change of the machine too.
ON_MACHINE: list[tuple[str, dict[str, Any], dict[str, Any], list[str], str]] = [
    # Two modes do not arm beside it, one steps back; each finding tells how to disable it.
    ("api cri", {}, {"bus": LOCKED}, ["critical kubelet-too"], "shutdownGracePeriod: 0s"),
    ("auto", {}, {"bus": LOCKED}, ["note kubelet-too"], "shutdownGracePeriod: 0s"),
    # No component would end the pods; with the reason, if available.
    ("observe", {"kubelet": asking(0)}, {"bus": BUS}, ["critical kubelet-not-armed"], "is off"),
    ("observe", {"kubelet": asking(41)}, {"bus": BUS}, ["critical kubelet-not-armed"], "40 s of the 41 s"),
    ("observe", {"kubelet": asking(30)}, {"bus": BUS}, ["critical kubelet-not-armed"], "never tries again"),
    ("observe", {"kubelet": asking(None)}, {"bus": BUS}, ["critical kubelet-not-armed"], "never tries again"),
]


@pytest.mark.parametrize(
    "modes, changes, machine, grades, words",
    [*((modes, changes, {}, *rest) for modes, changes, *rest in ON_NODE), *ON_MACHINE],
)
def test_each_ill_of_a_node(
    modes: str, changes: dict[str, Any], machine: dict[str, Any], grades: list[str], words: str
) -> None:
    for mode in modes.split():
        findings = examine(in_mode(mode, **changes)._replace(**machine))
        assert [f"{each.level} {each.code}" for each in findings] == grades, mode
        assert not words or words in f"{findings[0].message} {findings[0].cure}"


@pytest.mark.parametrize("mode, level", [("cri", "critical"), ("auto", "warning")])
def test_packages_that_are_missing(mode: str, level: str) -> None:
    """One finding with the command; dependent checks add none."""
    sight = WELL._replace(node=NodeSnapshot(mode, "node-1", missing=("grpc", "kubernetes")))
    (finding,) = examine(sight)
    assert (finding.level, finding.code) == (level, "packages-missing")
    assert "[node]" in finding.cure


def test_what_run_would_refuse() -> None:
    (finding,) = examine(in_mode("api", unfit="mode api needs the API server: name a kubeconfig"))
    assert finding.code == "mode-unfit"
    assert (finding.message, finding.cure) == ("mode api needs the API server", "name a kubeconfig")


# --- identity and rights

#: Every right in every mode.
CASES = [(need, mode) for need in NEEDED_RIGHTS for mode in ("api", "auto", "cri", "observe")]
IDS = [f"{need.right.text.replace(' ', '-')}-{mode}" for need, mode in CASES]
ACCOUNT = "system:serviceaccount:ebbtide:ebbtide"


@pytest.mark.parametrize("need, mode", CASES, ids=IDS)
def test_a_right_that_is_lacking_is_named(need: NeededRight, mode: str) -> None:
    """As grave as the mode's table says, with the effect; a mode without need for it is silent."""
    sight = node(mode=mode, api=API._replace(denied=(need.right,)))
    said = [each for each in examine(sight) if each.code.startswith("rbac-")]
    level = need.levels.get(mode)
    assert [(each.level, need.right.text in each.message) for each in said] == (
        [(level, True)] if level else []
    )


@pytest.mark.parametrize("confined, found", [(False, [("warning", "identity-unconfined")]), (None, [])])
def test_an_account_that_no_policy_holds(confined: bool | None, found: list[tuple[str, str]]) -> None:
    """Reported after a try; a node identity is limited by NodeRestriction instead."""
    said = examine(node(api=API._replace(user=ACCOUNT, confined=confined)))
    assert [(each.level, each.code) for each in said] == found
    assert examine(node(api=API._replace(confined=False))) == []


def test_text_of_the_server_cannot_move_the_cursor() -> None:
    text = [each.message for each in examine(node(api=API._replace(user="system:node:\x1b[2J")))]
    assert text
    assert not any("\x1b" in each for each in text)


# --- single pods


def test_a_priority_that_nobody_told_has_another_cure_on_a_node() -> None:
    assert WELL.plan is not None
    unset = msgspec.structs.replace(WELL.plan, warnings=(("priority-unset", "web-0: none"),))
    (on_a_node,) = examine(WELL._replace(plan=unset))
    assert "kubeconfig" in on_a_node.cure
    (of_processes,) = examine(WELL._replace(plan=unset, node=None))
    assert "manifest" in of_processes.cure


@pytest.mark.parametrize("name", ["zzz-site.conf", "zzz a.conf"])
@pytest.mark.parametrize("folder", DROP_IN_FOLDERS)
def test_the_cure_of_a_drop_in_changes_only_our_line(folder: str, name: str, tmp_path: Path) -> None:
    """Afterwards ours wins and the file's other settings hold, wherever a package put the file."""
    ours, text = DropIns(tmp_path), "[Login]\nKillUserProcesses=yes\n{}HandlePowerKey=ignore\n"
    ours.write(30)
    file = tmp_path / folder.lstrip("/") / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.format(" InhibitDelayMaxSec = 5\n"))
    follow(overridden_cure(ours.read().overridden_by), tmp_path)
    assert (ours.read().overridden_by, ours.effective_ns()) == ("", 30 * NS_PER_SECOND)
    assert (tmp_path / DROP_IN_FOLDERS[0].lstrip("/") / name).read_text() == text.format("")


def test_a_file_of_our_name_that_hides_ours_goes_whole(tmp_path: Path) -> None:
    ours = DropIns(tmp_path)
    DropIns(tmp_path, DROP_IN_FOLDERS[0]).write(9)
    ours.write(30)
    follow(overridden_cure(ours.read().overridden_by), tmp_path)
    assert ours.effective_ns() == 30 * NS_PER_SECOND


def follow(cure: str, root: Path) -> None:
    """Run the cure's command, below ``root``."""
    command = re.sub("/(?=etc|run|usr)", f"{root}/", cure.split("`")[1])
    subprocess.run(["sh", "-ec", command], check=True)
