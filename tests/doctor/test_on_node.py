"""``doctor`` and ``plan`` on a real node with logind, kubelet, containerd and API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from ebbtide.actors.edges.logind_reading import DROP_IN_FOLDER_DEFAULT, DROP_IN_NAME
from tests.node.bed import Bed
from tests.node.bringing_up import bring_up
from tests.node.client import Object
from tests.node.contenders import OFF
from tests.node.ebbtide import PROGRAM, Daemon, parts_of
from tests.node.identities import Client, kubelet
from tests.node.parts import API, Member
from tests.node.pods import PODS, container, pod, remove_all, running, static
from tests.node.serving import served

COMMAND_SECONDS_MAX = 60
PERIODS = [
    {"priority": 0, "shutdownGracePeriodSeconds": 10},
    {"priority": 2_000_000_000, "shutdownGracePeriodSeconds": 10},
]


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def configured(bed: Bed, member: Member, client: Client | None, folder: Path, **node: Any) -> Path:
    """A configuration with that node's parts; ``client`` None: without an API server."""
    parts = parts_of(member)
    if client is not None:
        name = f"doctor-{client.user.replace(':', '-')}"
        parts["kubeconfig"] = str(bed.secrets.kubeconfig(client, API, name))
    path = folder / "config.yaml"
    kind = {"apiVersion": "ebbtide/v1alpha1", "kind": "EbbtideConfiguration"}
    fields = {"shutdownGracePeriodByPodPriority": PERIODS, "node": parts | node}
    path.write_text(json.dumps(kind | fields))
    return path


async def ebbtide(bed: Bed, *arguments: str | Path) -> Said:
    """In the node's namespaces and on its bus."""
    argv = [*bed.enter, sys.executable, "-c", PROGRAM, *map(str, arguments)]
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": bed.logind.address}
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(
            argv, capture_output=True, text=True, env=environ, timeout=COMMAND_SECONDS_MAX, check=False
        )
    )
    return Said(done.returncode, done.stdout, done.stderr)


pytestmark = [pytest.mark.node, pytest.mark.root]

NODE = kubelet("node-1")
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: All rights but the two under test.
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]


@pytest.fixture(scope="module")
def opened() -> Iterator[Bed]:
    with served() as made:
        yield made


@pytest.fixture
async def node(opened: Bed) -> tuple[Bed, Member]:
    """A node without pods; its kubelet has no graceful shutdown."""
    if not opened.times:
        await bring_up(opened, **OFF)
    await remove_all(opened)
    await opened.runs_nothing(opened.members["node-1"])
    return opened, opened.members["node-1"]


async def doctor(bed: Bed, config: Path, mode: str = "auto") -> Said:
    folder = config.parent
    where = ("--journal", folder / "journal", "--runtime", folder / "run", "--config", config)
    return await ebbtide(bed, "doctor", "--mode", mode, *where, "-o", "json")


def codes(said: Said, *levels: str) -> list[str]:
    """Node findings only: most of these tests run no daemon, which is a finding too."""
    assert said.err in ("", "judged with the running daemon's configuration\n"), said.err
    wanted = levels or ("critical", "warning", "note")
    found = [each["code"] for each in said.json["findings"] if each["level"] in wanted]
    return [code for code in found if code not in ("daemon-silent", "grant-will-be-raised")]


async def account(bed: Bed, name: str, rules: list[Object]) -> Client:
    """A real service account with these rules; its token."""
    meta = {"metadata": {"name": name}}
    await bed.api.post(ACCOUNT, {"apiVersion": "v1", "kind": "ServiceAccount", **meta})
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    await bed.api.post(f"{RBAC}/clusterroles", {**kind, "kind": "ClusterRole", **meta, "rules": rules})
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    bound = {**kind, "kind": "ClusterRoleBinding", **meta, **binding}
    await bed.api.post(f"{RBAC}/clusterrolebindings", bound)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = await bed.api.post(f"{ACCOUNT}/{name}/token", asked)
    return Client(token["status"]["token"], f"system:serviceaccount:default:{name}")


async def test_a_good_node_has_nothing_that_stops_a_shutdown(
    node: tuple[Bed, Member], tmp_path: Path
) -> None:
    """With the daemon on the node's identity: exit code 0, and only that identity's known limits."""
    bed, member = node
    await running(bed, pod("web", "node-1", terminationGracePeriodSeconds=3))
    daemon = Daemon(bed, tmp_path / "journal", "auto", member, client=NODE)
    daemon.configure(shutdownGracePeriodByPodPriority=[{"priority": 0, "shutdownGracePeriodSeconds": 5}])
    await daemon.start_ready()
    try:
        where = ("--journal", daemon.journal, "--runtime", daemon.folder / "run")
        said = await ebbtide(bed, "doctor", *where, "-o", "json")
        assert said.err == "judged with the running daemon's configuration\n"
        assert (said.code, codes(said, "critical")) == (0, []), said
        assert codes(said) == ["no-taint"], said
        status = await ebbtide(bed, "status", *where)
        rows = dict(line.split(maxsplit=1) for line in status.out.splitlines() if not line.startswith(" "))
        assert (rows["mode"], rows["kubelet"], rows["runtime"]) == ("auto", "active", "answers")
        assert "answers, may not taint this node" in status.out
    finally:
        await daemon.stop()
        # Its limit is too small for later tests' kubelets, and its name sorts last.
        bed.place(Path(DROP_IN_FOLDER_DEFAULT, DROP_IN_NAME)).unlink()
        await bed.logind.hang_up()


async def test_a_service_account_short_of_a_verb(node: tuple[Bed, Member], tmp_path: Path) -> None:
    """Exactly the missing rights are named; with all of them the taint is possible."""
    bed, member = node
    short = await account(bed, "short", RULES)
    said = await doctor(bed, configured(bed, member, short, tmp_path), "api")
    rights = [code for code in codes(said) if code.startswith("rbac-")]
    assert rights == ["rbac-delete-pods", "rbac-patch-pods-status"]
    assert codes(said, "critical") == ["rbac-delete-pods"]
    ending = {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["delete", "patch"]}
    whole = await account(bed, "whole", [*RULES, ending])
    said = await doctor(bed, configured(bed, member, whole, tmp_path), "api")
    assert codes(said) == ["identity-unconfined"]


async def test_plan_on_a_node(node: tuple[Bed, Member], tmp_path: Path) -> None:
    """The runtime's pods, with the API's priorities and graces; without an API server by the manifest."""
    bed, member = node
    await running(bed, pod("web", "node-1", terminationGracePeriodSeconds=3))
    where = ("--runtime", tmp_path / "run", "--grant", "30s")
    async with static(bed, member, pod("etcd", priorityClassName="system-node-critical")):
        by_api = configured(bed, member, NODE, tmp_path)
        said = await ebbtide(bed, "plan", "--config", by_api, *where, "-o", "json")
        assert said.code == 0, said
        document = said.json
        waves = [
            [(each["name"], each["graceSeconds"]) for each in wave["pods"]] for wave in document["waves"]
        ]
        assert waves == [[("web", 3)], [("etcd-node-1", 10)]]
        assert {each["kind"]: each["means"] for each in document["means"]}["poweroff"] == "api"
        assert {each["kind"]: each["means"] for each in document["means"]}["reboot"] == "cri"
        assert [each["name"] for each in document["handover"]] == ["etcd-node-1"]
        table = (await ebbtide(bed, "plan", "--config", by_api, *where)).out
        assert "poweroff, halt: by api (mode auto)" in table
        assert "no delete ends these: over the runtime, last: default/etcd-node-1" in table
        alone = configured(bed, member, None, tmp_path)
        said = await ebbtide(bed, "plan", "--mode", "cri", "--config", alone, *where, "-o", "json")
        priorities = {each["name"]: each["priority"] for wave in said.json["waves"] for each in wave["pods"]}
        assert priorities == {"web": 0, "etcd-node-1": 2_000_001_000}


async def test_measuring_a_node_ends_nothing(node: tuple[Bed, Member], tmp_path: Path) -> None:
    """The doctor connects to a hook's target, but runs no hook and deletes no pod."""
    bed, member = node
    touch = {"preStop": {"exec": {"command": ["/bin/touch", "/tmp/hooked"]}}}
    get = {"preStop": {"httpGet": {"port": 8080, "path": "/bye"}}}
    server = "mkdir -p /tmp/w; httpd -p 8080 -h /tmp/w; trap 'exit 0' TERM; while :; do sleep 1; done"
    before = await running(
        bed,
        pod("web", "node-1", containers=[container(lifecycle=touch)]),
        pod("www", "node-1", containers=[container(server, lifecycle=get)]),
    )
    config = configured(bed, member, NODE, tmp_path)
    where = ("--config", config, "--journal", tmp_path, "--runtime", tmp_path / "run")
    said = await ebbtide(bed, "doctor", "--measure", *where, "-o", "json")
    assert codes(said, "critical") == [], said
    assert said.json["budget"]["holds"], said
    found = {each["what"]: each for each in said.json["measurements"]}
    assert list(found) == [
        *("journal sync", "exec", "logind call", "kubelet unit", "CRI list of sandboxes"),
        *("CRI container status", "API node", "API dry-run patch", "API dry-run delete", "httpGet target"),
    ]
    assert all(each["medianMs"] > 0 and not each["error"] for each in found.values())
    for each in before:
        after = await bed.api.get(f"{PODS}/{each['metadata']['name']}")
        assert after["metadata"]["uid"] == each["metadata"]["uid"]
        assert "deletionTimestamp" not in after["metadata"]
        assert not any(c["type"] == "DisruptionTarget" for c in after["status"]["conditions"])
        assert after["status"]["containerStatuses"][0]["restartCount"] == 0
