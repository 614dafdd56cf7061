"""Pod kinds in whole shutdowns: hanging hooks, static pods, sidecars, DaemonSets, Jobs, late pods."""

from __future__ import annotations

import contextlib
import socket

import pytest
import trio

from ebbtide.events import decisions
from tests.node.client import Object, Refused
from tests.node.going import Going
from tests.node.incidents import DAEMONSETS, daemonset
from tests.node.pods import PODS, container, is_ready, static
from tests.node.witness import NS

pytestmark = [pytest.mark.node]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def test_hook_that_never_returns(node: Going) -> None:
    """The hook ends with the pod's grace. The container still gets its signal and the 2 s floor; other
    pods are not delayed.
    """
    hang = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 1000"]}}}
    hung = node.witness.container("hung", slow=True, lifecycle=hang)
    await node.run(
        node.witness.holding("hung", [hung], terminationGracePeriodSeconds=3),
        node.witness.pod("beside", ends_after=0.2),
    )
    await node.arm((0, 10))
    asked_ns, over_ns = await node.down()
    assert node.outcomes() == {"hung": "killed", "beside": "graceful"}
    assert node.witness.times("beside", "ended")[0] - asked_ns < 3 * NS
    assert len(node.witness.times("hung", "signal")) == 1
    assert over_ns - asked_ns < 10 * NS
    if node.mode == "cri":
        assert [each.result for each in node.daemon.events(decisions.HookEnded)] == ["timed-out"]


async def test_static_pod(node: Going) -> None:
    """A file-based pod ends in its priority class's wave; its object is only a mirror."""
    made = node.witness.pod("file", ends_after=0.3, priorityClassName="system-node-critical")
    made["metadata"]["namespace"] = "default"
    del made["spec"]["nodeName"]
    await node.run(node.witness.pod("web", ends_after=0.3))
    async with static(node.bed, node.member, made):
        await node.arm((0, 8), (2_000_000_000, 8))
        await node.down()
        node.in_order("web", "file")
        fates = node.outcomes()
    assert fates == {"web": "graceful", f"file-{node.member.name}": "graceful"}
    planned = {each.pod.name: each.pod for each in node.daemon.events(decisions.PodPlanned)}
    assert planned[f"file-{node.member.name}"].static
    assert planned[f"file-{node.member.name}"].priority == 2_000_001_000


async def test_sidecars(node: Going) -> None:
    """They stop after the other containers, in reverse order."""
    witness = node.witness
    first = witness.container("first", ends_after=0.1) | {"name": "first", "restartPolicy": "Always"}
    second = witness.container("second", ends_after=0.1) | {"name": "second", "restartPolicy": "Always"}
    main = witness.container("main", ends_after=0.5)
    await node.run(witness.holding("mesh", [main], initContainers=[first, second]))
    await node.arm((0, 15))
    await node.down()
    assert node.outcomes() == {"mesh": "graceful"}
    node.in_order("main", "second", "first")


async def test_daemonsets(node: Going) -> None:
    """With or without a blanket toleration they end, and no new one comes to the node."""
    everything = [{"operator": "Exists"}]
    for name, tolerations in (("agent", []), ("network", everything)):
        await node.bed.api.post(DAEMONSETS, daemonset(name, tolerations=tolerations))
        await node.bed.api.until(f"{DAEMONSETS}/{name}", lambda each: each["status"].get("numberReady") == 1)
    before = {each["metadata"]["uid"] for each in (await node.bed.api.get(PODS))["items"]}
    await node.run(node.witness.pod("web", ends_after=3, priorityClassName="high"))
    await node.arm((0, 10), (3000, 10))
    async with trio.open_nursery() as nursery:
        new: dict[str, str] = {}
        nursery.start_soon(_see_new, node, before, new)
        await node.down()
        nursery.cancel_scope.cancel()
    assert set(node.outcomes().values()) == {"graceful"}
    assert len(node.outcomes()) == 3
    assert [phase for phase in new.values() if phase == "Running"] == []
    assert new == {}


async def _see_new(node: Going, before: set[str], new: dict[str, str]) -> None:
    while True:
        for each in (await node.bed.api.get(PODS))["items"]:
            made = each["metadata"]
            if made["uid"] not in before and made["name"] != "web":
                new[made["name"]] = each["status"]["phase"]
        await trio.sleep(0.05)


async def test_job_completes(node: Going) -> None:
    """A Job that completes during the shutdown stays complete."""
    spec = {"restartPolicy": "Never", "containers": [container("trap '' TERM; sleep 1.5; exit 0")]}
    slow = container("trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done")
    spec["containers"] = [slow]
    job = {"metadata": {"name": "sum"}, "spec": {"backoffLimit": 0, "template": {"spec": spec}}}
    await node.bed.api.post(JOBS, job)
    await node.bed.api.until(PODS, lambda pods: pods["items"] and all(map(is_ready, pods["items"])))
    (made,) = (await node.bed.api.get(PODS))["items"]
    await node.arm((0, 10))
    await node.down()
    assert list(node.outcomes().values()) == ["graceful"]
    found = await node.object(made["metadata"]["name"])
    assert found is None or found["status"]["phase"] in ("Succeeded", "Failed")
    if node.mode == "cri":
        assert found is not None
        assert found["status"]["phase"] == "Succeeded"
        await node.bed.api.until(f"{JOBS}/sum", lambda each: each["status"].get("succeeded") == 1)


async def test_an_api_server_that_takes_no_statuses(node: Going) -> None:
    """A webhook hangs on every status, and reads are answered: the release waits for `statusFlush`, and the
    record names the pods.
    """
    with node.bed.network():
        hangs = socket.create_server(("127.0.0.1", 0))
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    webhook = {
        "name": "hangs.example.com",
        "rules": [rule],
        "clientConfig": {"url": f"https://127.0.0.1:{hangs.getsockname()[1]}/"},
        "timeoutSeconds": 30,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    names = [f"web-{number}" for number in range(3)]
    await node.run(*(node.witness.pod(name, ends_after=0.3) for name in names))
    await node.arm((0, 10), statusFlush="1s")
    await node.bed.api.post(WEBHOOKS, {"metadata": {"name": "hangs"}, "webhooks": [webhook]})
    try:
        await node.down()
    finally:
        await node.bed.api.delete(f"{WEBHOOKS}/hangs")
        hangs.close()
    assert node.outcomes() == dict.fromkeys(names, "graceful")
    uids = {each.pod.uid for each in node.daemon.events(decisions.PodPlanned)}
    assert set(node.daemon.events(decisions.StatusesSettled)[-1].missing) == uids
    at_ns = {type(each.event): each.mono_ns for each in node.daemon.records()}
    assert at_ns[decisions.ReleaseLock] - at_ns[decisions.PodsEnded] <= 1.5 * NS


async def test_pods_of_which_no_container_runs(node: Going) -> None:
    """In a crash loop, or without an image: no pod is killed. With the kubelet stopped they have their final
    status, and a pod that is bound in mid-shutdown is rejected.
    """
    crashing, imageless, late = (
        node.witness.pod(name, ends_after=0.3) for name in ("crash", "image", "late")
    )
    crashing["spec"]["containers"][0] |= {"command": ["/bin/sh", "-c", "exit 3"]}
    imageless["spec"]["containers"][0] |= {"image": "example.invalid/none:1", "imagePullPolicy": "Always"}
    await node.run(node.witness.pod("web", ends_after=3))
    for each in (crashing, imageless):
        await node.bed.api.post(PODS, each)
    for name in ("crash", "image"):
        await node.bed.api.until(f"{PODS}/{name}", _waits)
    await node.arm((0, 15))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.down)
        await node.signalled("web")
        await node.daemon.until(
            lambda: node.mode == "api" or node.daemon.events(decisions.KubeletStopped), "it runs"
        )
        await node.bed.api.post(PODS, late)
    assert node.outcomes()["crash"] in ("graceful", "unknown")
    assert node.outcomes()["image"] == "graceful"
    if node.mode == "cri":
        found = {name: await node.object(name) for name in ("crash", "image", "late")}
        ended = {
            name: (each["status"]["phase"], each["status"].get("reason")) for name, each in found.items()
        }
        terminated = ("Failed", "Terminated")
        assert ended == {"crash": terminated, "image": terminated, "late": ("Failed", "NodeShutdown")}


def _waits(made: Object) -> bool:
    statuses = made["status"].get("containerStatuses", [])
    return any(each["state"].get("waiting", {}).get("reason", "").endswith("BackOff") for each in statuses)


async def test_inventory_changes_at_the_signal(node: Going) -> None:
    """Pods that come and go at the signal: each running pod ends."""
    stay = [node.witness.pod(f"stay-{number}", ends_after=0.3) for number in range(4)]
    go = [node.witness.pod(f"go-{number}", ends_after=0.3) for number in range(4)]
    await node.run(*stay, *go)
    await node.arm((0, 10))
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(_quietly, node.bed.api.delete, f"{PODS}/go-{number}")
            late = node.witness.pod(f"late-{number}", ends_after=0.3)
            nursery.start_soon(_quietly, node.bed.api.post, PODS, late)
        await node.down()
    for number in range(4):
        assert node.outcomes()[f"stay-{number}"] == "graceful"
        began, ended = (len(node.witness.times(f"late-{number}", what)) for what in ("began", "ended"))
        assert began == ended, f"late-{number} runs on"
    for name, outcome in node.outcomes().items():
        # The kubelet may remove a container before its end was seen, or before its process could note a
        # signal.
        vague = name.startswith("go-") or not node.witness.times(name, "began")
        assert outcome in ("graceful", "rejected") or (vague and outcome in ("unknown", "killed")), name


async def _quietly(ask: object, *words: object) -> None:
    """A node that goes down may refuse it."""
    with contextlib.suppress(Refused, OSError):
        assert callable(ask)
        await ask(*words)
