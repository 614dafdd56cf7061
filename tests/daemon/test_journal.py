"""The journal of the real daemon: one writer, its own machine, torn, corrupt, on disks that fail."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest
import trio

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import Armed, PodEnded, ReleaseLock, ShutdownBegan
from ebbtide.events.facts import StorageFailed, StorageMoved
from ebbtide.events.reader import History
from ebbtide.events.seal import SEALS_FILE, checked_seals, parse_seals
from tests.daemon.rig import Rig

pytestmark = pytest.mark.root

#: Fills what becomes free, until it is killed with its namespace.
FILL = 'n=0; while :; do n=$((n+1)); head -c 4096 /dev/zero >> "$0/fill" 2>/dev/null || sleep 0.01; done'


def segments(rig: Rig) -> list[Path]:
    return sorted(rig.journal.glob("*.ebj"))


async def test_a_second_daemon_is_refused_by_name_and_pid(rig: Rig) -> None:
    """One writer of a journal, one user of a runtime folder: the first is named, exit 2, and it goes on."""
    await rig.start()
    first = f"ebbtide (process {rig.own_pid})"
    for words, doing in (((), "runs with"), (("--runtime", str(rig.folder / "other")), "writes the journal")):
        said = await rig.refused(*words)
        assert said.count("\n") == 1
        assert f"{first} {doing}" in said
    assert len(await rig.bed.ours()) == 1


async def test_another_machines_journal_is_refused(rig: Rig) -> None:
    """One line that names the cure, exit 2, and nothing is changed."""
    await rig.start()
    await rig.stop()
    before = [(path.name, path.read_bytes()) for path in segments(rig)]
    other = rig.folder / "machine-id"
    other.write_text("00112233445566778899aabbccddeeff\n")
    await rig.inside("mount", "--bind", str(other), "/etc/machine-id")
    said = await rig.refused()
    assert said.count("\n") == 1
    assert "written by machine" in said
    assert "--journal" in said
    assert [(path.name, path.read_bytes()) for path in segments(rig)] == before


async def test_a_torn_tail_is_used(rig: Rig) -> None:
    """What a power loss leaves: everything before the tear counts, and a line says so."""
    await rig.start()
    await rig.kill()
    with open(segments(rig)[-1], "ab") as last:
        last.write(os.urandom(37))
    await rig.start()
    assert "tail is torn" in rig.log()
    assert len(rig.events(Armed)) == 2


async def test_a_corrupt_journal_is_left_and_another_begun(rig: Rig) -> None:
    """Damage below what was durable: it says so, begins a journal beside it, and protects the node."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    await rig.stop()
    damaged = segments(rig)[-1]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    await rig.start()
    assert "the journal is corrupt" in rig.log()
    assert len({path.stem.rpartition("-")[2] for path in segments(rig)}) == 2
    assert damaged.read_bytes() == content
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]


async def test_a_disk_that_fills_in_a_shutdown(rig: Rig) -> None:
    """The journal goes on at the next location, the loss is on record, and nobody waits for it."""
    rig.configure({0: 4, 1000: 4})
    rig.pod("web", "after=1", hook=0.5)
    rig.pod("db", "after=0.5", priority=1000)
    rig.journal.mkdir()
    await rig.inside("mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tiny", str(rig.journal))
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.inside, "bash", "-c", FILL, str(rig.journal))
        await rig.bed.power_off()
        await rig.bed.started(12)
        nursery.cancel_scope.cancel()
    assert [mark.what for mark in rig.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [event.outcome for event in rig.events(PodEnded)] == ["graceful", "graceful"]
    assert "No space left" in rig.events(StorageFailed)[0].error
    assert rig.events(StorageMoved)[0].location == str(rig.fallback)
    assert len(rig.events(ReleaseLock)) == 1


async def test_a_journal_that_is_read_only_at_the_start(rig: Rig) -> None:
    """It begins at the next location, says so, and is armed."""
    rig.pod("web")
    rig.journal.mkdir()
    await rig.inside("mount", "-t", "tmpfs", "-o", "ro", "frozen", str(rig.journal))
    await rig.start()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]
    await rig.recorded(ReleaseLock)
    assert str(rig.journal) in rig.events(StorageFailed)[0].location


async def test_a_journal_that_is_removed(rig: Rig) -> None:
    """Somebody removes the directory: the shutdown runs, and the next start has a journal again."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    await rig.inside("rm", "-r", str(rig.journal))
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]
    await rig.kill()
    await rig.bed.reset()
    await rig.start()
    assert len(rig.events(Armed)) == 1


@pytest.mark.parametrize("reader", ["gone", "stuck"])
async def test_a_log_that_nobody_reads(rig: Rig, reader: str) -> None:
    """Late in a shutdown the system's log is gone: lines are lost, no pod is."""
    theirs, ours = os.pipe()
    if reader == "gone":
        os.close(theirs)
    else:
        os.set_blocking(ours, False)
        while os.write(ours, b"x" * 4096) == 4096 and not _full(ours):
            pass
        os.set_blocking(ours, True)
    rig.pod("web", hook=0.2)
    rig.launch(log=ours)
    os.close(ours)
    await rig.status("armed")
    await rig.up("web")
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    await rig.recorded(ReleaseLock)
    assert len(rig.events(ShutdownBegan)) == 1


def _full(pipe: int) -> bool:
    return not select.select([], [pipe], [], 0)[1]


async def test_a_stopped_daemon_leaves_its_journal_sealed(rig: Rig) -> None:
    """The last record that is durable, by a key that is gone; what somebody adds later is not sealed."""
    await rig.start()
    key = rig.folder / "seal-key"
    key.write_text(await rig.journal_verb("seal-key", "--journal", str(rig.journal)))
    await rig.stop()
    seals = parse_seals((rig.journal / SEALS_FILE).read_bytes())
    (seal,) = checked_seals(seals, bytes.fromhex(key.read_text()))
    *_, last = History([DirectorySource(rig.journal)]).raw()
    assert (seal.seq, seal.head) == (last.seq, last.hash.hex())
    # The next one goes on where it was.
    await rig.start()
    await rig.stop()
    seals = parse_seals((rig.journal / SEALS_FILE).read_bytes())
    assert [each.seq > 0 for each in checked_seals(seals, bytes.fromhex(key.read_text()))] == [True, True]
