"""``ebbtide replay timeline``: one line per transition, for any readable journal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.cli.replay.timeline_print import WORDS_WIDTH_MIN
from ebbtide.events.base import Event
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import FLAG_LAST
from ebbtide.events.facts import DaemonStarted, OrderEnded, ReleaseRequested
from ebbtide.events.reader import History
from ebbtide.events.segment import parse_header
from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.journals import DEMO, SHUTDOWN, write_files
from tests.replay.shutdown import Book, first_life


def objects(replay: Run, *arguments: str, journal: Path = SHUTDOWN) -> list[dict[str, object]]:
    ran = replay("timeline", *arguments, "-o", "json", journal=journal)
    assert ran.code == 0
    return [json.loads(line) for line in ran.out.splitlines()]


def test_every_record_is_a_line(replay: Run) -> None:
    lines = objects(replay, "--all")
    assert [line["seq"] for line in lines] == list(range(12, 94))
    since = [line["sinceSeconds"] for line in lines]
    assert since == sorted(since)  # type: ignore[type-var]  # the next boot's clock starts anew


@pytest.mark.parametrize(
    "words, field, expected",
    [
        *((("--pod", name), "pod", {"shop/stuck-0"}) for name in ("stuck-0", "shop/stuck-0", "uid-stuck-0")),
        (("--wave", "2"), "wave", {2}),
        *((("--actor", name), "kind", {"HookActor"}) for name in ("hook", "HookActor", "Hook")),
        (("--actor", "WaveActor:1"), "actor", {"WaveActor:1"}),
    ],
)
def test_filters(replay: Run, words: tuple[str, str], field: str, expected: set[object]) -> None:
    """By any name of a pod or an actor."""
    lines = objects(replay, *words)
    if field == "kind":
        lines = [{"kind": str(line["actor"]).partition(":")[0]} for line in lines]
    assert {line[field] for line in lines} == expected


@pytest.mark.parametrize("journal, pod", [(SHUTDOWN, "stuck-0"), (DEMO, "legacy-0")])
def test_one_pods_story(replay: Run, journal: Path, pod: str) -> None:
    """One sentence about the pod for each line, in order."""
    told = replay("timeline", "--pod", pod, journal=journal).out
    golden(f"story-{journal.name}-{pod}.txt", told)
    heading, *sentences = told.splitlines()
    assert f"/{pod} (" in heading
    assert len(sentences) == len(objects(replay, "--pod", pod, journal=journal))
    assert all(each.endswith(".") and each[14].isupper() for each in sentences)


def test_the_records_of_a_pod_end_with_its_root_cause(replay: Run) -> None:
    out = replay("timeline", "--pod", "stuck-0", "--all").out
    assert out.splitlines()[-2:] == [
        "root cause [signal-ignored]: shop/stuck-0: the first process ignores the stop signal",
        "  do: handle SIGTERM in the first process, or name another stopSignal",
    ]
    assert "root cause" not in replay("timeline", "--pod", "web-1", "--all").out


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda width: monkeypatch.setattr("ebbtide.cli.replay.timeline_print.screen_width", lambda: width)


@pytest.mark.parametrize("width", [60, 80])
def test_it_fits_the_terminal(replay: Run, screen: Callable[[int], None], width: int) -> None:
    """No longer line, aligned texts, and no cut word."""
    screen(width)
    out = replay("timeline", journal=DEMO).out
    lines = out.splitlines()
    assert max(map(len, lines)) <= width
    begin = lines[0].index("WHAT")
    assert all(line[begin - 1] == " " for line in lines)
    assert begin <= width - WORDS_WIDTH_MIN or width < 70
    words = " ".join(" ".join(line[begin:].split()) for line in lines[1:]).split()
    screen(0)
    plain = replay("timeline", journal=DEMO).out.splitlines()[1:]
    assert words == " ".join(line[75:] for line in plain).split()
    if width == 80:
        golden("timeline-demo-80.txt", out)


@pytest.mark.parametrize(("filters", "said"), [
    (("--wave", "9"), "no line fits --wave 9: the waves with pods are 0 to 2"),
    (("--since", "200", "--until", "100"), "--since 200 --until 100: the end is before the begin"),
    (("--actor", "wave", "--until", "+0s"), "no line fits --actor wave --until +0s"),
])  # fmt: skip
def test_nothing_fits(replay: Run, filters: tuple[str, ...], said: str) -> None:
    """Standard error says so: an empty answer is ambiguous."""
    ran = replay("timeline", *filters)
    assert (ran.code, ran.out) == (0, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


# --- told while it is written

COMMAND = (sys.executable, "-c", "from ebbtide.cli import main; main()", "replay", "timeline", "-f")


class Followed:
    """The command and its output."""

    def __init__(self, journal: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--journal", str(journal), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""

    def wait(self, text: str) -> None:
        assert self.process.stdout is not None
        while text not in self.said:
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"{text!r} did not come before the end; there is:\n{self.said}"
            self.said += data.decode()


class Growing:
    """A journal of this boot in progress: ``grow(seq)`` writes up to that record."""

    def __init__(self, folder: Path) -> None:
        book = Book()
        book.process(boot_id(), _on_this_boot(book))
        name, self._data = next(iter(book.files.items()))
        self._path = write_files(folder, {name: self._data}) / name
        #: Where each step ends in the file.
        self._ends: dict[int, int] = {}
        _, end = parse_header(self._data)
        for raw in History([DirectorySource(folder)]).raw():
            end += int.from_bytes(self._data[end + 8 : end + 12], "little")
            if raw.flags & FLAG_LAST:
                self._ends[raw.seq] = end
        self._path.write_bytes(b"")

    def grow(self, seq: int) -> None:
        end = next((end for each, end in self._ends.items() if each >= seq), len(self._data))
        with self._path.open("ab") as file:
            file.write(self._data[file.tell() : end])


def _on_this_boot(book: Book) -> Iterator[tuple[int, Event]]:
    """The golden shutdown up to its middle; later the lock is released."""
    for after_ms, fact in first_life():
        if isinstance(fact, DaemonStarted):
            fact = msgspec.structs.replace(fact, boot_id=boot_id(), userspace_id=boot_id())
        yield after_ms, fact
    yield 100, ReleaseRequested(asked_by=0)
    for what in ("/deliver/", "/release/"):
        for key in [key for key in book.system.open_orders if what in key]:
            yield 2, OrderEnded(key=key, result="done")


def test_the_next_shutdown_is_waited_for_and_told_to_its_end(tmp_path: Path) -> None:
    """From its signal on: the existing part, then new records, until the release."""
    growing = Growing(tmp_path / "journal")
    growing.grow(11)
    followed = Followed(tmp_path / "journal", "--all")
    try:
        followed.wait("waiting for the next one")
        for seq, text in (
            (32, "shop/stuck-0                 main: SIGTERM"),
            (40, "main: exit code 0"),
            (1000, "lock released"),
        ):
            growing.grow(seq)
            followed.wait(text)
        numbers = [line.split()[2] for line in followed.said.splitlines() if re.match(r"\d\d:\d\d:", line)]
        assert numbers[0] == "12"
        assert followed.process.wait() == 0
    finally:
        followed.process.kill()
        followed.process.communicate()
