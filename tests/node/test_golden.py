"""Journals of real shutdowns: they replay to the byte on any machine and export as a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ebbtide.cli.app import cli
from ebbtide.events.base import Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import MeansChosen, PodEnded, PodPlanned, ReleaseLock
from ebbtide.events.reader import History
from tests.node.golden import A_MACHINE, FATES, FOLDER, KINDS, NODE

MODES = sorted(KINDS)


def run(*words: str) -> Any:
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def records(mode: str) -> list[Record]:
    return list(History([DirectorySource(FOLDER / mode)]).records())


@pytest.mark.parametrize("mode", MODES)
def test_replays(mode: str) -> None:
    said = run("replay", "verify", "--journal", str(FOLDER / mode), "-o", "json")
    assert (said["identical"], said["episodes"]) == (True, 1)


@pytest.mark.parametrize("mode", MODES)
def test_tells_what_happened(mode: str) -> None:
    """Means and each pod's outcome are recorded before the release."""
    events = [record.event for record in records(mode)]
    release = next(at for at, event in enumerate(events) if isinstance(event, ReleaseLock))
    (means,) = [event.means for event in events if isinstance(event, MeansChosen)]
    assert means == mode
    names = {event.pod.uid: event.pod.name for event in events if isinstance(event, PodPlanned)}
    ended = [event for event in events[:release] if isinstance(event, PodEnded)]
    assert {names[event.uid]: event.outcome for event in ended} == FATES


@pytest.mark.parametrize("mode", MODES)
def test_is_a_trace(mode: str) -> None:
    """One trace: a root, and a span for each pod, on this node."""
    said = run("export", "otlp-json", "--journal", str(FOLDER / mode))
    (resource,) = said["resourceSpans"]
    spans = [span for scope in resource["scopeSpans"] for span in scope["spans"]]
    assert len({span["traceId"] for span in spans}) == 1
    assert len([span for span in spans if not span.get("parentSpanId")]) == 1
    values = {
        (each["key"], each["value"].get("stringValue"))
        for span in [*spans, resource["resource"]]
        for each in span["attributes"]
    }
    assert {name for key, name in values if key == "k8s.pod.name"} == set(FATES)
    assert ("k8s.node.name", NODE) in values


def test_nothing_of_the_machine() -> None:
    here = Path("/etc/machine-id")
    own = here.read_text().strip() if here.exists() else ""
    for file in FOLDER.rglob("*.ebj"):
        data = file.read_bytes()
        assert not own or own == A_MACHINE.strip() or own.encode() not in data
        for word in (b"/tmp/", b"/home/", b"/work/", b"token"):
            assert word not in data, (file, word)
