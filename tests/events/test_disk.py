"""Real directories: modes, locks, full and read-only file systems, hanging pipes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing

from ebbtide.events import bounds, files
from ebbtide.events import disk as storage
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.disk import (
    LOCK_NAME,
    RESERVE_NAME,
    DirectoryStorage,
    Held,
    JournalLocked,
    Limits,
    removable,
    trim,
)
from ebbtide.events.reader import History
from ebbtide.events.segment import segment_file_name
from ebbtide.events.writer import RESERVE_BYTES
from tests.events.making import Told, assert_whole, make_writer, read, rotate, running, write_steps
from tests.journals import JOURNAL_ID
from tests.waiting import WATCHDOG_SECONDS, until


@pytest.fixture(autouse=True)
def wide_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy disk must not look hung."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds().widened(300))


HOLD_THE_LOCK = """
import sys, trio
from ebbtide.events.disk import DirectoryStorage
async def main():
    await DirectoryStorage(sys.argv[1]).acquire("ebbtide run")
    print("locked", flush=True)
    sys.stdin.read()
trio.run(main)
"""


class Hanging:
    """A module with one function that hangs until released."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self._module, self._name = module, name
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return self._hang if name == self._name else getattr(self._module, name)

    def _hang(self, *args: Any, **options: Any) -> Any:
        self.begun.set()
        assert self.let_go.wait(WATCHDOG_SECONDS)
        return getattr(self._module, self._name)(*args, **options)


async def given_up(hanging: Any, work: Callable[[str], Awaitable[object]], name: str) -> None:
    """Begin ``work``, give up while it hangs, then release it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, name)
        await until(hanging.begun.is_set, "nothing hangs")
        nursery.cancel_scope.cancel()
    hanging.let_go.set()


def held_in(folder: Path) -> list[str]:
    """This process's open files below ``folder``."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if path.startswith(str(folder))]


async def test_a_journal_on_a_real_disk_is_private_and_reads_back(tmp_path: Path) -> None:
    """Directory 0700, files 0600, every record back, a second process's segment linked to the first."""
    place = tmp_path / "journal"
    for _ in range(2):
        verdict = read([DirectorySource(place)])[1]
        async with running([DirectoryStorage(place)], verdict.start(JOURNAL_ID)) as writer:
            await write_steps(writer, 3, synced=True)
            await writer.close()
    assert_whole([DirectorySource(place)], 20)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


async def test_a_deleted_folder_of_an_idle_journal_is_noticed(tmp_path: Path) -> None:
    """Its segment is open: the kernel keeps the file, and the next writer would not find it."""
    place, told = tmp_path / "journal", Told()
    async with running([DirectoryStorage(place)], told=told) as writer:
        await write_steps(writer, 1, synced=True)
        shutil.rmtree(place)
        await until(lambda: told.moved, "a new folder")
        await rotate(writer)
    assert read([DirectorySource(place)])[1].state == "intact"


@pytest.mark.parametrize("gone", ["journal", "node/journal"])
async def test_a_moved_folder_is_noticed_and_made_again(tmp_path: Path, gone: str) -> None:
    """Also when a parent is moved, which changes neither folder nor file. The new folder has a lock."""
    place, other, told = tmp_path / gone, tmp_path / "other", Told()
    async with running([DirectoryStorage(place), DirectoryStorage(other)], told=told) as writer:
        await write_steps(writer, 1, synced=True)
        (tmp_path / gone.split("/")[0]).rename(tmp_path / "elsewhere")
        await until(lambda: told.moved, "a move")
        await rotate(writer)
        await until(lambda: (place / "lock").exists(), "a new folder")
        # The second one takes the way back that the first one has prepared.
        while writer.away:
            await rotate(writer)
        with pytest.raises(JournalLocked):
            await DirectoryStorage(place).acquire("another")
        await write_steps(writer, 1, synced=True)
    assert [where for where, _ in told.moved] == [str(other), str(place)]
    assert read([DirectorySource(place)])[1].state == "intact"


async def test_reading_leaves_the_directory_as_it_is(tmp_path: Path) -> None:
    """No lock, no repair, no changed time stamp."""
    async with running([DirectoryStorage(tmp_path)]) as writer:
        await write_steps(writer, 1, synced=True)
    before = [(path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(tmp_path.iterdir())]
    History([DirectorySource(tmp_path)]).read()
    assert before == [
        (path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(tmp_path.iterdir())
    ]


async def test_a_second_process_is_refused_by_program_and_pid(tmp_path: Path) -> None:
    """The lock ends with its holder."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(JournalLocked, match=rf"ebbtide run \(process {holder.pid}\) writes the journal"):
            await make_writer([DirectoryStorage(tmp_path)]).open()
        holder.kill()
    await make_writer([DirectoryStorage(tmp_path)]).open()
    assert (tmp_path / LOCK_NAME).read_text() == f"ebbtide {os.getpid()}\n"


async def test_an_attempt_that_was_given_up_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abandoned thread keeps neither lock nor file."""
    monkeypatch.setattr(storage, "fcntl", Hanging(fcntl, "flock"))
    hanging = Hanging(os, "open")
    place = DirectoryStorage(tmp_path)
    await given_up(storage.fcntl, place.acquire, "ebbtide")
    monkeypatch.undo()
    await place.acquire("ebbtide")
    assert (tmp_path / LOCK_NAME).read_text() == f"ebbtide {os.getpid()}\n"
    monkeypatch.setattr(storage, "os", hanging)
    await given_up(hanging, place.create, "x")
    monkeypatch.undo()
    await place.release()
    await until(lambda: not held_in(tmp_path), lambda: f"held: {held_in(tmp_path)}")


async def test_a_descriptor_is_free_only_when_nothing_hangs_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed file's number stays reserved while a write hangs: it must not reach another file."""
    place = DirectoryStorage(tmp_path)
    file = await place.create("x")
    hanging = Hanging(os, "write")
    monkeypatch.setattr(files, "os", hanging)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.write, b"late")
        await until(hanging.begun.is_set, "nothing hangs")
        nursery.cancel_scope.cancel()
    await file.close()
    await file.close()
    assert held_in(tmp_path) == [str(tmp_path / "x")]
    with pytest.raises(OSError, match="given up"):
        await file.sync()
    hanging.let_go.set()
    await until(lambda: not held_in(tmp_path), lambda: f"held: {held_in(tmp_path)}")
    assert (tmp_path / "x").read_bytes() == b"late"


async def test_new_directories_are_durable_and_their_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is synced into its parent; with any umask only the owner can move the journal away."""
    synced, real, before = [], storage.sync_directory, os.umask(0)
    monkeypatch.setattr(storage, "sync_directory", lambda path: (synced.append(path), real(path)))
    made = DirectoryStorage(tmp_path / "a" / "b" / "journal")
    try:
        await made.acquire("test")
        await made.release()
    finally:
        os.umask(before)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    modes = [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("a", "a/b", "a/b/journal")]
    assert modes == [0o755, 0o755, 0o700]


@pytest.mark.parametrize(
    "name", [LOCK_NAME, RESERVE_NAME, "kept.json.part", segment_file_name(1, JOURNAL_ID)]
)
async def test_a_link_in_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    """The target keeps its bytes, whatever our file's name."""
    place, other = tmp_path / "journal", tmp_path / "other"
    place.mkdir()
    other.write_bytes(b"somebody's")
    (place / name).symlink_to(other)
    storage = DirectoryStorage(place)
    with suppress(OSError):
        await storage.acquire("ebbtide")
    with suppress(OSError):
        await storage.set_reserve(4096)
    with suppress(OSError):
        await storage.put("kept.json", b"new")
    with suppress(OSError):
        await storage.sync_file(name)
    assert other.read_bytes() == b"somebody's"
    assert name not in [file.name for file in storage.source.files()]
    with pytest.raises(OSError, match="symbolic links"):
        storage.source.read(name, 0, 10)
    await storage.release()


async def writes_to(place: Path, told: Told) -> str:
    """The journal's location if the first one is ``place``."""
    storages = [DirectoryStorage(place), DirectoryStorage(place.with_name(f"{place.name}-next"))]
    async with running(storages, told=told) as writer:
        await write_steps(writer, 1, synced=True)
        return writer.location


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
async def test_a_folder_that_others_may_write_to_is_passed_over(tmp_path: Path, mode: int) -> None:
    """Its content may be anybody's: it is neither read nor written, and the message has the fix."""
    place, told = tmp_path / "journal", Told()
    async with running([DirectoryStorage(place)]) as writer:
        await write_steps(writer, 1, synced=True)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    place.chmod(mode)
    assert DirectoryStorage(place).source.files() == []
    assert await writes_to(place, told) == f"{place}-next"
    assert "chmod go-w" in told.failed[0][1]
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    # Inspecting a foreign journal is allowed.
    assert_whole([DirectorySource(place)], 4)


async def test_a_location_that_is_no_directory_is_passed_over(tmp_path: Path) -> None:
    """The journal begins at the next location."""
    told = Told()
    (tmp_path / "file").write_text("")
    storages = [DirectoryStorage(tmp_path / "file" / "journal"), DirectoryStorage(tmp_path / "other")]
    async with running(storages, told=told) as writer:
        await write_steps(writer, 1, synced=True)
        assert writer.location == str(tmp_path / "other")
    assert str(tmp_path / "file") in told.failed[0][1]


async def test_a_read_only_filesystem_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses every new file there."""
    place, told, real = tmp_path / "journal", Told(), os.open
    place.mkdir(mode=0o700)

    def refuse(path: Any, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and dir_fd is not None and Path(f"/proc/self/fd/{dir_fd}").resolve() == place:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    assert await writes_to(place, told) == f"{place}-next"
    assert "Read-only" in told.failed[0][1]


def test_what_an_edge_remembers_is_its_own(tmp_path: Path) -> None:
    """Not in shared folders, and not through links."""
    folder, secret = tmp_path / "node", tmp_path / "secret"
    folder.mkdir(mode=0o700)
    secret.write_bytes(b"somebody's")
    files.write_atomically(folder / "kept", b"one")
    assert files.read_own(folder / "kept", 2) == b"on"
    for name in ("link", ".kept.0.new"):
        (folder / name).symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        files.read_own(folder / "link")
    with pytest.raises(OSError, match="symbolic links"):
        files.write_atomically(folder / "kept", b"two")
    # Leftovers of a crash or another user vanish at the next write.
    files.write_atomically(folder / "kept", b"three")
    files.write_atomically(folder / "link", b"four")
    assert secret.read_bytes() == b"somebody's"
    assert files.read_own(folder / "kept") == b"three"
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod go-w"):
        files.write_atomically(folder / "kept", b"five")
    with pytest.raises(PermissionError, match="chmod go-w"):
        files.read_own(folder / "kept")
    assert sorted(os.listdir(folder)) == ["kept", "link"]


@pytest.mark.root
async def test_a_strangers_folder_is_passed_over(tmp_path: Path) -> None:
    """Also behind links in either direction; our own link to our own folder is followed."""
    stranger, ours = 12345, tmp_path / "ours"
    theirs, link, own_link = tmp_path / "theirs", tmp_path / "link", tmp_path / "own-link"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, stranger, stranger)
    ours.mkdir(mode=0o700)
    link.symlink_to(ours)
    os.chown(link, stranger, stranger, follow_symlinks=False)
    own_link.symlink_to(ours)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    os.chown(shared, 0, stranger)
    for place in (theirs, link, shared):
        told = Told()
        assert await writes_to(place, told) == f"{place}-next"
        why = "others may write to it" if place is shared else f"it belongs to user {stranger}"
        assert why in told.failed[0][1]
    assert not [*theirs.iterdir(), *ours.iterdir(), *shared.iterdir()]
    assert await writes_to(own_link, Told()) == str(own_link)


async def test_a_segments_name_is_never_taken_twice(tmp_path: Path) -> None:
    """Files are never rewritten: an existing name moves the journal elsewhere."""
    told = Told()
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / segment_file_name(1, JOURNAL_ID)).write_bytes(b"here before")
    storages = [DirectoryStorage(tmp_path / "main"), DirectoryStorage(tmp_path / "other")]
    async with running(storages, told=told) as writer:
        await write_steps(writer, 1, synced=True)
    assert (tmp_path / "main" / segment_file_name(1, JOURNAL_ID)).read_bytes() == b"here before"
    assert [where for where, _ in told.moved] == [str(tmp_path / "other")]


async def test_retention_takes_real_files(tmp_path: Path) -> None:
    """Old segments vanish, and the rest reads from its checkpoint."""
    storage = DirectoryStorage(tmp_path)
    async with running([storage]) as writer:
        for _ in range(3):
            await write_steps(writer, 5, synced=True)
            await rotate(writer)
        gone = await trim([storage], 0, None, Limits(total_bytes=3000))
        await write_steps(writer, 1, synced=True)
    assert gone == [segment_file_name(1, JOURNAL_ID), segment_file_name(2, JOURNAL_ID)]
    verdict = read([DirectorySource(tmp_path)])[1]
    assert (verdict.state, verdict.first_seq) == ("intact", 33)


def _compute(rounds: int) -> str:
    """Uses a processor for so many milliseconds, but releases the interpreter's lock."""
    for _ in range(rounds):
        hashlib.sha256(bytes(1 << 20))
    return "done"


@pytest.mark.proof
@pytest.mark.parametrize("threads", [0, 2])
async def test_a_thread_without_a_processor_is_no_hung_disk(tmp_path: Path, threads: int) -> None:
    """A call that waits for a processor or the interpreter has time, beside hung calls."""
    disk, let_go = DirectoryStorage(tmp_path), threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(threads):
            nursery.start_soon(disk.call, let_go.wait, WATCHDOG_SECONDS)
        assert await storage.bounded(disk.call, _compute, 500, seconds=0.1) == "done"
        let_go.set()


async def test_a_call_that_waits_is_given_up(tmp_path: Path) -> None:
    """A second look must agree."""
    let_go = threading.Event()
    with pytest.raises(TimeoutError, match=r"within 100 ms"):
        await storage.bounded(DirectoryStorage(tmp_path).call, let_go.wait, WATCHDOG_SECONDS, seconds=0.1)
    let_go.set()


async def test_a_location_that_hangs_in_all_its_threads_is_given_up(tmp_path: Path) -> None:
    """A call without a free thread waits for the disk, not for a processor."""
    disk, let_go = DirectoryStorage(tmp_path), threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(storage.THREADS_MAX):
            nursery.start_soon(disk.call, let_go.wait, WATCHDOG_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TimeoutError):
            await storage.bounded(disk.call, _compute, 0, seconds=0.1)
        let_go.set()


# --- filesystems of our own


@pytest.fixture
def tiny(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{request.param}", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.root
@pytest.mark.parametrize("tiny", ["size=64k"], indirect=True)
async def test_a_tiny_filesystem_that_fills_moves_the_journal(tiny: Path, tmp_path: Path) -> None:
    """64 KiB hold no reserve: the rest goes elsewhere, and all is readable."""
    told, storages = Told(), [DirectoryStorage(tiny), DirectoryStorage(tmp_path / "other")]
    async with running(storages, told=told) as writer:
        for _ in range(20):
            await write_steps(writer, 20)
            assert await writer.wait_synced(writer.last_seq)
    assert [where for where, _ in told.moved] == [str(tmp_path / "other")]
    assert "No space left" in told.failed[0][1]
    assert_whole([DirectorySource(tiny), DirectorySource(tmp_path / "other")], 1201)


@pytest.mark.root
@pytest.mark.parametrize("tiny", [f"size={RESERVE_BYTES + 65_536}"], indirect=True)
async def test_a_full_filesystem_gives_its_reserve_back(tiny: Path) -> None:
    """The reserve is real space: the journal continues at its location."""
    told = Told()
    async with running([DirectoryStorage(tiny)], told=told) as writer:
        await until((tiny / RESERVE_NAME).exists, "no reserve")
        for _ in range(20):
            await write_steps(writer, 20)
            assert await writer.wait_synced(writer.last_seq)
    assert [where for where, _ in told.moved] == [str(tiny)]
    assert not (tiny / RESERVE_NAME).exists()
    assert read([DirectorySource(tiny)])[1].end.seq == 1201


def test_two_that_replace_one_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not mix; the last complete one stays."""
    first, second = b"a" * 20, b"b" * 10
    begun, go = threading.Event(), threading.Event()
    write_all = files.write_all

    def slowly(descriptor: int, data: bytes) -> None:
        if data == first:
            write_all(descriptor, data[:5])
            begun.set()
            assert go.wait(WATCHDOG_SECONDS)
            data = data[5:]
        write_all(descriptor, data)

    monkeypatch.setattr(files, "write_all", slowly)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(files.replace_file, tmp_path / "f", first)
        assert begun.wait(WATCHDOG_SECONDS)
        files.replace_file(tmp_path / "f", second)
        assert (tmp_path / "f").read_bytes() == second
        go.set()
        slow.result()
    assert (tmp_path / "f").read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


# --- retention


NOW_NS = 1_000_000
OLD_NS, YOUNG_NS = 0, NOW_NS - 1
LIMITS = Limits(total_bytes=250, age_ns=1_000, hard_bytes=450)


def held(count: int, *, checkpoint: bool = True, current: bool = True) -> list[Held]:
    """Segments of 100 bytes with 10 records each."""
    return [Held(100, YOUNG_NS, 10 * at + 1, checkpoint, current) for at in range(count)]


OLD = Held(100, OLD_NS, 1, checkpoint=True, current=True)
FIRST, SECOND, THIRD, FOURTH = held(4)
#: It goes on after a failed file, and goes with it or not at all.
CONTINUES = THIRD._replace(checkpoint=False)
OTHERS = held(3, checkpoint=False, current=False)


@pytest.mark.parametrize(
    ("segments", "keep_from_seq", "limits", "gone"),
    [
        pytest.param(held(2), None, LIMITS, 0, id="small and young"),
        pytest.param(held(4), None, LIMITS, 2, id="of 400 bytes 250 are allowed"),
        pytest.param([OLD, *held(2)[1:]], None, LIMITS, 1, id="old by its last write, whatever the size"),
        pytest.param([OLD], None, Limits(0, 0, 0), 0, id="the last one is being written"),
        pytest.param([OLD] * 9, None, Limits(0, 0, 0), 8, id="all but the last"),
        pytest.param([], None, LIMITS, 0, id="none"),
        pytest.param(held(6), 1, LIMITS, 2, id="all needed, but above the hard cap"),
        pytest.param([FIRST, SECOND, CONTINUES, FOURTH], None, LIMITS, 3, id="a checkpoint comes first"),
        pytest.param(
            [FIRST, SECOND, CONTINUES, FOURTH._replace(checkpoint=False)], None, LIMITS, 1, id="or all stays"
        ),
        pytest.param([*OTHERS, *held(2)], 1, LIMITS, 3, id="another journal's need no keeping"),
        pytest.param(
            [FIRST, SECOND._replace(checkpoint=False), SECOND._replace(checkpoint=False, current=False)],
            11,
            LIMITS,
            0,
            id="a copy elsewhere is not the journal",
        ),
        # An open episode, an undelivered status, an unexported span: from their first record.
        *(
            pytest.param(held(4), keep_from_seq, LIMITS, gone, id=f"needed from {keep_from_seq} on")
            for keep_from_seq, gone in ((1, 0), (10, 0), (11, 1), (15, 1), (20, 1), (21, 2), (99, 2))
        ),
    ],
)
def test_the_oldest_go_while_there_is_a_reason(
    segments: list[Held], keep_from_seq: int | None, limits: Limits, gone: int
) -> None:
    """By size or age; needed segments stay, up to the hard cap."""
    assert removable(segments, NOW_NS, keep_from_seq, limits) == gone
