"""The controller sends outage traces from the stored journal, with retries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.outage_events import LastBootStated, OutageClosed
from ebbtide.events.reader import History
from ebbtide.otel.destination import Destination, Given
from ebbtide.otel.otlp_sink import spans_of
from ebbtide.outage import traces as module
from ebbtide.outage.traces import OutageTraces
from ebbtide.replay.sim.scenario import Draws
from ebbtide.tracing import usable_destination
from tests.actors.edges.kubernetes.config_map_fake import ConfigMaps
from tests.journals import Memory
from tests.otel.delivery.collector import Collector, Got, Reply, collecting
from tests.replay import outages
from tests.waiting import WATCHDOG_SECONDS, until

NAMESPACE, UID = "ebbtide", "11111111-2222-3333-4444-555555555555"
FILES = {file.name: file.read_bytes() for file in sorted(outages.GOLDEN.iterdir())}
RECORDS = list(History([DirectorySource(outages.GOLDEN)]).records())
CLOSED = next(record for record in RECORDS if isinstance(record.event, OutageClosed))
SPANS = spans_of(History([DirectorySource(outages.GOLDEN)]), CLOSED.episode).spans


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_SECONDS_MAX", WATCHDOG_SECONDS)


class Node(NamedTuple):
    node_uid: str


async def store(server: ConfigMaps, files: Mapping[str, bytes]) -> None:
    """An outage's segments, as a leader writes them."""
    storage = ConfigMapStorage(server, NAMESPACE, UID, "leader", node="node-1")
    await storage.acquire("")
    for name, data in files.items():
        await (await storage.create(name)).write(data)


@asynccontextmanager
async def sending(server: ConfigMaps, collector: Collector, told: list[str]) -> AsyncIterator[OutageTraces]:
    destination = Destination(
        endpoint=f"{collector.endpoint}/v1/traces", timeout_ns=int(WATCHDOG_SECONDS * NS_PER_SECOND)
    )
    made = OutageTraces(server, NAMESPACE, destination, lambda level, line: told.append(line))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        yield made
        nursery.cancel_scope.cancel()


def names(collector: Collector) -> list[str]:
    return sorted(span.name for got in collector.got for span in got.spans)


async def test_a_closed_outage_is_sent_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The projection's spans, once the last step is stored."""
    monkeypatch.setattr(module, "SOON_SECONDS", 0.01)
    looks, read = [], OutageTraces._read

    async def look(self: OutageTraces, wanted: Any) -> Any:
        looks.append(wanted)
        return await read(self, wanted)

    monkeypatch.setattr(OutageTraces, "_read", look)
    server, told = ConfigMaps(Draws(1)), list[str]()
    async with collecting(Collector()) as collector, sending(server, collector, told) as made:
        made.observe(Node(UID), RECORDS)
        await until(lambda: len(looks) > 2, "it does not look again")
        assert collector.got == []
        await store(server, FILES)
        await collector.until(lambda: len(collector.spans) == len(SPANS))
    assert sorted(collector.spans) == sorted((span.trace_id, span.span_id) for span in SPANS)
    assert "outage" in names(collector)
    assert told == []


async def test_how_the_boot_ended_is_sent_behind_the_end() -> None:
    """A later span of the same trace; the others are resent unchanged."""
    server, told, files = ConfigMaps(Draws(1)), list[str](), outages.script("outage-last-boot").files
    records = list(History([Memory(files)]).records())
    at = next(at for at, each in enumerate(records) if isinstance(each.event, LastBootStated) and at > 20)
    closed = next(each.episode for each in records if isinstance(each.event, OutageClosed))
    spans = spans_of(History([Memory(files)]), closed).spans
    await store(server, files)
    async with collecting(Collector()) as collector, sending(server, collector, told) as made:
        made.observe(Node(UID), records[:at])
        # Already stored, so it comes with the rest; its own request follows its record.
        await collector.until(lambda: len(collector.spans) == len(spans))
        sent = len(collector.got)
        made.observe(Node("another"), records[at : at + 1])
        made.observe(Node(UID), records[at : at + 1])
        await collector.until(lambda: len(collector.got) > sent)
    assert not collector.changed
    assert "last boot" in names(collector)
    assert told == []


async def test_what_is_never_stored_is_looked_for_seldom(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A full journal has begun anew: each look reads all of it."""
    looks = list[object]()

    async def look(self: OutageTraces, wanted: Any) -> None:
        looks.append(wanted)

    monkeypatch.setattr(OutageTraces, "_read", look)
    made = OutageTraces(ConfigMaps(Draws(1)), "ns", None, lambda level, line: None)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        made.want(UID, 1, 1)
        await trio.sleep(3600)
        nursery.cancel_scope.cancel()
    assert 60 <= len(looks) <= 130


async def test_a_back_end_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 0.0)
    server, told, refusals = ConfigMaps(Draws(1)), list[str](), iter([503, 503, 503])

    def answer(got: Got) -> Reply:
        return Reply(status=next(refusals, 200))

    await store(server, FILES)
    async with collecting(Collector(answer)) as collector, sending(server, collector, told) as made:
        made.want(UID, CLOSED.episode, CLOSED.seq)
        await collector.until(lambda: len(collector.spans) == len(SPANS))
        await until(lambda: told[-1] == "traces: they arrive again", "no word that they arrive")
    assert len(collector.got) == 4
    assert not collector.changed
    assert len({got.body for got in collector.got}) == 1
    assert ["503" in line for line in told] == [True, False]


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a day it is dropped and logged."""
    monkeypatch.setattr(module, "WAITING_SECONDS_MAX", -1.0)
    server, told = ConfigMaps(Draws(1)), list[str]()
    async with collecting(Collector()) as collector, sending(server, collector, told) as made:
        made.want("uid-a", 1, 1)
        made.want("uid-b", 1, 1)
        await until(lambda: len(told) == 2, "not told")
    assert ["uid-a" in told[0], "uid-b" in told[1]] == [True, True]
    assert all("is not sent" in line for line in told)


def test_a_wrong_variable_switches_it_off() -> None:
    """A log line; recovery works without traces."""
    told: list[str] = []
    wrong = {"OTEL_EXPORTER_OTLP_ENDPOINT": "no url"}
    assert usable_destination(Given(), wrong, lambda level, line: told.append(line)) is None
    assert len(told) == 1
    assert usable_destination(Given(), {}, lambda level, line: told.append(line)) is None
    assert len(told) == 1
