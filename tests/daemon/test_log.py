"""Log destinations: the system journal's protocol, the console, or standard error."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event
from ebbtide.events.values import Container, Pod, ProcessReport
from ebbtide.log import LineContext, SystemJournal, log_lines_of
from tests.journals import began, steps


def fields_in(datagram: bytes) -> dict[str, str]:
    """systemd's format: ``NAME=value`` lines, or a name, a length and a value."""
    found: dict[str, str] = {}
    while datagram:
        name, _, rest = datagram.partition(b"\n")
        if b"=" in name:
            key, _, value = name.partition(b"=")
            datagram = rest
        else:
            (length,) = struct.unpack_from("<Q", rest)
            key, value, datagram = name, rest[8 : 8 + length], rest[9 + length :]
        found[key.decode()] = value.decode()
    return found


@pytest.fixture
def listener(tmp_path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(tmp_path / "journal"))
    made.setblocking(False)
    return made


def test_fields_reach_the_system_journal(listener: socket.socket, tmp_path: Path) -> None:
    journal = SystemJournal(str(tmp_path / "journal"))
    assert journal.send(4, "two\nlines", {"POD": "shop/web-0"})
    assert fields_in(listener.recv(65536)) == {
        "MESSAGE": "two\nlines",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "ebbtide",
        "EBBTIDE_POD": "shop/web-0",
    }
    journal.close()
    listener.close()


def test_a_journal_that_does_not_read_costs_nothing(listener: socket.socket, tmp_path: Path) -> None:
    """If its queue is full or its socket is gone, the line is dropped without waiting."""
    journal = SystemJournal(str(tmp_path / "journal"))
    taken = [journal.send(6, "line", {}) for _ in range(5000)]
    assert taken[0]
    assert not taken[-1]
    listener.close()
    assert not journal.send(6, "line", {})
    journal.close()


# --- the lines ---------------------------------------------------------------------------------

NASTY = "bad\x1b]0;owned\x07\nshutdown closed: complete\r\x9b31m\u2028\u202e"
SHOWN = "bad\\x1b]0;owned\\x07\\nshutdown closed: complete\\r\\x9b31m\\u2028\\u202e"


def said(*events: Event) -> list[str]:
    lines, records = LineContext(), steps(*events, every_ns=1)
    return [line for record in records for _, line in log_lines_of(lines, record)]


def report(command: str = "sleep", connections: int = 0) -> ProcessReport:
    return ProcessReport(
        pid=7, parent_pid=1, command=command, state="sleeping", wait_channel="", connections=connections
    )


def autopsy(command: str = "sleep", connections: int = 0) -> f.AutopsyTaken:
    return f.AutopsyTaken(uid="u", container="main", processes=(report(command, connections),))


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
    """Escapes, line breaks and direction marks are shown as text."""
    (line,) = said(event)
    assert line.isprintable()
    assert SHOWN in line


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
    """The order's text and pod replace its key; an unknown key stays."""
    late = f.DurabilityLate(key=key, barrier="synced", waited_ns=20_000_000)
    (line,) = said(f.PodAppeared(pod=POD), late)
    assert line.startswith(words)


def release(events: Sequence[Event]) -> str:
    return said(*events, d.ReleaseLock(key="k"))[-1].partition(" s ")[2]


def test_a_lock_that_was_never_held_is_not_called_released() -> None:
    """Without a lock there is no release; a shutdown of an earlier process had one."""
    assert release([began(lock_held=True)]) == "lock released"
    assert release([]) == "lock released"
    assert release([began(lock_held=False)]) == "no lock was held"


def test_pods_that_outlive_the_budget_have_not_ended() -> None:
    """Either all have ended, or some were given up."""
    assert said(d.PodsEnded())[-1].endswith(" s all pods ended")
    assert said(d.PodsEnded(unfinished=("u",)))[-1].endswith(" s not ended in time: u")
