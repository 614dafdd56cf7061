"""``ebbtide outage ls`` and ``status`` on a real API server: journals that lie there, Nodes as they are."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_calls import rfc3339_now
from tests.actors.edges.kubernetes.outage_rig import Kubelet
from tests.actors.edges.kubernetes.rights import granted
from tests.actors.edges.kubernetes.test_outage_program import ACCOUNT as REPLICAS
from tests.actors.edges.kubernetes.test_outage_program import replica, tainted
from tests.actors.edges.kubernetes.test_outage_program import rights as running_rights
from tests.commands import Ran, ebbtide
from tests.node.bed import Bed

__all__ = ["running_rights"]

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-looks"
#: What a person needs, and nothing else.
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
NODE_RULES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
LEASE_RULES = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(api_bed, ACCOUNT, RULES, NODE_RULES, {"kube-node-lease": LEASE_RULES})


async def outage(rights: Path, *arguments: str) -> Ran:
    words: tuple[str | Path, ...] = ("outage", *arguments, "--kubeconfig", rights, "--namespace", ACCOUNT)
    return await trio.to_thread.run_sync(partial(ebbtide, *words))


async def test_from_a_persons_word_to_the_end(api_bed: Bed, running_rights: Path, tmp_path: Path) -> None:
    """A controller runs, and a person declares, lists and looks: what it does is what they are told."""
    kubelet, others = Kubelet(api_bed, "declared"), Kubelet(api_bed, "neighbour")
    await kubelet.register()
    await others.register()
    # It is not missed in all this time.
    await api_bed.api.patch(others.lease_path, {"spec": {"leaseDurationSeconds": 3600}})
    renewed = {"leaseDurationSeconds": 4, "renewTime": rfc3339_now().replace("Z", ".000000Z")}
    await api_bed.api.patch(kubelet.lease_path, {"spec": renewed})

    async def ask(*arguments: str) -> Ran:
        # As the administrator: which rights are enough, other tests say.
        words: tuple[str | Path, ...] = ("outage", *arguments, "--kubeconfig", api_bed.kubeconfig)
        return await trio.to_thread.run_sync(partial(ebbtide, *words))

    try:
        async with replica(running_rights, tmp_path, "one"):
            await kubelet.unheard()
            said = await ask("declare", "declared", "--off", "--by", "ann", "--reason", "no power", "--yes")
            assert said.code == 0, said.err
            print(said.err, said.out, sep="")
            await tainted(kubelet, 2)
            with trio.fail_after(20):
                while "recovering" not in (listed := await ask("ls", "--namespace", REPLICAS)).out:
                    assert listed.code == 0, listed.err
                    if " out " in listed.out:
                        break
            print(listed.out, listed.err, sep="")
            row = listed.out.splitlines()[1].split()
            assert row[0] == "declared"
            assert "declared ann" in listed.out
            looked = await ask("status", "declared", "--namespace", REPLICAS)
            print(looked.out, looked.err, sep="")
            told = dict(line.split(maxsplit=1) for line in looked.out.partition("\n\n")[0].splitlines())
            assert "out-of-service taint: ours" in told["now"]
            assert told["proved"].split()[:3] == ["by", "declared", "ann,"]
            assert "stands" in told["taint"]
            explained = await ask("explain", "declared", "--namespace", REPLICAS)
            print(explained.out)
            assert explained.out.startswith("cause  declared is out of service, and nothing of it hangs")
            await kubelet.report(boot="boot-2")
            await tainted(kubelet, 1)
            with trio.fail_after(20):
                while "no outage is open" not in (await ask("ls", "--namespace", REPLICAS)).err:
                    pass
            assert "recovered" in (await ask("ls", "--all", "--namespace", REPLICAS)).out
    finally:
        await kubelet.remove()
        await others.remove()
