"""``ebbtide drill``: what it measures, what it judges, what it does not dare; and who would end the pods."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ebbtide.actors.edges.kubernetes.pods import KnownPod
from ebbtide.actors.policy.plan import Plan
from ebbtide.cli.drill import Measured, judge_budget, measure_exec, measure_sync, worst_calls
from ebbtide.cli.drill_node import Failed, _check_version, _deletion, _victim
from ebbtide.control import MEASURED_NS_MAX
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.model import Pod, Settings
from ebbtide.plan import left_behind, termination_choices, termination_lines
from tests.cli.test_status import Daemon, daemon
from tests.commands import Run
from tests.doctor.values import API, KUBELET, NODE, OVERRIDDEN, RUNTIME, plan

__all__ = ["daemon"]

SETTINGS = Settings()


def pod(name: str, **fields: bool) -> Pod:
    return Pod(uid=name, namespace="default", name=name, **fields)  # type: ignore[arg-type]


def test_the_means_by_kind() -> None:
    """As the daemon's own table has them, with the configuration's word over it."""
    by_kind = {each.kind: each.means for each in termination_choices(NODE, False, SETTINGS)}
    assert (by_kind["poweroff"], by_kind["halt"], by_kind["reboot"]) == ("api", "api", "cri")
    told = {
        each.kind: each.means for each in termination_choices(NODE, False, Settings(means={"reboot": "api"}))
    }
    assert told["reboot"] == "api"
    assert {each.means for each in termination_choices(NODE, True, SETTINGS)} == {"observe"}


@pytest.mark.parametrize(
    "changes",
    [{"api": API._replace(problem="gone")}, {"kubelet": KUBELET._replace(active=False)}],
    ids=["api", "kubelet"],
)
def test_a_way_that_is_closed(changes: dict[str, object]) -> None:
    """By the runtime then, and the reason says why."""
    first = termination_choices(NODE._replace(**changes), False, SETTINGS)[0]  # type: ignore[arg-type]
    assert first.means == "cri"
    assert "wants api, but" in first.reason


def test_a_runtime_that_is_gone_leaves_the_api() -> None:
    """For a reboot as well."""
    seen = NODE._replace(runtime=RUNTIME._replace(problem="gone"))
    assert {each.means for each in termination_choices(seen, False, SETTINGS)} == {"api"}


def test_lines_for_people() -> None:
    """Kinds with one reason share a line; pods that no delete ends are named, and many of them counted."""
    left = left_behind([pod("web"), *(pod(f"s{at}", static=True) for at in range(9))], True)
    lines = [line.plain for line in termination_lines(NODE, termination_choices(NODE, False, SETTINGS), left)]
    assert lines == [
        "poweroff, halt: by api (mode auto)",
        "reboot, kexec, soft-reboot: by cri (mode auto)",
        "by api, no delete ends these: over the runtime, last: s0, s1, s2, s3, s4, s5, s6, s7 and 1 more",
    ]
    by_cri = NODE._replace(mode="cri")
    assert len(termination_lines(by_cri, termination_choices(by_cri, False, SETTINGS), left)) == 1


def test_pods_that_no_delete_ends() -> None:
    """Static ones, and those of a DaemonSet where the node cannot be tainted or they do not mind."""
    tolerant = pod("t", daemon=True, tolerates_all=True)
    pods = [pod("web"), pod("static", static=True), pod("daemon", daemon=True), tolerant]
    assert [each.name for each in left_behind(pods, True)] == ["static", "t"]
    assert [each.name for each in left_behind(pods, False)] == ["static", "daemon", "t"]


@pytest.mark.parametrize(
    "body", [b'{"major": "1", "minor": "18"}', b'{"major": "1", "minor": "12+"}', b"{}", b"\xff", b"[]"]
)
def test_no_delete_is_tried_where_a_dry_run_may_be_a_delete(body: bytes) -> None:
    """A server that is too old, or does not say how old it is."""
    with pytest.raises(Failed):
        _check_version(body)


@pytest.mark.parametrize("body", [b'{"major": "1", "minor": "19"}', b'{"major": "1", "minor": "34+"}'])
def test_a_server_that_knows_dry_runs(body: bytes) -> None:
    """Including what vendors write behind the number."""
    _check_version(body)


def known(name: str, **fields: object) -> KnownPod:
    return KnownPod(uid=name, api_uid=f"api-{name}", namespace="default", name=name, **fields)  # type: ignore[arg-type]


def test_the_pod_of_the_dry_run() -> None:
    """Neither a mirror, which would prove nothing, nor one that goes already; by its own UID, and dry."""
    found = _victim([known("m", static=True), known("d", deleting=True), known("web", grace_seconds=0)])
    assert found is not None
    assert found.name == "web"
    body = _deletion(found)
    assert body["dryRun"] == ["All"]
    assert body["preconditions"] == {"uid": "api-web"}
    assert body["gracePeriodSeconds"] == 1
    assert _victim([]) is None


def test_what_another_way_can_do_without_breaks_no_budget() -> None:
    """A failed measurement counts where the mode needs the part, and its time where it was had."""
    waves = plan(("u-web",))
    failed = Measured("API node", "node-1", (), 1, "gone")
    assert not judge_budget(waves, [failed]).holds
    assert judge_budget(waves, [failed._replace(needed=False)]).holds
    slow = Measured("API dry-run delete", "a/b", (3_000_000,), 1)
    assert judge_budget(waves, [slow]).overhead_ns == 3_000_000


def test_the_worst_call_of_each_kind() -> None:
    """What a shutdown's end waits for; what could not be measured is left out, and so is a hook's target."""
    found = worst_calls(
        [
            Measured("journal sync", "/j", (1, 5), 9),
            Measured("API node", "n", (2,), 9),
            Measured("API dry-run patch", "a/b", (3, 7), 9),
            Measured("CRI list of sandboxes", "s", (), 9, "gone"),
            Measured("kubelet unit", "k", (8,), 9),
            Measured("httpGet target", "h", (8,), 9),
            Measured("exec", "true", (1 << 70,), 9),
        ]
    )
    assert found == {"sync_ns": 5, "api_ns": 7, "exec_ns": MEASURED_NS_MAX}


# --- on this machine ------------------------------------------------------------------------------

#: Whatever this machine looks like.
HERE = ("--mode", "process")


def test_sync_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    """Real syncs in the journal's directory; no file stays."""
    measured = measure_sync(tmp_path)
    assert len(measured.samples_ns) == 20
    assert measured.median_ns > 0
    assert list(tmp_path.iterdir()) == []


def test_sync_where_nothing_can_be_written() -> None:
    """A place that cannot be written is an error in words, not an exception."""
    assert measure_sync(Path("/proc")).error.startswith("cannot write: ")


def test_a_process_start_is_measured() -> None:
    """Real processes, all of them waited for."""
    before = children()
    assert measure_exec().worst_ns > 0
    assert children() == before


def children() -> list[str]:
    """Of this process, also those that have ended and that nobody has waited for."""
    return sorted(
        pid for tasks in Path("/proc/self/task").glob("*/children") for pid in tasks.read_text().split()
    )


def test_budget() -> None:
    """Holds while the overhead fits beside the waves; a grant, overhead or a failed measurement breaks it."""
    quick = [Measured("journal sync", "/j", (1_000_000,), 20_000_000)]
    slow = [Measured("journal sync", "/j", (3 * NS_PER_SECOND,), 20_000_000)]
    waves = msgspec.structs.replace(plan(), grant_seconds=40)
    assert judge_budget(waves, quick).holds
    assert not judge_budget(msgspec.structs.replace(plan(), grant_seconds=20), quick).holds
    assert "raise reserve" in judge_budget(waves, slow).missing[0]
    assert judge_budget(waves, [Measured("logind call", "x", (), 1, "gone")]).missing == (
        "logind call x: gone",
    )
    assert not judge_budget(Plan(enabled=False), quick).holds


def test_drill_on_this_machine(run: Run, tmp_path: Path) -> None:
    """Everything is measured and reported; without a logind the budget does not hold, and 1 says so."""
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nshutdownGracePeriod: 30s\n")
    ran = run("drill", "--config", config, "--journal", tmp_path, "--runtime", tmp_path, *HERE, "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["holds"]) == (1, False)
    assert [each["what"] for each in document["measurements"]] == ["journal sync", "logind call", "exec"]
    assert document["measurements"][0]["medianMs"] > 0
    assert ran.err.count("measured: ") == 3


def test_a_drill_while_switched_off_has_no_budget(run: Run, tmp_path: Path) -> None:
    """What a shutdown would need is said, and why nothing holds, once."""
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n")
    ran = run("drill", "--config", config, "--journal", tmp_path, "--runtime", tmp_path, *HERE)
    assert ran.code == 1
    assert ran.out.count("graceful shutdown is off: set shutdownGracePeriod") == 1
    assert ran.out.splitlines()[-1].startswith("no budget to hold: a shutdown would need ")
    assert "the budget" not in ran.out


def test_the_daemon_is_told_what_was_measured_of_it(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """Of its own journal's disk: another one's says nothing of its shutdowns."""
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nshutdownGracePeriod: 30s\n")
    running = {"journal": str(tmp_path), "cri": None, "kubeconfig": None, "nodeName": None}
    daemon.answers = {"status": daemon.answer["data"], "configuration": running, "measured": {}}
    words = ("drill", "--config", config, "--runtime", tmp_path, *HERE, "-o", "json")
    document = json.loads(run(*words, "--journal", tmp_path).out)
    told = daemon.asked[-1]
    assert (document["untold"], told["verb"]) == (None, "measured")
    # No logind answers here.
    assert set(told["measured"]) == {"measured_wall_ns", "sync_ns", "exec_ns"}
    assert document["margins"]["measured"] == told["measured"]["measured_wall_ns"] / NS_PER_SECOND
    assert document["margins"]["releaseSeconds"] >= 0.25
    (tmp_path / "other").mkdir()
    document = json.loads(run(*words, "--journal", tmp_path / "other").out)
    assert document["untold"] == "the daemon that runs has another journal"
    assert [asked["verb"] for asked in daemon.asked].count("measured") == 1


def test_drill_judges_by_the_grant_that_the_daemon_would_raise(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """logind's 5 s of today are no reason against 30 s that the daemon asks for when it arms; a file that
    wins against its drop-in is, and so is raiseGrant: false.
    """
    monkeypatch.setattr("ebbtide.node.logind_grant_ns", lambda: 5 * NS_PER_SECOND)
    text = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nshutdownGracePeriod: 30s\n"
    config = tmp_path / "config.yaml"
    arguments = (
        "drill",
        "--config",
        config,
        "--journal",
        tmp_path,
        "--runtime",
        tmp_path,
        *HERE,
        "-o",
        "json",
    )

    def missing() -> list[str]:
        document = json.loads(run(*arguments).out)
        assert document["slackSeconds"] >= 0
        return [line for line in document["missing"] if "logind grants" in line]

    config.write_text(text)
    assert missing() == []
    monkeypatch.setattr("ebbtide.actors.edges.logind.drop_ins.DropIns.read", lambda _: OVERRIDDEN)
    assert missing() == ["logind grants 5 s of the 30 s that the waves need"]
    config.write_text(text + "raiseGrant: false\n")
    assert missing() == ["logind grants 5 s of the 30 s that the waves need"]
