"""Manifests that appear, change and vanish, beside running pods."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.pod_spec import ProcessSpec
from ebbtide.actors.edges.process import process_edge
from ebbtide.actors.edges.process.process_edge import ManifestFound, ManifestSource, ProcessEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import StartPod
from ebbtide.events.facts import ContainerExited, ContainerStarted, ManifestRejected, PodAppeared
from ebbtide.events.values import Pod
from ebbtide.manifests import load_local_pods
from tests.actors.edges.process.process_bed import Bed, Outbox, nothing_left, pod_of, shell
from tests.actors.edges.test_documents import merge_keys
from tests.waiting import until


def load(path: Path) -> list[tuple[Pod, ProcessSpec]]:
    return pods_in(path.read_text())


def pods_in(text: str) -> list[tuple[Pod, ProcessSpec]]:
    """One pod per line: its UID and its shell script."""
    pods = []
    for line in text.splitlines():
        uid, colon, script = line.partition(": ")
        if not colon:
            raise ValueError(f"line {line!r} is no pod")
        pods.append(pod_of(uid, shell(script)))
    return pods


class Folder:
    """A manifest folder and an edge that watches it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.manifests = place / "manifests"
        self.manifests.mkdir(exist_ok=True)
        self.outbox = Outbox()

    def write(self, name: str, text: str) -> None:
        """Replace the file atomically, as an editor does."""
        temporary = self.manifests / f".{name}.tmp"
        temporary.write_text(text)
        os.replace(temporary, self.manifests / name)

    def edge(self) -> ProcessEdge:
        return ProcessEdge(self.place / "state", manifests=self.manifests, load=load, use_cgroups=False)


@asynccontextmanager
async def watching(edge: ProcessEdge, outbox: Outbox) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, outbox)
        yield
        nursery.cancel_scope.cancel()
    edge.close()


async def appeared(folder: Folder, count: int) -> list[str]:
    return [fact.pod.uid for fact in await folder.outbox.wait_for(PodAppeared, count)]


async def test_a_folder_is_read_and_followed(tmp_path: Path) -> None:
    """Announce existing files by name, later ones as they come; ignore other files."""
    folder = Folder(tmp_path)
    folder.write("b.yaml", "two: exit 0")
    folder.write("a.json", "one: exit 0\n")
    folder.write("notes.txt", "nonsense")
    folder.write(".hidden.yaml", "nonsense")
    async with watching(folder.edge(), folder.outbox):
        assert await appeared(folder, 2) == ["one", "two"]
        folder.write("c.yml", "three: exit 0\nfour: exit 0\n")
        assert await appeared(folder, 4) == ["one", "two", "three", "four"]
        folder.write("a.json", "one: exit 1\n")
        assert await appeared(folder, 5) == ["one", "two", "three", "four", "one"]
        assert not folder.outbox.of(ManifestRejected)


async def test_a_broken_manifest_is_rejected_once_and_harms_no_other(tmp_path: Path) -> None:
    """A broken file is reported once with path and reason; after a fix its pods start."""
    folder = Folder(tmp_path)
    folder.write("bad.yaml", "nonsense")
    folder.write("good.yaml", "one: exit 0")
    async with watching(folder.edge(), folder.outbox):
        assert await appeared(folder, 1) == ["one"]
        rejected = ManifestRejected(
            path=str(folder.manifests / "bad.yaml"), error="line 'nonsense' is no pod"
        )
        assert await folder.outbox.wait_for(ManifestRejected) == [rejected]
        folder.write("bad.yaml", "two: exit 0")
        assert await appeared(folder, 2) == ["one", "two"]
        assert folder.outbox.of(ManifestRejected) == [rejected]


async def test_what_stands_among_the_manifests_holds_nobody_up(tmp_path: Path) -> None:
    """A FIFO and a merge bomb do not delay the others."""
    folder = Folder(tmp_path)
    os.mkfifo(folder.manifests / "a.yaml")
    folder.write("b.yaml", merge_keys(40_000))
    folder.write(
        "c.yaml",
        "kind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: main, command: [sh, -c, exit 0]}]}\n",
    )
    edge = ProcessEdge(
        tmp_path / "state", manifests=folder.manifests, load=load_local_pods, use_cgroups=False
    )
    async with watching(edge, folder.outbox):
        assert len(await appeared(folder, 1)) == 1
        fifo, merged = await folder.outbox.wait_for(ManifestRejected, 2)
    assert "no regular file" in fifo.error
    assert "b.yaml" in merged.path


async def test_a_half_written_manifest_is_given_time(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A half-written file is read again a moment later."""
    folder, read = Folder(tmp_path), list[str]()

    def load_and_write_the_rest(path: Path) -> list[tuple[Pod, ProcessSpec]]:
        read.append(path.read_text())
        path.write_text("two: exit 0")
        return pods_in(read[-1])

    folder.write("a.yaml", "tw")
    changes = ManifestSource(folder.manifests, load_and_write_the_rest).changes()
    (found,) = await anext(changes)
    assert isinstance(found, ManifestFound)
    assert ([pod.uid for pod, _ in found.pods], found.error) == (["two"], "")
    assert read == ["tw", "two: exit 0"]
    assert trio.current_time() == process_edge.HALF_WRITTEN_SECONDS
    await changes.aclose()


async def test_a_running_pod_is_not_disturbed_by_its_manifest(tmp_path: Path) -> None:
    """The pod continues after a change, a move or a removal; put back after its end, it starts anew."""
    folder = Folder(tmp_path)
    folder.write("a.yaml", "one: exec sleep 1000")
    edge = folder.edge()
    bed = Bed(tmp_path, edge, folder.outbox)
    async with watching(edge, folder.outbox):
        assert await bed.start("one") == Ending()
        folder.write("a.yaml", "one: exit 1")
        os.rename(folder.manifests / "a.yaml", folder.manifests / "b.yaml")
        folder.write("c.yaml", "two: exit 0")
        assert await appeared(folder, 2) == ["one", "two"]
        assert not folder.outbox.of(ManifestRejected)
        await bed.signal("one")
        await bed.exited("one")
        (folder.manifests / "b.yaml").unlink()
        folder.write("d.yaml", "three: exit 0")
        await appeared(folder, 3)
        folder.write("b.yaml", "one: exit 7")
        assert await appeared(folder, 4) == ["one", "two", "three", "one"]
        assert await bed.order(StartPod(key="again", uid="one")) == Ending()
        assert (await folder.outbox.wait_for(ContainerExited, 2))[1].exit_code == 7
        assert len(folder.outbox.of(ContainerStarted)) == 2
        await nothing_left(bed)


async def test_a_folder_that_goes_and_comes_back_is_found_again(tmp_path: Path) -> None:
    """Without the folder, stopped pods are forgotten; its return announces them again."""
    folder = Folder(tmp_path)
    folder.write("a.yaml", "one: exit 0")
    edge = folder.edge()
    async with watching(edge, folder.outbox):
        await appeared(folder, 1)
        (folder.manifests / "a.yaml").unlink()
        folder.manifests.rmdir()
        await until(lambda: not edge._table.pods, "the folder's end is not seen")
        folder.manifests.mkdir()
        folder.write("a.yaml", "one: exit 0")
        assert await appeared(folder, 2) == ["one", "one"]


async def test_a_folder_that_cannot_be_read_keeps_its_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reported once. No pod counts as removed, and later files are read."""
    folder = Folder(tmp_path)
    folder.write("a.yaml", "one: exit 0")
    source = ManifestSource(folder.manifests, load)
    changes = source.changes()
    assert [type(change) for change in await anext(changes)] == [ManifestFound]

    def fail(self: Path) -> list[Path]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "iterdir", fail)
    for rejected in ([str(folder.manifests)], []):
        folder.write("b.yaml", "two: exit 0")
        assert [str(change.path) for change in await anext(changes)] == rejected
    monkeypatch.undo()
    folder.write("c.yaml", "three: exit 0")
    assert [change.path.name for change in await anext(changes)] == ["b.yaml", "c.yaml"]
    await changes.aclose()
