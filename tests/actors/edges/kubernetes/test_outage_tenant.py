"""``outage run`` on a real API server beside a tenant who may create pods and ConfigMaps."""

from __future__ import annotations

import json
import os
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.kubernetes.config_maps import PREFIX
from ebbtide.events.segment import segment_file_name
from tests.actors.edges.kubernetes.outage_rig import nodes
from tests.actors.edges.kubernetes.rights import granted
from tests.actors.edges.kubernetes.test_outage_program import (
    ACCOUNT,
    JOURNALS,
    declare,
    replica,
    rights,
    tainted,
)
from tests.node.bed import Bed
from tests.node.client import Api, Object, Refused
from tests.node.pods import PODS, pod
from tests.waiting import until

__all__ = ["rights"]

pytestmark = [pytest.mark.node]

ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
MEMORY_MIB_MAX = 256
MEASURED = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read()))
from ebbtide.cli import main
main()
"""
#: Clients of the test at a time.
AT_ONCE = 20


def peak_mib(pid: int) -> int:
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in each)
    return int(line.split()[1]) // 1024


async def each_of(
    work: Callable[[Any], Awaitable[object]], given: Iterable[Object | bytes], at_once: int = AT_ONCE
) -> None:
    rest = iter(given)

    async def some() -> None:
        for one in rest:
            await work(one)

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(some)


def nested(made: Object) -> bytes:
    """With ``managedFields`` deeper than a decoder skips; the API server stores 9 900 levels."""
    fields = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    made["metadata"]["managedFields"] = [{**fields, "fieldsV1": "deep"}]
    deep = '{"f:a":' * 2000 + "{}" + "}" * 2000
    return json.dumps(made).replace('"deep"', deep).encode()


def bombs() -> Iterator[Object | bytes]:
    """1.2 MB each, by a tenant with only `create pods`: what a controller may decode or keep."""
    long, at = 64 * 1024 * "x", "crowded"
    for number in range(60):
        made = pod(f"finalizers-{number}", at)
        made["metadata"]["finalizers"] = ["example.test/a"] * 60_000
        yield made
    for number in range(4):
        claims = [{"claimName": f"{long}{each}"} for each in range(16)]
        yield pod(f"names-{number}", at, volumes=claimed(claims))
        short = [{"claimName": "c"}] * 8_000
        yield pod(f"claims-{number}", at, volumes=claimed(short))
        yield pod(f"tolerations-{number}", at, tolerations=[{"key": "k", "operator": "Exists"}] * 10_000)
        made = pod(f"owners-{number}", at)
        owner = {"apiVersion": "v1", "kind": "K", "name": "n"}
        made["metadata"]["ownerReferences"] = [
            *({**owner, "uid": str(each)} for each in range(8_000)),
            {**owner, "uid": long, "name": long, "controller": True},
        ]
        made["metadata"]["annotations"] = {"a": 250_000 * "x"}
        yield made
        yield nested(pod(f"nested-{number}", at))


def claimed(claims: list[Object]) -> list[Object]:
    return [{"name": f"v{at}", "persistentVolumeClaim": each} for at, each in enumerate(claims)]


def crowd() -> Iterator[Object]:
    return (of_owner(f"crowd-{number}", "crowded") for number in range(1500))


def of_owner(name: str, node: str) -> Object:
    made, owner = pod(name, node), {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


@pytest.fixture
def _deep() -> Iterator[None]:
    """For the test's own decoder."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


def attached(number: int) -> Object:
    source = {"persistentVolumeName": f"v{number}"}
    spec = {"attacher": "a.b", "nodeName": "crowded", "source": source}
    return {"metadata": {"name": f"crowd-{number}"}, "spec": spec}


def piece_of(uid: str, number: int, offset: int, data: bytes = b"x") -> Object:
    words = {"offset": str(offset), "first": str(number), "writer": "evil"}
    meta = {
        "name": f"{PREFIX}-{uid}-{number:010d}",
        "labels": {"ebbtide.dev/node-uid": uid, "ebbtide.dev/at-rest": "true"},
        "annotations": {f"ebbtide.dev/{word}": text for word, text in words.items()},
    }
    return {"metadata": meta, "binaryData": {segment_file_name(1, bytes(16)): b64encode(data).decode()}}


@asynccontextmanager
async def emptied(api: Api) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            for each in (await api.get(f"{PODS}?limit=500"))["items"]:
                if "finalizers" in each["metadata"]:
                    await api.patch(f"{PODS}/{each['metadata']['name']}", {"metadata": {"finalizers": None}})
            await api.delete(f"{PODS}?gracePeriodSeconds=0")
            await api.delete(ATTACHMENTS)


@pytest.mark.usefixtures("_deep")
async def test_a_tenant_takes_no_memory_and_spoils_no_record(
    api_bed: Bed, rights: Path, tmp_path: Path
) -> None:
    """Pods of 1.2 MB and a crowd of pods on the dead node, attachments, and forged pieces of its journal: the
    controller stays below 256 MiB, taints and untaints, and its journal reads as a whole.
    """
    api = api_bed.api
    async with emptied(api), nodes(api_bed, "crowded", "neighbour") as (kubelet, _):
        await api.patch(kubelet.lease_path, {"spec": {"leaseDurationSeconds": 3600}})
        piece = partial(piece_of, kubelet.uid)
        await each_of(partial(api.post, PODS), bombs(), 2)
        await api.patch(kubelet.path, nested({"metadata": {}}))
        await each_of(partial(api.post, PODS), crowd())
        await each_of(partial(api.post, ATTACHMENTS), map(attached, range(1000)))
        # Before the controller's own, and 16 MiB apart.
        await each_of(
            partial(api.post, JOURNALS), (piece(number, number * 16 * 1024 * 1024) for number in range(1, 61))
        )
        async with replica(rights, tmp_path, "one") as leader:
            await kubelet.unheard()
            await declare(kubelet)
            await tainted(kubelet, 2)
            print(f"tainted: {peak_mib(leader.pid)} MiB")
            there = [each["metadata"]["name"] for each in (await api.get(JOURNALS))["items"]]
            newest = max(int(name.rpartition("-")[2]) for name in there)
            for at in range(1, 41):
                with suppress(Refused):  # the leader has this number
                    await api.post(JOURNALS, piece(newest + at, 0, bytes(700_000)))
            print(f"with forged pieces: {peak_mib(leader.pid)} MiB")
            # A flood of new pods, which name an owner of the lost ones.
            for number in range(300):
                await api.post(PODS, of_owner(f"new-{number}", "neighbour"))
                await api.delete(f"{PODS}/new-{number}?gracePeriodSeconds=0")
            await kubelet.report(boot="boot-2")
            await tainted(kubelet, 1)
            await until(lambda: "outage closed" in (tmp_path / "one.log").read_text(), "the end")
            print(f"peak memory of the controller: {peak_mib(leader.pid)} MiB")
            assert peak_mib(leader.pid) <= MEMORY_MIB_MAX
            leader.send_signal(signal.SIGTERM)
            await leader.wait()
        journal = f"configmaps:{ACCOUNT}/{kubelet.uid}"
        # All that a reader needs.
        lists = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
        reader = await granted(api_bed, "ebbtide-reader", [], others={ACCOUNT: lists})
        for kubeconfig, words in (
            (reader, ("replay", "verify", "--journal", journal)),
            (rights, ("outage", "ls", "--all", "--namespace", ACCOUNT)),
        ):
            argv = [sys.executable, "-c", MEASURED, *words]
            env = os.environ | {"KUBECONFIG": str(kubeconfig)}
            read = await trio.run_process(argv, env=env, capture_stdout=True, capture_stderr=True)
            peak = int(read.stderr.rpartition(b"VmHWM:")[2].split()[0]) // 1024
            print(f"peak memory of {' '.join(words[:2])}: {peak} MiB")
            assert peak <= MEMORY_MIB_MAX
