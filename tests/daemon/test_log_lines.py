"""The log's lines: one event a line whatever other people's programs call themselves, in words."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from ebbtide.demo.view import PodRow, _pods_table
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.model import Container, Pod, ProcessReport
from ebbtide.log import LineContext, failure_line, log_lines
from ebbtide.text import visible
from tests.journals import steps

NASTY = "bad\x1b]0;owned\x07\nshutdown closed: complete\r\x9b31m\u2028\u202e"
SHOWN = "bad\\x1b]0;owned\\x07\\nshutdown closed: complete\\r\\x9b31m\\u2028\\u202e"


def said(*events: Event) -> list[str]:
    """The lines of these events, in one life."""
    return [line for _, line in log_lines(LineContext(), steps(*events, every_ns=1))]


def report(command: str = "sleep", connections: int = 0) -> ProcessReport:
    return ProcessReport(
        pid=7, parent_pid=1, command=command, state="sleeping", wait_channel="", connections=connections
    )


def autopsy(command: str = "sleep", connections: int = 0) -> f.AutopsyTaken:
    return f.AutopsyTaken(uid="u", container="main", processes=(report(command, connections),))


def began(*, lock_held: bool) -> d.ShutdownBegan:
    return d.ShutdownBegan(
        kind="poweroff",
        grant_ns=NS_PER_SECOND,
        requested_ns=NS_PER_SECOND,
        budget_ns=NS_PER_SECOND,
        deadline_ns=NS_PER_SECOND,
        release_by_ns=NS_PER_SECOND,
        lock_held=lock_held,
    )


POD = Pod(uid="u", namespace="shop", name="web-0", containers=(Container(name="main"),))


@pytest.mark.parametrize(
    "event",
    [
        autopsy(NASTY),
        f.ManifestRejected(path=NASTY, error=NASTY),
        f.EffectPanicked(key=NASTY, error=NASTY),
        f.StorageFailed(location=NASTY, error=NASTY),
        d.ActorFailed(actor="HookActor", subject=NASTY, error=NASTY),
        d.PodEnded(uid=NASTY, wave=0, outcome="killed", reason=NASTY),
        d.PodRejected(uid="u", label=NASTY, reason=NASTY, message=NASTY),
        f.ScheduleRead(at_wall_ns=1, tty=NASTY, wall_message=NASTY),
    ],
    ids=lambda event: type(event).__name__,
)
def test_one_event_is_one_line_whatever_it_holds(event: Event) -> None:
    """Escape sequences, line breaks of every kind and reversals of direction are shown, never sent."""
    (line,) = said(event)
    assert line.isprintable()
    assert SHOWN in line


def test_printable_text_stays_as_it_is() -> None:
    """Other scripts and signs are no danger."""
    assert visible("naïve \u4e16\u754c ✔ {pod} [red]") == "naïve \u4e16\u754c ✔ {pod} [red]"


def test_the_demos_last_page_shows_it_too() -> None:
    """A reason with an escape sequence stays one row."""
    out = io.StringIO()
    row = PodRow(pod=NASTY, wave=0, grace_seconds=1, outcome="killed", took_ns=0, why=NASTY)
    Console(file=out, width=4096).print(_pods_table([row]))
    assert out.getvalue().count("\n") == 2
    assert out.getvalue().count(SHOWN) == 2


@pytest.mark.parametrize(
    "count, words", [(0, "sleeping"), (1, "sleeping, 1 open connection"), (2, "sleeping, 2 open connections")]
)
def test_connections_are_counted_as_people_do(count: int, words: str) -> None:
    """One is one connection, and none is not worth a word."""
    (line,) = said(autopsy(connections=count))
    assert line.endswith(words)


@pytest.mark.parametrize(
    "key, words",
    [
        (
            "ConfigReconciler/drop-in//0",
            "the disk did not answer within 20 ms: changing the drop-in for logind started",
        ),
        (
            "HookActor/stop:main/u/0",
            "the disk did not answer within 20 ms: the stop signal for shop/web-0/main started",
        ),
        ("Other/new{thing}/x/0", "the disk did not answer within 20 ms: Other/new{thing}/x/0 started"),
    ],
)
def test_an_order_is_told_in_words(key: str, words: str) -> None:
    """What was ordered, and of which pod, instead of the order's key; a key without words stays one."""
    late = f.DurabilityLate(key=key, barrier="synced", waited_ns=20_000_000)
    (line,) = said(f.PodAppeared(pod=POD), late)
    assert line.startswith(words)


def test_an_actors_failure_is_one_line_with_its_places() -> None:
    """The record says that it failed, this where: whoever mends it needs the function and the line."""

    def handle() -> None:
        raise KeyError(NASTY)

    try:
        handle()
    except KeyError as error:
        line = failure_line("HookActor:u", error)
    assert line.isprintable()
    assert line.startswith("HookActor:u failed at test_log_lines.py:")
    assert line.endswith(f" in handle: KeyError: {visible(repr(NASTY))}")


def test_a_pod_that_cannot_start_is_told() -> None:
    """The pod by its name, and why; what else failed or went well has its own line elsewhere."""
    failed = f.OrderEnded(key="NodeStatusActor/start/u/0", result="failed", reason="no such program")
    done = f.OrderEnded(key="NodeStatusActor/start/u/1", result="done")
    stop = f.OrderEnded(key="HookActor/stop:main/u/0", result="failed", reason="gone")
    lines = said(f.PodAppeared(pod=POD), failed, done, stop)
    assert lines == ["starting pod shop/web-0 failed: no such program"]


def release(events: Sequence[Event]) -> str:
    return said(*events, d.ReleaseLock(key="k"))[-1].partition(" s ")[2]


def test_a_lock_that_was_never_held_is_not_called_released() -> None:
    """Without a lock there is nothing to release; a shutdown that an earlier process began had one."""
    assert release([began(lock_held=True)]) == "lock released"
    assert release([]) == "lock released"
    assert release([began(lock_held=False)]) == "no lock was held, nothing to release"


def test_pods_that_outlive_the_budget_have_not_ended() -> None:
    """Either all have ended, or some were given up on."""
    assert said(d.PodsEnded())[-1].endswith(" s all pods ended")
    assert said(d.PodsEnded(unfinished=("u",)))[-1].endswith(" s not ended in time: u")
