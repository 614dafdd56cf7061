"""The daemon's log: one line a transition, after its record is written and its orders are out.

A line goes to the system journal with fields (``journalctl EBBTIDE_POD=shop/web-0``), or else to standard
error.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import trio

from ebbtide.actors.interfaces import Tell
from ebbtide.events import base, bounds
from ebbtide.events.decisions import ShutdownBegan
from ebbtide.events.messages import ERROR, Message, Names
from ebbtide.events.outage_events import LeaderStarted, OutageBegan
from ebbtide.events.record.format import visible
from ebbtide.events.units import offset
from ebbtide.otel.span import span_of

#: As `Tell`, with the line's fields for programs.
Report = Callable[[int, str, Mapping[str, str]], None]


def without_fields(tell: Tell) -> Report:
    return lambda level, line, fields: tell(level, line)


class LineContext:
    """``began_ns``: the shutdown may have begun in an earlier process."""

    def __init__(self, began_ns: int = 0, labels: Mapping[str, str] | None = None) -> None:
        self.names = Names(labels)
        self.began_ns = began_ns


#: A line's time counts from the last of these. Another leader has another clock.
COUNTED_FROM = (ShutdownBegan, OutageBegan, LeaderStarted)


def log_lines_of(lines: LineContext, record: base.Record) -> Iterator[Message]:
    event = record.event
    if type(event) in COUNTED_FROM:
        lines.began_ns = record.mono_ns
    message = event.describe(lines.names, base.Stamp(record.mono_ns, record.wall_ns))
    since = offset(record.mono_ns - lines.began_ns)
    for line in event.log_messages(lines.names, message, since):
        yield line._replace(text=visible(line.text))


#: The innermost calls.
PLACES_MAX = 5
#: A quoted value has no bound.
FAILURE_CHARACTERS_MAX = 1000


def failure_line(label: str, error: Exception) -> str:
    """A failure's record has only the error's kind."""
    calls = traceback.extract_tb(error.__traceback__)[-PLACES_MAX:]
    places = " > ".join(f"{Path(call.filename).name}:{call.lineno} in {call.name}" for call in calls)
    return visible(f"{label} failed at {places}: {type(error).__name__}: {error}"[:FAILURE_CHARACTERS_MAX])


#: One step may have two shutdowns, not a third, and a line follows its record soon.
TRACE_IDS_MAX = 4


class TraceIds:
    """The ids of the last shutdowns, by number. ``current``: the open one's or the last one's, or empty."""

    def __init__(self, episode: int = 0, current: str = "") -> None:
        self.current = current
        self._ids = {episode: current}

    def learn(self, record: base.Record, chain_hash: bytes) -> None:
        """A shutdown's first record has its number, and the hash (32 bytes) that gives its trace."""
        if record.episode != record.seq:
            return
        self._ids[record.episode] = self.current = base.shutdown_trace_id(chain_hash)
        if len(self._ids) > TRACE_IDS_MAX:
            del self._ids[next(iter(self._ids))]

    def of(self, episode: int) -> str:
        return self._ids.get(episode, "")


def journald_fields(record: base.Record, names: Names, journal_id: bytes, trace: str) -> dict[str, str]:
    """Named as in the system journal, without our prefix. ``trace``: the id of the shutdown's trace."""
    event = record.event
    uid = event.pod_uid
    fields = {"EVENT": type(event).__name__, "SEQ": str(record.seq), "ACTOR": record.actor}
    if uid:
        fields |= {"POD": names.of(uid), "POD_UID": uid}
    if container := getattr(event, "container", ""):
        fields["CONTAINER"] = container
    if record.episode:
        fields["EPISODE"] = base.episode_id(journal_id, record.episode)
    if record.episode and trace:
        fields |= {"TRACE_ID": trace, "SPAN_ID": span_of(bytes.fromhex(trace), event).hex()}
    return fields


FieldsFunction = Callable[[base.Record], Mapping[str, str]]


class Log:
    def __init__(
        self,
        lines: LineContext,
        wait_written: Callable[[int], Awaitable[bool]],
        to: Report,
        fields: FieldsFunction,
    ) -> None:
        self._lines, self._wait_written, self._to, self._fields = lines, wait_written, to, fields
        self._unwritten: list[base.Record] = []
        self._failures: list[str] = []
        self._arrived = trio.Event()

    def keep(self, records: Sequence[base.Record]) -> None:
        self._unwritten += records
        self._arrived.set()

    def keep_failure(self, label: str, error: Exception) -> None:
        self._failures.append(failure_line(label, error))

    async def run(self) -> None:
        try:
            while True:
                await self._arrived.wait()
                # After its record. But people read the log when a disk hangs: the wait has an end.
                with trio.move_on_after(2 * bounds.now.barrier_seconds):
                    await self._wait_written(self._unwritten[-1].seq)
                # The orders that waited for the same write go first.
                await trio.lowlevel.checkpoint()
                self._write_all()
        finally:
            # The daemon leaves in the step that has its reason: write this last line.
            self._write_all()

    def _write_all(self) -> None:
        records, self._unwritten, self._arrived = self._unwritten, [], trio.Event()
        failures, self._failures = self._failures, []
        for line in failures:
            self._to(ERROR, line, {})
        for record in records:
            for level, line in log_lines_of(self._lines, record):
                self._to(level, line, self._fields(record))


# The system journal's native protocol: a datagram of ``NAME=value`` lines, a value with a line feed by its
# length; used where our standard error goes there (systemd.exec(5), ``JOURNAL_STREAM``).

JOURNALD_SOCKET = "/run/systemd/journal/socket"

FIELD_PREFIX = "EBBTIDE_"

IDENTIFIER = "ebbtide"

#: A line has at most a few kilobytes; a datagram this small always fits a socket's buffer.
VALUE_BYTES_MAX = 4096


class SystemJournal:
    """Never waits: late in a shutdown the reader has gone, and the pods go first."""

    def __init__(self, path: str = JOURNALD_SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, level: int, line: str, fields: Mapping[str, str]) -> bool:
        """False: the socket did not take it."""
        rows = {"MESSAGE": line, "PRIORITY": str(level), "SYSLOG_IDENTIFIER": IDENTIFIER}
        rows |= {FIELD_PREFIX + name: value for name, value in fields.items()}
        datagram = b""
        for name, value in rows.items():
            data = value.encode(errors="replace")[:VALUE_BYTES_MAX]
            length = b"\n" + struct.pack("<Q", len(data)) if b"\n" in data else b"="
            datagram += name.encode() + length + data + b"\n"
        with suppress(OSError):
            self._socket.sendto(datagram, self._path)
            return True
        return False

    def close(self) -> None:
        self._socket.close()


def is_connected_to_journald(stream: str, descriptor: int) -> bool:
    """``stream``: device:inode. A child inherits it even where its standard error goes elsewhere."""
    with suppress(OSError, ValueError):
        device, inode = map(int, stream.split(":"))
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino) == (device, inode)
    return False


#: PIPE_BUF: a pipe with room takes this much at once, so the write never waits.
LINE_BYTES_MAX = 4095


def write_stderr(level: int, line: str) -> None:
    """With its level for the service manager."""
    prefix = f"<{level}>" if "JOURNAL_STREAM" in os.environ else ""
    data = f"{prefix}{line}".encode(errors="replace")[:LINE_BYTES_MAX] + b"\n"
    # Standard error is shared and blocking: without room the line is lost.
    with suppress(OSError):
        if select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), data)


class LogOutput:
    """``tell`` for remarks, ``report`` for lines about records."""

    def __init__(self) -> None:
        connected = is_connected_to_journald(os.environ.get("JOURNAL_STREAM", ""), sys.stderr.fileno())
        self._journal = SystemJournal() if connected else None

    def tell(self, level: int, line: str) -> None:
        self.report(level, line, {})

    def report(self, level: int, line: str, fields: Mapping[str, str]) -> None:
        # Standard error reaches the same journal through another socket, which may still take the line.
        if self._journal is None or not self._journal.send(level, line, fields):
            write_stderr(level, line)
