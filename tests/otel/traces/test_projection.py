"""What becomes of the records of one shutdown: each span's times, parent, status, links and attributes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Event
from ebbtide.events.codec import encode_event
from ebbtide.events.model import ProcessReport
from ebbtide.otel import attributes as at
from ebbtide.otel.span import Span, hook_span_id
from ebbtide.otel.traces.projection import RESOURCES_MAX, Projection, UnknownProjection
from tests.journals import pod
from tests.otel.records import (
    JOURNAL_ID,
    MS,
    RELEASE,
    TICK,
    Teller,
    another,
    attributes,
    began,
    exited,
    going_down,
    named,
    planned,
    signal,
    start,
    wave,
)
from tests.replay.shutdown import Book, first_life

WEB = pod("web-0")


def ended(uid: str = WEB.uid, outcome: str = "graceful", reason: str = "exit code 0") -> d.PodEnded:
    return d.PodEnded(uid=uid, wave=0, outcome=outcome, reason=reason)  # type: ignore[arg-type]


def only(spans: list[Span], name: str) -> Span:
    (span,) = named(spans, name)
    return span


def done(key: str, result: str = "done", **more: object) -> f.OrderEnded:
    return f.OrderEnded(key=key, result=result, **more)  # type: ignore[arg-type]


# --- the shutdown ------------------------------------------------------------------------------


def test_pods_left_when_the_budget_is_over_are_an_error_of_the_shutdown() -> None:
    """The deadline was missed: the root says by how many, and each pod for itself."""
    teller = going_down(WEB)
    left = ended(outcome="unknown", reason="main still running when the lock was released")
    teller.tell(TICK, d.PodsEnded(unfinished=(WEB.uid,)), left, RELEASE, after_ms=30_000)
    spans = teller.spans()
    assert only(spans, "shutdown").status_text == "the budget was over with 1 pod left"
    assert only(spans, "pod").status == "error"


def test_a_release_before_the_pods_have_ended_is_an_error_of_the_shutdown() -> None:
    """The fallback lets the machine go in the actor's place: who is still there is counted then."""
    teller = going_down(WEB)
    left = ended(outcome="unknown", reason="main still running when the lock was released")
    teller.tell(TICK, RELEASE, d.PodsEnded(unfinished=(WEB.uid,)), left, after_ms=39_000)
    root = only(teller.spans(), "shutdown")
    assert root.status_text == "the budget was over with 1 pod left"
    assert attributes(root)[at.UNFINISHED_PODS] == 1


def test_a_pod_whose_wave_never_came_has_missed_its_deadline() -> None:
    """The budget was over before its stop signal; one that was found after that had none to miss."""
    teller = going_down()
    planned_one, found_late = pod("db-0"), pod("late-0")
    teller.tell(TICK, d.PodPlanned(wave=1, grace_seconds=10, pod=planned_one))
    fates = (ended(each.uid, "unknown", "never told") for each in (planned_one, found_late))
    teller.tell(TICK, d.PodsEnded(unfinished=(planned_one.uid,)), *fates, RELEASE)
    missed, passed_over = named(teller.spans(), "pod")
    assert (missed.status, missed.status_text, passed_over.status) == ("error", "never told", "unset")


def test_who_lets_go_misses_no_deadline() -> None:
    """`ebbtide release` ends the waiting: that is an event of the shutdown, and no error."""
    teller = going_down(WEB)
    overran = d.WaveEnded(wave=0, outcome="overran", stragglers=(WEB.uid,))
    left = ended(outcome="unknown", reason="main still running when the lock was released")
    asked = f.ReleaseRequested(asked_by=1000)
    teller.tell(asked, d.PodsEnded(unfinished=(WEB.uid,)), overran, left, RELEASE, after_ms=500)
    spans = teller.spans()
    assert {span.status for span in spans} == {"unset"}
    assert [event.name for event in only(spans, "shutdown").events] == ["release.asked"]


# --- cancels -----------------------------------------------------------------------------------


def test_what_goes_on_twice_says_so_once() -> None:
    """A stop may outlive two cancelled shutdowns."""
    teller = going_down(WEB)
    teller.tell(TICK, STOP)
    for _ in range(2):
        teller.tell(signal(), *another(), after_ms=100)
        teller.tell(TICK, *planned(WEB), *wave(0, WEB), after_ms=1)
    teller.tell(exited(WEB), ended(), RELEASE, after_ms=100)
    assert [attributes(span).get(at.CONTINUED) for span in named(teller.spans(), "stop")] == [
        None,
        True,
        True,
    ]


# --- a new process, a new boot -----------------------------------------------------------------


@pytest.mark.parametrize("in_a_wave", [True, False])
def test_only_another_boot_cuts_a_shutdown_short(in_a_wave: bool) -> None:
    """What was open ends where the record of its boot ends, marked; the root says at which wave."""
    teller = going_down(WEB) if in_a_wave else Teller()
    if not in_a_wave:
        teller.tell(signal(), began())
    teller.tell(TICK, after_ms=500)
    assert not named(teller.spans(), "shutdown")
    last_ns = teller.wall_ns
    teller.boot("boot-2", wall_ns=teller.wall_ns + 60 * NS_PER_SECOND)
    teller.mono_ns = NS_PER_SECOND
    teller.tell(Checkpoint(episode=teller.episode))
    lost = (ended(outcome="unknown", reason="the machine went down"),) if in_a_wave else ()
    outcome = "truncated" if in_a_wave else "never-begun"
    closed = d.EpisodeClosed(outcome=outcome, last_wave=0 if in_a_wave else -1)  # type: ignore[arg-type]
    teller.tell(start("boot-2"), *lost, closed, d.Resumed(action="close-truncated"), after_ms=2)
    spans = teller.spans()
    root, boot = only(spans, "shutdown"), only(spans, "next boot")
    where = "at wave 0" if in_a_wave else "before its first wave"
    assert (root.status, root.status_text) == ("error", f"cut short {where}")
    assert (root.end_ns, attributes(root)[at.CUT]) == (last_ns, True)
    for span in (*named(spans, "pod"), *named(spans, "wave")):
        assert (span.end_ns, span.status, attributes(span)[at.CUT]) == (last_ns, "unset", True)
    assert (boot.start_ns, boot.end_ns) == (last_ns, teller.wall_ns)
    assert boot.trace_id != root.trace_id
    assert [(link.trace_id, link.span_id) for link in boot.links] == [(root.trace_id, root.span_id)]


def test_another_userspace_of_the_same_boot_cuts_short_too() -> None:
    """A soft reboot keeps the boot id: the start's own closing decides."""
    teller = going_down(WEB)
    teller.tell(TICK, after_ms=100)
    last_ns = teller.wall_ns
    closed = d.EpisodeClosed(outcome="truncated", last_wave=0)
    teller.tell(start("boot-1"), ended(outcome="unknown"), closed, d.Resumed(action="close"), after_ms=9000)
    spans = teller.spans()
    assert only(spans, "shutdown").end_ns == only(spans, "pod").end_ns == last_ns
    assert not named(spans, "resume")


# --- waves and pods ----------------------------------------------------------------------------


@pytest.mark.parametrize("period_seconds, status", [(10, "error"), (0, "unset")])
def test_a_wave_that_overruns_has_missed_its_deadline(period_seconds: int, status: str) -> None:
    """Except a wave of 0 s, which is signalled and not waited for."""
    pods = tuple(pod(f"web-{at}") for at in range(5))
    teller = going_down(WEB)
    teller.tell(TICK, *planned(*pods), *wave(1, *pods, period_seconds=period_seconds))
    late = tuple(each.uid for each in pods)
    teller.tell(TICK, d.WaveEnded(wave=1, outcome="overran", stragglers=late), after_ms=10_000)
    span = only(teller.spans(), "wave")
    assert span.status == status
    text = "deadline missed by 5 pods: shop/web-0, shop/web-1, shop/web-2 and 2 more"
    assert span.status_text == (text if status == "error" else "")
    assert attributes(span)[at.STRAGGLERS] == tuple(each.label for each in pods)


# --- containers --------------------------------------------------------------------------------

HOOK = d.RunHook(key="HookActor/hook:main/uid-web-0/0", uid=WEB.uid, container="main", timeout_ns=1)
STOP = d.SendSignal(key="HookActor/stop:main/uid-web-0/0", uid=WEB.uid, container="main", signal="SIGTERM")
KILL = d.KillContainer(key="HookActor/kill:main/uid-web-0/0", uid=WEB.uid, container="main")


def hook_started(kind: str) -> d.HookStarted:
    return d.HookStarted(uid=WEB.uid, container="main", kind=kind, until_ns=10 * NS_PER_SECOND)


def hook_ended(result: str, reason: str = "", *, early: bool = False) -> d.HookEnded:
    return d.HookEnded(uid=WEB.uid, container="main", result=result, reason=reason, early=early)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "result, status",
    [
        ("done", "unset"),
        ("failed", "error"),
        ("timed-out", "error"),
        ("cancelled", "unset"),
        ("unknown", "unset"),
    ],
)
def test_a_hook_has_the_id_that_its_order_gives(result: str, status: str) -> None:
    """Who runs the hook can name the span beforehand; a failure or a missed deadline is an error."""
    teller = going_down(WEB)
    teller.tell(TICK, hook_started("exec"), HOOK)
    teller.tell(done(HOOK.key, exit_code=3), hook_ended(result, "why"), after_ms=700)
    span = only(teller.spans(), "hook")
    assert span.span_id == hook_span_id(span.trace_id, HOOK.key)
    assert (span.status, span.end_ns - span.start_ns) == (status, 700 * MS)
    assert span.status_text == (f"preStop {result}: why" if status == "error" else "")
    assert attributes(span)["process.exit.code"] == 3
    teller.tell(TICK, ended())
    assert span.parent_id == only(teller.spans(), "pod").span_id


@pytest.mark.parametrize(
    "how, status",
    [
        ({"exit_code": None, "signal": "SIGKILL"}, "error"),
        ({"exit_code": 137}, "error"),
        ({"exit_code": None}, "error"),
        ({"exit_code": None, "gone": True}, "unset"),
        ({"exit_code": 0}, "unset"),
        ({"exit_code": None, "signal": "SIGTERM"}, "unset"),
    ],
)
def test_sigkill_is_an_error_where_it_was_what_ended_it(how: dict[str, object], status: str) -> None:
    """The autopsy stands in the stop, its finding in the kill below; one that just made it is no error."""
    teller = going_down(WEB)
    teller.tell(TICK, STOP)
    first = ProcessReport(
        pid=70,
        parent_pid=1,
        command="app",
        state="sleeping",
        wait_channel="pipe",
        signals_ignored=("SIGTERM",),
    )
    seen = f.AutopsyTaken(uid=WEB.uid, container="main", processes=(first, first), last_lines=("secret",))
    teller.tell(seen, after_ms=9750)
    teller.tell(TICK, KILL, after_ms=250)
    teller.tell(exited(WEB, **how), ended(), after_ms=5)
    spans = teller.spans()
    stop, kill = only(spans, "stop"), only(spans, "kill")
    assert kill.parent_id == stop.span_id
    assert (stop.status, kill.status) == (status, status)
    assert stop.status_text == ("ended by SIGKILL, 10.005 s after SIGTERM" if status == "error" else "")
    assert [event.name for event in stop.events] == ["autopsy", "autopsy"]
    assert attributes(kill)[at.IGNORED] == ("SIGTERM",)
    assert "secret" not in repr(spans)


@pytest.mark.parametrize("result, status", [("done", "error"), ("failed", "unset")])
def test_what_is_only_found_gone_was_killed_where_sigkill_had_met_it(result: str, status: str) -> None:
    """As the pod's fate has it."""
    teller = going_down(WEB)
    teller.tell(TICK, KILL)
    teller.tell(done(KILL.key, result))
    teller.tell(exited(WEB, exit_code=None, gone=True), ended(), after_ms=5)
    assert only(teller.spans(), "kill").status == status


def test_sigkill_from_elsewhere_is_an_error_of_the_stop() -> None:
    """The kernel, or somebody else, was first."""
    teller = going_down(WEB)
    teller.tell(TICK, STOP)
    teller.tell(exited(WEB, exit_code=None, signal="SIGKILL"), after_ms=5)
    assert only(teller.spans(), "stop").status == "error"


def test_what_survives_sigkill_is_an_error_until_its_last_word() -> None:
    """Nobody saw the container end: its stop and kill end with their pod, and say so."""
    teller = going_down(WEB)
    teller.tell(TICK, STOP)
    teller.tell(TICK, KILL)
    teller.tell(TICK, ended(outcome="failed", reason="main: still there after SIGKILL"), after_ms=100)
    for name in ("stop", "kill", "pod"):
        span = only(teller.spans(), name)
        assert (span.status, span.status_text) == ("error", "main: still there after SIGKILL")


# --- orders for the node -----------------------------------------------------------------------


# --- the projection itself ---------------------------------------------------------------------


def test_only_so_many_resources_are_remembered() -> None:
    """A long journal takes no more memory than a short one."""
    teller = Teller()
    for _ in range(RESOURCES_MAX + 1):
        teller.tell(signal(), began())
        teller.tell(TICK, d.EpisodeClosed(outcome="cancelled"))
    projection = Projection()
    for step in teller.steps:
        projection.feed(*step, JOURNAL_ID)
    with pytest.raises(KeyError):
        projection.resource(1)
    assert projection.resource(teller.seq - 3).version == 1


def test_a_shutdown_records_the_projection_in_force() -> None:
    """It comes with the configuration, and so does the resource; what an old one says takes no byte."""

    def life() -> Iterator[tuple[int, Event]]:
        for after_ms, fact in first_life():
            if isinstance(fact, f.SettingsLoaded):
                settings = replace(fact.settings, projection_version=7, resource={"k8s.cluster.name": "blue"})
                fact = replace(fact, settings=settings)
            yield after_ms, fact

    book, old = Book(), Book()
    book.process("boot-1", life())
    old.process("boot-1", first_life())
    (event,) = (each.event for each in book.records if isinstance(each.event, d.ShutdownBegan))
    assert (event.projection_version, event.resource) == (7, {"k8s.cluster.name": "blue"})
    (before,) = (each.event for each in old.records if isinstance(each.event, d.ShutdownBegan))
    assert replace(event, projection_version=1, resource={}) == before
    assert b"projection_version" not in encode_event(began(projection_version=1))


def test_an_unknown_projection_version_is_refused() -> None:
    """A shutdown that a newer version recorded gives no spans, and says with what it can be exported."""
    teller = Teller()
    teller.tell(signal(), began(projection_version=99))
    teller.tell(TICK, RELEASE)
    projection = Projection()
    assert [span for step in teller.steps for span in projection.feed(*step, JOURNAL_ID)] == []
    with pytest.raises(UnknownProjection, match="asks for projection version 99; this ebbtide has 1, 2:"):
        projection.resource(1)
