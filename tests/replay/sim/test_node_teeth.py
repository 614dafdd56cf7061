"""Each invariant of a Kubernetes node detects its violation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import force_setattr, replace

from ebbtide.actors.system import LAST_STARTS_FAILED
from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND, Event, Record
from ebbtide.events.facts import OrderEnded
from ebbtide.replay.sim import simulate as checking
from ebbtide.replay.sim.invariants import breaches
from ebbtide.replay.sim.scenario import ContainerPlan, Faults, NodeMode, PodPlan, SimulationPlan
from ebbtide.replay.sim.sim_node import KUBELET, Happening
from ebbtide.replay.sim.simulate import Machine, check_run
from tests.replay.sim.test_faults import PODS, SETTINGS, pod
from tests.replay.sim.test_node import of

#: Its kubelet hangs after half a second, before or after the signal. The hand-over comes 3 s later with a
#: fresh grace of 5 s.
DEAF = pod("deaf", ContainerPlan(stop_ns=None))
DEAF = DEAF._replace(pod=replace(DEAF.pod, grace_seconds=5))
HANDED_OVER: dict[str, object] = {"pods": (DEAF,), "kubelet_hangs_after_ns": 500 * MS}


def machine(mode: NodeMode = "api", pods: Sequence[PodPlan] = PODS, **faults: object) -> Machine:
    """A correct run with a volume and a static pod."""
    plans = (*pods, of(pod("vol"), volumes=True), of(pod("proxy"), static=True))
    made = Machine(SimulationPlan(SETTINGS, plans, Faults(mode=mode, **faults), seed=1)).run()  # type: ignore[arg-type]
    assert check_run(made) == []
    return made


def record(of_run: Machine, kind: type[Event]) -> Record:
    return next(each for each in of_run.journal.records if isinstance(each.event, kind))


def put(of_run: Machine, after: Record, event: Event) -> None:
    """Insert a record into the first boot, after another."""
    records = of_run.boots[0].records
    at = next(index for index, each in enumerate(records) if each.seq == after.seq)
    records.insert(at + 1, replace(records[at], event=event, cause=0))


def note(of_run: Machine, what: str, after: str, **words: object) -> None:
    seen = of_run.log.seen
    at = next(index for index, each in enumerate(seen) if each.what == after)
    made = Happening(seen[at].at_ns + MS, 1, KUBELET, what)._replace(**words)  # type: ignore[arg-type]
    seen.insert(at + 1, made)


def kubelet_stays_stopped(of_run: Machine) -> None:
    seen = of_run.log.seen
    seen[:] = [each for each in seen if each.what != "kubelet-start" or each.at_ns < 0]


def started_again(of_run: Machine) -> None:
    note(of_run, "restart", "kubelet-stop", uid="uid-web", container="app")


def last_word(of_run: Machine) -> None:
    note(of_run, "status", "kubelet-stop", uid="uid-proxy", detail="Failed")


def deletes_after_the_hand_over(of_run: Machine) -> None:
    delete, over = record(of_run, decisions.DeletePod).event, record(of_run, decisions.HandedOver)
    put(of_run, replace(over, seq=of_run.boots[0].records[-1].seq), replace(delete, key="again"))
    force_setattr(of_run.boots[0].records[-1], "episode", over.episode)
    force_setattr(of_run.boots[0].records[-1], "seq", over.seq + 10**6)


def stops_beside_the_kubelet(of_run: Machine) -> None:
    """Before any hand-over: the static pod's comes last."""
    first = next(seen for seen in of_run.log.seen if seen.what == "signal")
    assert first.life == KUBELET
    note(of_run, "signal", "signal", uid=first.uid, container=first.container, life=1)


def another_shutdown_handed_it_over(of_run: Machine) -> None:
    force_setattr(record(of_run, decisions.HandedOver), "episode", 1)


def killed_in_its_new_grace(of_run: Machine) -> None:
    """Its first grace and the floor are over."""
    seen = of_run.log.seen
    at = next(at for at, each in enumerate(seen) if (each.what, each.uid) == ("kill", "uid-deaf"))
    late_ns = of_run.boots[0].since_ns + record(of_run, decisions.PodStopBegan).mono_ns + 7100 * MS
    assert seen[at].at_ns > late_ns
    seen[at] = seen[at]._replace(at_ns=late_ns)


def touched_while_looking_on(of_run: Machine) -> None:
    delete = decisions.DeletePod(key="k", uid="uid-web", namespace="shop", name="web", grace_seconds=1)
    put(of_run, record(of_run, decisions.MeansChosen), delete)


def certified_too_soon(of_run: Machine) -> None:
    seen = of_run.log.seen
    seen[:] = [each for each in seen if each.what != "unmounted"]
    assert any(
        isinstance(each.event, decisions.DetachCertified) and each.event.safe
        for each in of_run.journal.records
    )


def released_too_soon(of_run: Machine) -> None:
    check_mounts = record(of_run, decisions.CheckMounts).event
    put(of_run, record(of_run, decisions.CheckMounts), replace(check_mounts, key="never answered"))


def released_too_late(of_run: Machine) -> None:
    """All pods had ended two seconds before."""
    ended = record(of_run, decisions.PodsEnded)
    records = of_run.boots[0].records
    at = next(index for index, each in enumerate(records) if each.seq == ended.seq)
    records[at] = replace(ended, mono_ns=ended.mono_ns - 2 * NS_PER_SECOND)


def awaited_in_vain(of_run: Machine) -> None:
    over = record(of_run, decisions.HandedOver)
    asked = decisions.AwaitStatuses(key="in vain", uids=("uid-web",), timeout_ns=NS_PER_SECOND)
    put(of_run, over, asked)
    last = of_run.boots[0].records[-1]
    put(of_run, last, OrderEnded(key="in vain", result="timed-out"))


def status_too_late(of_run: Machine) -> None:
    seen = of_run.log.seen
    seen[:] = [each for each in seen if each.what != "status"]


def stays(of_run: Machine) -> None:
    """For long enough after its cancel."""
    seen = of_run.log.seen
    seen[-1] = seen[-1]._replace(at_ns=seen[-1].at_ns + 60 * NS_PER_SECOND)


def stays_without_the_lock(of_run: Machine) -> None:
    stays(of_run)
    of_run.log.seen.insert(-1, Happening(of_run.log.seen[-1].at_ns - MS, 1, 1, "unlock"))


def stays_shown_as_going_down(of_run: Machine) -> None:
    stays(of_run)
    of_run.boots[0].node.api.shown_ready = False


def touched_without_a_shutdown(of_run: Machine) -> None:
    touched = next(seen for seen in of_run.log.seen if seen.what == "signal" and seen.life != KUBELET)
    of_run.log.seen.insert(0, touched._replace(at_ns=-(10**12)))


def killed_without_a_stop(of_run: Machine) -> None:
    records = of_run.boots[0].records
    records[:] = [each for each in records if not isinstance(each.event, decisions.PodStopBegan)]


def started_in_it(of_run: Machine) -> None:
    put(of_run, record(of_run, decisions.ShutdownBegan), decisions.StartPod(key="k", uid="uid-web"))


def twice(kind: type[Event]) -> Callable[[Machine], None]:
    def of_record(of_run: Machine) -> None:
        again = record(of_run, kind)
        put(of_run, again, again.event)

    return of_record


def fails(error: str) -> Callable[[Machine], None]:
    def in_its_step(of_run: Machine) -> None:
        failed = decisions.ActorFailed(actor="EpisodeActor", subject="", error=error)
        put(of_run, record(of_run, decisions.PlanMade), failed)

    return in_its_step


TEETH: tuple[tuple[str, NodeMode, dict[str, object], Callable[[Machine], None]], ...] = (
    ("the_kubelet_is_back", "cri", {"cancel_after_ns": NS_PER_SECOND}, kubelet_stays_stopped),
    ("no_pod_is_started_again", "cri", {"kind": "reboot"}, started_again),
    ("no_terminal_status_before_a_reboot", "cri", {"kind": "reboot"}, last_word),
    ("no_stop_twice", "api", {}, stops_beside_the_kubelet),
    ("no_stop_twice", "api", HANDED_OVER, another_shutdown_handed_it_over),
    ("grace_is_kept", "api", HANDED_OVER | {"kubelet_hangs_after_ns": 10 * MS}, killed_in_its_new_grace),
    ("a_handover_is_final", "api", {}, deletes_after_the_hand_over),
    ("observing_touches_no_pod", "observe", {"kubelet_lock": True}, touched_while_looking_on),
    ("a_certificate_is_true", "api", {}, certified_too_soon),
    ("the_release_waits_for_final_statuses", "api", {}, released_too_soon),
    ("no_server_holds_the_lock", "cri", {"kind": "poweroff", "api": "hangs"}, released_too_late),
    ("no_wait_for_a_stopped_kubelet", "api", {}, awaited_in_vain),
    ("each_status_is_delivered_or_named", "cri", {"kind": "poweroff"}, status_too_late),
    ("a_node_that_stays_is_armed", "cri", {"cancel_after_ns": NS_PER_SECOND}, stays_without_the_lock),
    ("a_node_that_stays_is_armed", "cri", {"cancel_after_ns": NS_PER_SECOND}, stays_shown_as_going_down),
    ("no_pod_is_touched_without_a_shutdown", "cri", {}, touched_without_a_shutdown),
    ("grace_is_kept", "cri", {"pods": (DEAF,)}, killed_without_a_stop),
    ("late_pods_are_rejected", "cri", {}, started_in_it),
    ("each_order_ends_once", "cri", {}, twice(decisions.SendSignal)),
    ("each_pod_ends_once", "cri", {}, twice(decisions.PodEnded)),
    ("no_failed_actor", "cri", {}, fails("KeyError")),
    ("no_failed_actor", "cri", {}, fails(LAST_STARTS_FAILED)),
)


@pytest.mark.parametrize(("name", "mode", "faults", "spoil"), TEETH, ids=[each[3].__name__ for each in TEETH])
def test_each_notices(
    name: str, mode: NodeMode, faults: dict[str, object], spoil: Callable[[Machine], None]
) -> None:
    changed = machine(mode, **faults)
    spoil(changed)
    assert name in {breach.invariant for breach in breaches(checking.boot_views(changed))}
