"""Any journal in any order gives whole traces or is skipped.

Failing actors, fallbacks and later versions create stories that no simulation does.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.events import decisions as d
from ebbtide.events.base import Event
from ebbtide.events.facts import AutopsyTaken, InventoryTaken, OrderEnded, ReleaseRequested
from ebbtide.events.values import ProcessReport
from ebbtide.otel.span import Span
from tests.journals import pod
from tests.otel.records import RELEASE, TICK, Teller, another, began, exited, planned, signal, start, wave

PODS = (pod("web-0"), pod("db-0"))
PROCESS = ProcessReport(pid=1, parent_pid=0, command="app", state="running")
KEYS = ("HookActor/hook:main/a/0", "HookActor/stop:main/a/0", "NodeStatusActor/announce//0", "x")
CONTAINERS = ("main", "side")

#: A step: its fact and its decisions.
Step = tuple[Event, ...]


def _of_pod(uid: str, container: str, key: str) -> tuple[Step, ...]:
    return (
        (TICK, d.HookStarted(uid=uid, container=container, kind="sleep", until_ns=0)),
        (TICK, d.HookStarted(uid=uid, container=container, kind="exec", until_ns=0)),
        (TICK, d.RunHook(key=key, uid=uid, container=container, timeout_ns=1)),
        (TICK, d.HookEnded(uid=uid, container=container, result="failed")),
        (TICK, d.SendSignal(key=key, uid=uid, container=container, signal="SIGTERM")),
        (TICK, d.KillContainer(key=key, uid=uid, container=container)),
        (AutopsyTaken(uid=uid, container=container, processes=(PROCESS,)),),
    )


STEPS: tuple[Step, ...] = (
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
    (InventoryTaken(key=KEYS[3], as_of_ns=0, source="cri", part=1, parts=2, pods=PODS),),
    (TICK, d.AnnounceNode(key=KEYS[2], ready=True)),
    (TICK, d.DeliverStatuses(key=KEYS[3], statuses=())),
    *((OrderEnded(key=key, result=how),) for key in KEYS for how in ("done", "unknown", "timed-out")),  # type: ignore[arg-type]
    (TICK, d.PodsEnded(unfinished=(PODS[0].uid,))),
    (TICK, d.StatusesSettled(undelivered=1)),
    (TICK, RELEASE),
    (ReleaseRequested(asked_by=1), d.PodsEnded()),
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


def _told(story: list[tuple[int, Step]]) -> tuple[Teller, list[Span]]:
    teller = Teller()
    teller.tell(signal(), began())
    for after_ms, step in story:
        if step == (start("boot-2"),):
            teller.boot("boot-2")
        teller.tell(*step, after_ms=after_ms)
    return teller, teller.spans()


@settings(max_examples=100)
@given(Story)
def test_any_story_gives_whole_traces(story: list[tuple[int, Step]]) -> None:
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
def test_what_comes_later_changes_no_span(story: list[tuple[int, Step]], told: int) -> None:
    """A story's prefix gives a prefix of its spans."""
    _, some = _told(story[:told])
    _, everything = _told(story)
    assert everything[: len(some)] == some
