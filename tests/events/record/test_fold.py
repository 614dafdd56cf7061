"""The record of a shutdown."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import BadPayload, RawRecord, decode_event
from ebbtide.events.reader import Batch, History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord, stop_parts
from ebbtide.events.values import Container, PlannedWave, Pod
from ebbtide.replay.time_spent import blame
from tests.commands import same_as_golden
from tests.events.record.test_fold_notices import BEGAN, HANDED_OVER, S, tell
from tests.events.record.worlds import PARTS, told
from tests.journals import SHUTDOWN, Remembered

MS = 1_000_000


@pytest.mark.parametrize("part", range(PARTS))
def test_every_account_is_orderly(part: int) -> None:
    for account in told(part):
        assert_orderly(account)


def assert_orderly(account: ShutdownRecord) -> None:
    """Starts precede ends, and each item appears once."""
    assert len({pod.uid for pod in account.pods}) == len(account.pods)
    for pod in account.pods:
        assert pod.began_ns is None or pod.ended_ns is None or pod.began_ns <= pod.ended_ns
        assert all(hook.began_ns <= (hook.ended_ns or account.last_ns) for hook in pod.hooks)
        assert pod.wave < len(account.waves)
    for wave in account.waves:
        assert (wave.outcome == "waiting") == (wave.began_ns is None)
    assert [notice.seq for notice in account.notices[:-2]] == sorted(n.seq for n in account.notices[:-2])


def test_a_journal_that_begins_with_a_checkpoint_knows_its_configuration(tmp_path: Path) -> None:
    """After retention the checkpoint's states have the configuration."""
    for file in sorted(SHUTDOWN.iterdir())[1:]:
        shutil.copy(file, tmp_path)
    (account,) = list(shutdown_records(History([DirectorySource(tmp_path)])))
    assert [period.seconds for period in account.configuration.periods] == [10, 5, 5]
    assert account.configuration.reserve_ns == 5_000 * MS
    assert {pod.outcome for pod in account.pods} == {"graceful", "killed"}


def test_the_golden_account_as_a_whole() -> None:
    """Waves, straggler with cause, restart, and the next boot's record: each field of the golden file."""
    account = next(shutdown_records(History([DirectorySource(SHUTDOWN)])))
    text = msgspec.json.format(msgspec.json.encode(account, order="deterministic"), indent=1).decode()
    same_as_golden(Path(__file__).parent / "golden" / "account.json", f"{text}\n")


def records_of(batches: list[Batch]) -> list[ShutdownRecord]:
    return list(shutdown_records(Remembered(batches)))


def edited(batches: list[Batch], edit: Callable[[RawRecord], list[RawRecord]]) -> list[Batch]:
    return [Batch(header, [new for raw in records for new in edit(raw)]) for header, records in batches]


def golden() -> list[Batch]:
    return list(History([DirectorySource(SHUTDOWN)]).batches())


def test_types_of_another_version_are_counted() -> None:
    """A notice counts and names them; the rest is unchanged."""

    def edit(raw: RawRecord) -> list[RawRecord]:
        return [raw._replace(tag="FromTheFuture") if raw.tag == "HookEnded" else raw]

    (account,) = records_of(edited(golden(), edit))
    assert account.unknown_types == {"FromTheFuture": 2}
    assert account.notices[-1].code == "unknown-events"
    assert account.count("killed") == 1
    assert all(hook.ended_ns is None for pod in account.pods for hook in pod.hooks)


def test_payloads_that_cannot_be_read_are_passed_over() -> None:
    """One notice, however many there are."""

    def edit(raw: RawRecord) -> list[RawRecord]:
        return [raw._replace(payload=b"\xc1") if raw.tag in ("HookEnded", "ContainerExited") else raw]

    (account,) = records_of(edited(golden(), edit))
    unreadable = [notice for notice in account.notices if notice.code == "unreadable"]
    assert [notice.text.partition(" could")[0] for notice in unreadable] == ["8 records"]
    assert account.count("graceful") == 4


def test_text_that_is_no_text_is_a_bad_payload() -> None:
    """Like any payload that does not fit its type."""
    with pytest.raises(BadPayload, match="BusLost"):
        decode_event("BusLost", b"\x81\xa5error\xa1\xc0")


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


def account_and_pod(*events: Event) -> tuple[ShutdownRecord, PodRecord]:
    account = tell(BEGAN, *events)
    return account, account.pods[0]


def test_a_deleted_pods_stop_begins_with_its_delete() -> None:
    """The kubelet sent signal and SIGKILL; the blame is normal."""
    killed = f.ContainerExited(uid="u-web", container="main", exit_code=137)
    ended = d.PodEnded(uid="u-web", wave=0, outcome="killed", reason="SIGKILL by the kubelet for main")
    account, pod = account_and_pod(
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
    account, pod = account_and_pod(planned("api"), BEGUN, DELETE, HANDED_OVER, signal, gone)
    (part,) = stop_parts(pod, account)
    assert (part.what, part.text) == ("stop", "deleted, SIGTERM after 2 s, exit code 0")


def test_a_pod_that_the_kubelet_ends_by_itself_stops_with_its_wave() -> None:
    """It has no order at all."""
    gone = f.ContainerExited(uid="u-web", container="main", exit_code=0)
    account, pod = account_and_pod(planned("observe"), BEGUN, gone)
    (part,) = stop_parts(pod, account)
    assert (part.text, part.took_ns) == ("by the kubelet, exit code 0", S)


def test_the_account_has_means_hand_over_and_certificate() -> None:
    """With times since the signal, and the pods' UIDs."""
    account, pod = account_and_pod(
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
    assert by.handed_over_ns == 5 * S
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
    _, pod = account_and_pod(f.PodJoined(pod=WEB), replace(planned("api"), late=True))
    assert (pod.label, pod.late) == ("shop/web-0", True)
