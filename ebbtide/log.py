"""The daemon's log: one line a transition, told once its record is written and its orders are out.

The sentences are those of `events.base.Event`, made from events alone, so that a journal read later gives the
same lines; only records above the resume point are logged, and once. A line goes to the system journal with
fields for programs where that listens (``journalctl EBBTIDE_POD=shop/web-0`` finds every line about a pod),
else to standard error; the begin of a shutdown goes to the machine's console as well.
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
from ebbtide.events import bounds
from ebbtide.events.base import (
    TYPES,
    Record,
    Stamp,
    episode_id,
    shutdown_trace_id,
)
from ebbtide.events.decisions import ShutdownBegan
from ebbtide.events.messages import ERROR, Message, Names
from ebbtide.events.outage_events import LeaderStarted, OutageBegan
from ebbtide.events.record.format import visible
from ebbtide.events.units import offset
from ebbtide.otel.span import span_of

#: Takes a line with its level as `Tell` does, and with the fields that a program reads beside it.
Report = Callable[[int, str, Mapping[str, str]], None]


def without_fields(tell: Tell) -> Report:
    """For whoever only shows lines to people."""
    return lambda level, line, fields: tell(level, line)


class LineContext:
    """``names``, and when the shutdown began; one may go on from an earlier process."""

    def __init__(self, began_ns: int = 0, labels: Mapping[str, str] | None = None) -> None:
        self.names = Names(labels)
        self.began_ns = began_ns


#: What a line's time since is counted from: a shutdown, an outage, and where another process began that, the
#: start of ours, whose clock is another one.
COUNTED_FROM = (ShutdownBegan, OutageBegan, LeaderStarted)


def log_lines(lines: LineContext, records: Sequence[Record]) -> Iterator[Message]:
    """The lines of these records: never more than one line an entry."""
    return (line for record in records for line in log_lines_of(lines, record))


def log_lines_of(lines: LineContext, record: Record) -> Iterator[Message]:
    """The lines of one record, mostly none or one."""
    event = record.event
    if type(event) in COUNTED_FROM:
        lines.began_ns = record.mono_ns
    message = event.describe(lines.names, Stamp(record.mono_ns, record.wall_ns))
    since = offset(record.mono_ns - lines.began_ns)
    for line in event.log_messages(lines.names, message, since):
        yield line._replace(text=visible(line.text))


#: Of a failure's call stack, the innermost calls.
PLACES_MAX = 5
#: What an error quotes has no bound of its own.
FAILURE_CHARACTERS_MAX = 1000


def failure_line(label: str, error: Exception) -> str:
    """Where an actor's code failed, and at what: the record of it has only the error's kind."""
    calls = traceback.extract_tb(error.__traceback__)[-PLACES_MAX:]
    places = " > ".join(f"{Path(call.filename).name}:{call.lineno} in {call.name}" for call in calls)
    return visible(f"{label} failed at {places}: {type(error).__name__}: {error}"[:FAILURE_CHARACTERS_MAX])


#: A line is told soon after its record: two shutdowns stand in one step, a third is far away.
TRACE_IDS_MAX = 4


class TraceIds:
    """Trace ids of the last shutdowns by number. ``current``: the open one's or the last one's, or empty."""

    def __init__(self, episode: int = 0, current: str = "") -> None:
        self.current = current
        self._ids = {episode: current}

    def learn(self, record: Record, chain_hash: bytes) -> None:
        """A shutdown's first record has its number, and the hash (32 bytes) that gives its trace."""
        if record.episode != record.seq:
            return
        self._ids[record.episode] = self.current = shutdown_trace_id(chain_hash)
        if len(self._ids) > TRACE_IDS_MAX:
            del self._ids[next(iter(self._ids))]

    def of(self, episode: int) -> str:
        """Empty for one that is not known."""
        return self._ids.get(episode, "")


def journald_fields(record: Record, names: Names, journal_id: bytes, trace: str) -> dict[str, str]:
    """What stands beside a line for programs: which event, which pod, which span of which trace.

    Names as the system journal likes them, without our prefix. ``trace``: the id of its shutdown.
    """
    event = record.event
    uid = event.pod_uid
    fields = {"EVENT": type(event).__name__, "SEQ": str(record.seq), "ACTOR": record.actor}
    if uid:
        fields |= {"POD": names.of(uid), "POD_UID": uid}
    if container := getattr(event, "container", ""):
        fields["CONTAINER"] = container
    if record.episode:
        fields["EPISODE"] = episode_id(journal_id, record.episode)
    if record.episode and trace:
        fields |= {"TRACE_ID": trace, "SPAN_ID": span_of(bytes.fromhex(trace), event).hex()}
    return fields


FieldsFunction = Callable[[Record], Mapping[str, str]]


class Log:
    """``wait_written`` is the journal's; ``to`` takes the lines with their levels and their ``fields``."""

    def __init__(
        self,
        lines: LineContext,
        wait_written: Callable[[int], Awaitable[bool]],
        to: Report,
        fields: FieldsFunction,
    ) -> None:
        self._lines, self._wait_written, self._to, self._fields = lines, wait_written, to, fields
        self._unwritten: list[Record] = []
        self._failures: list[str] = []
        self._arrived = trio.Event()

    def keep(self, records: Sequence[Record]) -> None:
        """An observer of steps."""
        self._unwritten += records
        self._arrived.set()

    def keep_failure(self, label: str, error: Exception) -> None:
        """An actor's, in the middle of the step that records it."""
        self._failures.append(failure_line(label, error))

    async def run(self) -> None:
        """Write the lines of what is on record, until cancelled."""
        try:
            while True:
                await self._arrived.wait()
                # A line about what is on no record would be one that no journal can explain. But rather that
                # than none: a disk that hangs is when people read the log. A little longer than orders wait.
                with trio.move_on_after(2 * bounds.now.barrier_seconds):
                    await self._wait_written(self._unwritten[-1].seq)
                # The orders that waited for the same write go first: a hundred lines in the log must not
                # stand between the signal and the first stop.
                await trio.lowlevel.checkpoint()
                self._write_all()
        finally:
            # The daemon leaves in the step that says why: without this its last line would be missing.
            self._write_all()

    def _write_all(self) -> None:
        records, self._unwritten, self._arrived = self._unwritten, [], trio.Event()
        failures, self._failures = self._failures, []
        for line in failures:
            self._to(ERROR, line, {})
        for record in records:
            for level, line in log_lines_of(self._lines, record):
                self._to(level, line, self._fields(record))


# The machine's console: what whoever stands before it must know within a second of a shutdown's begin. Only
# where the daemon runs as a unit; elsewhere its lines are on a terminal already.


CONSOLE_PATH = "/dev/console"

#: Tags of the events that are shown there.
CONSOLE_EVENTS = frozenset(tag for tag, kind in TYPES.items() if kind.console)


def show_on_console(line: str, path: str = CONSOLE_PATH) -> None:
    """One line. Never waits and never raises: a console that is not there, or does not take it, loses it."""
    with suppress(OSError):
        # NOCTTY: a daemon that got the console as its terminal would be hung up with it. NONBLOCK: a serial
        # console with flow control, and nobody at the other end, would hold the shutdown here.
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Line breaks on both sides: the cursor may stand behind half a line of the boot's messages.
            os.write(descriptor, f"\r\nebbtide: {line}\r\n".encode(errors="replace"))
        finally:
            os.close(descriptor)


# The system journal in its native protocol: a datagram of ``NAME=value`` lines, a value with a line feed by
# its length. Spoken only where the service manager connected our standard error to it (systemd.exec(5),
# ``JOURNAL_STREAM``): whoever sent that to a file wants the lines there.


JOURNALD_SOCKET = "/run/systemd/journal/socket"

#: Ours, in front of every field's name but the journal's own.
FIELD_PREFIX = "EBBTIDE_"

IDENTIFIER = "ebbtide"

#: A line is at most a few kilobytes; a datagram this small always fits a socket's buffer.
VALUE_BYTES_MAX = 4096


class SystemJournal:
    """A socket to it. Sending never waits: late in a shutdown its reader has gone, and the pods go first."""

    def __init__(self, path: str = JOURNALD_SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, level: int, line: str, fields: Mapping[str, str]) -> bool:
        """Whether it was taken."""
        rows = {"MESSAGE": line, "PRIORITY": str(level), "SYSLOG_IDENTIFIER": IDENTIFIER}
        rows |= {FIELD_PREFIX + name: value for name, value in fields.items()}
        with suppress(OSError):
            self._socket.sendto(b"".join(map(_journald_field, rows, rows.values())), self._path)
            return True
        return False

    def close(self) -> None:
        self._socket.close()


def _journald_field(name: str, value: str) -> bytes:
    data = value.encode(errors="replace")[:VALUE_BYTES_MAX]
    if b"\n" in data:
        return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
    return name.encode() + b"=" + data + b"\n"


def is_connected_to_journald(stream: str, descriptor: int) -> bool:
    """Whether ``descriptor`` is what ``JOURNAL_STREAM`` (device:inode) names."""
    # The variable alone is no answer: it is inherited by a child whose standard error goes elsewhere.
    with suppress(OSError, ValueError):
        device, inode = map(int, stream.split(":"))
        status = os.fstat(descriptor)
        return (status.st_dev, status.st_ino) == (device, inode)
    return False


#: A pipe that has room takes this much at once (PIPE_BUF), so that a write never waits.
LINE_BYTES_MAX = 4095


def write_stderr(level: int, line: str) -> None:
    """The log's lines: with a level where the service manager reads them, plain elsewhere."""
    prefix = f"<{level}>" if "JOURNAL_STREAM" in os.environ else ""
    data = f"{prefix}{line}".encode(errors="replace")[:LINE_BYTES_MAX] + b"\n"
    # Asked whether there is room, since standard error is shared and cannot be made non-blocking by us alone.
    # Late in a shutdown its reader has gone, or does not read: the line is lost, the pods go first.
    with suppress(OSError):
        if select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), data)


class LogOutput:
    """``tell`` for remarks, ``report`` for what stands in the journal."""

    def __init__(self) -> None:
        connected = is_connected_to_journald(os.environ.get("JOURNAL_STREAM", ""), sys.stderr.fileno())
        self._journal = SystemJournal() if connected else None

    def tell(self, level: int, line: str) -> None:
        self.report(level, line, {})

    def report(self, level: int, line: str, fields: Mapping[str, str]) -> None:
        """A unit's lines go to the journal with their fields, some to the console as well."""
        # Standard error is a stream to the same journal, through another socket: it may take the line yet.
        if self._journal is None or not self._journal.send(level, line, fields):
            write_stderr(level, line)
        if self._journal is not None and fields.get("EVENT") in CONSOLE_EVENTS:
            show_on_console(line)
