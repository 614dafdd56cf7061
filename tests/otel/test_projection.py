"""One episode's spans: times, parents, status, links and attributes; of any story, and of each outage.

docs/attributes.md has exactly our attributes, and docs/traces.md our spans.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    host_attributes,
    k8s_attributes,
    process_attributes,
    service_attributes,
)

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, TYPES, Checkpoint, Event, Order
from ebbtide.events.codec import encode_event
from ebbtide.events.outage_events import LeaderStarted
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import outage_records
from ebbtide.events.values import ProcessReport
from ebbtide.otel import attributes as at
from ebbtide.otel.projection import Projection
from ebbtide.otel.shutdown_trace import NEXT_BOOT
from ebbtide.otel.span import POD_ROLE, REJECT_ROLE, ROOT_ROLE, WAVE_ROLE, Span, span_id_of
from ebbtide.otel.trace import EVENTS_MAX
from tests.journals import Files, Memory, pod
from tests.otel.outage_story import recovered
from tests.otel.records import (
    DOCUMENTED,
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
    project,
    signal,
    start,
    wave,
)
from tests.replay import outages
from tests.replay.shutdown import Book, first_life

WEB, LATE = pod("web-0"), pod("late-0")


def ended(uid: str = WEB.uid, outcome: str = "graceful", reason: str = "exit code 0") -> d.PodEnded:
    return d.PodEnded(uid=uid, wave=0, outcome=outcome, reason=reason)  # type: ignore[arg-type]


def only(spans: list[Span], name: str) -> Span:
    (span,) = named(spans, name)
    return span


# --- a new process, a new boot


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


# --- containers

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


# --- the projection itself


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
    teller.tell(late_end, d.StatusesSettled(missing=("u1",)), RELEASE, after_ms=5)
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
    given_ = {"k8s.cluster.name": "blue", "host.name": "another", "service.name": "shutdowns"}
    teller, projection = Teller(), Projection()
    teller.tell(signal(), began(resource=given_))
    project(teller.steps, projection=projection)
    resource = projection.resource(1)
    found = dict(resource.attributes)
    assert (resource.version, found["k8s.cluster.name"], found["service.name"]) == (2, "blue", "shutdowns")
    assert found["host.name"] == found["k8s.node.name"] != "another"


# --- any journal, in any order, gives whole traces or is skipped

# Failing actors, fallbacks and later versions create stories that no simulation does.

PODS = (pod("web-0"), pod("db-0"))
PROCESS = ProcessReport(pid=1, parent_pid=0, command="app", state="running")
KEYS = ("HookActor/hook:main/a/0", "HookActor/stop:main/a/0", "NodeStatusActor/announce//0", "x")
CONTAINERS = ("main", "side")

#: A step: its fact and its decisions.
Told = tuple[Event, ...]


def _of_pod(uid: str, container: str, key: str) -> tuple[Told, ...]:
    return (
        (TICK, d.HookStarted(uid=uid, container=container, kind="sleep", until_ns=0)),
        (TICK, d.HookStarted(uid=uid, container=container, kind="exec", until_ns=0)),
        (TICK, d.RunHook(key=key, uid=uid, container=container, timeout_ns=1)),
        (TICK, d.HookEnded(uid=uid, container=container, result="failed")),
        (TICK, d.SendSignal(key=key, uid=uid, container=container, signal="SIGTERM")),
        (TICK, d.KillContainer(key=key, uid=uid, container=container)),
        (f.AutopsyTaken(uid=uid, container=container, processes=(PROCESS,)),),
    )


STEPS: tuple[Told, ...] = (
    (signal(), began()),
    (TICK, *planned(*PODS)),
    (TICK, *wave(0, *PODS)),
    (TICK, *wave(1, PODS[0])),
    *(
        (TICK, d.WaveEnded(wave=at, outcome=how, stragglers=(PODS[0].uid,)))  # type: ignore[arg-type]
        for at in (0, 1)
        for how in ("complete", "overran")
    ),
    *(
        step
        for each in PODS
        for name in CONTAINERS
        for key in KEYS[:2]
        for step in _of_pod(each.uid, name, key)
    ),
    *((exited(each),) for each in PODS),
    *(
        (TICK, d.PodEnded(uid=each.uid, wave=0, outcome=how, reason="so"))  # type: ignore[arg-type]
        for each in PODS
        for how in ("graceful", "killed", "failed", "unknown", "spared")
    ),
    (TICK, d.PodRejected(uid="late", label="shop/late", reason="r", message="m")),
    (TICK, d.TakeInventory(key=KEYS[3])),
    (f.InventoryTaken(key=KEYS[3], as_of_ns=0, source="cri", part=1, parts=2, pods=PODS),),
    (TICK, d.AnnounceNode(key=KEYS[2], ready=True)),
    (TICK, d.DeliverStatuses(key=KEYS[3], statuses=())),
    *((f.OrderEnded(key=key, result=how),) for key in KEYS for how in ("done", "unknown", "timed-out")),  # type: ignore[arg-type]
    (TICK, d.PodsEnded(unfinished=(PODS[0].uid,))),
    (TICK, d.StatusesSettled(missing=("u1",))),
    (TICK, RELEASE),
    (f.ReleaseRequested(asked_by=1), d.PodsEnded()),
    (TICK, d.ActorFailed(actor="WaveActor", subject="0", error="KeyError")),
    (TICK, d.ActorFailed(actor="WaveActor", subject="none", error="KeyError")),
    (TICK, d.FallbackEngaged(pods=(PODS[0].uid,), reason="x")),
    (TICK, d.ShutdownCancelled(reason="cancelled")),
    (TICK, d.EpisodeClosed(outcome="cancelled")),
    (signal(), *another()),
    (start("boot-1"), d.Resumed(action="resume")),
    (start("boot-1"), d.EpisodeClosed(outcome="truncated")),
    (start("boot-2"),),
)

Story = st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(STEPS)), max_size=60)


def _told(story: list[tuple[int, Told]]) -> tuple[Teller, list[Span]]:
    teller = Teller()
    teller.tell(signal(), began())
    for after_ms, step in story:
        if step == (start("boot-2"),):
            teller.boot("boot-2")
        teller.tell(*step, after_ms=after_ms)
    return teller, teller.spans()


@settings(max_examples=100)
@given(Story)
def test_any_story_gives_whole_traces(story: list[tuple[int, Told]]) -> None:
    """No exception, no duplicate span, one root per trace, no orphan in a closed one, no zero length."""
    teller, spans = _told(story)
    counts = Counter((span.trace_id, span.span_id) for span in spans)
    assert not [key for key, count in counts.items() if count > 1]
    roots = Counter(span.trace_id for span in spans if not span.parent_id)
    assert max(roots.values(), default=1) == 1
    assert all(span.start_ns < span.end_ns for span in spans)
    for span in spans:  # status, description and `error.type` come together
        failed = span.status == "error"
        assert failed == bool(span.status_text) == ("error.type" in dict(span.attributes))
    closed = [raw.episode for _, step in teller.steps for raw in step if raw.tag == "EpisodeClosed"]
    for trace_id in {span.trace_id for span in spans if span.episode in closed}:
        known = {span.span_id for span in spans if span.trace_id == trace_id}
        assert not [
            span.name
            for span in spans
            if span.trace_id == trace_id and span.parent_id and span.parent_id not in known
        ]


@settings(max_examples=40)
@given(Story, st.integers(0, 60))
def test_what_comes_later_changes_no_span(story: list[tuple[int, Told]], told: int) -> None:
    """A story's prefix gives a prefix of its spans."""
    _, some = _told(story[:told])
    _, everything = _told(story)
    assert everything[: len(some)] == some


# --- outages, in scripts and worlds


def hold(files: Files) -> None:
    """One trace per outage, a root exactly if it is closed, and no event after its end."""
    history = History([Memory(files)])
    spans = project(history.batches(), history.journal_id)
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    for record in outage_records(History([Memory(files)])):
        mine = [span for span in spans if span.episode == record.first_seq]
        endings = [attributes(span)["ebbtide.last_boot.ending"] for span in named(mine, "last boot")]
        assert endings == ([] if record.last_boot is None else [record.last_boot.ending])
        roots = named(mine, "outage")
        assert {span.trace_id.hex() for span in mine} <= {record.trace_id}
        assert len(roots) == (record.outcome != "open")
        for root in roots:
            assert attributes(root)["ebbtide.outage.outcome"] == record.outcome
            wrong_proof = any(alarm.code == "proof-wrong" for alarm in record.alarms)
            assert (root.status == "error") == wrong_proof
            assert all(span.parent_id == root.span_id for span in mine if span is not root)
            assert all(root.start_ns <= span.start_ns for span in mine)
            assert [span for span in mine if span.name != "last boot"][-1] is root


@pytest.mark.parametrize("story", [*outages.SCRIPTS, *outages.FAILURES, *range(8)])
def test_every_script_and_every_world_has_its_traces(story: str | int) -> None:
    """Also if an actor fails."""
    if isinstance(story, int):
        hold(outages.world(story).files)
    else:
        hold(outages.failing(story) if story in outages.FAILURES else outages.script(story).files)


def test_the_last_boots_shutdown_is_linked() -> None:
    """A late record gives a span below the unchanged root."""
    teller = recovered()
    spans = teller.spans()
    (ended,), (root,) = named(spans, "last boot"), named(spans, "outage")
    assert (ended.trace_id, ended.parent_id) == (root.trace_id, root.span_id)
    (link,) = ended.links
    shutdown = bytes.fromhex("b" * 32)
    assert (link.trace_id, link.span_id) == (shutdown, span_id_of(shutdown, "shutdown", ""))
    teller.steps.pop()
    assert teller.spans() == [span for span in spans if span is not ended]


def test_the_resource_is_what_the_controllers_environment_said_when_it_began() -> None:
    """The settings record it; the journal's own fields win."""
    given_ = {"k8s.cluster.name": "blue", "k8s.node.name": "of-the-controller"}
    told = []
    for record in outages.script(outages.STORY).records:
        event = record.event
        if isinstance(event, LeaderStarted):
            event = replace(event, settings=replace(event.settings, resource=given_))
        told.append(replace(record, event=event))
    history, projection = History([Memory(outages.book(told).files)]), Projection()
    project(history.batches(), history.journal_id, projection)
    (outage,) = outage_records(History([Memory(outages.book(told).files)]))
    resource = projection.resource(outage.first_seq)
    found = dict(resource.attributes)
    assert (found["k8s.cluster.name"], found["k8s.node.name"]) == ("blue", outage.node)
    assert (resource.scope, resource.version) == ("ebbtide.outage", 1)


# --- the pages of the documentation

ROOT = Path(__file__).parents[2]
#: Roles of a shutdown's orders.
ORDER_ROLES = {
    kind.span_role
    for kind in TYPES.values()
    if issubclass(kind, Order) and kind.span_role and kind.__module__ == "ebbtide.events.decisions"
}
CONVENTIONS = (error_attributes, host_attributes, k8s_attributes, process_attributes, service_attributes)
EMITTERS = tuple((ROOT / "otel").glob("*.py"))


def test_the_page_and_the_code_have_the_same_names() -> None:
    """OpenTelemetry's names are in its conventions package."""
    constants = {name: value for name, value in vars(at).items() if name.isupper() and isinstance(value, str)}
    del constants["SCHEMA_URL"]
    assert {*constants.values(), *at.POD_COUNTS.values()} == set(DOCUMENTED)
    used = {
        node.attr
        for path in EMITTERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "at"
    }
    assert set(constants) <= used
    theirs = {value for module in CONVENTIONS for value in vars(module).values() if isinstance(value, str)}
    assert {name for name in DOCUMENTED if not name.startswith("ebbtide.")} <= theirs


def test_the_traces_page_has_every_span() -> None:
    calls = (
        node
        for path in EMITTERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "span"
    )
    literal = {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}
    literal -= {"suspicion", "return", "proof", "last boot"}
    emitted = literal | {*ORDER_ROLES, ROOT_ROLE, POD_ROLE, WAVE_ROLE, REJECT_ROLE, NEXT_BOOT}
    table = (ROOT / "docs" / "traces.md").read_text().partition("## The spans")[2].partition("## Links")[0]
    listed = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\|[^|]*\|", table, re.MULTILINE)))
    assert sorted(listed) == sorted(emitted)


def test_the_picture_of_the_documentation_is_current() -> None:
    """docs/trace.svg is the demo's trace."""
    assert (
        subprocess.run([sys.executable, "docs/tools/picture_trace.py", "--check"], cwd=ROOT).returncode == 0
    )
