"""Every verb gives one account of a shutdown: its outcome, its sign, its time, its pods by their fate."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pyarrow.parquet
import pytest

from ebbtide.daemon_status import DaemonStatus, pod_phase
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodEnded, PodOutcome
from ebbtide.events.reader import History
from ebbtide.events.record.causes import FATE_TEXTS
from ebbtide.events.record.shutdown_record import SIGNS
from ebbtide.events.units import span
from ebbtide.otel import attributes as at
from ebbtide.otel.metric_table import LAST_PODS, PODS, Meters, fold
from ebbtide.otel.span import ROOT_ROLE
from ebbtide.replay.sim.scenario import NodeMode
from ebbtide.replay.sim.simulate import Simulated, SimulationRequest, simulate
from tests.commands import Run
from tests.conftest import Sample
from tests.journals import write_files
from tests.otel.records import attributes, project
from tests.replay.sim.nodes import MODES

ALL_MODES: tuple[NodeMode, ...] = (*MODES, "")
SEEDS, PARTS = range(1, 1001), 2
#: Sampled, one seed of so many: no multiple of the modes, so that each mode is in the sample.
ONE_OF = 67


class Account(NamedTuple):
    """``ms`` None: no end is on record."""

    outcome: str
    sign: str
    ms: int | None
    pods: dict[str, int]


def counted(pods: Mapping[str, int]) -> dict[str, int]:
    """The next shutdown counts a pod that goes on."""
    return {fate: count for fate, count in pods.items() if count and fate != "goes-on"}


def of_row(row: Mapping[str, Any]) -> Account:
    """A row of ``journal ls``."""
    ms = None
    if row["ended"] is not None:
        began, ended = (datetime.fromisoformat(row[name]) for name in ("started", "ended"))
        ms = (ended - began) // timedelta(milliseconds=1)
    return Account(row["outcome"], SIGNS[row["severity"]], ms, counted(row["pods"]))


def of_headline(text: str) -> dict[str, int]:
    found = {}
    for fate, (one, many) in FATE_TEXTS.items():
        said = re.search(rf"(\d+)(?: of \d+)?(?: pods)? (?:{one}|{many})[,.]", text)
        found[fate] = int(said[1]) if said else f"its pod {one}" in text
    return counted(found)


class Night:
    """A journal on disk, and what each verb says of its shutdowns."""

    def __init__(self, run: Run, folder: Path, simulated: Simulated) -> None:
        self.journal, self._tables = write_files(folder / "journal", simulated.files()), folder / "tables"
        self._run, self.records = run, simulated.journal.records

    def json(self, *verb: str | Path) -> Any:
        return json.loads(self._run(*verb, "--journal", self.journal, "-o", "json").out)

    def blamed(self, shutdown: str) -> Account:
        told = self.json("replay", "blame", shutdown)["episode"]
        seconds, headline = told["endedSeconds"], told["headline"]
        if seconds is not None:
            assert f" after {span(round(seconds * 1e9))}: " in headline
        ms = None if seconds is None else int(round(seconds * 1e9) // 1e6)
        return Account(told["outcome"], SIGNS[told["severity"]], ms, of_headline(headline))

    def reported(self, shutdown: str, outcome: str) -> Account:
        """From the page: the seal, the headline, and its chart's data, where only an end has a name."""
        page = self._run("replay", "report", shutdown, "--journal", self.journal).out
        ((sign, headline),) = re.findall(r'<h1><span class="seal[^>]*>(.)</span>(.*?)</h1>', page)
        data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)[0])
        pods = counted(Counter(data["fates"][pod[2]] for pod in data["pods"]))
        assert of_headline(unescape(headline)) == pods
        ends = [(name, at // 1000) for name, at in data["lines"] if name in ("released", "closed")]
        for name, _ in ends:
            assert name == {"complete": "released", "cancelled": "closed"}[outcome]
        return Account(outcome, sign, ends[0][1] if ends else None, pods)

    def traced(self) -> dict[str, Account]:
        """By trace. A root never changes: without those whose pods the kubelet started again after it."""
        batches = list(History([DirectorySource(self.journal)]).batches())
        found = {}
        for each in project(batches, batches[0].header.journal_id):
            if each.name != ROOT_ROLE:
                continue
            later = (record for record in self.records if record.seq > each.seq)
            if not any(isinstance(of.event, PodEnded) and of.episode == each.episode for of in later):
                told = attributes(each)
                pods = {fate: told[name] for fate, name in at.POD_COUNTS.items()}
                found[each.trace_id.hex()] = Account(told[at.OUTCOME], "", None, counted(pods))
        return found

    def exported(self) -> dict[str, Account]:
        self._run("export", "parquet", "--journal", self.journal, "-o", self._tables, "--jobs", "1")
        shutdowns, pods = (
            pyarrow.parquet.read_table(self._tables / f"{name}.parquet").to_pylist()
            for name in ("shutdowns", "pods")
        )
        found = {}
        for row in shutdowns:
            fates = Counter(pod["outcome"] or "unknown" for pod in pods if pod["shutdown"] == row["shutdown"])
            assert counted(fates) == counted({fate: row[fate] for fate in get_args(PodOutcome)})
            sign = SIGNS[row["severity"]]
            found[row["shutdown"]] = Account(row["outcome"], sign, row["took_ms"], counted(fates))
        return found


def of_samples(metrics: list[dict[str, Any]], name: str, label: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for metric in metrics:
        for sample in metric["samples"] if metric["name"] == name else ():
            found[sample["labels"][label]] += sample["value"]
    return counted(found)


def check(run: Run, folder: Path, mode: NodeMode, seed: int) -> None:
    night = Night(run, folder, simulate(SimulationRequest(synthetic=8, mode=mode), seed))
    rows = night.json("journal", "ls")["episodes"]
    listed = {row["id"]: of_row(row) for row in rows}
    assert night.exported() == listed
    traced = night.traced()
    for row in rows:
        told = traced.pop(row["traceId"], None)  # one that goes on has no root yet
        assert told is None or told == of_row(row)._replace(sign="", ms=None)
    assert not traced
    for shutdown, account in listed.items():
        assert night.blamed(shutdown) == account
        assert night.reported(shutdown, account.outcome) == account
        assert (
            counted(night.json("replay", "what-if", shutdown, "--grant", "20s")["then"]["pods"])
            == account.pods
        )
    last = list(listed.values())[-1]
    assert of_row(night.json("status", "--runtime", folder)["lastShutdown"]) == last
    # The metrics: sums of all shutdowns, and the last one.
    metrics = night.json("metrics")["metrics"]
    total: Counter[str] = Counter()
    for each in listed.values():
        total.update(each.pods)
    assert of_samples(metrics, PODS, "outcome") == total
    assert of_samples(metrics, LAST_PODS, "outcome") == last.pods
    outcomes = Counter(each.outcome for each in listed.values())
    assert of_samples(metrics, "ebbtide_shutdowns_total", "outcome") == outcomes
    assert list(of_samples(metrics, "ebbtide_last_shutdown", "outcome")) == [last.outcome]
    values = {each["name"]: each["samples"] for each in metrics}
    began, ended = (values[f"graceful_shutdown_{at}_time_seconds"][0]["value"] for at in ("start", "end"))
    assert (ended == 0) == (last.ms is None)
    assert last.ms is None or abs((ended - began) * 1000 - last.ms) <= 1
    # The daemon that wrote it counts the last shutdown when it is closed.
    meters, status = Meters(), DaemonStatus()
    for record in night.records:
        fold(meters, (record,))
        status.fold((record,))
    assert status.phase == "running" or status.last_outcome == last.outcome
    assert status.phase == "running" or Counter(map(pod_phase, status.pods.values())) == last.pods
    assert meters.counts.get(PODS, {}) == (total if status.phase == "idle" else total - Counter(last.pods))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_verb_gives_the_same_account(
    part: int, run: Run, sample: Sample, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for seed in sample(SEEDS, ONE_OF)[part::PARTS]:
        check(run, tmp_path_factory.mktemp(f"seed-{seed}"), ALL_MODES[seed % len(ALL_MODES)], seed)
