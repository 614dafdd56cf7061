"""One shutdown's spans: times, parents, status, links and attributes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Event
from ebbtide.events.codec import encode_event
from ebbtide.events.values import ProcessReport
from ebbtide.otel import attributes as at
from ebbtide.otel.span import Span
from ebbtide.otel.traces.projection import Projection
from ebbtide.otel.traces.trace import EVENTS_MAX
from tests.journals import pod
from tests.otel.records import (
    JOURNAL_ID,
    RELEASE,
    TICK,
    Teller,
    attributes,
    began,
    exited,
    going_down,
    named,
    signal,
    start,
    wave,
)
from tests.replay.shutdown import Book, first_life

WEB, LATE = pod("web-0"), pod("late-0")


def ended(uid: str = WEB.uid, outcome: str = "graceful", reason: str = "exit code 0") -> d.PodEnded:
    return d.PodEnded(uid=uid, wave=0, outcome=outcome, reason=reason)  # type: ignore[arg-type]


def only(spans: list[Span], name: str) -> Span:
    (span,) = named(spans, name)
    return span


# --- a new process, a new boot -----------------------------------------------------------------


@pytest.mark.parametrize("in_a_wave", [True, False])
def test_only_another_boot_cuts_a_shutdown_short(in_a_wave: bool) -> None:
    """Open spans end with their boot's record, marked; the root names the wave."""
    teller = going_down(WEB) if in_a_wave else Teller()
    if not in_a_wave:
        teller.tell(signal(), began())
    teller.tell(TICK, after_ms=500)
    assert not named(teller.spans(), "shutdown")
    last_ns = teller.wall_ns
    teller.boot("boot-2", wall_ns=teller.wall_ns + 60 * NS_PER_SECOND)
    teller.mono_ns = NS_PER_SECOND
    teller.tell(Checkpoint(episode=teller.episode))
    lost = ended(outcome="unknown", reason="the machine went down")
    outcome = "truncated" if in_a_wave else "never-begun"
    closed = d.EpisodeClosed(outcome=outcome, last_wave=0 if in_a_wave else -1)  # type: ignore[arg-type]
    teller.tell(start("boot-2"), lost, closed, d.Resumed(action="close-truncated"), after_ms=2)
    spans = teller.spans()
    root, boot = only(spans, "shutdown"), only(spans, "next boot")
    where = "at wave 0" if in_a_wave else "before its first wave"
    assert (root.status, root.status_text) == ("error", f"cut short {where}")
    assert (root.end_ns, attributes(root)[at.CUT]) == (last_ns, True)
    # A pod without a begun stop has no span.
    assert len(named(spans, "pod")) == in_a_wave
    for span in (*named(spans, "pod"), *named(spans, "wave")):
        assert (span.end_ns, span.status, attributes(span)[at.CUT]) == (last_ns, "unset", True)
    assert (boot.start_ns, boot.end_ns) == (last_ns, teller.wall_ns)
    assert boot.trace_id != root.trace_id
    assert [(link.trace_id, link.span_id) for link in boot.links] == [(root.trace_id, root.span_id)]


# --- containers --------------------------------------------------------------------------------

STOP = d.SendSignal(key="HookActor/stop:main/uid-web-0/0", uid=WEB.uid, container="main", signal="SIGTERM")
KILL = d.KillContainer(key="HookActor/kill:main/uid-web-0/0", uid=WEB.uid, container="main")


@pytest.mark.parametrize(
    "how, status",
    [
        ({"exit_code": None, "signal": "SIGKILL"}, "error"),
        ({"exit_code": 137}, "error"),
        ({"exit_code": None}, "error"),
        ({"exit_code": 0}, "unset"),
        ({"exit_code": None, "signal": "SIGTERM"}, "unset"),
    ],
)
def test_sigkill_is_an_error_where_it_was_what_ended_it(how: dict[str, object], status: str) -> None:
    """The stop has the autopsy, the kill its finding. A near miss is no error."""
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


# --- the projection itself ---------------------------------------------------------------------


def test_a_shutdown_records_the_projection_in_force() -> None:
    """The configuration brings version and resource; an old journal's cost no byte."""

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


def test_a_delete_that_is_given_again_is_another_span() -> None:
    """The second delete has less grace, links to the first, and has its own outcome."""
    teller = Teller()
    teller.tell(
        signal(), began(), d.PodPlanned(wave=0, grace_seconds=10, pod=WEB, means="api"), *wave(0, WEB)
    )
    for number, grace in enumerate((10, 1)):
        order = d.DeletePod(
            key=f"HookActor/delete/{WEB.uid}/{number}",
            uid=WEB.uid,
            namespace=WEB.namespace,
            name=WEB.name,
            grace_seconds=grace,
        )
        teller.tell(TICK, order, after_ms=1)
        teller.tell(f.OrderEnded(key=order.key, result="done"), after_ms=5)
    teller.tell(exited(WEB), ended())
    first, second = named(teller.spans(), "delete")
    assert [attributes(each)[at.GRACE] for each in (first, second)] == [10_000, 1000]
    assert [attributes(each)[at.RESULT] for each in (first, second)] == ["done", "done"]
    assert second.links[0].span_id == first.span_id


def test_what_no_golden_journal_has() -> None:
    """An actor failure, a late pod, late volumes and statuses, a moving clock."""
    teller = going_down(WEB)
    late = d.PodPlanned(wave=0, grace_seconds=5, pod=LATE, late=True, means="api")
    stop = d.PodStopBegan(uid=LATE.uid, wave=0, grace_ns=1, kill_by_ns=0)
    unmount = d.AwaitUnmounts(key="WaveActor/unmount/0/7", uids=(WEB.uid,), timeout_ns=1)
    teller.tell(TICK, late, stop, unmount, d.FallbackEngaged(pods=(LATE.uid,), reason="WaveActor failed"))
    for _ in range(EVENTS_MAX):
        teller.tell(f.ClockStepped(delta_ns=1))
    teller.tell(exited(LATE), ended(LATE.uid), d.WaveEnded(wave=0, outcome="overran", mounted=(WEB.uid,)))
    statuses = d.AwaitStatuses(key="NodeStatusActor/await//2", uids=(WEB.uid,), timeout_ns=1)
    teller.tell(TICK, d.PodsEnded(unfinished=(WEB.uid,)), statuses)
    teller.tell(f.StatusesSeen(key=statuses.key, missing=(WEB.uid,)))
    late_end = f.OrderEnded(key=statuses.key, result="timed-out")
    teller.tell(late_end, d.StatusesSettled(undelivered=1), RELEASE, after_ms=5)
    teller.tell(TICK, d.EpisodeClosed(outcome="complete"))
    spans = teller.spans()
    pods, wave_, root = named(spans, "pod"), only(spans, "wave"), only(spans, "shutdown")
    assert [attributes(each).get(at.LATE, False) for each in pods] == [True, False]
    assert [event.name for event in pods[0].events] == ["pod.late", "container.exited"]
    assert wave_.status_text == "deadline missed by the volumes of 1 pod"
    assert attributes(wave_)[at.WAVE_MOUNTED] == (WEB.label,)
    assert attributes(only(spans, "await statuses"))[at.MISSING] == 1
    assert only(spans, "flush").status_text == "1 status not delivered in time"
    assert only(spans, "unmounts").parent_id == wave_.span_id
    assert only(spans, "fallback").end_ns == root.end_ns
    assert root.status_text == "the budget was over with 1 pod left"
    assert attributes(root)[at.DROPPED] > 1


def test_a_shutdown_without_an_end_ends_when_the_next_begins() -> None:
    """Without an end it is cut at its last record."""
    teller = going_down(WEB)
    last_ns, teller.episode = teller.wall_ns, 0
    teller.tell(signal(), began(), after_ms=60_000)
    root = only(teller.spans(), "shutdown")
    assert (root.end_ns, attributes(root)[at.OUTCOME], attributes(root)[at.CUT]) == (
        last_ns,
        "truncated",
        True,
    )


def test_the_resource_is_the_journals() -> None:
    """The cluster's name follows the journal's fields; only the service name replaces them."""
    given = {"k8s.cluster.name": "blue", "host.name": "another", "service.name": "shutdowns"}
    teller, projection = going_down(WEB).of_cluster(given), Projection()
    for step in teller.steps:
        projection.feed(*step, JOURNAL_ID)
    resource = projection.resource(1)
    found = dict(resource.attributes)
    assert (resource.version, found["k8s.cluster.name"], found["service.name"]) == (2, "blue", "shutdowns")
    assert found["host.name"] == found["k8s.node.name"] != "another"
