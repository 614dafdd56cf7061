"""Log destinations: the system journal's protocol, the console, or standard error."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event
from ebbtide.events.values import ProcessReport
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


# --- the lines

NASTY = "bad\x1b]0;owned\x07\nshutdown closed: complete\r\x9b31m\u2028\u202e"
SHOWN = "bad\\x1b]0;owned\\x07\\nshutdown closed: complete\\r\\x9b31m\\u2028\\u202e"


def said(*events: Event) -> list[str]:
    lines, records = LineContext(), steps(*events, every_ns=1)
    return [line for record in records for _, line in log_lines_of(lines, record)]


NOSY = ProcessReport(pid=7, parent_pid=1, command=NASTY, state="sleeping", wait_channel="", connections=0)


@pytest.mark.parametrize(
    "event",
    [
        f.AutopsyTaken(uid="u", container="main", processes=(NOSY,)),
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
    ("events", "text"),
    [
        ([began(lock_held=True)], "lock released"),
        # An earlier process had one.
        ([], "lock released"),
        ([began(lock_held=False)], "no lock was held"),
    ],
)
def test_a_lock_that_was_never_held_is_not_called_released(events: list[Event], text: str) -> None:
    assert said(*events, d.ReleaseLock(key="k"))[-1].endswith(f" s {text}")
