"""Where the log's lines go: the system journal's own protocol, the console, or standard error."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import pytest

from ebbtide import log as console
from ebbtide.events.base import Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodEnded, ShutdownBegan
from ebbtide.events.messages import Names
from ebbtide.events.reader import History
from ebbtide.log import LogOutput, SystemJournal, is_connected_to_journald, journald_fields
from ebbtide.otel.span import span_id_of
from tests.journals import SHUTDOWN


def golden(kind: type) -> Record:
    records = History([DirectorySource(SHUTDOWN)]).records()
    return next(record for record in records if isinstance(record.event, kind))


def fields_in(datagram: bytes) -> dict[str, str]:
    """What systemd reads of one: ``NAME=value`` lines, or a name, a length and a value."""
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
    """A line with its level and fields, also where a value has several lines."""
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
    """Its queue full, or its socket gone: the line is not taken, and nobody waits."""
    journal = SystemJournal(str(tmp_path / "journal"))
    taken = [journal.send(6, "line", {}) for _ in range(5000)]
    assert taken[0]
    assert not taken[-1]
    listener.close()
    assert not journal.send(6, "line", {})
    journal.close()


def test_a_pods_line_names_its_pod_and_its_span() -> None:
    """What an operator searches for, and the ids under which the trace has the same."""
    record = golden(PodEnded)
    names, trace = Names({record.event.uid: "shop/web-0"}), bytes(range(16))  # type: ignore[attr-defined]
    fields = journald_fields(record, names, bytes(16), trace.hex())
    assert fields["POD"] == "shop/web-0"
    assert fields["EVENT"] == "PodEnded"
    assert fields["EPISODE"] == f"00000000-{record.episode}"
    assert fields["TRACE_ID"] == trace.hex()
    assert fields["SPAN_ID"] == span_id_of(trace, "pod", fields["POD_UID"]).hex()


def test_a_shutdowns_line_has_its_root_span() -> None:
    """What is about no pod and no wave belongs to the shutdown."""
    trace = bytes(range(16))
    fields = journald_fields(golden(ShutdownBegan), Names(), bytes(16), trace.hex())
    assert fields["SPAN_ID"] == span_id_of(trace, "shutdown", "").hex()
    assert "POD" not in fields


def test_only_the_real_stream_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``JOURNAL_STREAM`` is inherited also where output goes elsewhere: the descriptor has to be it."""
    with open(tmp_path / "stream", "w") as stream:
        status = os.fstat(stream.fileno())
        assert is_connected_to_journald(f"{status.st_dev}:{status.st_ino}", stream.fileno())
        assert not is_connected_to_journald(f"{status.st_dev}:{status.st_ino + 1}", stream.fileno())
    assert not is_connected_to_journald("", 2)
    assert not is_connected_to_journald("nonsense", 2)


def test_without_a_system_journal_lines_go_to_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain in a terminal or a pipe, and nothing on the console."""
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    monkeypatch.setattr(console, "show_on_console", lambda line: pytest.fail("the console is not ours"))
    LogOutput().report(5, "armed", {"EVENT": "ShutdownBegan"})
    assert capfd.readouterr().err == "armed\n"


def test_the_console_shows_a_line_or_nothing(tmp_path: Path) -> None:
    """A terminal gets the line on a line of its own; one that is not there is no error."""
    ours, theirs = os.openpty()
    console.show_on_console("the machine goes down", os.ttyname(theirs))
    assert b"ebbtide: the machine goes down" in os.read(ours, 4096)
    console.show_on_console("nobody hears", str(tmp_path / "none"))
    os.close(ours)
    os.close(theirs)
