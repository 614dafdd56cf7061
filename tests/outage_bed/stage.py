"""One outage on the bed: two machines, storage, workload, and an independent observer.

The observer polls the API server and reads the array's files.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import trio

from tests.node.__main__ import UNGRACEFUL
from tests.node.bed import Bed
from tests.node.client import Object, Refused, condition
from tests.node.csi import storage as csi
from tests.node.csi.programs import Programs
from tests.node.csi.storage import ATTACHMENTS, Call, Storage
from tests.node.ebbtide import COMMAND
from tests.node.machines import Machine, machine_bed
from tests.node.pods import PODS, is_ready
from tests.outage_bed import work
from tests.outage_bed.bmcs import Bmcs, bmcs
from tests.waiting import WATCHDOG_SECONDS, until

NODES = "/api/v1/nodes"
LOST, OTHER = "node-1", "node-2"
KEY = "node.kubernetes.io/out-of-service"
LOOK_SECONDS = 0.1
#: The collector's, from when the controller-manager began.
ROUND_SECONDS = 20.0
#: A kubelet mounts a volume that its own status names, sent every 10 s. A short interval removes this chance
#: from the pairs.
PAIRS_KUBELET = {"nodeStatusUpdateFrequency": "1s"}
#: The last events explain why a pod does not start.
EVENTS_MAX = 5
METRICS = (
    "pod_gc_collector_force_delete_pods_total",
    "attach_detach_controller_attachdetach_controller_forced_detaches",
    "taint_eviction_controller_pod_deletions_total",
)


class NotMade(Exception):
    """The bed failed, which is no proof about the actor."""


class Stage:
    """``seconds``: the times of observations after the cut, first or last by name."""

    def __init__(self, bed: Bed, machines: dict[str, Machine], bmcs: Bmcs, storage: Storage) -> None:
        self.bed, self.machines, self.bmcs, self.storage = bed, machines, bmcs, storage
        self.machine = machines[LOST]
        self.seconds: dict[str, float] = {}
        #: Observed changes, a line each, with seconds after the cut.
        self.told: list[str] = []
        self.zero = time.monotonic()
        #: The cut's phase in the collector's round.
        self.moment_seconds: float | None = None
        self._controllers_began = time.monotonic()
        #: UIDs of pods and names of attachments at the cut.
        self.pods: frozenset[str] = frozenset()
        self.attachments: frozenset[str] = frozenset()
        #: Of them, the ones that still existed when the node was out of service.
        self.hung: frozenset[str] = frozenset()
        self._first_call = self._told_calls = 0
        self._seen: dict[str, str] = {}
        self._is_down = False

    # --- what is done

    async def run(self, *made: tuple[str, Object]) -> None:
        """Create objects by path; returns when all pods are Ready on the node to lose.

        Raises NotMade.
        """
        await self.cordon(OTHER)
        for path, each in made:
            await self.bed.api.post(path, each)

        def ready(pods: Object) -> bool:
            return len(pods["items"]) >= sum(_replicas(each) for _, each in made) and all(
                map(is_ready, pods["items"])
            )

        try:
            await self.bed.api.until(PODS, ready)
        except AssertionError as error:
            events = (await self.bed.api.get("/api/v1/namespaces/default/events"))["items"]
            said = [f"{each['reason']}: {each['message']}" for each in events[-EVENTS_MAX:]]
            raise NotMade(f"the pods do not begin: {'; '.join(said)}") from error
        await self.cordon(OTHER, False)
        # A kubelet reports its volumes with its status; before that they would be detached at once.
        names = len({line.volume for line in self.storage.trail() if line.call == "ControllerPublishVolume"})
        await self.bed.api.until(
            f"{NODES}/{LOST}", lambda node: len(node["status"].get("volumesInUse") or []) >= names
        )

    async def cordon(self, node: str, cordoned: bool = True) -> None:
        await self.bed.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": cordoned}})

    async def cut(self, how: Callable[[], Any] | None = None) -> None:
        """Cut the node's power, or run ``how`` instead: time starts."""
        if self.moment_seconds is not None:
            now = time.monotonic() - self._controllers_began
            await trio.sleep((self.moment_seconds - now) % ROUND_SECONDS)
        pods, attachments = await self.bed.api.get(PODS), await self.bed.api.get(ATTACHMENTS)
        self.pods = frozenset(
            each["metadata"]["uid"] for each in pods["items"] if each["spec"].get("nodeName") == LOST
        )
        self.attachments = frozenset(
            each["metadata"]["name"] for each in attachments["items"] if each["spec"]["nodeName"] == LOST
        )
        self._first_call = len(self.storage.trail())
        self.zero, self.seconds, self._is_down = time.monotonic(), {}, True
        await (how or self.machine.off)()
        self.say("the power is cut" if how is None else f"{how.__name__}")

    async def not_ready(self) -> None:
        await self.bed.api.until(f"{NODES}/{LOST}", lambda node: condition(node, "Ready") != "True")

    async def is_back(self) -> None:
        """Ready, under the boot that its machine has now."""
        boot_id = self.machine.boot_id
        await self.bed.api.until(
            f"{NODES}/{LOST}",
            lambda node: (
                condition(node, "Ready") == "True" and node["status"]["nodeInfo"]["bootID"] == boot_id
            ),
        )
        self.mark("back")

    async def recovered(self, app: str, seconds: float = WATCHDOG_SECONDS, count: int = 1) -> None:
        """So many new pods are Ready elsewhere."""
        await self.running(app, (OTHER,), seconds, count)
        self.mark("ready elsewhere", last=True)

    async def running(
        self,
        app: str,
        nodes: Sequence[str] = (LOST, OTHER),
        seconds: float = WATCHDOG_SECONDS,
        count: int = 1,
    ) -> None:
        """The same, on one of these nodes."""

        def there(pods: Object) -> bool:
            found = [
                each
                for each in pods["items"]
                if is_ready(each)
                and each["metadata"]["uid"] not in self.pods
                and each["metadata"]["labels"]["app"] == app
                and each["spec"]["nodeName"] in nodes
            ]
            return len(found) >= count

        await self.bed.api.until(PODS, there, seconds)

    async def taint(self, effect: str = "NoExecute", node: str = LOST) -> None:
        """Set the taint like a person; empty removes it. Controllers write their own taints meanwhile."""
        while True:
            made = await self.bed.api.get(f"{NODES}/{node}")
            kept = [each for each in made["spec"].get("taints") or [] if each["key"] != KEY]
            wanted = [*kept, {"key": KEY, "value": "nodeshutdown", "effect": effect}] if effect else kept
            version = made["metadata"]["resourceVersion"]
            try:
                await self.bed.api.patch(
                    f"{NODES}/{node}", {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}}
                )
                return
            except Refused as error:
                if error.code != 409:
                    raise

    async def person(self, verb: str, *words: str) -> None:
        """A person's `ebbtide outage`, with an administrator's rights. Raises AssertionError."""
        argv = [*COMMAND, "outage", verb, *words, f"--kubeconfig={self.bed.kubeconfig}"]
        done = await trio.to_thread.run_sync(
            lambda: subprocess.run(argv, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
        )
        assert done.returncode == 0, f"outage {verb}: {done.stdout}{done.stderr}"
        self.say(f"outage {verb} {' '.join(words)}")

    async def gone(self, path: str) -> None:
        """The object at that path is gone. Raises AssertionError."""

        async def refused() -> bool:
            try:
                await self.bed.api.get(path)
            except Refused as error:
                return error.code == 404
            return False

        await until(refused, f"{path} stays")

    async def until_tainted(self, tainted: bool = True, seconds: float = WATCHDOG_SECONDS) -> None:
        await self.bed.api.until(
            f"{NODES}/{LOST}",
            lambda node: any(map(_is_ours, node["spec"].get("taints") or [])) == tainted,
            seconds,
        )

    # --- what is seen

    def say(self, *words: object) -> None:
        self.told.append(f"{time.monotonic() - self.zero:8.1f}  {' '.join(map(str, words))}")

    def mark(self, name: str, *, last: bool = False) -> None:
        if last or name not in self.seconds:
            self.seconds[name] = round(time.monotonic() - self.zero, 1)

    async def watch(self) -> None:
        while True:
            with contextlib.suppress(OSError, Refused):
                await self._look()
            await trio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        pods, attachments, nodes = [
            (await self.bed.api.get(path))["items"] for path in (PODS, ATTACHMENTS, NODES)
        ]
        lost = [each for each in pods if each["metadata"]["uid"] in self.pods]
        hang = [each for each in attachments if each["metadata"]["name"] in self.attachments]
        node = next((each for each in nodes if each["metadata"]["name"] == LOST), None)
        if self._is_down and node is not None:
            if condition(node, "Ready") != "True":
                self.mark("NotReady")
            if any(map(_is_ours, node["spec"].get("taints") or [])):
                if "tainted" not in self.seconds:
                    self.hung = frozenset(each["metadata"]["uid"] for each in lost)
                    self.hung |= {each["metadata"]["name"] for each in hang}
                self.mark("tainted")
            elif "tainted" in self.seconds:
                self.mark("untainted")
        if self._is_down:
            if any(each["metadata"].get("deletionTimestamp") for each in lost):
                self.mark("Terminating")
            if self.pods and not lost:
                self.mark("pods gone")
            if self.attachments and not hang:
                self.mark("detached")
        self._tell(pods, attachments, nodes)
        calls = self.storage.trail()
        for call in calls[self._told_calls :]:
            self.say("   driver:", call.call, call.volume[-8:], call.node or call.by, call.result, call.why)
        self._told_calls = len(calls)

    def _tell(self, pods: list[Object], attachments: list[Object], nodes: list[Object]) -> None:
        now = {}
        for each in pods:
            meta, status = each["metadata"], each["status"]
            words = [each["spec"].get("nodeName", "nowhere"), status.get("phase", "")]
            words += ["Ready"] * is_ready(each) + ["Terminating"] * ("deletionTimestamp" in meta)
            now[f"pod {meta['name']} {meta['uid'][:6]}"] = " ".join(words)
        for each in attachments:
            status, meta = each["status"], each["metadata"]
            words = [each["spec"]["nodeName"], "attached" if status["attached"] else "not attached"]
            words += ["deleting"] * ("deletionTimestamp" in meta)
            words += [status["detachError"]["message"][:80]] if status.get("detachError") else []
            now[f"attachment {meta['name'][4:12]}"] = " ".join(words)
        for each in nodes:
            taints = [f"{taint['key']}:{taint['effect']}" for taint in each["spec"].get("taints") or []]
            used = each["status"].get("volumesInUse") or []
            now[each["metadata"]["name"]] = (
                f"Ready={condition(each, 'Ready')} {taints} {len(used)} volumes in use"
            )
        for key in sorted({*now, *self._seen}):
            if now.get(key) != self._seen.get(key):
                self.say(key, now.get(key, "gone"))
        self._seen = now

    def calls(self) -> list[Call]:
        return self.storage.trail()[self._first_call :]

    def violations(self) -> list[Call]:
        return [each for each in self.calls() if each.result == "violation"]

    def foreign_writes(self) -> int:
        return work.foreign_writes(self.storage.written())

    async def metrics(self) -> dict[str, float]:
        with contextlib.suppress(RuntimeError):
            return await csi.metrics(self.bed, *METRICS)
        return {}


async def _renewal(bed: Bed) -> None:
    """Wait for a lease renewal of the node to lose."""
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{LOST}"
    before = (await bed.api.until(lease, bool))["spec"]["renewTime"]
    await bed.api.until(lease, lambda found: found["spec"]["renewTime"] != before)


def _is_ours(taint: Object) -> bool:
    return bool(taint["key"] == KEY)


def _replicas(made: Object) -> int:
    return int(made["spec"].get("replicas", 1))


@contextlib.asynccontextmanager
async def stage(
    programs: Programs, controllers: dict[str, str], moment_seconds: float | None = None
) -> AsyncIterator[Stage]:
    """Two Ready nodes with storage; ``controllers``: the controller-manager's flags.

    ``moment_seconds``: the cut's phase in the collector's round. It then also fixes the phase of the node's
    lease, and the other kubelet skips its round; None: any.
    """
    async with machine_bed([LOST, OTHER], **UNGRACEFUL) as (bed, machines), bmcs(bed, machines) as power:
        if moment_seconds is not None:
            other = machines[OTHER]
            other.kubelet = {**other.kubelet, **PAIRS_KUBELET}
            await other.kill_kubelet()
            await other.start_kubelet()
            await _renewal(bed)
        await csi.restart_controllers(bed, **controllers)
        made = Stage(bed, machines, power, Storage(bed, programs))
        made.moment_seconds = moment_seconds
        await made.storage.start(machines)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.watch)
            yield made
            nursery.cancel_scope.cancel()
