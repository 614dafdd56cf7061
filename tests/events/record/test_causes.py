"""Causes: one per pod, equal ones grouped, the gravest first; and a shutdown's severity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide import replay
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record import shutdown_record
from ebbtide.events.record.causes import CAUSES, cause_of, cause_tree, headline, reason_text
from ebbtide.events.record.shutdown_record import Severity, Summary, severity_of
from ebbtide.events.values import Period, ProcessReport
from tests.journals import SHUTDOWN

S = 1_000_000_000
TOLD = shutdown_record.ContainerRecord(
    name="main", signalled_ns=0, taken_ns=0, answered_ns=0, killed_ns=9 * S
)
HUNG = shutdown_record.HookRecord(
    container="main", kind="exec", began_ns=0, until_ns=S, result="timed-out", reason="hung"
)
DEAF = shutdown_record.AutopsyRecord(
    container="main",
    at_ns=0,
    processes=(ProcessReport(pid=1, parent_pid=0, command="sh", state="S", signals_ignored=("SIGTERM",)),),
)


def pod(
    name: str = "web-0", outcome: PodOutcome | None = "killed", **fields: Any
) -> shutdown_record.PodRecord:
    fields = {"containers": (TOLD,), "grace_ns": 9 * S, "wanted_grace_seconds": 9} | fields
    return shutdown_record.PodRecord(uid=f"u-{name}", namespace="shop", name=name, outcome=outcome, **fields)


def refused(name: str, why: str, outcome: PodOutcome = "killed") -> shutdown_record.PodRecord:
    return pod(name, outcome, containers=(replace(TOLD, stop_refused=True, stop_refusal=why),))


def taken_after(seconds: int) -> shutdown_record.ContainerRecord:
    return replace(TOLD, taken_ns=seconds * S, answered_ns=seconds * S)


#: Cause to a pod with it.
CAUSED: dict[str, shutdown_record.PodRecord] = {
    "stop-refused": refused("web-0", "no answer"),
    "delete-refused": pod(refused="429", containers=(replace(TOLD, signalled_ns=None),)),
    "kill-refused": pod(outcome="failed", containers=(replace(TOLD, kill_refusal="EPERM"),)),
    "outlived-kill": pod(outcome="failed", reason="main: still there after SIGKILL"),
    "hurried": pod(hurried_ns=S),
    "killed-elsewhere": pod(containers=(replace(TOLD, killed_ns=None),)),
    "hook-overran": pod(hooks=(HUNG,)),
    "signal-ignored": pod(autopsies=(DEAF,)),
    "stop-slow": pod(containers=(replace(TOLD, answered_ns=None),)),
    "time-cut": pod(grace_ns=8 * S),
    "grace-over": pod(),
    "no-fate": pod(outcome=None),
    "still-running": pod(outcome="unknown", reason="main still running when the lock was released"),
    "end-unseen": pod(outcome="unknown", reason="main: gone, end not seen; preStop failed"),
    "exit-unknown": pod(outcome="unknown", reason="main ended under the kubelet, exit code not known"),
    "kill-unseen": pod(outcome="unknown", reason="main: no end seen, and no answer to SIGKILL"),
    "wave-not-begun": pod(outcome="unknown", reason="the lock was released before its wave"),
    "found-late": pod(outcome="unknown", reason="found too late to be stopped"),
    "machine-down": pod(outcome="unknown", reason="the machine went down before its end was seen"),
    "other": pod(outcome="unknown", reason="who knows"),
}


@pytest.mark.parametrize("code", CAUSED)
def test_each_cause_has_its_pod(code: str) -> None:
    """The first matching row, with its own words."""
    cause = cause_of(CAUSED[code])
    assert cause is not None
    assert cause.code == code
    assert cause.sentence


def test_every_cause_is_tried() -> None:
    """A pod that ended by itself, or should not end, has none."""
    assert list(dict.fromkeys(row.code for row in CAUSES)) == list(CAUSED)
    for outcome in ("graceful", "spared", "rejected"):
        assert cause_of(refused("web-0", "no answer", outcome)) is None


def test_one_that_was_asked_in_the_end_was_not_refused() -> None:
    """After the hand-over its stop worked: it had its time."""
    cause = cause_of(pod(refused="429"))
    assert cause is not None
    assert cause.code == "grace-over"
    assert cause.sentence == "had not ended when the grace was over"  # of one pod, and of three


def test_a_reason_begins_with_its_cause() -> None:
    """The actors' final reason and hook are not repeated."""
    one = "SIGKILL for main: had 9 s"
    said = replace(CAUSED["stop-refused"], reason=f"{one}; SIGTERM did not reach main: no answer")
    assert reason_text(said) == f"the stop signal was not sent (no answer); {one}"
    hung = replace(CAUSED["hook-overran"], reason=f"{one}; preStop timed-out: hung")
    assert reason_text(hung) == f"the preStop hook had not ended when the grace was over; {one}"
    # It names the container of two.
    both = replace(said, containers=(*said.containers, TOLD))
    assert reason_text(both).endswith("SIGTERM did not reach main: no answer")
    assert reason_text(replace(CAUSED["time-cut"], reason=one)) == one


@dataclass(frozen=True)
class Night:
    """A real shutdown's record with these pods."""

    pods: tuple[shutdown_record.PodRecord, ...]

    @property
    def record(self) -> shutdown_record.ShutdownRecord:
        whole = replay.open(SHUTDOWN).shutdown().account
        return replace(whole, pods=self.pods, notices=())


def test_like_causes_are_one_root() -> None:
    """Different errors are not named; a root of a part comes before a pod's."""
    ids = [refused(f"web-{at}", f'no container "{at:012x}"') for at in range(3)]
    busy = [refused(f"db-{at}", "the runtime does not answer") for at in range(5)]
    first, second = cause_tree(Night((*ids, *busy, pod("late", grace_ns=S))).record)
    assert first.text == "the stop signal was not sent: it explains 8 pods"
    assert first.pods == tuple(each.uid for each in (*ids, *busy))
    assert [group.text for group in first.within] == ["8 pods: the stop signal was not sent"]
    assert second.text.endswith("the grace that its pods ask for: it explains shop/late")
    assert {first.severity, second.severity} == {"bad"}


def notice(code: str, text: str = "", uid: str = "") -> shutdown_record.Notice:
    return shutdown_record.Notice(seq=20, at_ns=S, code=code, text=text or code, pod=uid)


def part(name: Any, at_ns: int = 0, until_ns: int | None = None) -> shutdown_record.FailedPart:
    return shutdown_record.FailedPart(part=name, at_ns=at_ns, until_ns=until_ns, text=f"{name} failed")


#: The pod in its wave of 10 s, what else is on record, and the root.
ROOTED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "a wave cut by the grant",
        {"grace_seconds": 4},
        {"notices": (notice("grant-too-small"),)},
        "grant-too-small",
    ),
    ("its full period", {"grace_seconds": 9}, {"notices": (notice("grant-too-small"),)}, "grace-over"),
    (
        "the end of the shutdown came out of its wave",
        {"grace_seconds": 6},
        {"notices": (notice("reserve-not-granted"),)},
        "reserve-not-granted",
    ),
    (
        "a wave shorter than its grace, without the end of the shutdown",
        {"grace_seconds": 6, "wanted_grace_seconds": 30},
        {"notices": (notice("reserve-not-granted"),)},
        "period-too-short",
    ),
    (
        "likewise, with all that was asked for",
        {"grace_seconds": 6},
        {"configuration": shutdown_record.ConfigurationRecord(periods=(Period(priority=0, seconds=10),))},
        "reserve-too-small",
    ),
    (
        "a wave shorter than its grace",
        {"grace_seconds": 9, "wanted_grace_seconds": 30},
        {},
        "period-too-short",
    ),
    (
        "a deaf process under any grant",
        {"grace_seconds": 4, "autopsies": (DEAF,)},
        {"notices": (notice("grant-too-small"),)},
        "signal-ignored",
    ),
    ("its stop signal took long", {"containers": (taken_after(3),)}, {}, "runtime"),
    ("its stop signal was late for SIGKILL", {"containers": (taken_after(12),)}, {}, "runtime"),
    ("it had nearly all its time", {"containers": (taken_after(2),)}, {}, "grace-over"),
    (
        "the runtime may wait for the container",
        {"containers": (replace(TOLD, taken_ns=None, answered_ns=3 * S),)},
        {},
        "grace-over",
    ),
    ("the runtime hung before", {}, {"failed_parts": (part("runtime"),)}, "runtime"),
    (
        "the runtime was back in time",
        {"began_ns": 2 * S},
        {"failed_parts": (part("runtime", 0, S),)},
        "grace-over",
    ),
    ("the runtime hung later", {"ended_ns": S}, {"failed_parts": (part("runtime", 2 * S),)}, "grace-over"),
    ("a kubelet ends it", {"means": "api"}, {"failed_parts": (part("kubelet"),)}, "kubelet"),
    ("we end it", {"means": "cri"}, {"failed_parts": (part("kubelet"),)}, "grace-over"),
    ("deletes are lost", {"means": "api"}, {"failed_parts": (part("api-server"),)}, "api-server"),
    (
        "the power went",
        {"outcome": "unknown", "reason": "the machine went down before its end was seen"},
        {"outcome": "truncated", "notices": (notice("cut-short"),)},
        "cut-short",
    ),
    (
        "it went since the lock was lost",
        {"outcome": "unknown", "reason": "the machine went down before its end was seen"},
        {"outcome": "truncated", "notices": (notice("cut-short"),), "lock_lost_ns": S},
        "lock-lost",
    ),
    (
        "the system's log has an orderly end, long before the grant was over",
        {"outcome": "unknown", "reason": "the machine went down before its end was seen"},
        {"outcome": "truncated", "notices": (notice("cut-short"),), "boot_end_why": "time-over"},
        "lock-lost",
    ),
    (
        "no kubelet ends it",
        {"outcome": "unknown", "means": "observe", "reason": "main still running when the lock was released"},
        {},
        "kubelet-not-armed",
    ),
    (
        "the daemon came back late",
        {"grace_seconds": 9, "grace_ns": S, "began_ns": 0},
        {"notices": (notice("restarted"),)},
        "daemon",
    ),
    (
        "the fallback closed the cancelled shutdown at once",
        {"outcome": "unknown", "reason": "the shutdown was cancelled", "fallback": True},
        {"outcome": "cancelled"},
        "daemon",
    ),
    (
        "it ended by itself, and the grant cut its hook",
        {"outcome": "graceful", "grace_seconds": 4, "hooks": (HUNG,)},
        {"notices": (notice("api-lost"), notice("grant-too-small"))},
        "grant-too-small",
    ),
    (
        "likewise its wave's period",
        {"outcome": "graceful", "grace_seconds": 9, "wanted_grace_seconds": 30, "hooks": (HUNG,)},
        {},
        "period-too-short",
    ),
    ("the hook was too long", {"outcome": "graceful", "hooks": (HUNG,)}, {}, "hook-timed-out"),
    (
        "a deletion left it less than its period",
        {"grace_seconds": 4, "wanted_grace_seconds": 30, "again": True},
        {},
        "time-cut",
    ),
    (
        "a deletion of the shutdown before",
        {"containers": (replace(TOLD, killed_ns=None),), "reason": "SIGKILL by the kubelet for main"},
        {},
        "grace-over",
    ),
    (
        "without the lock, which it did not need",
        {"containers": (taken_after(3),)},
        {"notices": (notice("lock-not-held"),)},
        "runtime",
    ),
]


@pytest.mark.parametrize(("about", "fields", "around", "code"), ROOTED)
def test_each_pod_has_its_root(about: str, fields: dict[str, Any], around: dict[str, Any], code: str) -> None:
    """``about`` tells the cases apart."""
    fields = {"wave": 0, "grace_seconds": 9, "grace_ns": fields.get("grace_seconds", 9) * S} | fields
    record = Night((pod(**fields),)).record
    record = replace(record, **({"failed_parts": ()} | around))
    first = cause_tree(record)[0]
    assert (first.code, first.pods) == (code, ("u-web-0",)), about
    assert first.do
    assert headline(record).startswith(first.text)


def test_a_command_names_its_shutdown_and_exists() -> None:
    """``journal ls`` lists boots only if a later boot reported on one."""
    night = Night((pod(outcome="failed", reason="main: still there after SIGKILL"),)).record
    assert cause_tree(night)[0].do.endswith(f"replay timeline {night.id} --pod shop/web-0 --all")
    for why, do in (("", "journalctl --since '"), ("time-over", "ebbtide journal ls: ")):
        cut = replace(night, pods=(), outcome="truncated", notices=(notice("cut-short"),), boot_end_why=why)
        assert cause_tree(cut)[0].do.startswith(do)


def test_a_root_above_the_pods_comes_first_from_a_fifth_of_them() -> None:
    """Else a grant that cost one pod would hide twenty that ignore SIGTERM."""
    cut = {"wave": 0, "grace_seconds": 4, "grace_ns": 4 * S}
    for deaf, first in ((4, "grant-too-small"), (5, "signal-ignored")):
        pods = (pod("cut", **cut), *(pod(f"deaf-{at}", autopsies=(DEAF,)) for at in range(deaf)))
        record = replace(Night(pods).record, notices=(notice("grant-too-small"),))
        assert cause_tree(record)[0].code == first


def test_consequences_stand_under_their_root() -> None:
    """Without it they are remarks."""
    codes = ("handed-over", "statuses-undelivered", "wave-overran", "not-safe-to-detach")
    record = replace(Night((refused("web-0", "no answer"),)).record, notices=tuple(map(notice, codes)))
    (root,) = cause_tree(record)
    assert [group.code for group in root.within] == ["stop-refused", *codes]
    calm_night = replace(Night(calm(2)).record, notices=tuple(map(notice, codes)))
    assert {root.level for root in cause_tree(calm_night)} == {"remark"}


def calm(count: int) -> tuple[shutdown_record.PodRecord, ...]:
    return tuple(pod(f"calm-{at}", "graceful") for at in range(count))


def test_the_headline_begins_with_what_went_wrong() -> None:
    """It ends with the machine and pods, once; a calm shutdown has only that."""
    lost = Night((*(refused(f"web-{at}", "no answer") for at in range(3)), *calm(1))).record
    assert headline(lost) == (
        "the stop signal was not sent (no answer): it explains 3 pods."
        " The reboot of node-1 let the machine go after 11.611 s: 3 of 4 pods were killed, 1 ended by itself."
    )
    nobody_knows = [
        Night((*calm(3), *(pod(f"lost-{at}", None) for at in range(count)))).record for count in (1, 2)
    ]
    assert [
        headline(each).removeprefix("The reboot of node-1 let the machine go after 11.611 s: ")
        for each in nobody_knows
    ] == [
        "shop/lost-0: no fate on record. The reboot of node-1 let the machine go after 11.611 s:"
        " 1 of 4 pods has no fate on record, 3 ended by themselves.",
        "2 of 5 pods have no fate on record, 3 ended by themselves.",
    ]
    assert headline(Night(calm(12)).record) == (
        "The reboot of node-1 let the machine go after 11.611 s: all 12 pods ended by themselves."
    )
    assert headline(Night(calm(1)).record).endswith(": its pod ended by itself.")
    assert headline(Night(()).record).endswith(": there was no pod to end.")


#: By a summary, how bad it is.
JUDGED: list[tuple[Summary, Severity]] = [
    (Summary("complete", {"graceful": 4}), "good"),
    (Summary("complete", {"graceful": 4, "rejected": 9}), "good"),
    (Summary("complete", {}), "good"),
    (Summary("complete", {"graceful": 3, "killed": 1}), "mixed"),
    (Summary("complete", {"graceful": 2, "killed": 1}), "bad"),
    # A rejected pod should not end: it does not reduce the share.
    (Summary("complete", {"graceful": 2, "killed": 1, "rejected": 50}), "bad"),
    (Summary("complete", {"graceful": 99, "failed": 1}), "bad"),
    (Summary("complete", {"graceful": 99, "unknown": 1}), "bad"),
    (Summary("complete", {"graceful": 99, "unknown": 1}, gone=1), "mixed"),
    (Summary("running", {"graceful": 1, "unknown": 9}), "good"),
    (Summary("running", {"killed": 5, "unknown": 5}), "bad"),
    (Summary("cancelled", {"spared": 9}), "good"),
    (Summary("truncated", {"graceful": 4}), "bad"),
    (Summary("never-begun", {}), "bad"),
    (Summary("complete", {"graceful": 4}, lock_lost=True), "bad"),
    (Summary("complete", {}, headless=True), "mixed"),
    (Summary("complete", {"graceful": 4}, hook_cut=True), "mixed"),
]


@pytest.mark.parametrize(("summary", "severity"), JUDGED)
def test_severity(summary: Summary, severity: Severity) -> None:
    assert severity_of(summary) == severity


def test_only_the_next_shutdown_counts_a_pod_that_goes_on_in_it() -> None:
    """Without a next shutdown, or after a cut, its end is unknown."""
    left = Night((*calm(3), pod(outcome=None))).record
    going_on = Night((*calm(3), pod(outcome=None, goes_on=True))).record
    told = {
        "followed": replace(going_on, outcome="cancelled"),
        "cancelled": replace(left, outcome="cancelled"),
        "truncated": replace(left, outcome="truncated"),
    }
    assert {name: (each.severity, each.count("unknown")) for name, each in told.items()} == {
        "followed": ("good", 0),
        "cancelled": ("bad", 1),
        "truncated": ("bad", 1),
    }
    assert [len(cause_tree(record)) for record in told.values()] == [0, 1, 1]
    assert headline(told["followed"]).endswith(
        "3 of 4 pods ended by themselves, 1 goes on in the next shutdown."
    )
    assert replace(left, outcome="running").severity == "good"
