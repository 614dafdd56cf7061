"""The courses of an outage, each a function of stage and actor.

`tests.outage_bed.runs` has the common assertions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from ebbtide.events import outage_events
from ebbtide.events.decisions import WaveStarted
from tests.node.client import Object, Refused
from tests.node.csi.storage import ATTACHMENTS, claim
from tests.node.ebbtide import Daemon
from tests.node.pods import PODS
from tests.node.shutdowns import CLASSES, PRIORITIES, power_off
from tests.outage_bed.actors import REMOVED, Actor, Controller, events, part_of
from tests.outage_bed.stage import KEY, LOST, NODES, OTHER, Stage
from tests.outage_bed.work import CLAIMS, DEPLOYMENTS, STATEFUL_SETS, bare_pod, deployment, stateful_set

HAND, CONTROLLER, NOBODY = "hand", "controller", "nobody"
BOTH = (HAND, CONTROLLER)
#: The controller-manager's default is 50 s; only the first row waits for it.
SOON = {"node-monitor-grace-period": "15s", "node-monitor-period": "1s"}
NO_FORCE = {"disable-force-detach-on-timeout": "true"}
TOLERATES = [{"key": KEY, "operator": "Exists"}]
WEB = f"{PODS}/web-0"
ZONE = "topology.kubernetes.io/zone"
#: Longer than the collector's round and the attacher's slowest retry.
NOTHING_SECONDS = 30
#: So many lines of each that writes.
WRITES_SECONDS = 5
AWAY_SECONDS = 120
#: The attach-detach controller's timer and half a minute.
FORCED_SECONDS = 390
#: The collector deletes the pods of a missing Node after a minute; then the same timer.
GONE_SECONDS = FORCED_SECONDS + 90
#: A pod's default toleration and a minute.
EVICTED_SECONDS = 360


class Scenario(NamedTuple):
    """``controllers``: the controller-manager's flags. ``damage``: the scenario itself may cause double
    writes or break CSI's order. ``seconds``: a run's approximate time.
    """

    run: Callable[[Stage, Any], Awaitable[None]]
    actors: tuple[str, ...] = BOTH
    controllers: dict[str, str] = SOON
    damage: bool = False
    seconds: int = 100


async def begin(stage: Stage, actor: Actor, **spec: object) -> None:
    """A StatefulSet with one pod on the node to lose."""
    await stage.run((STATEFUL_SETS, stateful_set(**spec)))
    await actor.begin(stage)


async def nothing_happens(stage: Stage, path: str, seconds: float = NOTHING_SECONDS) -> None:
    """The object at that path does not change for so long. Raises AssertionError."""
    with trio.move_on_after(seconds):
        while True:
            try:
                await stage.bed.api.get(path)
            except Refused as error:
                raise AssertionError(f"{path} is gone: {error}") from error
            await trio.sleep(1)


async def returns(stage: Stage, actor: Actor) -> None:
    await stage.machine.on()
    await actor.clear(stage)
    await stage.until_tainted(False)
    stage.mark("untainted")


async def recovers(stage: Stage, actor: Actor) -> None:
    """The work is Ready elsewhere, the node returns, and the outage ends."""
    await stage.recovered("web")
    await returns(stage, actor)
    await actor.closes(stage, "recovered")


async def plain(stage: Stage, actor: Actor) -> None:
    """The power is cut; the work moves; the node returns."""
    await begin(stage, actor)
    await stage.cut()
    await actor.cure(stage)
    await recovers(stage, actor)


async def untouched(stage: Stage, actor: Actor) -> None:
    """No actor: the pod is evicted (here after 30 s instead of 300) and stays Terminating."""
    patience = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 30,
        }
        for key in ("not-ready", "unreachable")
    ]
    await begin(stage, actor, tolerations=patience)
    await stage.cut()
    await stage.not_ready()
    await stage.bed.api.until(WEB, lambda pod: "deletionTimestamp" in pod["metadata"], EVICTED_SECONDS)
    await trio.sleep(NOTHING_SECONDS)
    assert (await stage.bed.api.get(WEB))["metadata"]["uid"] in stage.pods
    await stage.taint()
    stage.mark("tainted by hand")
    await stage.recovered("web")


async def forced(stage: Stage, actor: Actor) -> None:
    """A forced delete without a taint: the volume waits for the six-minute timer. The controller has no
    proof, and reports the detach.
    """
    await force_delete(stage, actor)
    await stage.recovered("web", FORCED_SECONDS)
    await actor.tells(stage, outage_events.DetachForced)


async def forced_disabled(stage: Stage, actor: Actor) -> None:
    """The same with the timer disabled: the volume stays attached until a proof and the taint."""
    await force_delete(stage, actor)
    (name,) = stage.attachments
    await nothing_happens(stage, f"{ATTACHMENTS}/{name}", FORCED_SECONDS)
    await actor.explains(stage, name)
    stage.bmcs.reachable = True
    stage.mark("proof at hand")
    await actor.cure(stage)
    await stage.recovered("web")


async def force_delete(stage: Stage, actor: Actor) -> None:
    stage.bmcs.reachable = False
    await begin(stage, actor)
    await stage.cut()
    await stage.not_ready()
    await stage.bed.api.delete(WEB, {"gracePeriodSeconds": 0})
    stage.mark("deleted by hand")


async def back_in_the_middle(stage: Stage, actor: Actor) -> None:
    """The node returns with a new boot before its work moved."""
    await begin(stage, actor)
    await stage.cut()
    await actor.cure(stage)
    await returns(stage, actor)
    await stage.bed.api.until(
        PODS,
        lambda pods: (
            [each["metadata"]["uid"] for each in pods["items"]]
            and not any(each["metadata"]["uid"] in stage.pods for each in pods["items"])
        ),
    )
    await stage.running("web")
    await actor.closes(stage, "recovered")


async def tolerates(stage: Stage, actor: Actor) -> None:
    """A pod that tolerates the taint stays until a delete."""
    await begin(stage, actor, tolerations=TOLERATES)
    await stage.cut()
    await actor.cure(stage)
    await nothing_happens(stage, WEB)
    await stage.bed.api.delete(WEB)
    stage.mark("deleted by hand")
    await stage.recovered("web")


async def finalizer(stage: Stage, actor: Actor) -> None:
    """A finalizer holds the pod's object and name; its volume is detached anyway."""
    await begin(stage, actor)
    await stage.bed.api.patch(WEB, {"metadata": {"finalizers": ["example.test/keep"]}})
    await stage.cut()
    await actor.cure(stage)
    await stage.bed.api.until(WEB, lambda pod: "deletionTimestamp" in pod["metadata"])
    await nothing_happens(stage, WEB)
    await actor.explains(stage, "example.test/keep")
    await stage.bed.api.patch(WEB, {"metadata": {"finalizers": None}})
    stage.mark("finalizer taken away")
    await stage.recovered("web")


async def driver_refuses(stage: Stage, actor: Actor) -> None:
    """The driver refuses to unpublish the volume for a while."""
    await begin(stage, actor)
    stage.storage.fault("ControllerUnpublishVolume", "fail")
    await stays_attached(stage, actor)
    stage.storage.fault("ControllerUnpublishVolume")
    stage.mark("the driver answers")
    await stage.recovered("web")


async def stays_attached(stage: Stage, actor: Actor) -> None:
    """After the cut the pods go, and the volume's attachment stays."""
    await stage.cut()
    await actor.cure(stage)
    await stage.bed.api.until(
        PODS, lambda pods: not any(each["metadata"]["uid"] in stage.pods for each in pods["items"])
    )
    (name,) = stage.attachments
    await nothing_happens(stage, f"{ATTACHMENTS}/{name}")
    await actor.explains(stage, name)


async def no_attacher(stage: Stage, actor: Actor) -> None:
    """The attacher is absent when the node is lost."""
    await begin(stage, actor)
    await stage.bed.stop("csi-attacher")
    await stays_attached(stage, actor)
    await stage.storage.start_attacher()
    stage.mark("the attacher is back")
    await stage.recovered("web")


async def shared_volume(stage: Stage, actor: Actor) -> None:
    """ReadWriteMany: three pods of a Deployment write together, and all are lost."""
    await stage.bed.api.post(CLAIMS, claim("ReadWriteMany", "many"))
    await stage.run((DEPLOYMENTS, deployment("many", "many", 3, shared=True)))
    await actor.begin(stage)
    await stage.cut()
    await actor.cure(stage)
    await stage.recovered("many", count=3)
    await returns(stage, actor)
    await actor.closes(stage, "recovered")


async def kinds(stage: Stage, actor: Actor) -> None:
    """A StatefulSet, a Deployment and a bare pod; no controller recreates the last one."""
    for name in ("shop", "bare"):
        await stage.bed.api.post(CLAIMS, claim(name=name))
    await stage.run(
        (STATEFUL_SETS, stateful_set()),
        (DEPLOYMENTS, deployment("shop", "shop")),
        (PODS, bare_pod("bare", "bare")),
    )
    await actor.begin(stage)
    await stage.cut()
    await actor.cure(stage)
    await stage.recovered("web")
    await stage.recovered("shop")
    await stage.bed.api.until(
        PODS, lambda pods: all(each["metadata"]["name"] != "bare" for each in pods["items"])
    )
    await returns(stage, actor)
    await actor.closes(stage, "recovered")


# --- proofs


async def false_proof(stage: Stage, actor: Controller) -> None:
    """A management controller reports Off for a running machine with a dead kubelet, so nothing
    contradicts it. Finally the kubelet returns in the same boot.
    """
    await begin(stage, actor)
    stage.bmcs.lie(stage.machine, "Off")
    await stage.cut(stage.machine.kill_kubelet)
    await actor.cure(stage)
    await stage.recovered("web")
    await two_write(stage)
    await same_boot(stage, actor)


async def two_write(stage: Stage) -> None:
    await trio.sleep(WRITES_SECONDS)
    assert stage.foreign_writes(), "two nodes do not write, though the pods of the first live"


async def same_boot(stage: Stage, actor: Controller) -> None:
    # Statements count from the Node's second status on; the default interval is 5 minutes.
    stage.machine.kubelet = {**stage.machine.kubelet, "nodeStatusReportFrequency": "30s"}
    await stage.machine.start_kubelet()
    await stage.is_back()
    await stage.until_tainted(False, 90)
    left = stage.storage.staged(LOST)
    node = await stage.bed.api.get(f"{NODES}/{LOST}")
    trail = stage.storage.trail()
    await actor.tells(stage, outage_events.ProofWasWrong)
    await actor.tells(stage, outage_events.SetQuarantine)
    await actor.closes(stage, "proof-wrong")
    assert not is_quarantined(await stage.bed.api.get(f"{NODES}/{LOST}"))
    assert not node["status"].get("volumesInUse"), "the taint was taken away while the kubelet used volumes"
    # A returning kubelet stages its volume again after the detach. If refused, it forgets the existing mount
    # and never releases it.
    refused = (each for each in trail if each.call == "NodeStageVolume" and each.result == "refused")
    forgotten = {each.volume for each in refused if each.node == LOST}
    assert set(left) <= forgotten, f"the taint was taken away while the node still had {left}"


async def partition(stage: Stage, actor: Controller) -> None:
    """The node runs, but only its management controller shows it."""
    await begin(stage, actor)
    await stage.cut(stage.machine.leave_network)
    await stage.not_ready()
    await actor.tells(stage, outage_events.Contradicted)
    await never_tainted(stage)
    await stage.machine.join_network()
    await stage.is_back()
    await actor.closes(stage, "false-alarm")


async def switched_off(stage: Stage, actor: Controller) -> None:
    """The same with power-off allowed: the machine is switched off and the work moves."""
    await actor.prepare(stage)
    actor.configure(stage, redfish=stage.bmcs.settings(), powerOff={"after": "20s"})
    await stage.run((STATEFUL_SETS, stateful_set()))
    await actor.start(stage, "a")
    await actor.leads(stage)
    await stage.cut(stage.machine.leave_network)
    await actor.cure(stage)
    assert not stage.machine.is_on
    await stage.recovered("web")
    await stage.machine.join_network()
    await returns(stage, actor)
    await actor.closes(stage, "recovered")


async def never_tainted(stage: Stage) -> None:
    """Raises AssertionError."""
    with trio.move_on_after(NOTHING_SECONDS):
        await stage.until_tainted(True, 2 * NOTHING_SECONDS)
        raise AssertionError("it is out of service, and nobody has proved it")


def is_quarantined(node: Object) -> bool:
    return any(each["key"] == "ebbtide.dev/quarantine" for each in node["spec"].get("taints") or [])


# --- a graceful begin


async def graceful_first(stage: Stage, actor: Controller) -> None:
    """The node's daemon ends everything and certifies it; no power source is asked."""
    await actor.prepare(stage)
    actor.configure(stage, believe=["certificate"])
    await stage.run((STATEFUL_SETS, stateful_set()))
    await actor.start(stage, "a")
    await actor.leads(stage)
    daemon = await going_down(stage, actor)

    async def shut_down() -> None:
        await power_off(stage.bed)
        await daemon.stop()
        await stage.machine.off()

    await stage.cut(shut_down)
    await actor.cure(stage)
    await stage.recovered("web")
    await boots(stage, actor, daemon)
    await actor.closes(stage, "recovered")


async def cut_in_wave_2(stage: Stage, actor: Controller) -> None:
    """The power fails in the second wave of a graceful shutdown."""
    for name, value in PRIORITIES.items():
        await stage.bed.api.post(CLASSES, {"metadata": {"name": name}, "value": value})
    await stage.bed.api.post(CLAIMS, claim(name="late"))
    await stage.run(
        (STATEFUL_SETS, stateful_set(priorityClassName="low")),
        (DEPLOYMENTS, deployment("late", "late", priorityClassName="high", deaf=True)),
    )
    await actor.begin(stage)
    daemon = await going_down(stage, actor)

    async def shut_down() -> None:
        await stage.bed.logind.power_off("poweroff")
        await daemon.until(lambda: len(daemon.events(WaveStarted)) > 1, "the second wave does not begin")
        await daemon.stop()
        await stage.machine.off()

    await stage.cut(shut_down)
    await actor.cure(stage)
    for name in ("web", "late"):
        await stage.recovered(name)
    await boots(stage, actor, daemon)
    await actor.closes(stage, "recovered")


async def boots(stage: Stage, actor: Controller, daemon: Daemon) -> None:
    """The daemon starts with its machine and removes its taint and cordon."""
    await stage.bed.logind.reset()
    await stage.machine.on()
    await daemon.start()
    await actor.clear(stage)


async def going_down(stage: Stage, actor: Controller) -> Daemon:
    """The daemon on the machine of the node to lose."""
    member = stage.machine.member
    daemon = Daemon(stage.bed, actor.folder / "daemon", "api", member, server=member.api)
    waves = [{"priority": each, "shutdownGracePeriodSeconds": 8} for each in PRIORITIES.values()]
    daemon.configure(reserve="2s", shutdownGracePeriodByPodPriority=waves)
    await daemon.start_ready()
    return daemon


# --- the controller's own troubles


async def api_away(stage: Stage, actor: Actor) -> None:
    """The API server is absent for two minutes from just after the cut."""
    await begin(stage, actor)
    await stage.cut()
    await trio.sleep(WRITES_SECONDS)
    await stage.bed.stop("kube-apiserver")
    await trio.sleep(AWAY_SECONDS)
    await stage.bed.start_api()
    stage.mark("API server back")
    await actor.cure(stage)
    await recovers(stage, actor)


async def leader_killed(stage: Stage, actor: Controller) -> None:
    """Two replicas; the leader is killed at the suspicion."""
    await begin(stage, actor)
    await actor.start(stage, "b")
    await stage.cut()
    await actor.tells(stage, outage_events.OutageBegan)
    first = await actor.leads(stage)
    await stage.bed.stop(part_of(first))
    stage.mark("leader killed")
    await actor.leads(stage, other_than=first)
    stage.mark("another leads")
    await actor.cure(stage)
    await recovers(stage, actor)


# --- people, and other controllers


async def held(stage: Stage, actor: Actor) -> None:
    """Out of service, with a volume that the driver does not let go."""
    await begin(stage, actor)
    stage.storage.fault("ControllerUnpublishVolume", "fail")
    await stage.cut()
    await actor.cure(stage)


async def taint_removed(stage: Stage, actor: Controller) -> None:
    """A person removes the taint. Only a declaration sets it again, in the same outage."""
    await held(stage, actor)
    await stage.taint("")
    await actor.waits(stage, REMOVED)
    await never_tainted(stage)
    await stage.person("declare", LOST, "--off", "--yes")
    await stage.until_tainted()
    stage.mark("declared off")
    stage.storage.fault("ControllerUnpublishVolume")
    await recovers(stage, actor)
    assert len(events(actor.records, outage_events.OutageBegan)) == 1, "a second outage began"


async def node_deleted(stage: Stage, actor: Controller) -> None:
    """A person deletes the Node in mid-outage; the record follows pods and volumes to their end. The machine
    returns as another Node of that name, which is no part of the outage.
    """
    await held(stage, actor)
    await stage.bed.api.delete(f"{NODES}/{LOST}")
    stage.mark("Node deleted")
    (name,) = stage.attachments
    await nothing_happens(stage, f"{ATTACHMENTS}/{name}")
    stage.storage.fault("ControllerUnpublishVolume")
    # Of a Node that is gone the attach-detach controller does not see the taint: its timer detaches.
    await stage.recovered("web", GONE_SECONDS)
    await actor.closes(stage, "node-deleted")
    await stage.machine.on()
    await stage.is_back()
    await never_tainted(stage)
    assert len(events(actor.records, outage_events.OutageBegan)) == 1, "a second outage began"


async def node_deleted_first(stage: Stage, actor: Controller) -> None:
    """An autoscaler deletes the Node before there is a proof."""
    stage.bmcs.reachable = False
    await begin(stage, actor)
    await stage.cut()
    await stage.not_ready()
    await actor.tells(stage, outage_events.OutageBegan)
    await stage.bed.api.delete(f"{NODES}/{LOST}")
    stage.mark("Node deleted")
    await stage.recovered("web", GONE_SECONDS)
    await actor.closes(stage, "node-deleted")


async def same_boot_first(stage: Stage, actor: Controller) -> None:
    """The management controller is wrong, and the node is back in the same boot before the taint."""
    await begin(stage, actor)
    stage.bmcs.lie(stage.machine, "Off")
    await stage.cut(stage.machine.leave_network)
    await actor.tells(stage, outage_events.ProofAccepted)
    await stage.machine.join_network()
    stage.mark("network back")
    await actor.closes(stage, "false-alarm")
    await never_tainted(stage)
    assert not events(actor.records, outage_events.OutOfService)


async def one_zone(stage: Stage, actor: Controller) -> None:
    """The work fits only the lost node's zone: its successor waits for the node, and nothing else does."""
    for node, zone in ((LOST, "a"), (OTHER, "b")):
        await stage.bed.api.patch(f"{NODES}/{node}", {"metadata": {"labels": {ZONE: zone}}})
    await begin(stage, actor, nodeSelector={ZONE: "a"})
    await stage.cut()
    await actor.cure(stage)
    await stage.bed.api.until(WEB, lambda pod: pod["metadata"]["uid"] not in stage.pods)
    (name,) = stage.attachments
    await stage.gone(f"{ATTACHMENTS}/{name}")
    assert not (await stage.bed.api.get(WEB))["spec"].get("nodeName")
    await returns(stage, actor)
    await stage.running("web", (LOST,))
    await actor.closes(stage, "recovered")


async def scaled_down(stage: Stage, actor: Controller) -> None:
    """The owner is scaled to 0 in mid-outage: no successor is waited for."""
    await held(stage, actor)
    await stage.bed.api.patch(f"{STATEFUL_SETS}/web", {"spec": {"replicas": 0}})
    stage.mark("scaled to 0")
    stage.storage.fault("ControllerUnpublishVolume")
    await actor.tells(stage, outage_events.WorkRecovered)
    await returns(stage, actor)
    await actor.closes(stage, "recovered")


async def paused(stage: Stage, actor: Controller) -> None:
    """A person pauses the controller: no taint until the pause ends."""
    await begin(stage, actor)
    await stage.person("pause", LOST, "--why=a firmware update")
    await stage.cut()
    await stage.not_ready()
    await actor.waits(stage, "paused")
    await never_tainted(stage)
    await stage.person("pause", LOST, "--withdraw")
    stage.mark("pause ended")
    await actor.cure(stage)
    await recovers(stage, actor)


async def closed_by_hand(stage: Stage, actor: Controller) -> None:
    """A finalizer that no controller removes: a person closes the outage, and it ends with the return."""
    await begin(stage, actor)
    await stage.bed.api.patch(WEB, {"metadata": {"finalizers": ["example.test/keep"]}})
    await stage.cut()
    await actor.cure(stage)
    await actor.explains(stage, "example.test/keep")
    await stage.person("close", LOST, "--why=its controller was uninstalled")
    await returns(stage, actor)
    await actor.closes(stage, "recovered")
    (closed,) = events(actor.records, outage_events.OutageClosed)
    assert closed.unrecovered, "the record does not name what was left"


ALONE = (CONTROLLER,)
SCENARIOS: dict[str, Scenario] = {
    "defaults": Scenario(plain, controllers={}, seconds=140),
    "plain": Scenario(plain),
    "untouched": Scenario(untouched, actors=(NOBODY,), seconds=150),
    "forced": Scenario(forced, actors=(NOBODY, CONTROLLER), seconds=430),
    "forced-disabled": Scenario(forced_disabled, (CONTROLLER,), SOON | NO_FORCE, seconds=500),
    "back-in-the-middle": Scenario(back_in_the_middle),
    "tolerates": Scenario(tolerates, seconds=130),
    "finalizer": Scenario(finalizer, seconds=130),
    "driver-refuses": Scenario(driver_refuses, seconds=130),
    "no-attacher": Scenario(no_attacher, seconds=130),
    "shared-volume": Scenario(shared_volume),
    "kinds": Scenario(kinds),
    "false-proof": Scenario(false_proof, ALONE, damage=True),
    "partition": Scenario(partition, ALONE),
    "switched-off": Scenario(switched_off, ALONE),
    "graceful-first": Scenario(graceful_first, ALONE),
    "cut-in-wave-2": Scenario(cut_in_wave_2, ALONE),
    "api-away": Scenario(api_away, seconds=220),
    "leader-killed": Scenario(leader_killed, ALONE, seconds=130),
    "taint-removed": Scenario(taint_removed, ALONE, seconds=180),
    "node-deleted": Scenario(node_deleted, ALONE, seconds=520),
    "node-deleted-first": Scenario(node_deleted_first, ALONE, seconds=520),
    "same-boot-first": Scenario(same_boot_first, ALONE, controllers={}, seconds=140),
    "one-zone": Scenario(one_zone, ALONE),
    "scaled-down": Scenario(scaled_down, ALONE),
    "paused": Scenario(paused, ALONE, seconds=130),
    "closed-by-hand": Scenario(closed_by_hand, ALONE),
}
