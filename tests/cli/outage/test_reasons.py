"""Why a pod hangs, on plain values: the first cause of each state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.cli.common.output import show
from ebbtide.cli.outage.outage_explain import (
    AttachmentScene,
    NodeScene,
    PodScene,
    Scene,
    causes,
    explanation,
    lines,
    timer_text,
)
from ebbtide.cli.outage.outage_status import OutageSummary, summary_of
from tests.cli.outage.test_summary import after
from tests.commands import same_as_golden
from tests.otel.outage_story import recovered

GOLDEN = Path(__file__).parent / "golden"
DOWN = NodeScene("worker", ready="Unknown", heard="7 min 3 s ago", volumes_in_use=("kubernetes.io/csi/d^v",))
OUT = replace(DOWN, taint="ours", effect="NoExecute")
WELL = NodeScene("worker")
DB = PodScene(
    "shop/db-0", "worker", "StatefulSet/db", deleted=120.0, running=True, claims=("shop/data-db-0",)
)
BOUND = replace(DB, deleted=None, ready=True)
HELD = ("external-attacher/csi-example-test",)
DISK = AttachmentScene(
    "csi-1", "worker", "pv-1", "csi.example.test", "shop/data-db-0", finalizers=HELD, in_use=True
)
DETACHING = replace(DISK, deleting=90.0)
REFUSED = replace(DETACHING, error="rpc error: code = Internal desc = the array is busy")


def scene(node: NodeScene | None, *pods: PodScene, disk: AttachmentScene | None = None) -> Scene:
    return Scene("shop/db-0", node, pods, (disk,) if disk is not None else (), "one_1234")


@pytest.mark.parametrize(
    ("what", "codes"),
    [
        (scene(DOWN, DB), ["node-down"]),
        (scene(DOWN, replace(DB, finalizers=("x/y",))), ["node-down", "finalizers"]),
        (scene(DOWN, BOUND), ["node-down", "not-deleted"]),
        (scene(replace(DOWN, there=False), DB), ["node-gone"]),
        (scene(WELL, DB), ["kubelet-late"]),
        (scene(WELL, replace(DB, deleted=-12.0)), ["within-grace"]),
        (scene(WELL, replace(DB, finalizers=("x/y",))), ["finalizers"]),
        (scene(WELL, BOUND), ["nothing-hangs"]),
        (scene(OUT, replace(DB, deleted=5.0)), ["collector-round"]),
        (scene(OUT, DB), ["collector-late"]),
        (scene(OUT, replace(DB, finalizers=("x/y",))), ["finalizers"]),
        (scene(OUT, BOUND), ["not-evicted"]),
        (scene(OUT, replace(BOUND, tolerates=("NoExecute",))), ["tolerates"]),
        (scene(replace(OUT, effect="NoSchedule"), BOUND), ["no-schedule"]),
        # The node's own pods are not awaited.
        (scene(OUT, replace(BOUND, daemon=True)), ["nothing-hangs"]),
        (scene(OUT), ["nothing-hangs"]),
        (scene(replace(WELL, taint="ours", effect="NoExecute"), BOUND), ["not-evicted", "taint-left"]),
        (scene(OUT, disk=DISK), ["detach-late"]),
        (scene(OUT, disk=replace(DETACHING, deleting=3.0)), ["detaching"]),
        (scene(OUT, disk=DETACHING), ["attacher-silent"]),
        (scene(OUT, disk=REFUSED), ["driver-refuses"]),
        (scene(OUT, disk=replace(DETACHING, finalizers=("x/y",))), ["attachment-finalizers"]),
        (scene(None, replace(DB, node="", deleted=None), disk=DISK), ["attached-elsewhere", "not-ready"]),
        (scene(None, replace(DB, node="", deleted=None, waiting="Unschedulable")), ["not-ready"]),
    ],
)
def test_the_cause_first(what: Scene, codes: list[str]) -> None:
    found = causes(what)
    assert [each.code for each in found] == codes
    assert all(each.text for each in found)


def word(proof: str, waits_for: str, cause: str, do: str) -> OutageSummary:
    summary = summary_of(after(recovered(), 3))
    return replace(summary, proof=proof, waits_for=waits_for, cause=cause, do=do)


BLOCKED = "no record could be stored for 34 s: 500 failed calling webhook"
BRAKE = "raise brake in the controller's configuration"


@pytest.mark.parametrize(
    ("fields", "said", "do"),
    [
        ({"blocked": BLOCKED}, "one_1234 leads, and no record could be stored", "its journal back"),
        (
            {"word": word("redfish bmc", "the storm brake: full", "brake", BRAKE)},
            "the controller has proved it off by redfish bmc, and waits: the storm brake: full",
            "raise brake",
        ),
        (
            {"word": word("", "dry run: the node would be out of service now", "dry-run", "set")},
            "waits: dry run",
            "set",
        ),
        ({"word": word("", "no proof that the machine is off", "not-proved", "x")}, "no proof", ""),
        ({"leader": ""}, "", "make sure"),
    ],
)
def test_the_controllers_word_comes_before_advice_by_hand(fields: dict[str, Any], said: str, do: str) -> None:
    (cause,) = causes(replace(scene(DOWN, DB), **fields))
    assert said in cause.text
    assert do in cause.do[0]
    by_hand = any("declare" in each for each in cause.do)
    assert by_hand == (do in ("", "make sure"))


@pytest.mark.parametrize(("what", "disk", "text"), [
    (scene(DOWN, DB), DISK, "never begins: the statuses of shop/db-0 say Running for ever"),
    (scene(DOWN, BOUND), DISK, "has not begun: shop/db-0 uses it and is not Terminating"),
    (scene(DOWN, replace(DB, running=False)), DISK, "detaches it in 4 min at the earliest"),
    (scene(DOWN, replace(DB, running=False, deleted=400.0)), DISK, "should have detached it 40 s ago"),
    (scene(DOWN), DISK, "began when its last pod was gone; no object says when"),
    # It has no part in these.
    (scene(OUT, DB), DISK, ""),
    (scene(DOWN, DB), DETACHING, ""),
    (scene(WELL, DB), DISK, ""),
    (scene(DOWN, DB), replace(DISK, node="another"), ""),
])  # fmt: skip
def test_the_six_minute_timer(what: Scene, disk: AttachmentScene, text: str) -> None:
    said = timer_text(what, disk)
    assert said.startswith(text) if text else said == ""


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("down", Scene("shop/db-0", DOWN, (DB,), (DISK,), "", unseen=("you may not list leases",))),
        ("refused", Scene("worker", OUT, (replace(DB, finalizers=("x/y",)),), (REFUSED,), "one_1234")),
    ],
)
def test_one_screen(name: str, what: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    for each in lines(explanation(what)):
        show(each)
    same_as_golden(GOLDEN / f"explain-{name}.txt", capsys.readouterr().out)
