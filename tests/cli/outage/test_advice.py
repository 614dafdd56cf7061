"""What `outage explain` advises leads out when it is done: scenes of real users, a cluster's components in
minutes, and a person who follows the advice step by step.

The model has kube-controller-manager (taint eviction, pod collector, attach-detach), a driver's attacher, the
kubelets, a StatefulSet, the controller of a Node's finalizer, and the outage controller without its proofs:
a declaration is enough.
"""

from __future__ import annotations

import copy
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage import outage_common
from ebbtide.cli.outage.outage_common import Cluster
from ebbtide.cli.outage.outage_explain import OUT_OF_SERVICE, UNREACHABLE, Explanation, explanation, gather
from tests.cli.outage.test_scenes import CLAIM, SHUTDOWN, VOLUME, Objects
from tests.cli.outage.test_scenes import attachment as attachment_of
from tests.cli.outage.test_scenes import node as node_of
from tests.cli.outage.test_scenes import pod as pod_of

Object = dict[str, Any]
COMMAND = re.compile(r"(?:kubectl|ebbtide outage) .*")
ROUNDS_MAX = 12
UNREACHED = {"key": UNREACHABLE, "effect": "NoExecute"}
OUT = {"key": OUT_OF_SERVICE, "effect": "NoExecute", "value": "nodeshutdown"}
EVERYTHING = [{"operator": "Exists"}]


class Cloud(Objects):
    """``broken``: components that wait for a person's look. ``off``: machines without power."""

    def __init__(
        self, objects: list[Object], broken: tuple[str, ...] = (), off: tuple[str, ...] = ("old",)
    ) -> None:
        super().__init__(copy.deepcopy(objects))
        self.broken, self.off = list(broken), list(off)
        self.now = datetime.now(UTC).timestamp()
        self.gone_since: dict[str, float] = {}
        self.declared: set[str] = set()

    def stamp(self, before: float = 0) -> str:
        return datetime.fromtimestamp(self.now - before, UTC).isoformat()

    def of(self, kind: str) -> dict[str, Object]:
        return {each["metadata"]["name"]: each for each in self._objects.values() if each["kind"] == kind}

    def drop(self, made: Object) -> None:
        self._objects = {place: each for place, each in self._objects.items() if each is not made}

    def add(self, made: Object) -> None:
        super().__init__([*self._objects.values(), made])

    async def call(self, method: str, path: str, **more: object) -> Answer:
        return await super().call(method, path, **more)

    # --- a person

    def follow(self, step: str) -> None:
        """Run its commands, else look at the component that it names."""
        commands = [each.split("; ")[0].rstrip(";") for each in COMMAND.findall(step)]
        for command in commands:
            self.run(command.split())
        for word, component in (
            ("start it (deploy", "controller"),
            ("kube-controller-manager", "manager"),
            ("attacher's log", "attacher"),
            ("controller pod of", "attacher"),
            ("the kubelet", "kubelet"),
            ("controller that set", "finalizer"),
        ):
            if word in step and "look at" in step.replace("start it", "look at") and component in self.broken:
                self.broken.remove(component)
                return

    def run(self, words: list[str]) -> None:
        nodes = self.of("Node")
        match words:
            case ["kubectl", "taint", "node", name, taint]:
                taints = nodes[name]["spec"]["taints"]
                if taint.endswith("-"):
                    taints[:] = [each for each in taints if each["key"] != taint[:-1]]
                else:
                    assert name in self.off, "a machine that runs is not put out of service"
                    taints.append({**OUT, "timeAdded": self.stamp()})
            case ["kubectl", "delete", "pod", "-n", _, name]:
                self.delete(self.of("Pod")[name], 30)
            case ["kubectl", "delete", "volumeattachment", name]:
                self.delete(self.of("VolumeAttachment")[name], 0)
            case ["kubectl", "patch", "volumeattachment", name, *_]:
                self.drop(self.of("VolumeAttachment")[name])
            case ["ebbtide", "outage", "declare", name, "--off"]:
                ready = nodes[name]["status"]["conditions"][0]["status"]
                assert ready == "Unknown", "a declaration is refused for a node that gives signs of life"
                self.declared.add(name)
            case ["ebbtide", "outage", "explain" | "status", _] | ["kubectl", "describe", *_]:
                pass
            case _:
                raise AssertionError(f"no such command: {words}")

    def delete(self, made: Object, seconds: int) -> None:
        made["metadata"].setdefault("deletionTimestamp", self.stamp(-seconds))
        made["metadata"].setdefault("deletionGracePeriodSeconds", seconds)

    # --- the components

    def minute(self) -> None:
        for _ in range(4):
            self.now += 15
            self._kubelets()
            self._managers()
            self._attachers()
            self._controllers()

    def _kubelets(self) -> None:
        for name, node in self.of("Node").items():
            runs = name not in self.off and node["status"]["conditions"][0]["status"] == "True"
            for pod in self.of("Pod").values() if runs and "kubelet" not in self.broken else ():
                if pod["spec"]["nodeName"] != name:
                    continue
                volumes = [
                    each for each in self.of("VolumeAttachment").values() if each["spec"]["nodeName"] == name
                ]
                if "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers"):
                    self.drop(pod)
                elif any(each["status"].get("attached") for each in volumes) or not pod["spec"].get(
                    "volumes"
                ):
                    pod["status"] = pod_of(name, ready=True)["status"]

    def _managers(self) -> None:
        if "manager" in self.broken:
            return
        nodes = self.of("Node")
        for pod in self.of("Pod").values():
            node = nodes.get(pod["spec"]["nodeName"])
            keys = [each["key"] for each in node["spec"]["taints"]] if node is not None else []
            tolerates = bool(pod["spec"].get("tolerations"))
            if (OUT_OF_SERVICE in keys or UNREACHABLE in keys) and not tolerates:
                self.delete(pod, 30)
            terminating = "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers")
            if node is None or (terminating and OUT_OF_SERVICE in keys and self._is_down(node)):
                self.drop(pod)
        for each in self.of("VolumeAttachment").values():
            name = each["spec"]["nodeName"]
            node = nodes.get(name)
            if any(pod["spec"]["nodeName"] == name for pod in self.of("Pod").values()):
                continue
            since = self.gone_since.setdefault(name, self.now)
            out = node is not None and any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"]["taints"])
            if out or (node is not None and not self._is_down(node)) or self.now - since > 360:
                self.delete(each, 0)
        wanted = self.of("Pod").get("db-0")
        if wanted is None:
            self.add(
                {**pod_of("new"), "metadata": {"name": "db-0", "namespace": "d", "uid": f"p-{self.now}"}}
            )
        elif not self.of("VolumeAttachment") and not self._is_down(nodes[wanted["spec"]["nodeName"]]):
            self.add(attachment_of(wanted["spec"]["nodeName"], attached=False))

    @staticmethod
    def _is_down(node: Object) -> bool:
        return node["status"]["conditions"][0]["status"] != "True"

    def _attachers(self) -> None:
        for each in self.of("VolumeAttachment").values() if "attacher" not in self.broken else ():
            if "deletionTimestamp" in each["metadata"]:
                held_by = each["metadata"].get("finalizers") or []
                each["metadata"]["finalizers"] = [name for name in held_by if "external-" not in name]
                if not each["metadata"]["finalizers"]:
                    self.drop(each)
            else:
                each["status"] = {"attached": True}

    def _controllers(self) -> None:
        nodes = self.of("Node")
        for name, node in nodes.items():
            taints = [each["key"] for each in node["spec"]["taints"]]
            if "controller" not in self.broken and name in self.declared and OUT_OF_SERVICE not in taints:
                node["spec"]["taints"].append({**OUT, "timeAdded": self.stamp()})
            left = [each for each in self.of("Pod").values() if each["spec"]["nodeName"] == name]
            if "deletionTimestamp" in node["metadata"] and not left and "finalizer" not in self.broken:
                self.drop(node)
        if "finalizer" not in self.broken:
            for made in (*self.of("Pod").values(), *self.of("VolumeAttachment").values()):
                held_by = made["metadata"].get("finalizers") or []
                made["metadata"]["finalizers"] = [each for each in held_by if each.startswith("external-")]


def down(*taints: Object, **meta: Any) -> Object:
    made = node_of("old", "Unknown", *taints)
    made["metadata"] |= meta
    return made


def held(made: Object, **meta: Any) -> Object:
    return {**made, "metadata": made["metadata"] | meta}


def since(seconds: float) -> str:
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC).isoformat()


def detaching(on: str) -> Object:
    return attachment_of(on, deleted=True, attached=True)


def terminating(seconds: float, grace: int = 30, **meta: Any) -> Object:
    deleted = {"deletionTimestamp": since(seconds - grace), "deletionGracePeriodSeconds": grace}
    return held(pod_of("old", ready=True), **deleted, **meta)


WEEK = 604800
#: In place of the claim and its volume: there is none.
CLAIMLESS: Object = {}
AT_OLD = attachment_of("old", attached=True)
OLD = {**OUT, "timeAdded": since(3600)}
RUNS, MOVED = pod_of("old", ready=True), pod_of("new", ready=True)
IN_DELETION = down(SHUTDOWN, UNREACHED, deletionTimestamp=since(200), finalizers=["x/y"])
TOLERANT = {**pod_of("old", ready=True), "spec": {**pod_of("old")["spec"], "tolerations": EVERYTHING}}

BARE = {**terminating(900), "spec": {"nodeName": "old"}}
HELD = held(detaching("old"), finalizers=["external-attacher/csi-example", "x/y"])
NEW_OUT = {**OUT, "timeAdded": since(600)}
AN_HOUR = {"key": OUT_OF_SERVICE, "operator": "Exists", "tolerationSeconds": 3600}
PATIENT = {**RUNS, "spec": {**RUNS["spec"], "tolerations": [AN_HOUR]}}

#: The subject, the objects, the broken components, and whether the machine ``old`` is off.
SCENES: dict[str, tuple[str, list[Object], tuple[str, ...], bool]] = {
    "no leader": ("d/db-0", [down(UNREACHED), terminating(900), AT_OLD], ("controller",), True),
    "declared": ("old", [down(UNREACHED), terminating(900), AT_OLD], (), True),
    "a week of grace": ("d/db-0", [down(UNREACHED), terminating(600, WEEK), AT_OLD], (), True),
    "a week under an old taint": ("old", [down(OLD), terminating(600, WEEK), AT_OLD], ("manager",), True),
    "it tolerates the taint": ("old", [down(OLD), TOLERANT, AT_OLD], (), True),
    "it tolerates unreachable": ("old", [down(UNREACHED), TOLERANT, AT_OLD], (), True),
    "a pod's finalizer": (
        "old",
        [down(OLD), terminating(9, finalizers=["x/y"]), AT_OLD],
        ("finalizer",),
        True,
    ),
    "a Node in deletion": ("old", [IN_DELETION, terminating(170), AT_OLD], ("finalizer",), True),
    "its Node is gone": ("d/db-0", [pod_of("new"), AT_OLD], (), True),
    "the Node is gone": ("old", [pod_of("new"), AT_OLD], (), True),
    "gone, and refused": ("d/db-0", [pod_of("new"), detaching("old")], ("attacher",), True),
    "not attached": ("d/db-0", [pod_of("new"), attachment_of("new", attached=False)], ("attacher",), True),
    "a silent attacher": ("new", [pod_of("new"), detaching("new")], ("attacher",), True),
    "a taint was left": ("old", [node_of("old", "True", OLD), RUNS, AT_OLD], (), False),
    "the kubelet hangs": ("old", [node_of("old"), terminating(900), AT_OLD], ("kubelet",), False),
    "nothing uses it": ("old", [node_of("old"), MOVED, AT_OLD], ("manager",), False),
    "its volume is gone": ("old", [CLAIMLESS, node_of("old"), MOVED, AT_OLD], ("manager",), False),
    "attached elsewhere, by its node": ("new", [pod_of("new"), AT_OLD], (), True),
    "attached elsewhere": ("d/db-0", [down(UNREACHED), pod_of("new"), AT_OLD], (), True),
    "its detach is late": ("old", [down(OLD), AT_OLD, pod_of("new")], ("manager",), True),
    "a bare pod": ("old", [CLAIMLESS, down(OLD), BARE], ("manager",), True),
    "an attachment's finalizer": ("old", [down(OLD), HELD, MOVED], ("finalizer",), True),
    "it tolerates the taint for an hour": ("old", [down(NEW_OUT), PATIENT, AT_OLD], (), True),
    "no attacher": ("old", [down(UNREACHED), terminating(900), AT_OLD], ("attacher",), True),
}


@pytest.mark.parametrize("name", SCENES)
def test_the_advice_leads_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, objects, broken, off = SCENES[name]
    disk = [] if CLAIMLESS in objects else [CLAIM, VOLUME]
    others = [each for each in objects if each is not CLAIMLESS]
    cloud = Cloud([*disk, node_of("new"), *others], broken, ("old",) if off else ())
    monkeypatch.setattr(outage_common, "LEADER_SECONDS_MAX", 0)
    monkeypatch.setattr(time, "time", lambda: cloud.now)
    done: dict[str, int] = {}
    asked = subject
    for _ in range(ROUNDS_MAX):
        found = look(cloud, asked)
        causes = [each for each in found.causes if each.code != "nothing-hangs"] if found is not None else []
        if not causes:
            if asked == subject:
                return
            asked = subject
            continue
        # What comes after the cause in which the last step has had no effect.
        cause = min(causes, key=lambda each: (done.get(each.code, 0) >= len(each.do), causes.index(each)))
        step = cause.do[min(done.get(cause.code, 0), len(cause.do) - 1)]
        done[cause.code] = done.get(cause.code, 0) + 1
        if step.startswith("ebbtide outage explain "):
            asked = step.split()[-1]
        cloud.follow(step)
        cloud.minute()
        if cause.code == "attached-to-gone":
            for _ in range(6):
                cloud.minute()
    pytest.fail(f"after {ROUNDS_MAX} rounds: {[each.text for each in causes]}; done: {done}")


def look(cloud: Cloud, subject: str) -> Explanation | None:
    """None: neither the Node nor anything of it exists."""
    try:
        scene = trio.run(gather, Cluster(cloud), subject, "ebbtide")  # type: ignore[arg-type]  # what it calls
    except Refused:
        return None
    return explanation(scene)
