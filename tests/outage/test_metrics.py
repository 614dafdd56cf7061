"""The controller's metrics against the records of scripts and worlds."""

from __future__ import annotations

from typing import NamedTuple, get_args

import pytest

from ebbtide.actors.outage import OutagePhase
from ebbtide.actors.system import System
from ebbtide.events.base import Record
from ebbtide.events.outage_events import OutageClosed, OutOfService, ProofWasWrong
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.outage.controller_metrics import CATALOG, PLACES, OutageMetrics
from ebbtide.replay.sim.sim_outage import World
from tests.replay import outages
from tests.scripts.verbs import benches


class Follower(NamedTuple):
    node: str
    system: System


def told(name: str) -> str:
    (bench,), metrics = benches(outages.SCRIPTS[name].read_text(), OUTAGE_LOGIC), OutageMetrics()
    observe(metrics, bench.records)
    metrics.followers = {"n1": Follower("node-1", bench.system)}
    return metrics.text()


def observe(metrics: OutageMetrics, records: list[Record]) -> None:
    for record in records:
        metrics.observe(None, [record])


def test_a_whole_outage_is_counted() -> None:
    """One taint set and removed, one outage closed, none open."""
    text = told(outages.STORY)
    assert 'ebbtide_outages_total{outcome="recovered"} 1\n' in text
    assert 'ebbtide_outage_taints_total{what="set"} 1\n' in text
    assert 'ebbtide_outage_taints_total{what="removed"} 1\n' in text
    assert "ebbtide_outage_proofs_wrong_total 0\n" in text
    assert "ebbtide_outage_open" not in text
    assert "ebbtide_outage_leading 1\n" in text


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "outage-leaders",
            [
                'ebbtide_outage_open{node="node-1",state="out"} 1',
                'ebbtide_outage_causes{node="node-1",cause="hanging"} 1',
                'ebbtide_outage_pods_waiting{node="node-1"} 1',
                'ebbtide_outage_volumes_waiting{node="node-1"} 1',
            ],
        ),
        ("outage-contacted", ['ebbtide_outage_open{node="node-1",state="returning"} 1']),
        ("outage-six-minutes", ["ebbtide_outage_forced_detaches_total 7"]),
        ("outage-same-boot", ["ebbtide_outage_proofs_wrong_total 1"]),
        ("outage-proof", ["ebbtide_outage_brake_refusals_total 1"]),
        ("outage-conflict", ['ebbtide_outages_total{outcome="left-to-other"} 1']),
    ],
)
def test_what_is_open_and_what_is_wrong(name: str, lines: list[str]) -> None:
    text = told(name)
    assert [line for line in lines if f"{line}\n" not in text] == []


@pytest.mark.parametrize("seed", range(4))
def test_the_counters_are_what_is_on_record(seed: int) -> None:
    """For any world; a later leader does not count an existing taint again."""
    records = World(seed).run().store.records
    metrics = OutageMetrics()
    observe(metrics, records)
    events = [record.event for record in records]
    closed = sum(count for (name, _), count in metrics.counts.items() if name == "ebbtide_outages_total")
    assert closed == sum(isinstance(each, OutageClosed) for each in events)
    wrong = metrics.counts["ebbtide_outage_proofs_wrong_total", ""]
    assert wrong == sum(isinstance(each, ProofWasWrong) for each in events)
    tainted = metrics.counts["ebbtide_outage_taints_total", "set"]
    assert tainted == sum(isinstance(each, OutOfService) and not each.found for each in events)


def test_every_name_is_its_own() -> None:
    names = [metric.name for metric in CATALOG]
    assert len(names) == len(set(names))
    assert all(metric.help.endswith(".") for metric in CATALOG)


def test_an_outage_is_open_in_every_phase() -> None:
    """Also while its machine is switched off."""
    assert sorted(sum(PLACES.values(), ())) == sorted({*get_args(OutagePhase)} - {"quiet"})
