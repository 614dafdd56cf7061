"""Grafana and Prometheus files use existing metrics, and each alert has a runbook."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.values import Period, Settings
from ebbtide.otel import metric_table
from ebbtide.outage.controller_metrics import CATALOG as OUTAGE_CATALOG
from ebbtide.outage.controller_metrics import OutageMetrics
from ebbtide.replay.sim import scenario
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from tests.journals import SHUTDOWN

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "ebbtide.json").read_text())
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "ebbtide.rules.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()

#: Our metric names in an expression; a histogram's parts count as the histogram.
NAMES = re.compile(r"\b(?:ebbtide|graceful_shutdown|sleep_action)_[a-z_]+")
PARTS = re.compile(r"_(?:bucket|sum|count)$")
KNOWN = {metric.name for metric in (*metric_table.CATALOG, *OUTAGE_CATALOG)}


def expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (each for name, each in value.items() if name == "expr")
        yield from (found for each in value.values() for found in expressions(each))
    elif isinstance(value, list):
        yield from (found for each in value for found in expressions(each))


SHOWN = list(expressions(DASHBOARD))


def names_in(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"|\{|\}', " ", expression)
    return {PARTS.sub("", name) if name not in KNOWN else name for name in NAMES.findall(bare)}


def test_expressions_name_metrics_that_there_are() -> None:
    for expression in (*SHOWN, *expressions(RULES)):
        assert names_in(expression), expression
        assert names_in(expression) <= KNOWN, expression


def test_every_metric_is_shown_or_watched() -> None:
    used = {name for text in (*SHOWN, *expressions(RULES)) for name in names_in(text)}
    # For dashboards of the kubelet's names.
    assert KNOWN - used <= {"graceful_shutdown_start_time_seconds", "graceful_shutdown_end_time_seconds"}


@pytest.mark.parametrize("name", ["ebbtide", "ebbtide-lake"])
def test_panels_have_what_grafana_needs(name: str) -> None:
    """Unique IDs, places without overlap, a description."""
    panels = json.loads((ROOT / "deploy" / "grafana" / f"{name}.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert all(panel["description"].endswith(".") for panel in panels if panel["type"] != "row")


def test_every_alert_has_a_runbook() -> None:
    """The alert's link leads to an existing heading, and the alert has a unit test."""
    tests = (ROOT / "deploy" / "prometheus" / "ebbtide.rules.test.yaml").read_text()
    for alert in ALERTS:
        name = alert["alert"]
        link = f"https://ebbtide.dev/docs/runbooks.html#{name.lower()}"
        assert alert["annotations"]["runbook_url"] == link
        assert f"## {name}\n" in RUNBOOKS
        assert f"alertname: {name}\n" in tests


@pytest.mark.root
def test_prometheus_understands_the_dashboard(tmp_path: Path) -> None:
    """promtool accepts each panel's expression as a recording rule."""
    rules = [{"record": f"panel:{at}", "expr": text.replace("$node", ".*")} for at, text in enumerate(SHOWN)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- under Prometheus's own linter (Debian's prometheus has promtool)

DEPLOY = ROOT / "deploy" / "prometheus"


def promtool(*words: str, feed: str = "") -> str:
    """promtool's output; a non-zero exit code fails."""
    argv = ["promtool", *words]
    return subprocess.run(argv, input=feed, text=True, check=True, capture_output=True, cwd=DEPLOY).stdout


@pytest.mark.root
@pytest.mark.parametrize("prefix", ["", "kubelet_"])
def test_the_linter_has_nothing_to_say(prefix: str) -> None:
    meters = metric_table.Meters()
    metric_table.fold(meters, History([DirectorySource(SHUTDOWN)]).records())
    now_wall_ns = 1_700_000_100 * NS_PER_SECOND
    around = metric_table.ReadContext(
        now_wall_ns,
        at_risk=1,
        journal_unsynced=2,
        export_pending=3,
        export_behind_ns=NS_PER_SECOND,
        shipping=metric_table.ShippingState(pending=1),
    )
    assert promtool("check", "metrics", feed=metric_table.exposition(meters, around, prefix)) == ""
    assert promtool("check", "metrics", feed=OutageMetrics().text()) == ""


@pytest.mark.root
def test_each_alert_fires_when_it_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("check", "rules", "ebbtide.rules.yaml")
    assert "SUCCESS" in promtool("test", "rules", "ebbtide.rules.test.yaml")


# --- the worst simulated nights


class Night(NamedTuple):
    """``alerts``: none for a good night."""

    faults: dict[str, Any]
    alerts: tuple[str, ...]


KILLED = ("EbbtideManyPodsKilled", "EbbtidePodsKilled", "EbbtideShutdownBad")
UNKNOWN = ("EbbtidePodsUnknown", "EbbtideShutdownBad")
#: In mode observe, with 59 pods.
NIGHTS = {
    "calm": Night({"kubelet_lock": True}, ()),
    "the kubelet ends no pod": Night({"kubelet_lock": False}, UNKNOWN),
    "the runtime refuses everything": Night(
        {"mode": "cri", "runtime_refuses": "everything"}, ("EbbtidePodsFailed", "EbbtideShutdownBad")
    ),
    "the runtime refuses stop signals": Night({"mode": "cri", "runtime_refuses": "stops"}, KILLED),
    "too small a grant": Night({"mode": "cri", "grant_ns": 2 * NS_PER_SECOND}, KILLED),
    "a power cut": Night(
        {"kubelet_lock": True, "power_cut_after_ns": NS_PER_SECOND}, (*UNKNOWN, "EbbtideShutdownCutShort")
    ),
}


def night_metrics(name: str) -> str:
    faults = scenario.Faults(**({"mode": "observe"} | NIGHTS[name].faults))
    rules = (scenario.BehaviourRule(stop=scenario.DurationQuantiles((3 * NS_PER_SECOND, 9 * NS_PER_SECOND))),)
    settings = Settings(by_pod_priority=(Period(priority=0, seconds=30),))
    pods = tuple(
        replace(pod, grace_seconds=30, priority=0) for pod in scenario.synthetic_pods(59, scenario.Draws(4))
    )
    pods = tuple(
        replace(pod, containers=tuple(replace(each, hook=None) for each in pod.containers)) for pod in pods
    )
    wanted = SimulationRequest(
        settings=settings, pods=pods, behaviour=scenario.Behaviour(rules, faults), mode=faults.mode
    )
    run, meters = simulate(wanted, 4), metric_table.Meters()
    metric_table.fold(meters, run.journal.records)
    meters.causes = metric_table.last_causes(History([run.journal.source()]))
    return metric_table.exposition(meters, metric_table.ReadContext(0, live=False))


@pytest.mark.root
@pytest.mark.parametrize("name", NIGHTS)
def test_a_bad_night_raises_its_alerts(name: str, tmp_path: Path) -> None:
    """And no other."""
    series = []
    for line in night_metrics(name).splitlines():
        if not line.startswith("#") and "_bucket" not in line:
            sample, _, value = line.rpartition(" ")
            metric, _, labels = sample.partition("{")
            series.append(
                {"series": f'{metric}{{instance="a"{"," if labels else "}"}{labels}', "values": f"{value}x30"}
            )
    asked = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "20m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in NIGHTS[name].alerts],
    }
    path = tmp_path / "night.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(DEPLOY / "ebbtide.rules.yaml")],
                "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}],
            }
        )
    )
    assert "SUCCESS" in promtool("test", "rules", str(path))
