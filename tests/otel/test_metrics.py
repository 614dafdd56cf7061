"""Metrics are a projection of the journal: stable sums in Prometheus' text format."""

from __future__ import annotations

import ast
import inspect

import msgspec
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.facts import LogindRead
from ebbtide.events.reader import History
from ebbtide.events.values import Deletion, Pod
from ebbtide.otel import metric_table as of_meters
from ebbtide.otel.metric_table import Meters, ReadContext, ShippingState, as_openmetrics, exposition, fold
from tests.journals import SHUTDOWN, began, steps

AROUND = ReadContext(now_wall_ns=1_700_000_100 * NS_PER_SECOND)
SHIPPING = ShippingState(
    stored=3,
    present=1,
    failed=2,
    lost=5,
    pending=4,
    oldest_wall_ns=1_700_000_040 * NS_PER_SECOND,
    reason="HTTP 503",
)

BEGAN = began(kind="reboot")


def records() -> list[Record]:
    return list(History([DirectorySource(SHUTDOWN)]).records())


def folded(*events: Event, meters: Meters | None = None) -> Meters:
    """The meters after these events, one second apart."""
    meters = meters or Meters()
    fold(meters, steps(*events, first_seq=meters.seq + 1))
    return meters


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def ended(name: str, outcome: str, elapsed_ns: int = NS_PER_SECOND) -> d.PodEnded:
    return d.PodEnded(uid=f"uid-{name}", wave=0, outcome=outcome, reason="", elapsed_ns=elapsed_ns)  # type: ignore[arg-type]


def test_prometheus_reads_the_text() -> None:
    """Prometheus' parser reads every line, with the golden shutdown's values."""
    meters = Meters()
    fold(meters, records())
    found = values(exposition(meters, AROUND))
    assert found["graceful_shutdown_start_time_seconds", ()] == 1_700_000_065.005
    assert found["graceful_shutdown_end_time_seconds", ()] == 1_700_000_076.616
    assert found["sleep_action_terminated_early_total", ()] == 1
    assert found["ebbtide_pods_total", (("outcome", "killed"),)] == 1
    labels = (("cause", "exited"), ("outcome", "graceful"), ("priority", "0"), ("wave", "0"))
    assert found["ebbtide_last_shutdown_pods", labels] == 2
    assert found["ebbtide_pod_stop_duration_seconds_count", (("outcome", "graceful"),)] == 4


def test_it_is_valid_openmetrics() -> None:
    """With every metric of a shutdown and its context; the same samples as Prometheus' text."""
    meters = Meters()
    fold(meters, records())
    text = exposition(meters, AROUND._replace(export_pending=1, at_risk=2, shipping=SHIPPING))
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in openmetrics.text_string_to_metric_families(as_openmetrics(text))
        for sample in family.samples
    }
    assert found == values(text)


@pytest.mark.parametrize("cut", [0, 1, 40, 95])
def test_sums_go_on_after_they_were_written_down(cut: int) -> None:
    """In two lives with stored state, or twice over the same records."""
    whole, first = Meters(), Meters()
    fold(whole, records())
    fold(first, records()[:cut])
    second = msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=Meters)
    fold(second, records())
    assert second == whole


@pytest.mark.parametrize(
    "asked, deletion, hook, cause",
    [
        (30, None, "done", "grace"),
        (60, None, "done", "period"),
        (60, Deletion(since_ns=0, grace_seconds=30), "done", "grace"),
        (60, None, "timed-out", "hook"),
        (None, None, "done", "grace"),
    ],
)
def test_a_kill_has_its_cause(asked: int | None, deletion: Deletion | None, hook: str, cause: str) -> None:
    """A hook that used up the grace, a wave shorter than the grace, or the grace itself."""
    pod = Pod(uid="uid-web-0", namespace="shop", name="web-0", grace_seconds=asked, deletion=deletion)
    ran = d.HookEnded(uid="uid-web-0", container="main", result=hook)  # type: ignore[arg-type]
    meters = folded(BEGAN, d.PodPlanned(wave=0, grace_seconds=30, pod=pod), ran, ended("web-0", "killed"))
    assert meters.counts[of_meters.LAST_PODS] == {f"0,,killed,{cause}": 1}


def test_a_stepped_clock_makes_a_shutdown_no_longer() -> None:
    """As in `journal ls`: the wall clock at the signal, and the monotonic clock from there on."""
    first, last = steps(BEGAN, d.ReleaseLock(key="LogindActor/ReleaseLock//0"))
    meters = Meters()
    fold(meters, [first, msgspec.structs.replace(last, wall_ns=last.wall_ns - 3600 * NS_PER_SECOND)])
    assert meters.last.end_wall_ns == last.wall_ns


# --- of a Kubernetes node

SOON = ReadContext(now_wall_ns=NS_PER_SECOND)


def text(*events: Event, around: ReadContext = SOON) -> list[str]:
    meters = Meters()
    fold(meters, steps(*events))
    return exposition(meters, around).splitlines()


def test_pods_count_by_their_means_and_what_was_refused_is_counted() -> None:
    """A pod of mode process has no means; a certificate counts by its content."""
    lines = text(
        BEGAN,
        d.PodEnded(uid="a", wave=0, outcome="graceful", reason="", means="api"),
        d.PodEnded(uid="b", wave=0, outcome="killed", reason="", means="cri"),
        d.PodEnded(uid="c", wave=0, outcome="graceful", reason=""),
        d.DeleteRefused(uid="b", reason="429"),
        d.HandedOver(reason="the API server did not take a delete"),
        d.DetachCertified(safe=False),
        LogindRead(owner=":1.1", grant_ns=1, preparing=False, kubelet_lock=True),
        d.LastBootEnded(boot_id="b", ending="abrupt", why="panic"),
        d.EpisodeClosed(outcome="complete"),
    )
    assert 'ebbtide_boots_ended_total{ending="abrupt"} 1' in lines
    assert 'ebbtide_boots_ended_total{ending="graceful"} 0' in lines
    assert 'ebbtide_pods_by_means_total{means="api",outcome="graceful"} 1' in lines
    assert 'ebbtide_pods_by_means_total{means="cri",outcome="killed"} 1' in lines
    assert len([line for line in lines if line.startswith("ebbtide_pods_by_means_total{")]) == 2
    assert "ebbtide_handovers_total 1" in lines
    assert "ebbtide_deletes_refused_total 1" in lines
    assert 'ebbtide_certificates_total{verdict="safe"} 0' in lines
    assert 'ebbtide_certificates_total{verdict="unsafe"} 1' in lines
    assert "ebbtide_kubelet_lock 1" in lines


def test_what_a_reader_decodes_is_what_is_counted() -> None:
    """Otherwise an event type would never be counted."""
    tree = ast.parse(inspect.getsource(of_meters))
    cases = [ast.unparse(node.cls) for node in ast.walk(tree) if isinstance(node, ast.MatchClass)]
    assert sorted(case.rpartition(".")[2] for case in cases) == sorted(k.__name__ for k in of_meters.COUNTED)
