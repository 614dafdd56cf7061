"""Notices for operators, one by one, with the table's text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import values
from ebbtide.events.base import Event, Order
from ebbtide.events.record.causes import cause_tree, headline
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import NOTICE_TEXTS, ShutdownRecord
from ebbtide.events.values import PlannedPod, PlannedWave
from tests.events.vocabulary import EVERY
from tests.journals import began, history, pod, started, steps

S = 1_000_000_000
WEB = pod("web-0", None, uid="u-web", grace=None, hook="drain")
BEGAN = began(
    kind="reboot",
    grant_ns=20 * S,
    requested_ns=10 * S,
    budget_ns=10 * S,
    deadline_ns=110 * S,
    release_by_ns=115 * S,
)
PLAN = d.PlanMade(
    waves=(PlannedWave(priority=7, period_seconds=10, pods=(PlannedPod(uid="u-web", grace_seconds=5),)),),
    pods=1,
)
PLANNED = d.PodPlanned(wave=0, grace_seconds=5, pod=WEB)
WAVE = d.WaveStarted(wave=0, priority=7, period_ns=10 * S, deadline_ns=110 * S, kill_by_ns=112 * S)
API_PLANNED = d.PodPlanned(wave=0, grace_seconds=5, pod=WEB, means="api")
HANDED_OVER = d.HandedOver(reason="the API server did not take a delete: 429")


def tell(*within: Event, before: Sequence[Event] = (), boot_id: str | None = None) -> ShutdownRecord:
    """Fold records one second apart; the shutdown's first is at 100 s."""
    first = len(before) + 1
    written = steps(
        *before,
        f.PrepareForShutdown(active=True),
        *within,
        episode=[0] * len(before) + [first] * (len(within) + 1),
        since_ns=(100 - first) * S,
    )
    (account,) = shutdown_records(history(written), boot_id=boot_id)
    return account


def ended(key: str, result: f.Result) -> f.OrderEnded:
    return f.OrderEnded(key=key, result=result, reason="it refuses")


def hook(result: d.HookResult, reason: str = "exit code 3") -> tuple[Event, ...]:
    started = d.HookStarted(uid="u-web", container="main", kind="exec", until_ns=105 * S)
    over = d.HookEnded(uid="u-web", container="main", result=result, reason=reason, elapsed_ns=2 * S)
    return (PLANNED, started, over)


def fate(outcome: d.PodOutcome) -> tuple[Event, ...]:
    return (PLANNED, d.PodEnded(uid="u-web", wave=0, outcome=outcome, reason="of this and that"))


#: Code to events after the signal, and the notice.
TOLD: dict[str, tuple[tuple[Event, ...], str]] = {
    "lock-not-held": ((began(lock_held=False),), "without the delay lock"),
    "lock-lost": (
        (began(), started(preparing=True, lock_inherited=False), d.Resumed(action="resume")),
        "LOCK LOST: the daemon was started again without the delay lock",
    ),
    "overtime": (
        (d.ShutdownDetected(kind="reboot", grant_ns=S, lock_held=True, overtime=True),),
        "the service manager was stopping the daemon",
    ),
    "deadline-moved": (
        (BEGAN, d.DeadlineMoved(deadline_ns=130 * S, release_by_ns=135 * S, kill_by_ns=132 * S)),
        "moved to 30 s after the signal",
    ),
    "pod-killed": (fate("killed"), "shop/web-0 was killed: of this and that"),
    "pod-failed": (fate("failed"), "shop/web-0 could not be ended: of this and that"),
    "pod-unknown": (fate("unknown"), "what became of shop/web-0 is not known: of this and that"),
    "pod-late": (
        (PLAN, d.PodPlanned(wave=0, grace_seconds=5, pod=WEB, late=True)),
        "shop/web-0 joined wave 0 after the plan was made",
    ),
    "hook-failed": (hook("failed"), "(exec) of shop/web-0, container main, failed: exit code 3"),
    "hook-timed-out": (hook("timed-out"), "container main, was cut after 2 s: exit code 3"),
    "hook-not-run": (
        (
            PLANNED,
            d.HookEnded(uid="u-web", container="main", result="not-run", reason="no grace left for it"),
        ),
        "the preStop hook (exec) of shop/web-0, container main, did not run: no grace left for it",
    ),
    "hook-unknown": (hook("unknown", ""), "ended is not known: unknown"),
    "wave-overran": (
        (PLAN, PLANNED, WAVE, d.WaveEnded(wave=0, outcome="overran", stragglers=("u-web",))),
        "wave 0 (priority 7) ended after its 7 s with 1 pod still running",
    ),
    "pods-unfinished": (
        (PLANNED, d.PodsEnded(unfinished=("u-web",))),
        "1 pod outlived the budget: shop/web-0",
    ),
    "hurried": (
        (PLANNED, f.HurryRequested(pod="web-0", asked_by=1000)),
        "uid 1000 asked not to wait for shop/web-0 any longer",
    ),
    "cancelled": ((d.ShutdownCancelled(reason="cancelled"),), "was withdrawn (cancelled)"),
    "restarted": (
        (started(preparing=True), d.Resumed(action="resume")),
        "none had run for at most 1 s (resume)",
    ),
    "actor-failed": (
        (PLANNED, d.ActorFailed(actor="HookActor", subject="u-web", error="KeyError")),
        "HookActor of shop/web-0 failed (KeyError)",
    ),
    "fallback": (
        (PLANNED, d.FallbackEngaged(pods=("u-web",), reason="HookActor failed")),
        "the fallback took over 1 pod (HookActor failed)",
    ),
    "statuses-undelivered": (
        (d.StatusesSettled(missing=("u1", "u2")),),
        "2 pod statuses not delivered in time: ",
    ),
    "durability-late": (
        (
            f.DurabilityLate(key="a", barrier="synced", waited_ns=30_000_000),
            f.DurabilityLate(key="b", barrier="synced", waited_ns=20_000_000),
        ),
        "2 effects began before the disk had answered, after 30 ms at the longest",
    ),
    "signal-rejected": (
        (f.SignalRejected(member="PrepareForShutdown", reason="foreign sender"),),
        "1 signal from another sender than logind, or with a wrong body (foreign sender)",
    ),
    "another-holder": (
        (
            f.LockHoldersRead(holders=(values.LockHolder(who="dnf", why="installing", pid=8, uid=0),)),
            d.ReleaseLock(key="LogindActor/release//1"),
            f.Tick(),
            f.Tick(),
            f.StopRequested(system_stopping=True),
        ),
        "dnf (process 8, uid 0) held the machine for 3 s after Ebbtide had released it: installing",
    ),
    "clock-stepped": ((f.ClockStepped(delta_ns=90 * S),), "the wall clock was moved by +90 s"),
    "volumes-mounted": (
        (
            API_PLANNED,
            d.WaveStarted(wave=0, priority=7, period_ns=10 * S, deadline_ns=110 * S, kill_by_ns=112 * S),
            d.WaveEnded(wave=0, outcome="overran", mounted=("u-web",)),
        ),
        "wave 0 ended with volumes of 1 pod still mounted: shop/web-0",
    ),
    "api-lost": ((f.ApiRead(reachable=False, error="no route"),), "the API server did not answer: no route"),
    "runtime-lost": ((f.RuntimeRead(reachable=False),), "the container runtime did not answer: no answer"),
    "delete-refused": (
        (API_PLANNED, d.DeleteRefused(uid="u-web", reason="429"), d.DeleteRefused(uid="u-db", reason="500")),
        "2 deletes not taken by the API server in time (500)",
    ),
    "handed-over": (
        (API_PLANNED, HANDED_OVER),
        "was handed over to the container runtime: the API server did not take a delete: 429",
    ),
    "kubelet-left-running": (
        (API_PLANNED, d.LeftUndone(running=("u-web",))),
        "the kubelet had not ended 1 pod at the release: shop/web-0",
    ),
    "final-statuses-missing": (
        (API_PLANNED, d.LeftUndone(without_status=("u-web",))),
        "1 pod without a final status in the API server at the release: shop/web-0",
    ),
    "not-safe-to-detach": (
        (API_PLANNED, d.DetachCertified(safe=False, running=("u-web",), mounted=(("u-web", "data"),))),
        "volumes are not safe to detach: not seen to end: shop/web-0; mounted: shop/web-0 data",
    ),
}

#: Orders beside the waves, and events with their own notice.
BESIDE = {event.beside: event for event in EVERY if isinstance(event, Order) and event.beside}
NOTED = {event.notice: event for event in EVERY if event.notice}

#: Notices from the shutdown's end, from earlier records, or from unreadable ones.
ELSEWHERE = (
    "grant-too-small",
    "reserve-not-granted",
    "cut-short",
    "never-begun",
    "unreadable",
    "record-damaged",
    "begin-lost",
    "unknown-events",
)


@pytest.mark.parametrize("code", TOLD)
def test_each_happening_is_told(code: str) -> None:
    """Once, at its record, in a self-contained sentence."""
    events, text = TOLD[code]
    found = [notice for notice in tell(*events).notices if notice.code == code]
    assert len(found) == 1
    assert text in found[0].text
    assert 1 <= found[0].seq <= len(events) + 1


@pytest.mark.parametrize("code", NOTED)
def test_an_event_that_is_a_notice(code: str) -> None:
    assert [notice.code for notice in tell(NOTED[code]).notices] == [code]


@pytest.mark.parametrize("what", BESIDE)
def test_an_order_beside_the_waves_that_fails(what: str) -> None:
    (notice,) = tell(BESIDE[what], ended(BESIDE[what].key, "timed-out")).notices
    assert notice.code == f"{what}-failed"
    assert "(timed-out): it refuses" in notice.text


def test_logind_waits_for_the_kubelets_lock_too() -> None:
    """After a restart of the daemon also."""
    signal = f.PrepareForShutdown(active=True, kubelet_lock=True)
    again = (started(preparing=True, lock_inherited=False), d.Resumed(action="resume"))
    told = tell(signal, began(lock_held=False), *again)
    assert not {"lock-not-held", "lock-lost"} & {notice.code for notice in told.notices}
    assert (told.lock_held, told.lock_lost_ns) == (False, None)


def test_a_deletion_began_the_stop_before() -> None:
    deleted = replace(WEB, deletion=values.Deletion(since_ns=98 * S, grace_seconds=4))
    (pod,) = tell(replace(PLANNED, pod=deleted)).pods
    assert pod.again


def test_every_sentence_is_tried() -> None:
    tried = (*TOLD, *NOTED, *(f"{what}-failed" for what in BESIDE), *ELSEWHERE)
    assert sorted(NOTICE_TEXTS) == sorted(tried)


@pytest.mark.parametrize(
    ("requested_s", "code", "text"),
    [
        (
            30,
            "grant-too-small",
            "logind granted 20 s of the 30 s that the waves ask for (/etc/zz.conf overrides it)",
        ),
        (18, "reserve-not-granted", "logind granted 20 s, enough for the waves, not for the reserve"),
        (10, None, ""),
    ],
)
def test_the_grant_is_judged_by_what_was_asked(requested_s: int, code: str | None, text: str) -> None:
    """The notice names the winning file, its cause the needed limit."""
    adopted = d.ConfigAdopted(enabled=True, requested_ns=requested_s * S, reserve_ns=5 * S)
    assessed = d.GrantAssessed(needed_ns=0, grant_ns=0, sufficient=False, overridden_by="/etc/zz.conf")
    told = tell(BEGAN, before=(f.LogindRead(owner=":1", grant_ns=0, preparing=False), adopted, assessed))
    assert [notice.code for notice in told.notices] == ([code] if code else [])
    for cause in cause_tree(told):
        assert text in cause.text
        assert cause.do == f"set InhibitDelayMaxSec={requested_s + 5} in /etc/zz.conf"


def test_a_shutdown_that_was_cut_short_says_where() -> None:
    """At a wave, or before any; a possibly running one is silent."""
    codes = [
        [notice.code for notice in tell(*events, boot_id=boot).notices]
        for events, boot in (
            ((BEGAN, PLAN, PLANNED, WAVE), "another"),
            ((BEGAN,), "another"),
            ((BEGAN, d.EpisodeClosed(outcome="never-begun")), None),
            ((BEGAN, PLAN, PLANNED, WAVE), None),
        )
    ]
    assert codes == [["cut-short"], ["never-begun"], ["never-begun"], []]


def test_a_shutdown_without_its_begin_is_not_said_to_have_had_no_wave() -> None:
    """After a journal's damage the progress is unknown."""
    account = tell(d.PodsEnded(), boot_id="another")
    assert [notice.code for notice in account.notices] == ["begin-lost"]
    assert headline(account) == (
        f"The shutdown of {account.node} is on record without its begin: no pod is on record."
    )


def test_a_lock_that_was_handed_on_is_not_lost() -> None:
    """An unheld lock at the signal has its own notice."""
    for held, inherited, at_ns in ((True, True, None), (True, False, 3 * S), (False, False, 0)):
        start = started(preparing=True, lock_inherited=inherited)
        account = tell(began(lock_held=held), start, d.Resumed(action="resume"))
        assert account.lock_lost_ns == at_ns
        assert ("lock-lost" in [each.code for each in account.notices]) == (at_ns == 3 * S)


def test_who_asked_for_it_is_known_from_the_schedule() -> None:
    """Read around the signal; its removal is no evidence."""
    asked = f.ScheduleRead(at_wall_ns=5, kind="reboot", uid=1000, tty="pts/3", wall_message="kernel")
    gone = f.ScheduleRead()
    for account in (tell(BEGAN, before=(asked,)), tell(BEGAN, asked, gone)):
        assert (account.asked_by_uid, account.asked_tty, account.wall_message) == (1000, "pts/3", "kernel")
    for before in ((asked, gone), (asked, started())):
        assert tell(BEGAN, before=before).asked_by_uid is None


def test_a_pod_is_hurried_by_any_of_its_names_until_it_has_ended() -> None:
    """As the actors understand it."""
    for name in ("u-web", "web-0", "shop/web-0"):
        account = tell(PLANNED, f.HurryRequested(pod=name, asked_by=0))
        assert account.pods[0].hurried_ns == 2 * S
    account = tell(*fate("graceful"), f.HurryRequested(pod="web-0", asked_by=0))
    assert account.pods[0].hurried_ns is None


def test_a_rejected_pod_has_its_name_and_no_wave() -> None:
    """It was never planned; a present pod keeps its state."""
    rejected = d.PodRejected(uid="u-new", label="shop/new-0", reason="NodeShutdown", message="going down")
    again = d.PodRejected(uid="u-web", label="shop/web-0", reason="NodeShutdown", message="going down")
    account = tell(PLAN, PLANNED, rejected, again)
    assert [(pod.label, pod.wave, pod.outcome) for pod in account.pods] == [
        ("shop/web-0", 0, None),
        ("shop/new-0", -1, "rejected"),
    ]


def test_the_first_record_of_a_shutdown_may_be_a_start() -> None:
    """Then that process was there at the signal, not a later one."""
    (account,) = shutdown_records(history(steps(started(preparing=True), BEGAN)))
    assert [(process.seq, process.at_ns) for process in account.processes] == [(1, None)]
    assert not account.notices
