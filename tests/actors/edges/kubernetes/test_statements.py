"""What stands on a Node of a real API server, as sources of proof: written as its authors write it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from ebbtide.actors.edges.kubernetes.node_view import (
    ALIVE_ANNOTATION,
    CLOUD_SHUTDOWN,
    DECLARED_ANNOTATION,
    LEASES_PATH,
    ClusterView,
)
from ebbtide.actors.edges.kubernetes.node_writes import DetachCertificates, NodeWriter
from ebbtide.actors.edges.linux.proc import BOOT_ID_FILE
from ebbtide.actors.edges.proof.statements import OTHER_BOOT, STATED, StatementsEdge, StatementSource
from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import PublishCertificate
from ebbtide.events.outage import EvidenceRead
from tests.actors.edges.kubernetes.outage_rig import OTHERS, Kubelet
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import granted
from tests.actors.edges.kubernetes.test_node_edge import CLUSTER_RULES, LEASE_RULES
from tests.actors.edges.process.process_bed import Outbox
from tests.node.bed import Bed

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-outage-statements"


class Clock:
    def mono_ns(self) -> int:
        return int(trio.current_time() * 1e9)

    def wall_ns(self) -> int:
        raise AssertionError("nobody asks for it")


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(api_bed, ACCOUNT, [], CLUSTER_RULES, {"kube-node-lease": LEASE_RULES})


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    made = Kubelet(api_bed, "worker")
    await made.register(ready="Unknown")
    yield made
    await made.remove()


@asynccontextmanager
async def telling(rights: Path, kubelet: Kubelet) -> AsyncIterator[Outbox]:
    async with linked(rights) as link, trio.open_nursery() as nursery:
        view, box = ClusterView(), Outbox()
        nursery.start_soon(view.run, link)
        await view.listed()
        sources = [StatementSource(each, view, kubelet.name, kubelet.uid) for each in STATED]
        nursery.start_soon(StatementsEdge(sources, view, kubelet.name, Clock()).run, box)
        yield box
        nursery.cancel_scope.cancel()


async def test_a_certificate_of_the_daemon_and_its_end(rights: Path, kubelet: Kubelet) -> None:
    """Written by the daemon's own edge; one that is not safe takes the safe one back."""
    async with telling(rights, kubelet) as box, linked(rights) as link:
        daemon = DetachCertificates(NodeWriter(link, kubelet.name), lambda key: "")
        assert await daemon.publish(PublishCertificate(key="a", safe=True, ended=3), box) == Ending()
        (said,) = await box.wait_for(EvidenceRead, source="certificate", verdict="off")
        assert (said.identity_kind, said.identity) == ("nodeUID", kubelet.uid)
        assert said.boot_id == BOOT_ID_FILE.read_text().strip()
        unsafe = PublishCertificate(key="b", safe=False, running=("pod",))
        assert await daemon.publish(unsafe, box) == Ending()
        await box.wait_for(EvidenceRead, source="certificate", verdict="unknown")
        assert len(box.of(EvidenceRead)) == 2


async def test_a_persons_word_names_the_lease_as_it_stands_there(rights: Path, kubelet: Kubelet) -> None:
    """Its mark is the lease's renewTime to the letter, so it is compared by being the same."""
    async with telling(rights, kubelet) as box:
        mark = (await kubelet.bed.api.get(f"{LEASES_PATH}/{kubelet.name}"))["spec"]["renewTime"]
        said = {
            "uid": kubelet.uid,
            "boot": "boot-1",
            "mark": mark,
            "by": "ann",
            "reason": "burnt",
            "seconds": 9,
        }
        annotations = {DECLARED_ANNOTATION: msgspec.json.encode(said).decode()}
        await kubelet.bed.api.patch(kubelet.path, {"metadata": {"annotations": annotations}})
        (told,) = await box.wait_for(EvidenceRead, source="declared", name="ann", verdict="off")
        assert (told.identity, told.boot_id, told.mark, told.valid_seconds) == (
            kubelet.uid,
            "boot-1",
            mark,
            9,
        )
        assert "burnt" not in repr(told)
        await kubelet.bed.api.patch(kubelet.path, {"metadata": {"annotations": {DECLARED_ANNOTATION: None}}})
        await box.wait_for(EvidenceRead, source="declared", name="ann", verdict="unknown")


async def test_a_word_that_it_lives_until_it_boots(rights: Path, kubelet: Kubelet) -> None:
    """By whom; it is about one boot, and says nothing of the next."""
    async with telling(rights, kubelet) as box:
        said = {"uid": kubelet.uid, "boot": "boot-1", "by": "db-2", "seconds": 600, "reason": "it answers"}
        await kubelet.annotate({ALIVE_ANNOTATION: msgspec.json.encode(said).decode()})
        (told,) = await box.wait_for(EvidenceRead, source="peer", name="db-2", verdict="on")
        assert (told.identity_kind, told.identity, told.boot_id) == ("nodeUID", kubelet.uid, "boot-1")
        assert "it answers" not in repr(told)
        await kubelet.report(boot="boot-2", ready="Unknown")
        await box.wait_for(EvidenceRead, source="peer", name="db-2", verdict="unknown", error=OTHER_BOOT)


async def test_the_cloud_controllers_taint_until_the_node_speaks(rights: Path, kubelet: Kubelet) -> None:
    """Ready under it: it is the taint of the boot of before."""
    async with telling(rights, kubelet) as box:
        taint = {"key": CLOUD_SHUTDOWN, "effect": "NoSchedule"}
        await kubelet.bed.api.patch(kubelet.path, {"spec": {"taints": [OTHERS, taint]}})
        await box.wait_for(EvidenceRead, source="cloud-taint", verdict="off", identity=kubelet.uid)
        await kubelet.report(boot="boot-2")
        await box.wait_for(EvidenceRead, source="cloud-taint", verdict="unknown")
        await kubelet.unheard()
        await kubelet.renew()
        assert [each.verdict for each in box.of(EvidenceRead)] == ["off", "unknown"]
