"""``ebbtide replay timeline -f``: a shutdown told while it is written."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.events.base import Event
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import FLAG_LAST, parse_frames
from ebbtide.events.facts import DaemonStarted, OrderEnded, ReleaseRequested
from ebbtide.events.reader import History
from ebbtide.events.segment import parse_header
from tests.replay.shutdown import Book, first_life

PATIENCE_SECONDS = 30
COMMAND = (sys.executable, "-c", "from ebbtide.cli import main; main()", "replay", "timeline", "-f")


class Followed:
    """The command, and what it has said; bounded waits."""

    def __init__(self, journal: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--journal", str(journal), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""

    def wait(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        assert self.process.stdout is not None
        while text not in self.said:
            left = until - time.monotonic()
            assert left > 0, f"{text!r} did not come; there is:\n{self.said}"
            if select.select([self.process.stdout], [], [], left)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data, f"{text!r} did not come before the end; there is:\n{self.said}"
                self.said += data.decode()

    def ended(self) -> int:
        code = self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.said += self.process.stdout.read().decode()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Growing:
    """A journal of this boot that is still being written: ``grow(seq)`` writes up to that record."""

    def __init__(self, folder: Path) -> None:
        book = Book(())
        book.process(boot_id(), _on_this_boot(book))
        (name, self._data), self._path = next(iter(book.files.items())), folder
        folder.mkdir()
        self._path = folder / name
        self._path.write_bytes(self._data)
        self._ends = dict(self._steps(folder))
        self._path.write_bytes(b"")

    def _steps(self, folder: Path) -> Iterator[tuple[int, int]]:
        """Where each record ends in the file."""
        _, begin = parse_header(self._data)
        end = begin
        for raw in History([DirectorySource(folder)]).raw():
            frame = parse_frames(self._data, end, len(self._data), raw.seq - 1)
            assert frame.records[0].seq == raw.seq
            end += int.from_bytes(self._data[end + 8 : end + 12], "little")
            if raw.flags & FLAG_LAST:
                yield raw.seq, end

    def grow(self, seq: int) -> None:
        written = self._path.stat().st_size
        end = next((end for each, end in self._ends.items() if each >= seq), len(self._data))
        with self._path.open("ab") as file:
            file.write(self._data[written:end])


def _on_this_boot(book: Book) -> Iterator[tuple[int, Event]]:
    """The golden shutdown up to its middle; then somebody lets the machine go."""
    for after_ms, fact in first_life():
        if isinstance(fact, DaemonStarted):
            fact = msgspec.structs.replace(fact, boot_id=boot_id(), userspace_id=boot_id())
        yield after_ms, fact
    yield 100, ReleaseRequested(asked_by=0)
    for what in ("/deliver/", "/release/"):
        for key in [key for key in book.system.open_orders if what in key]:
            yield 2, OrderEnded(key=key, result="done")


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "journal")


@pytest.mark.slow
def test_a_running_shutdown_is_told_to_its_end(growing: Growing, tmp_path: Path) -> None:
    """What there is, then what comes; it ends by itself when the machine is let go."""
    growing.grow(32)
    followed = Followed(tmp_path / "journal")
    try:
        followed.wait("shop/stuck-0                 main: SIGTERM")
        growing.grow(40)
        followed.wait("main: exit code 0")
        growing.grow(1000)
        assert followed.ended() == 0
        assert followed.said.splitlines()[-1].endswith("lock released")
    finally:
        followed.close()


@pytest.mark.slow
def test_the_next_shutdown_is_waited_for(growing: Growing, tmp_path: Path) -> None:
    """Where none is running yet, and with the names that were learned before it."""
    growing.grow(11)
    followed = Followed(tmp_path / "journal", "--pod", "web-0")
    try:
        followed.wait("waiting for the next one")
        growing.grow(32)
        followed.wait("shop/web-0                   main: preStop exec began")
        growing.grow(1000)
        assert followed.ended() == 0
        assert "stuck-0" not in followed.said
    finally:
        followed.close()


@pytest.mark.slow
def test_what_stands_before_the_signal_is_not_told(growing: Growing, tmp_path: Path) -> None:
    """While the next shutdown is waited for nothing belongs to it yet; its first line is the signal."""
    growing.grow(11)
    followed = Followed(tmp_path / "journal", "--all")
    try:
        followed.wait("waiting for the next one")
        growing.grow(1000)
        assert followed.ended() == 0
        numbers = [line.split()[2] for line in followed.said.splitlines() if re.match(r"\d\d:\d\d:", line)]
        assert numbers[0] == "12"
    finally:
        followed.close()
