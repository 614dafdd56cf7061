"""``ebbtide drill``: what it measures, what it judges, what it does not dare; and who would end the pods."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ebbtide.actors.edges.kubernetes.pods import KnownPod
from ebbtide.actors.policy.plan import Plan
from ebbtide.cli.drill import Measured, judge_budget, measure_sync, worst_calls
from ebbtide.cli.drill_node import Failed, _check_version, _deletion, _victim
from ebbtide.control import MEASURED_NS_MAX
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.model import Pod, Settings
from tests.cli.test_status import Daemon, daemon
from tests.commands import Run
from tests.doctor.values import plan

__all__ = ["daemon"]

SETTINGS = Settings()


def pod(name: str, **fields: bool) -> Pod:
    return Pod(uid=name, namespace="default", name=name, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body", [b'{"major": "1", "minor": "18"}', b'{"major": "1", "minor": "12+"}', b"{}", b"\xff", b"[]"]
)
def test_no_delete_is_tried_where_a_dry_run_may_be_a_delete(body: bytes) -> None:
    """A server that is too old, or does not say how old it is; not one that knows dry runs."""
    with pytest.raises(Failed):
        _check_version(body)
    for known_one in ("19", "34+"):
        _check_version(f'{{"major": "1", "minor": "{known_one}"}}'.encode())


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
