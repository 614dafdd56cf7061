"""``ebbtide outage run`` as a process: two replicas, a declaration, the way back, and a kubelet that lies."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_calls import rfc3339_now
from ebbtide.actors.edges.kubernetes.config_maps import PREFIX, ConfigMapStorage
from ebbtide.actors.edges.kubernetes.leadership import LEASE
from ebbtide.actors.edges.kubernetes.node_view import DECLARED_ANNOTATION
from tests.actors.edges.kubernetes.config_map_fake import read
from tests.actors.edges.kubernetes.outage_rig import UUID, Kubelet, nodes, outage
from tests.actors.edges.kubernetes.rig import NODE, linked
from tests.actors.edges.kubernetes.rights import (
    CLUSTER_RULES,
    JOURNAL_RULES,
    LEASE_RULES,
    WORK_RULES,
    granted,
)
from tests.actors.edges.proof_sources.serving import Server, answer, serving
from tests.commands import Ran
from tests.node.bed import Bed
from tests.node.client import Api, Refused
from tests.node.identities import kubelet as identity
from tests.node.pods import PODS, pod
from tests.waiting import until

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-replicas"
OWN_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{ACCOUNT}/leases/{LEASE}"
JOURNALS = f"/api/v1/namespaces/{ACCOUNT}/configmaps"
LEADS = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
CONFIGURATION = f"""
apiVersion: ebbtide/v1alpha1
kind: OutageConfiguration
namespace: {ACCOUNT}
brake: {{maxShare: 100%, minHealthy: 0}}
pools:
- name: all
  askKubelet: false
"""


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    # A leader of this test would continue an earlier test's open outages.
    for each in (await api_bed.api.get(JOURNALS))["items"]:
        if each["metadata"]["name"].startswith(PREFIX):
            await api_bed.api.delete(f"{JOURNALS}/{each['metadata']['name']}")
    with suppress(Refused):  # a killed replica's
        await api_bed.api.delete(OWN_LEASE)
    cluster = [*CLUSTER_RULES, *WORK_RULES]
    return await granted(api_bed, ACCOUNT, [*JOURNAL_RULES, LEADS], cluster, {"kube-node-lease": LEASE_RULES})


@asynccontextmanager
async def replica(rights: Path, folder: Path, name: str, more: str = "") -> AsyncIterator[trio.Process]:
    """Killed at the end of the block. ``more``: extra configuration."""
    configuration = folder / "outage.yaml"
    configuration.write_text(CONFIGURATION + more)
    argv = [sys.executable, "-c", "from ebbtide.cli import main; main()", "outage", "run"]
    argv += ["--config", str(configuration), "--kubeconfig", str(rights), "--replica", name]
    with (folder / f"{name}.log").open("wb") as log:
        process = await trio.lowlevel.open_process(argv, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        print((folder / f"{name}.log").read_text())


async def holder(bed: Bed) -> str:
    found = await bed.api.get(OWN_LEASE)
    return str(found["spec"]["holderIdentity"])


async def declare(kubelet: Kubelet) -> None:
    """Declare this boot off, as of its last heartbeat."""
    lease = await kubelet.bed.api.get(kubelet.lease_path)
    said = {"uid": kubelet.uid, "boot": "boot-1", "mark": lease["spec"]["renewTime"], "by": "somebody"}
    note = {DECLARED_ANNOTATION: json.dumps(said)}
    await kubelet.bed.api.patch(kubelet.path, {"metadata": {"annotations": note}})


async def tainted(kubelet: Kubelet, count: int) -> None:
    async def reached() -> bool:
        return len(await kubelet.taints()) == count

    await until(reached, f"{count} taints")


async def test_the_other_replica_goes_on(api_bed: Bed, rights: Path, tmp_path: Path) -> None:
    """The other replica removes a stopped leader's taint. The stopped one notices after it resumes."""
    async with nodes(api_bed, "declared", "neighbour") as (kubelet, _):
        async with replica(rights, tmp_path, "one") as first:
            await api_bed.api.until(
                OWN_LEASE.rpartition("/")[0],
                lambda found: any(
                    each["spec"].get("holderIdentity", "").startswith("one_") for each in found["items"]
                ),
            )
            async with replica(rights, tmp_path, "two") as second:
                await kubelet.unheard()
                await declare(kubelet)
                await tainted(kubelet, 2)
                first.send_signal(signal.SIGSTOP)
                await kubelet.report(boot="boot-2")
                await tainted(kubelet, 1)
                assert (await holder(api_bed)).startswith("two_")
                first.send_signal(signal.SIGCONT)
                log = tmp_path / "one.log"
                await until(lambda: "two_" in log.read_text(), "the first one waits")
                assert "leads no longer" in log.read_text()
                assert (await holder(api_bed)).startswith("two_")
                first.kill()
                second.send_signal(signal.SIGTERM)
                assert await second.wait() == 0
                assert await holder(api_bed) == ""
        async with linked(rights) as link:
            place = ConfigMapStorage(link, ACCOUNT, kubelet.uid, "reader")
            tags = [raw.tag for raw in (await read(place))[0]]
        assert tags.count("OutageBegan") == tags.count("OutOfService") == 1


#: In one chassis: the liar's, the victim's (`UUID`), and one that is off.
OWN, SPARE = "4c4c4544-0042-3510-8052-b4c04f4d0001", "4c4c4544-0042-3510-8052-b4c04f4d0009"
SYSTEMS = "/redfish/v1/Systems"
RESET = "#ComputerSystem.Reset"


def chassis(folder: Path) -> Server:
    server = Server(folder)
    machines = {"/s/own": (OWN, "On"), "/s/victim": (UUID.lower(), "On"), "/s/spare": (SPARE, "Off")}
    table: dict[str, object] = {SYSTEMS: {"Members": [{"@odata.id": path} for path in machines]}}
    for path, (uuid, power) in machines.items():
        actions = {RESET: {"target": f"{path}/reset"}}
        table |= {path: {"UUID": uuid, "PowerState": power, "Actions": actions}, f"{path}/reset": answer(204)}
    server.resources(table)
    for name in ("username", "password"):
        (folder / name).write_text("root\n")
    return server


async def test_a_kubelet_that_names_another_machine(api_bed: Bed, rights: Path, tmp_path: Path) -> None:
    """With its own credentials, under NodeRestriction: first its neighbour's machine, then one that is off.
    No command is sent and no taint is set, also by the next leader.
    """
    own, server = Api(api_bed.server, api_bed.secrets.authority, identity(NODE).token), chassis(tmp_path)

    async def recorded(kind: str, count: int) -> None:
        async def reached() -> bool:
            async with linked(rights) as link:
                place = ConfigMapStorage(link, ACCOUNT, liar.uid, "reader")
                await place.acquire("")
                return [raw.tag for raw in (await read(place))[0]].count(kind) >= count

        await until(reached, f"{count} of {kind}")

    async with nodes(api_bed, NODE, "victim", uuid=OWN) as (liar, victim):
        async with serving(server):
            more = (
                "  powerOff: {after: 10s}\n"
                f"  redfish: {{address: '{server.url}', certificate: {server.ca_file},"
                f" usernameFile: {tmp_path}/username, passwordFile: {tmp_path}/password}}\n"
            )
            async with replica(rights, tmp_path, "one", more):
                await api_bed.api.until(
                    JOURNALS,
                    lambda found: any("-machines-" in each["metadata"]["name"] for each in found["items"]),
                )
                await own.patch(f"{liar.path}/status", {"status": {"nodeInfo": {"systemUUID": UUID}}})
                await liar.unheard()
                await recorded("PowerOffGivenUp", 1)
                await own.patch(f"{liar.path}/status", {"status": {"nodeInfo": {"systemUUID": SPARE}}})
                await recorded("PowerOffGivenUp", 2)
            async with replica(rights, tmp_path, "two", more):
                await recorded("LeaderStarted", 2)
                await recorded("ProofRefused", 1)
            said = await outage(api_bed.kubeconfig, "status", NODE, "--namespace", ACCOUNT)
            assert "its systemUUID is not the first one" in said.out
            said = await outage(api_bed.kubeconfig, "doctor", "--config", tmp_path / "outage.yaml")
            assert "changed-uuid" in said.out
        assert {each.method for each in server.asked} == {"GET"}
        assert len(await liar.taints()) == len(await victim.taints()) == 1


async def test_from_a_persons_word_to_the_end(api_bed: Bed, rights: Path, tmp_path: Path) -> None:
    """A person declares, lists and inspects; the output shows the controller's actions."""

    async def ask(*arguments: str) -> Ran:
        # As administrator: other tests prove the minimal rights.
        return await outage(api_bed.kubeconfig, *arguments, "--namespace", ACCOUNT)

    async with nodes(api_bed, "declared", "neighbour") as (kubelet, _):
        made = await api_bed.api.post(PODS, pod("stays", "declared"))
        renewed = {"leaseDurationSeconds": 4, "renewTime": rfc3339_now().replace("Z", ".000000Z")}
        await api_bed.api.patch(kubelet.lease_path, {"spec": renewed})
        async with replica(rights, tmp_path, "one"):
            await kubelet.unheard()
            given = ("--off", "--by", "ann", "--reason", "no power", "--yes")
            said = await outage(api_bed.kubeconfig, "declare", "declared", *given)
            assert said.code == 0, said.err
            print(said.err, said.out, sep="")
            await tainted(kubelet, 2)
            for kind, name, uid, reason, said in (
                ("Node", "declared", "declared", "OutOfService", "out of service, proved by declared ann"),
                ("Pod", "stays", made["metadata"]["uid"], "NodeOutage", "Its node is down: "),
            ):
                # As `kubectl describe` asks.
                about = {"kind": kind, "name": name, "uid": uid}
                fields = ",".join(f"involvedObject.{key}={value}" for key, value in about.items())
                await api_bed.api.until(
                    f"/api/v1/namespaces/default/events?fieldSelector={fields}",
                    lambda found, reason=reason, said=said: any(
                        each["reason"] == reason and said in each["message"] for each in found["items"]
                    ),
                )
            await api_bed.api.delete(f"{PODS}/stays?gracePeriodSeconds=0")
            with trio.fail_after(20):
                while "recovering" not in (listed := await ask("ls")).out:
                    assert listed.code == 0, listed.err
                    if " out " in listed.out:
                        break
            print(listed.out, listed.err, sep="")
            leader, _, _, row, *_ = map(str.split, listed.out.splitlines())
            assert (leader[0], leader[1][:4]) == ("leader", "one_")
            assert row[0] == "declared"
            assert "declared ann" in listed.out
            looked = await ask("status", "declared")
            print(looked.out, looked.err, sep="")
            told = dict(line.split(maxsplit=1) for line in looked.out.splitlines() if line)
            assert "out-of-service taint: ours" in told["now"]
            assert told["proved"].split()[:3] == ["by", "declared", "ann,"]
            assert "stands" in told["taint"]
            explained = await ask("explain", "declared")
            print(explained.out)
            assert explained.out.startswith("cause  declared is out of service, and nothing of it hangs")
            await kubelet.report(boot="boot-2")
            await tainted(kubelet, 1)
            with trio.fail_after(20):
                while "no outage is open" not in (await ask("ls")).err:
                    pass
            assert "recovered" in (await ask("ls", "--all")).out
