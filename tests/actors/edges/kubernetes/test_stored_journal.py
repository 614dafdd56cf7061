"""The CLI reads a journal of outages from a real API server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import granted
from tests.daemon.rig import EBBTIDE
from tests.node.bed import Bed
from tests.replay import outages

pytestmark = [pytest.mark.node]

UID = "5d0a2a52-2f6d-4f6c-9b3e-0d7b6a3e8c11"
#: All that a reader needs.
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
WRITING = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create", "get"]}]


async def stored(bed: Bed, namespace: str) -> Path:
    """The golden outage, written as by a leader; a kubeconfig with only the right to list."""
    writer = await granted(bed, namespace, WRITING)
    async with linked(writer) as link:
        storage = ConfigMapStorage(link, namespace, UID, "leader", node="node-1")
        await storage.acquire("test")
        for file in sorted(outages.GOLDEN.iterdir()):
            made = await storage.create(file.name)
            # In pieces, as steps are written.
            data = file.read_bytes()
            for at in range(0, len(data), 4096):
                await made.write(data[at : at + 4096])
            await made.sync()
    return await granted(bed, f"{namespace}-reader", [], others={namespace: RULES})


async def asked(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    return await trio.run_process(
        [*EBBTIDE, *words], env=env, capture_stdout=True, capture_stderr=True, check=False
    )


async def test_every_reading_verb_takes_it(api_bed: Bed, tmp_path: Path) -> None:
    """By the Node's name and UID, with only the right to list."""
    kubeconfig = await stored(api_bed, "stored-verbs")
    here, by_uid = "configmaps:stored-verbs/node-1", f"configmaps:stored-verbs/{UID}"
    listed = await asked(kubeconfig, "journal", "ls", "-o", "json", "--journal", here)
    assert listed.returncode == 0, listed.stderr
    (episode,) = json.loads(listed.stdout)["episodes"]
    assert (episode["kind"], episode["outcome"]) == ("outage", "recovered")
    for words in (("replay", "timeline"), ("replay", "critical-chain"), ("export", "jsonl")):
        there = await asked(kubeconfig, *words, "--journal", by_uid)
        local = await asked(kubeconfig, *words, "--journal", str(outages.GOLDEN))
        assert (there.returncode, there.stdout) == (0, local.stdout), (words, there.stderr)
    assert (await asked(kubeconfig, "replay", "verify", "--journal", here)).returncode == 0
    page = tmp_path / "page.html"
    assert (await asked(kubeconfig, "replay", "report", "-o", str(page), "--journal", here)).returncode == 0
    assert "Outage report" in page.read_text()
    packed = tmp_path / "one.zip"
    made = await asked(kubeconfig, "journal", "pack", "--all", "-o", str(packed), "--journal", here)
    assert made.returncode == 0, made.stderr
    verified = await asked(kubeconfig, "replay", "verify", "--journal", str(packed))
    assert verified.returncode == 0, verified.stderr
    # The last step is stored, so the trace has its span, though no frame shows it as durable.
    trace = await asked(kubeconfig, "export", "otlp-json", "--journal", here)
    names = [span["name"] for span in json.loads(trace.stdout)["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert names.count("outage") == 1
