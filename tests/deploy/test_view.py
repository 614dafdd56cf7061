"""``kubectl ebbtide`` on a real node, for a user with only the two roles of ``view``.

The daemon runs like a host unit. The pod differs in its image (busybox with our Python) and in the daemon's
socket folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_client import ApiClient, CommandResult
from ebbtide.cli.kubectl import CONTAINER, INSTALL, NAMESPACE, SECONDS_MAX
from ebbtide.cli.outage.outage_common import executed_code
from tests.commands import Ran
from tests.deploy.granted import Asked, applied, refusals, speaking
from tests.deploy.rendering import Object, merged, place, rendered
from tests.deploy.test_daemonset import in_busybox
from tests.node.bed import Bed
from tests.node.ebbtide import COMMAND, Daemon
from tests.node.identities import TENANT
from tests.node.pods import pod, running
from tests.node.shutdowns import power_off
from tests.node.witness import Witness

pytestmark = pytest.mark.node

#: As an installation has it.
PLUGIN = f"#!{sys.executable}\nfrom ebbtide.cli import kubectl\n\nkubectl()\n"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PROGRAMS = "/opt/programs"
#: Without a graceful shutdown of its own.
KUBELET = {"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}
#: Too long for a slow machine: the first wave ends with its pod.
PERIOD_SECONDS = 600
#: Calls that this role must not permit.
REFUSED: dict[str, Asked] = {
    "exec elsewhere": ("POST", "/api/v1/namespaces/default/pods/web/exec?command=sh&stdout=1", None),
    "read a pod elsewhere": ("GET", "/api/v1/namespaces/default/pods/web", None),
    "make a pod": ("POST", f"{PODS}?dryRun=All", pod("another")),
    "forward a port": ("POST", f"{PODS}/x/portforward", None),
    "logs": ("GET", f"{PODS}/x/log", None),
    "secrets": ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
    "all nodes": ("GET", "/api/v1/nodes", None),
    "cordon": ("PATCH", "/api/v1/nodes/node-1?dryRun=All", {"spec": {"unschedulable": True}}),
    "the kubelet": ("GET", "/api/v1/nodes/node-1/proxy/pods", None),
}
#: A shell in the container: its rights, its view, and the socket's answers.
SHELL = """
grep CapEff /proc/self/status
ls -A /run/ebbtide /var/run/secrets 2>&1
touch /run/ebbtide/view/x 2>&1
"""


def patch(daemon: Daemon, programs: Path) -> Object:
    return in_busybox(
        CONTAINER,
        daemon.member.name,
        {"PATH": f"/bin:{PROGRAMS}"},
        [{"name": "programs", "mountPath": PROGRAMS, "readOnly": True}],
        [
            {"name": "programs", "hostPath": {"path": str(programs)}},
            {"name": "view", "hostPath": {"path": str(daemon.folder / "run" / "view")}},
        ],
    )


def binding(kind: str, where: str) -> tuple[str, Object]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "ebbtide-view"}
    who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT.user}
    made = {"metadata": {"name": "tenant-views"}, "roleRef": role, "subjects": [who]}
    return f"{RBAC}/{where}", made


BINDINGS = (
    binding("Role", f"namespaces/{NAMESPACE}/rolebindings"),
    binding("ClusterRole", "clusterrolebindings"),
)


async def no_policy(bed: Bed) -> None:
    """There is none to wait for."""


class Looking:
    """``kubectl ebbtide`` as the tenant."""

    def __init__(self, bed: Bed, daemon: Daemon, witness: Witness) -> None:
        self.bed, self.daemon, self.witness = bed, daemon, witness
        self.kubeconfig = bed.secrets.kubeconfig(TENANT, bed.server, "tenant")
        plugin = daemon.folder / "kubectl-ebbtide"
        plugin.write_text(PLUGIN)
        plugin.chmod(0o755)
        self.environ = os.environ | {"PATH": f"{plugin.parent}:{os.environ['PATH']}"}

    async def __call__(self, verb: str, *words: str, node: str = "node-1") -> Ran:
        argv = ["kubectl", "ebbtide", verb, node, f"--kubeconfig={self.kubeconfig}", "--context=node", *words]
        done = await trio.run_process(
            argv, capture_stdout=True, capture_stderr=True, check=False, env=self.environ
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def document(self, verb: str) -> Any:
        ran = await self(verb, "-o", "json")
        assert ran.out, ran
        return json.loads(ran.out)

    async def inside(self, *command: str) -> str:
        (found,) = (await speaking(self.bed, TENANT.token).get(PODS))["items"]
        query = urlencode(
            [*(("command", word) for word in command), ("container", CONTAINER), ("stdout", 1), ("stderr", 1)]
        )
        path = f"{PODS}/{found['metadata']['name']}/exec?{query}"
        client = ApiClient(self.kubeconfig)
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            done = await client.execute(path, seconds_max=SECONDS_MAX, bytes_max=1 << 20)
            nursery.cancel_scope.cancel()
        assert isinstance(done, CommandResult), done
        assert executed_code(done.ended)[0] is not None
        return (done.out + done.err).decode()


@pytest.fixture
async def looking(bed: Bed, tmp_path: Path) -> AsyncIterator[Looking]:
    """A daemon, a pod that ends on request, and the pod to ask in. No user has the roles yet."""
    await bed.start_over(**KUBELET)
    daemon = Daemon(bed, tmp_path / "state/journal", "auto")
    daemon.configure(shutdownGracePeriod=f"{PERIOD_SECONDS}s", shutdownGracePeriodCriticalPods="4s")
    programs = bed.folder / "programs"
    programs.mkdir()
    words = [COMMAND[0], *COMMAND[1:2], f"'{COMMAND[2]}'"]
    (programs / "ebbtide").write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    (programs / "ebbtide").chmod(0o755)
    witness = Witness(bed)
    await running(bed, witness.pod("web", waits=True, terminationGracePeriodSeconds=PERIOD_SECONDS))
    await daemon.start_ready()
    async with applied(bed, "view", ("DaemonSet",), no_policy):
        (made,) = [each for each in rendered("view") if each["kind"] == "DaemonSet"]
        await bed.api.post(place(made), merged(made, patch(daemon, programs)))
        try:
            await bed.api.until(
                PODS, lambda found: [each["status"].get("phase") for each in found["items"]] == ["Running"]
            )
            yield Looking(bed, daemon, witness)
        finally:
            await bed.api.delete(f"{place(made)}/{made['metadata']['name']}")
            await daemon.stop()
            # The kubelet cleans up; after a shutdown it may be stopped.
            await bed.start_over()
    for where, made in BINDINGS[1:]:
        await bed.api.delete(f"{where}/{made['metadata']['name']}")


async def test_who_may_only_look(bed: Bed, looking: Looking) -> None:
    """Without the roles no verb works; with them the four verbs do, also during a shutdown."""
    ran = await looking("status")
    assert (ran.code, ran.out) == (2, "")
    assert 'User "tenant" cannot list resource "pods"' in ran.err
    for where, made in BINDINGS:
        await bed.api.post(where, made)
    await _answers(looking)
    refused = await refusals(speaking(bed, TENANT.token), REFUSED)
    assert {name for name, said in refused.items() if said.startswith("403: ")} == set(REFUSED)
    await _shell(looking)
    await _nobody_there(looking)
    await looking.daemon.start_ready()
    # Last: mode cri stops the kubelet, and exec needs it.
    await _shutdown(bed, looking)


async def _answers(looking: Looking) -> None:
    found: dict[str, Any] = {}

    async def look(verb: str) -> None:
        found[verb] = await looking.document(verb)

    async with trio.open_nursery() as nursery:
        for verb in ("status", "plan", "doctor"):
            nursery.start_soon(look, verb)
    assert (found["status"]["armed"], found["status"]["mode"]) == (True, "auto")
    assert (found["plan"]["kind"], found["plan"]["enabled"]) == ("Plan", True)
    planned = {each["name"] for wave in found["plan"]["waves"] for each in wave["pods"]}
    assert "web" in planned
    assert (found["doctor"]["kind"], found["doctor"]["mode"]) == ("Diagnosis", "auto")
    nowhere, wrong = await looking("status", node="node-2"), await looking("status", node="node-7")
    assert (nowhere.code, INSTALL in nowhere.err) == (1, True)
    assert "node-2, which is Ready" in nowhere.err
    assert (wrong.code, wrong.out) == (2, "")
    assert "there is no Node 'node-7'" in wrong.err


async def _shell(looking: Looking) -> None:
    said = await looking.inside("sh", "-c", SHELL)
    assert "CapEff:\t0000000000000000\n" in said
    assert "/run/ebbtide:\nview\n" in said
    assert "/var/run/secrets: No such file or directory" in said
    assert "Read-only file system" in said


async def _shutdown(bed: Bed, looking: Looking) -> None:
    """During the shutdown: progress and events, but no verdict on a node that stays up."""
    seen: dict[str, Ran] = {}

    async def look() -> None:
        await looking.daemon.until(lambda: looking.witness.times("web", "signal"), "no stop signal")
        seen["status"] = await looking("status", "-o", "json")
        seen["plan"] = await looking("plan")
        seen["timeline"] = await looking("timeline", "--pod", "web")
        looking.witness.lets_end("web")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await power_off(bed)
    assert seen["status"].code == 0, seen
    status = json.loads(seen["status"].out)
    assert status["phase"] == "running", seen
    assert status["shutdown"]["kind"] == "poweroff"
    assert (seen["plan"].code, seen["plan"].out) == (2, "")
    assert "the node goes down" in seen["plan"].err
    assert (seen["timeline"].code, "default/web" in seen["timeline"].out) == (0, True)
    await looking.daemon.verify()


async def _nobody_there(looking: Looking) -> None:
    """Without a daemon the answer is the reason."""
    await looking.daemon.stop()
    ran = await looking("status")
    assert ran.code == 1
    assert "no daemon answers" in ran.err
    assert "node-1, which is Ready" in ran.err
