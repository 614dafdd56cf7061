"""Metrics and shipping of the real daemon with the real logind."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from ebbtide.events.decisions import EpisodeClosed, ReleaseLock
from ebbtide.otel.metric_table import METERS_FILE_NAME
from tests.beds.bmc import free_port
from tests.daemon.rig import Rig
from tests.waiting import until

pytestmark = pytest.mark.root

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def scrape(port: int) -> dict[str, float]:
    """Scrape like Prometheus; name and labels as one text."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(REQUEST)
        answer = b"".join([chunk async for chunk in stream])
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.partition(b"\r\n\r\n")[2].decode())
        for sample in family.samples
    }


async def asked(rig: Rig) -> dict[str, Any]:
    document = json.loads(await rig.ebbtide("metrics", "-o", "json"))
    return {metric["name"]: metric["samples"] for metric in document["metrics"]}


async def test_metrics_over_a_shutdown_and_a_restart(rig: Rig) -> None:
    """A closed shutdown's pods are counted once, by the daemon that runs then, even without the side file."""
    port = free_port(socket.SOCK_STREAM)
    rig.configure({0: 2}, metricsListen=f"127.0.0.1:{port}")
    rig.pod("web", "after=0.1")
    rig.pod("stuck", "ignore")
    await rig.start()
    await rig.granted()
    await rig.up("web", "stuck")
    before = await scrape(port)
    assert before["ebbtide_armed"] == before["ebbtide_lock_held"] == 1
    assert before["ebbtide_pods_at_risk"] == before["graceful_shutdown_start_time_seconds"] == 0
    await rig.bed.power_off()
    await rig.recorded(ReleaseLock)
    after = await scrape(port)
    assert (after["ebbtide_pods_total graceful"], after["ebbtide_pods_total killed"]) == (0, 0)
    assert after["graceful_shutdown_end_time_seconds"] > after["graceful_shutdown_start_time_seconds"] > 0
    for left in (None, METERS_FILE_NAME):
        await rig.kill()
        if left is not None:
            os.unlink(rig.journal / left)
        await rig.start(until="")
    await rig.bed.restart_logind(clean=True)
    await rig.recorded(EpisodeClosed, outcome="cancelled")

    async def counted() -> dict[str, float]:
        """A record is there before its sums."""
        samples = (await asked(rig))["ebbtide_pods_total"]
        return {each["labels"]["outcome"]: each["value"] for each in samples if each["value"]}

    assert await until(counted, "pods are counted") == {"graceful": 1, "killed": 1}
    (starts,) = (await asked(rig))["ebbtide_daemon_starts_total"]
    assert starts["value"] == 3


async def test_the_segment_of_the_daemon_before_is_shipped(rig: Rig) -> None:
    """The next start closes it; the open segment stays."""
    folder = rig.folder / "bucket"
    folder.mkdir()
    rig.configure({0: 3}, shipping={"url": f"file://{folder}", "cluster": "prod"})
    await rig.start()
    await rig.kill()
    await rig.start()
    (one,) = await until(lambda: list(folder.rglob("*.ebj")), "a segment in the bucket")
    first, *_ = sorted(rig.journal.glob("*.ebj"))
    data = first.read_bytes()
    assert one.name == f"{first.stem}-{hashlib.sha256(data).hexdigest()}.ebj"
    assert one.read_bytes() == data
    await rig.stop()
