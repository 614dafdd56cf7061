"""Metrics are a projection of the journal: the same sums whenever folded, in text that Prometheus reads."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ebbtide.events.base import NS_PER_SECOND, Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import (
    EpisodeClosed,
    HookEnded,
    PodEnded,
    PodPlanned,
    PodRejected,
    ReleaseLock,
    ShutdownBegan,
)
from ebbtide.events.model import Container, Hook, Pod, workload_name
from ebbtide.events.reader import History
from ebbtide.otel.meters import WORKLOADS_MAX, Meters, fold
from ebbtide.otel.metrics import CATALOG, ReadContext, exact_seconds, exposition
from tests.journals import SHUTDOWN, steps

AROUND = ReadContext(now_wall_ns=1_700_000_100 * NS_PER_SECOND)

BEGAN = ShutdownBegan(
    kind="reboot",
    grant_ns=0,
    requested_ns=0,
    budget_ns=0,
    deadline_ns=0,
    release_by_ns=0,
    lock_held=True,
)


def records() -> list[Record]:
    return list(History([DirectorySource(SHUTDOWN)]).records())


def folded(*events: Event, meters: Meters | None = None) -> Meters:
    """What these events, a second apart, make of the meters."""
    meters = meters or Meters()
    fold(meters, steps(*events, first_seq=meters.seq + 1))
    return meters


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus's own parser reads."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def planned(name: str, *containers: Container) -> PodPlanned:
    pod = Pod(uid=f"uid-{name}", namespace="shop", name=name, containers=containers)
    return PodPlanned(wave=0, grace_seconds=30, pod=pod)


def ended(name: str, outcome: str, elapsed_ns: int = NS_PER_SECOND) -> PodEnded:
    return PodEnded(uid=f"uid-{name}", wave=0, outcome=outcome, reason="", elapsed_ns=elapsed_ns)  # type: ignore[arg-type]


def test_prometheus_reads_the_text() -> None:
    """Every line is understood by Prometheus's own parser, with the values of the golden shutdown."""
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


def test_kubelet_names_on_request() -> None:
    """Only what a KEP named takes the prefix, so that dashboards of the kubelet's names go on working."""
    names = {name for name, _ in values(exposition(Meters(), AROUND, "kubelet_"))}
    assert "kubelet_graceful_shutdown_start_time_seconds" in names
    assert "kubelet_sleep_action_terminated_early_total" in names
    assert all(name.startswith(("kubelet_", "ebbtide_")) for name in names)


@pytest.mark.parametrize("cut", [0, 1, 40, 95])
def test_sums_go_on_after_they_were_written_down(cut: int) -> None:
    """Folded in two lives with the state kept between, or twice over the same records: the same sums."""
    whole, first = Meters(), Meters()
    fold(whole, records())
    fold(first, records()[:cut])
    second = msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=Meters)
    fold(second, records())
    assert second == whole


def test_end_is_zero_while_a_shutdown_runs() -> None:
    """KEP-2712's end time says 0 until the lock is ordered released, also in a second shutdown."""
    meters = folded(BEGAN, ReleaseLock(key="k"), EpisodeClosed(outcome="complete"), BEGAN)
    assert (meters.last.start_wall_ns, meters.last.end_wall_ns) == (4 * NS_PER_SECOND, 0)
    assert meters.shutdowns == {"reboot": {"complete": 1}}


def test_counters_never_go_down() -> None:
    """A shutdown counts once it is known how it ended, not when it seems to."""
    meters = folded(BEGAN, ReleaseLock(key="k"))
    assert meters.shutdowns == {}
    assert folded(EpisodeClosed(outcome="cancelled"), meters=meters).shutdowns == {"reboot": {"cancelled": 1}}


@pytest.mark.parametrize(
    "asked, hook, cause",
    [(30, "done", "grace"), (60, "done", "period"), (60, "timed-out", "hook"), (None, "done", "grace")],
)
def test_a_kill_has_its_cause(asked: int | None, hook: str, cause: str) -> None:
    """A hook that used the grace up, a wave that gave less than the pod asks for, or the pod's own grace."""
    pod = Pod(uid="uid-web-0", namespace="shop", name="web-0", grace_seconds=asked)
    ran = HookEnded(uid="uid-web-0", container="main", result=hook)  # type: ignore[arg-type]
    meters = folded(BEGAN, PodPlanned(wave=0, grace_seconds=30, pod=pod), ran, ended("web-0", "killed"))
    (fates,) = meters.last.fates
    assert (fates.outcome, fates.cause, fates.pods) == ("killed", cause, 1)


def test_rejected_pods_are_in_no_wave() -> None:
    """A pod that came too late is counted, without a wave."""
    event = PodRejected(uid="u", label="shop/late", reason="NodeShutdown", message="")
    (fates,) = folded(BEGAN, event, event).last.fates
    assert (fates.wave, fates.outcome, fates.cause, fates.pods) == ("", "rejected", "late", 2)


def test_a_journal_does_not_say_how_the_node_stands() -> None:
    """Without a daemon nobody knows whether the node is armed."""
    names = {name for name, _ in values(exposition(Meters(armed=True), AROUND._replace(live=False)))}
    assert not names & {"ebbtide_armed", "ebbtide_lock_held"}
    assert "ebbtide_enabled" in names


def test_a_cut_has_no_end() -> None:
    """A shutdown that the power ended has an outcome, and no end that anybody saw."""
    meters = folded(BEGAN, EpisodeClosed(outcome="truncated"))
    assert (meters.last.end_wall_ns, meters.last.outcome) == (0, "truncated")


def test_needs_by_workload() -> None:
    """Pods of one workload share what is known of their need; the longest counts, a SIGKILL is a bound."""
    meters = folded(
        BEGAN,
        planned("web-7d4b9c6f5-x2x9k"),
        planned("web-7d4b9c6f5-bbbbb"),
        ended("web-7d4b9c6f5-x2x9k", "graceful", 3 * NS_PER_SECOND),
        ended("web-7d4b9c6f5-bbbbb", "killed", 20 * NS_PER_SECOND),
    )
    ((name, need),) = meters.needs.items()
    assert (name, need.longest_ns, need.needs_more) == ("shop/web", 20 * NS_PER_SECOND, True)


def test_workloads_are_bounded() -> None:
    """A node that sees new workloads for ever forgets those that it saw longest ago."""
    meters = Meters()
    for at in range(WORKLOADS_MAX + 5):
        meters.need(f"shop/job{at}")
    assert len(meters.needs) == WORKLOADS_MAX
    assert "shop/job4" not in meters.needs


def test_hooks_by_kind_and_result() -> None:
    """A hook is counted by what it is, and a sleep that ended early by the KEP's counter too."""
    sleeper = Container(name="main", hook=Hook(kind="sleep", sleep_seconds=5))
    meters = folded(
        BEGAN,
        planned("web-0", sleeper),
        HookEnded(uid="uid-web-0", container="main", result="done", early=True),
    )
    assert (meters.hooks, meters.sleeps_early) == ({"sleep": {"done": 1}}, 1)


def test_histogram_is_cumulative() -> None:
    """Each bucket holds all that is not longer, and the last one everything."""
    meters = folded(BEGAN, planned("web-0"), ended("web-0", "graceful", 7 * NS_PER_SECOND))
    found = values(exposition(meters, AROUND))
    name = "ebbtide_pod_stop_duration_seconds"
    buckets = {key: value for (each, key), value in found.items() if each == f"{name}_bucket"}
    assert buckets[(("le", "5"), ("outcome", "graceful"))] == 0
    assert buckets[(("le", "10"), ("outcome", "graceful"))] == 1
    assert buckets[(("le", "+Inf"), ("outcome", "graceful"))] == 1
    assert found[f"{name}_sum", (("outcome", "graceful"),)] == 7


def test_what_nobody_knows_is_not_shown() -> None:
    """An age without a shutdown, a risk without a list of pods, and a lag without an export are absent."""
    names = {name for name, _ in values(exposition(Meters(), AROUND))}
    assert not names & {
        "ebbtide_seconds_since_last_graceful_shutdown",
        "ebbtide_pods_at_risk",
        "ebbtide_export_behind_seconds",
    }
    around = AROUND._replace(at_risk=2, export_pending=3, export_behind_ns=NS_PER_SECOND // 2)
    found = values(exposition(Meters(), around))
    assert found["ebbtide_pods_at_risk", ()] == 2
    assert found["ebbtide_export_behind_seconds", ()] == 0.5


def test_counters_begin_with_zero() -> None:
    """What an alert looks at is there before it happens: a series that begins with 1 shows no rise."""
    found = values(exposition(Meters(), AROUND))
    assert found["ebbtide_pods_total", (("outcome", "killed"),)] == 0
    assert found["ebbtide_shutdowns_total", (("kind", "reboot"), ("outcome", "truncated"))] == 0


def test_names_follow_the_conventions() -> None:
    """Counters end in _total, durations in _seconds, and no name stands twice."""
    names = [metric.name for metric in CATALOG]
    assert len(names) == len(dict.fromkeys(names))
    for metric in CATALOG:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.help.endswith("."), metric.name


@pytest.mark.parametrize(
    "value_ns, text", [(0, "0"), (1, "0.000000001"), (1_500_000_000, "1.5"), (20 * NS_PER_SECOND, "20")]
)
def test_seconds_are_exact(value_ns: int, text: str) -> None:
    """Nanoseconds are written without a float in between."""
    assert exact_seconds(value_ns) == text


@pytest.mark.parametrize(
    "name, expected",
    [
        ("web-7d4b9c6f5-x2x9k", "web"),
        ("node-exporter-x2x9k", "node-exporter"),
        ("db-0", "db"),
        ("web", "web"),
        ("kube-apiserver-node-1", "kube-apiserver-node"),
        ("-0", "-0"),
        ("metrics-server", "metrics-server"),
    ],
)
def test_workloads_by_name(name: str, expected: str) -> None:
    """What a controller draws anew for each pod is left out, and nothing else."""
    assert workload_name(name) == expected
