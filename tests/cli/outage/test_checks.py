"""The rules of `outage doctor` on plain values: each finding once, and a healthy cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ebbtide.actors.edges.kubernetes.node_view import NodeView
from ebbtide.cli.doctor import print_findings
from ebbtide.cli.outage.outage_doctor import LEASES_NAMESPACE, rights
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import EvidenceRead
from ebbtide.outage.checks import ClusterCheck, NodeCheck, VolumeCheck, examine
from ebbtide.outage.configuration import ClusterApi, Ipmi, OutageConfiguration, Pool, PowerOff
from tests.commands import same_as_golden
from tests.deploy.rendering import rendered

GOLDEN = Path(__file__).parent / "golden"
UUID, OTHER = "4c4c4544-0042-3510-8052-b4c04f4d3132", "4c4c4544-0042-3510-8052-b4c04f4d3133"
BMC = EvidenceRead(
    source="redfish", name="10.0.0.7", verdict="on", begun_ns=0, identity_kind="systemUUID", identity=UUID
)
VIEW = NodeView("worker-1", "u", "1", "b", "True", UUID, "", "none", (), "")
ONE = NodeCheck(VIEW, Pool(name="rack", believe=("declared",)), ("csi.example.test",), (BMC,))
TWO = ONE._replace(
    view=VIEW._replace(name="worker-2", system_uuid=OTHER),
    sources=(replace(BMC, name="10.0.0.8", identity=OTHER),),
)
DISK = VolumeCheck("pv-1", "shop/data-db-0", "csi", "csi.example.test")
WELL = ClusterCheck(
    (1, 34), (ONE, TWO), "one_1234", "system:serviceaccount:ebbtide:ebbtide-outage", attached={}
)
STORED = WELL._replace(volumes=(DISK,), attached={"csi.example.test": True})


def first(sources: tuple[EvidenceRead, ...] = (BMC,), alive: str = "", **fields: object) -> ClusterCheck:
    """``fields``: of the first node's view."""
    view = VIEW._replace(**fields)  # type: ignore[arg-type]  # by name
    return WELL._replace(nodes=(ONE._replace(view=view, sources=sources, alive=alive), TWO))


def configured(**fields: object) -> ClusterCheck:
    return WELL._replace(configuration=OutageConfiguration(**fields))  # type: ignore[arg-type]  # by name


NEW = TWO._replace(view=VIEW._replace(name="new", system_uuid="u"), drivers=None, sources=())
#: A cluster whose Machines are in its management cluster.
NOTED = first(machine=("default", "m"))
NOTED = NOTED._replace(
    nodes=(NOTED.nodes[0]._replace(pool=Pool(name="rack", believe=("remediator",))), TWO), groups=("apps",)
)
HELD = Pool(
    name="rack",
    ipmi=Ipmi(username_file="/u", password_file="/p", address="x"),
    power_off=PowerOff(after_ns=60 * NS_PER_SECOND),
)

BOUND = Pool(
    name="rack", ipmi=Ipmi(username_file="/u", password_file="/p", address="{node}.bmc.x", identify="name")
)


@pytest.mark.parametrize(("seen", "found"), [
    (WELL, []),
    (WELL._replace(version=(1, 23)), ["critical server-too-old"]),
    (WELL._replace(version=(1, 25)), ["critical feature-off"]),
    (WELL._replace(version=(1, 27)), ["note feature-beta"]),
    (WELL._replace(version=(0, 0)), ["warning server-version-unknown"]),
    (WELL._replace(leader=""), ["critical no-leader"]),
    (WELL._replace(leader=None), []),
    (WELL._replace(create="500 failed calling webhook"), ["critical journal-blocked"]),
    (WELL._replace(blocked="no record could be stored for 34 s"), ["critical journal-blocked"]),
    (WELL._replace(denied=("patch nodes",)), ["critical rights"]),
    (WELL._replace(denied=None), ["note rights-unknown"]),
    (WELL._replace(policy=False), ["critical policy"]),
    (configured(dry_run=True), ["warning dry-run"]),
    (WELL._replace(configured=False), ["note no-configuration"]),
    (WELL._replace(unread=("list selfnoderemediations",)), ["warning remediator-rights"]),
    (NOTED, ["warning machine-elsewhere"]),
    (NOTED._replace(configuration=OutageConfiguration(cluster_api=ClusterApi(kubeconfig="/k"))), []),
    (NOTED._replace(groups=("apps", "cluster.x-k8s.io")), []),
    # Without the right to list groups, a pool that does not use them asks no question.
    (NOTED._replace(groups=()), []),
    (first(machine=("default", "m"))._replace(groups=("apps",)), []),
    (configured(pools=(HELD,)), ["warning power-off-held"]),
    (configured(effect="NoSchedule"), ["note no-schedule"]),
    (WELL._replace(groups=("apps", "self-node-remediation.medik8s.io")), ["note other-remediator"]),
    (WELL._replace(tolerating=("shop/calm-0",)), ["warning tolerates"]),
    (WELL._replace(unseen=("you may not",)), ["note unseen"]),
    (first(sources=()), ["warning no-source"]),
    (first(sources=(replace(BMC, error="no answer in 10 s"),)), ["critical source-unreachable"]),
    # Another one answers.
    (first(sources=(BMC, replace(BMC, error="401"))), ["warning source-unreachable"]),
    (first(sources=(replace(BMC, identity_kind="none", identity=""),)), ["critical source-no-identity"]),
    (first(sources=(replace(BMC, identity=OTHER),)), ["critical source-other-machine"]),
    (first(sources=(replace(BMC, verdict="off"),)), ["critical source-lies"]),
    (first(ready="False", sources=(replace(BMC, verdict="off"),)), []),
    (first(system_uuid="", sources=()), ["warning no-system-uuid", "warning no-source"]),
    (first(system_uuid=OTHER, sources=()), ["critical same-uuid", "warning no-source"]),
    (first(system_uuid="0" * 8 + "-0000-0000-0000-" + "0" * 12, sources=()),
     ["critical junk-uuid", "warning no-source"]),
    (WELL._replace(nodes=(ONE._replace(first_uuid=UUID), TWO._replace(first_uuid=UUID))),
     ["critical changed-uuid"]),
    (WELL._replace(nodes=(ONE, ONE._replace(view=VIEW._replace(name="worker-2"), first_uuid=OTHER))),
     ["critical changed-uuid", "critical same-uuid"]),
    (WELL._replace(nodes=tuple(each._replace(view=each.view._replace(provider_id="aws:///z/i-1"))
                               for each in (ONE, TWO))), ["critical same-provider"]),
    (first(sources=(replace(BMC, identity_kind="nodeName", identity="worker-1"),)), []),
    # Bound by name: no UUID matters.
    (WELL._replace(nodes=tuple(each._replace(pool=BOUND, first_uuid="u", sources=(),
                                             view=each.view._replace(system_uuid=UUID))
                               for each in (ONE, TWO))), ["warning no-source"]),
    (first(sources=(replace(BMC, identity_kind="nodeName", identity="worker-2"),)),
     ["critical source-other-machine"]),
    (first(taint="other"), ["warning other-taint"]),
    (first(taint="ours"), []),
    (first(alive="db-2"), ["note declared-alive"]),
    (first(alive="db-2", ready="False"), ["warning declared-alive"]),
    (STORED, ["note force-detach-timer"]),
    (STORED._replace(attached={}), ["warning driver-missing"]),
    (STORED._replace(attached={"csi.example.test": False}), ["note driver-no-attach"]),
    (STORED._replace(nodes=(ONE, TWO._replace(drivers=()))),
     ["warning driver-nowhere-else", "note force-detach-timer"]),
    (
     STORED._replace(nodes=(ONE, TWO, NEW)),
     ["warning no-source", "note force-detach-timer", "note no-csinode"]),
    (WELL._replace(volumes=(VolumeCheck("pv-2", "shop/log", "local"),)), ["warning volume-local"]),
    (WELL._replace(volumes=(VolumeCheck("pv-2", "", "hostPath"),)), ["warning volume-local"]),
    (WELL._replace(volumes=(VolumeCheck("pv-2", "", "other"),)), []),
])  # fmt: skip
def test_findings(seen: ClusterCheck, found: list[str]) -> None:
    findings = examine(seen)
    assert [f"{each.level} {each.code}" for each in findings if "may-lose" not in each.code] == found
    assert all(each.message and each.cure for each in findings)


def test_how_many_it_may_lose() -> None:
    """Of two nodes one; of one none, and with etcd's budget no control-plane node."""
    head = VIEW._replace(labels={"node-role.kubernetes.io/control-plane": ""})
    alone, held = WELL._replace(nodes=(ONE,)), WELL._replace(etcd=False)
    held = held._replace(nodes=(ONE._replace(view=head), TWO._replace(view=head._replace(name="worker-2"))))
    found = [next(each for each in examine(seen) if "may-lose" in each.code) for seen in (WELL, alone, held)]
    assert [f"{each.level} {each.code}" for each in found] == [
        "note may-lose",
        *["warning may-lose-none"] * 2,
    ]
    assert "lose at least 1 of 2 nodes" in found[0].message
    assert "etcd's PodDisruptionBudget" in found[2].message


def test_how_they_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    ill = STORED._replace(
        version=(1, 27),
        leader="",
        denied=("patch nodes", "list pods"),
        policy=False,
        tolerating=tuple(f"shop/calm-{at}" for at in range(5)),
        configuration=OutageConfiguration(pools=(HELD,)),
        nodes=(ONE._replace(sources=(replace(BMC, identity=OTHER),)), TWO._replace(sources=())),
    )
    print_findings(examine(ill))
    same_as_golden(GOLDEN / "doctor.txt", capsys.readouterr().out)


def test_the_rights_are_those_of_the_role() -> None:
    """The check asks for exactly the roles' rights."""
    assert _granted("outage") == {tuple(each) for each in rights("ebbtide")}
    assert any(each.namespace == LEASES_NAMESPACE for each in rights("ebbtide"))


def _granted(folder: str) -> set[tuple[str, ...]]:
    granted = set()
    for role in rendered(folder):
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in role.get("rules", ()):
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    where = role["metadata"].get("namespace", "")
                    granted |= {
                        (verb, resource, group, where, name)
                        for verb in rule["verbs"]
                        for group in rule["apiGroups"]
                    }
    return granted
