"""The warm table's own rules: what is in an inventory, and what is never in one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from actors.edges.cri import api_pb2 as api
from actors.edges.cri.annotations import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID
from actors.edges.cri.listing import Listing, own_pods
from actors.edges.cri.record import ToldFile
from actors.edges.cri.table import ContainerEntry, PodEntry, Table, Told
from actors.edges.cri.views import view
from actors.edges.process.endings import End
from actors.edges.process.spec import ContainerSpec


def pod(table: Table, uid: str, *names: str, sandbox: str = "") -> PodEntry:
    made = table.pods.setdefault(sandbox or f"s-{uid}", PodEntry(uid, "ns", uid, sandbox or f"s-{uid}"))
    for name in names:
        made.containers[name] = ContainerEntry(made, f"id-{uid}-{name}", ContainerSpec(name=name, argv=()))
    return made


def test_our_own_pod_is_in_no_wave() -> None:
    """The pod whose container's id stands in our own cgroup, or that we were told of, is left out."""
    table = Table(frozenset({"told"}))
    for uid in ("web", "ours", "told"):
        pod(table, uid, "main")
    cgroups = "4:pids:/kubepods/pod1/id-ours-main\n0::/\n"
    table.own |= own_pods(table.entries(), cgroups)
    assert [each.uid for each in table.active()] == ["web"]


def test_what_has_ended_is_in_no_inventory() -> None:
    """Only what runs has to be stopped: ended containers, and pods of which nothing runs, are out."""
    table = Table()
    both, gone = pod(table, "both", "a", "b"), pod(table, "gone", "a")
    both.containers["a"].finish(End(exit_code=0))
    gone.containers["a"].finish(End(exit_code=1))
    assert [each.uid for each in table.active()] == ["both"]
    assert [each.name for each in view(both).containers] == ["b"]


def test_what_runs_now_is_found_before_what_ran() -> None:
    """A pod whose sandbox was made anew: a stop is for the container that runs."""
    table = Table()
    pod(table, "web", "main", sandbox="old").containers["main"].finish(End(exit_code=0))
    new = pod(table, "web", "main", sandbox="new")
    assert table.find("web", "main") is new.containers["main"]
    new.containers["main"].finish(End(exit_code=2))
    assert table.find("web", "main") is new.containers["main"]
    assert table.find("web", "other") is None


def test_what_a_shutdown_was_told_is_kept_for_this_boot(tmp_path: Path) -> None:
    """The next daemon of this boot reads it; one of another boot, or of a damaged file, reads nothing."""
    told = [Told(uid="web", container="main", id="x")]
    ToldFile(tmp_path / "cri", "boot").store(told)
    assert ToldFile(tmp_path / "cri", "boot").load() == tuple(told)
    assert ToldFile(tmp_path / "cri", "other").load() == ()
    (tmp_path / "cri" / "told").write_bytes(b"\xc1")
    assert ToldFile(tmp_path / "cri", "boot").load() == ()


class Lists:
    """A runtime of which only its lists are asked: `actors.edges.cri.calling.Caller`."""

    def __init__(self) -> None:
        labels = {POD_UID: "web", POD_NAMESPACE: "ns", POD_NAME: "web"}
        self.sandboxes = [api.PodSandbox(id="s", labels=labels)]
        self.containers = [api.Container(id="c" * 64, pod_sandbox_id="s", labels={CONTAINER_NAME: "main"})]
        self.info = "{}"

    async def ready(self, seconds: float) -> None:
        """It always is."""

    async def call(self, name: str, request: Message, answer: type[Any], seconds: float, **more: Any) -> Any:
        running = api.ContainerStatus(state=api.CONTAINER_RUNNING)
        return {
            "ListPodSandbox": api.ListPodSandboxResponse(items=self.sandboxes),
            "ListContainers": api.ListContainersResponse(containers=self.containers),
            "PodSandboxStatus": api.PodSandboxStatusResponse(),
            "ContainerStatus": api.ContainerStatusResponse(status=running, info={"info": self.info}),
        }[name]

    repeat = call


@pytest.mark.parametrize(
    "info",
    ["{}", "", "no JSON", '{"pid": "x"}', f'{{"pid": {os.getpid()}}}'],
    ids=["empty", "nothing", "no-json", "no-number", "ours"],
)
async def test_a_container_without_a_process_here(info: str) -> None:
    """A virtual machine, or a number that is another process's here: its end is seen in the next list."""
    lists, table, new, gone = Lists(), Table(), [], []
    lists.info = info
    listing = Listing(lists, table, new.append, gone.append)
    await listing.refresh()
    (entry,) = new
    assert (entry.pid, entry.pidfd, gone) == (0, -1, [])
    assert [each.uid for each in table.active()] == ["web"]
    lists.containers = []
    await listing.refresh()
    assert gone == [entry]
    entry.finish(End())
    lists.sandboxes = []
    await listing.refresh()
    assert table.pods == {}
