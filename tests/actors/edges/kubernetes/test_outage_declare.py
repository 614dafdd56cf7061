"""``ebbtide outage declare`` on a real API server: the statements it writes and refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_calls import ApiNode
from ebbtide.actors.edges.kubernetes.node_view import DECLARED_ANNOTATION, Declared, read_declared
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage import outage_declare
from ebbtide.cli.outage.outage_common import Cluster
from tests.actors.edges.kubernetes.outage_rig import Kubelet, outage
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import granted
from tests.commands import Ran
from tests.node.bed import Bed

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-person"
#: The minimal rights of a person.
NODE_RULES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
LEASE_RULES = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]
#: A renewal of such a lease is missed after 1.15 s.
LEASE_SECONDS = 4


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(api_bed, ACCOUNT, [], NODE_RULES, {"kube-node-lease": LEASE_RULES})


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    made = Kubelet(api_bed, "worker")
    await made.register()
    await api_bed.api.patch(made.lease_path, {"spec": {"leaseDurationSeconds": LEASE_SECONDS}})
    await made.unheard()
    yield made
    await made.remove()


async def declare(rights: Path, *arguments: str) -> Ran:
    return await outage(rights, "declare", "worker", *arguments)


async def test_a_statement_and_its_end(rights: Path, kubelet: Kubelet) -> None:
    lease = await kubelet.bed.api.get(kubelet.lease_path)
    mark = lease["spec"]["renewTime"]
    more = ("--for", "2h", "--reason", "the rack is dark")
    ran = await declare(rights, "--off", "--by", "ann", *more, "--yes")
    told = "declared: worker is off, by ann; 'ebbtide outage status worker' shows what follows\n"
    assert (ran.code, ran.out) == (0, told)
    # The command has printed the node's state.
    for each in (kubelet.uid, "boot-1", mark, "Unknown", "2 h"):
        assert each in ran.err
    said = json.loads((await kubelet.annotations())[DECLARED_ANNOTATION])
    node = msgspec.convert(await kubelet.bed.api.get(kubelet.path), ApiNode)
    assert read_declared(node) == Declared(kubelet.uid, "boot-1", mark, "ann", 7200, at=said["at"])
    assert said["reason"] == "the rack is dark"
    ran = await declare(rights, "--withdraw")
    assert (ran.code, ran.out) == (0, "withdrawn: worker is no longer declared off\n")
    assert DECLARED_ANNOTATION not in await kubelet.annotations()
    for words in (("--withdraw",), ("--off", "--withdraw")):
        assert (await declare(rights, *words)).out == "worker is not declared off\n"


async def test_a_node_that_lives(rights: Path, kubelet: Kubelet) -> None:
    """Ready, or renewed between two readings: no write happens."""
    await kubelet.report()
    ran = await declare(rights, "--off", "--by", "ann", "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("ebbtide: worker is Ready: it lives")
    await kubelet.unheard()
    async with trio.open_nursery() as nursery:

        async def renew() -> None:
            while True:
                await kubelet.renew()
                await trio.sleep(0.3)

        nursery.start_soon(renew)
        ran = await declare(rights, "--off", "--by", "ann", "--yes")
        nursery.cancel_scope.cancel()
    assert ran.code == 2
    assert "ebbtide: worker renewed its lease" in ran.err
    assert DECLARED_ANNOTATION not in await kubelet.annotations()


async def test_a_node_of_the_same_name(rights: Path, kubelet: Kubelet) -> None:
    """Recreated between look and write: the statement does not apply."""
    async with linked(rights) as link:
        cluster = Cluster(link)
        seen = await outage_declare.read_node(cluster, "worker")
        await kubelet.remove()
        await kubelet.register()
        await kubelet.unheard()
        said = outage_declare.statement_of(seen, "ann", 60, "")
        with pytest.raises(Refused, match="was deleted and made anew meanwhile"):
            await outage_declare.write_off(cluster, "worker", seen, said)
    assert DECLARED_ANNOTATION not in await kubelet.annotations()


async def test_bad_requests(rights: Path, kubelet: Kubelet) -> None:
    for arguments, said in (
        ((), "say what to declare"),
        (("--off", "--alive", "--withdraw"), "say what to declare"),
        (("--off", "--yes"), "say who you are with --by"),
        (("--off", "--by", "a b"), "up to 64 letters"),
        (("--off", "--by", "ann", "--for", "200h"), "from 1s to 168h"),
        (("--off", "--by", "ann"), "standard input is no terminal: use --yes"),
    ):
        ran = await declare(rights, *arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert said in ran.err.splitlines()[-1]
    ran = await outage(rights, "declare", "nobody", "--off", "--by", "ann")
    assert (ran.code, ran.err) == (2, "ebbtide: there is no Node nobody: 'kubectl get nodes' lists them\n")
