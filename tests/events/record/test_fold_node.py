"""The account of a Kubernetes node's shutdown: means, deletes, volumes, and leftovers."""

from __future__ import annotations

from msgspec.structs import replace

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord, stop_parts
from ebbtide.events.values import Container, PlannedWave, Pod
from ebbtide.replay.blame import blame
from tests.events.record.test_fold_notices import BEGAN, HANDED_OVER, S, tell

#: The planned hand-over: a wave of undeletable pods has begun.
BY_PLAN: tuple[Event, ...] = (
    d.PlanMade(waves=(PlannedWave(priority=7, period_seconds=10, handover=True),), pods=1),
    d.WaveStarted(
        wave=0, priority=7, period_ns=10 * S, deadline_ns=110 * S, kill_by_ns=112 * S, handover=True
    ),
    d.HandedOver(reason="no delete ends the pods that are left"),
)

WEB = Pod(
    uid="u-web",
    namespace="shop",
    name="web-0",
    owner="StatefulSet/web",
    volumes=True,
    containers=(Container(name="main"), Container(name="log", running=False)),
)
DELETE = d.DeletePod(key="H/delete/u-web/0", uid="u-web", namespace="shop", name="web-0", grace_seconds=5)
BEGUN = d.PodStopBegan(uid="u-web", wave=0, grace_ns=5 * S, kill_by_ns=112 * S)


def planned(means: str) -> d.PodPlanned:
    return d.PodPlanned(wave=0, grace_seconds=5, pod=WEB, means=means)  # type: ignore[arg-type]  # words of a table


def told(*events: Event) -> tuple[ShutdownRecord, PodRecord]:
    account = tell(BEGAN, *events)
    return account, account.pods[0]


def test_a_deleted_pods_stop_begins_with_its_delete() -> None:
    """The kubelet sent signal and SIGKILL; the blame is normal."""
    killed = f.ContainerExited(uid="u-web", container="main", exit_code=137)
    ended = d.PodEnded(uid="u-web", wave=0, outcome="killed", reason="SIGKILL by the kubelet for main")
    account, pod = told(
        planned("api"), BEGUN, DELETE, f.OrderEnded(key=DELETE.key, result="done"), killed, ended
    )
    (part,) = stop_parts(pod, account)
    assert (part.what, part.container, part.took_ns) == ("killed", "main", 2 * S)
    assert part.text == "deleted, exit code 137"
    assert [cost.text for cost in blame(account)] == [part.text]
    assert (pod.means, pod.owner, pod.volumes) == ("api", "StatefulSet/web", True)


def test_a_pod_that_was_handed_over_is_one_stop() -> None:
    """From delete to exit, with our signal in between."""
    signal = d.SendSignal(key="H/stop:main/u-web/0", uid="u-web", container="main", signal="SIGTERM")
    gone = f.ContainerExited(uid="u-web", container="main", exit_code=0)
    account, pod = told(planned("api"), BEGUN, DELETE, HANDED_OVER, signal, gone)
    (part,) = stop_parts(pod, account)
    assert (part.what, part.text) == ("stop", "deleted, SIGTERM after 2 s, exit code 0")


def test_a_pod_that_the_kubelet_ends_by_itself_stops_with_its_wave() -> None:
    """It has no order at all."""
    gone = f.ContainerExited(uid="u-web", container="main", exit_code=0)
    account, pod = told(planned("observe"), BEGUN, gone)
    (part,) = stop_parts(pod, account)
    assert (part.text, part.took_ns) == ("by the kubelet, exit code 0", S)


def test_the_account_has_means_hand_over_and_certificate() -> None:
    """With times since the signal, and the pods' UIDs."""
    account, pod = told(
        d.MeansChosen(means="api", reason="mode api"),
        planned("api"),
        d.DeleteRefused(uid="u-web", reason="429"),
        HANDED_OVER,
        d.KubeletStopped(result="done"),
        f.VolumesUnmounted(uid="u-web"),
        d.DetachCertified(safe=True, ended=1),
        d.LeftUndone(without_status=("u-web",)),
    )
    by = account.by
    assert (by.means, by.reason, by.handed_over_reason) == ("api", "mode api", HANDED_OVER.reason)
    assert (by.handed_over_ns, by.kubelet_stopped_ns) == (5 * S, 6 * S)
    assert by.certificate is not None
    assert (by.certificate.safe, by.certificate.ended) == (True, 1)
    assert by.left_without_status == ("u-web",)
    assert (pod.refused, pod.unmounted_ns) == ("429", 7 * S)


def test_a_hand_over_by_plan_is_no_warning() -> None:
    """Each api shutdown of a node with static pods ends so."""
    account = tell(BEGAN, *BY_PLAN)
    assert account.by.handed_over_ns is not None
    assert "handed-over" not in [notice.code for notice in account.notices]


def test_a_pod_that_joined_has_its_name_once_it_is_planned() -> None:
    """Before its plan it is not part of the shutdown."""
    assert not tell(BEGAN, f.PodJoined(pod=WEB)).pods
    _, pod = told(f.PodJoined(pod=WEB), replace(planned("api"), late=True))
    assert (pod.label, pod.late) == ("shop/web-0", True)
