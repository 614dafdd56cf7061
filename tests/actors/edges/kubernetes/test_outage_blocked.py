"""A controller whose journal the API server does not take: what it says, and how soon."""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.actors.edges.kubernetes.outage_rig import outage
from tests.actors.edges.kubernetes.rights import RBAC
from tests.actors.edges.kubernetes.test_outage_program import ACCOUNT, JOURNALS, replica, rights
from tests.node.bed import Bed
from tests.node.client import Refused
from tests.waiting import until

__all__ = ["rights"]

pytestmark = [pytest.mark.node, pytest.mark.proof]

SEEN_SECONDS_MAX = 15.0
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
QUOTAS = f"/api/v1/namespaces/{ACCOUNT}/resourcequotas"
ROLE = f"{RBAC}/namespaces/{ACCOUNT}/roles/{ACCOUNT}"
METRICS = "127.0.0.1:19465"
BLOCKED = "ebbtide_outage_journal_blocked{"
NAME = "maps.example.test"


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
HOOK = {
    "name": NAME,
    "rules": [RULE],
    "failurePolicy": "Fail",
    "sideEffects": "None",
    "timeoutSeconds": 30,
    "admissionReviewVersions": ["v1"],
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ACCOUNT}},
}


async def refused(bed: Bed) -> None:
    """The server's admission follows its own watches a moment later."""

    async def tried() -> bool:
        try:
            await bed.api.post(f"{JOURNALS}?dryRun=All", {"metadata": {"name": "tried"}})
        except Refused:
            return True
        return False

    await until(tried, "it is refused")


@contextlib.asynccontextmanager
async def webhook(bed: Bed, url: str) -> AsyncIterator[None]:
    """For each ConfigMap of the controller's namespace."""
    made = [HOOK | {"clientConfig": {"url": url}}]
    await bed.api.post(HOOKS, {"metadata": {"name": NAME}, "webhooks": made})
    try:
        yield
    finally:
        await bed.api.delete(f"{HOOKS}/{NAME}")


@contextlib.asynccontextmanager
async def dead_webhook(bed: Bed) -> AsyncIterator[None]:
    async with webhook(bed, "https://127.0.0.1:1/"):
        await refused(bed)
        yield


@contextlib.asynccontextmanager
async def hung_webhook(bed: Bed) -> AsyncIterator[None]:
    """It takes the connection, and never answers."""
    with bed.network():
        listening = trio.socket.socket()
    await listening.bind(("127.0.0.1", 0))
    listening.listen()
    with listening:
        async with webhook(bed, f"https://127.0.0.1:{listening.getsockname()[1]}/"):
            yield


@contextlib.asynccontextmanager
async def full_quota(bed: Bed) -> AsyncIterator[None]:
    """The controller that counts is absent: the test writes its status."""
    hard = {"count/configmaps": "1"}
    made = await bed.api.post(QUOTAS, {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": {"count/configmaps": "1"}}}
    await bed.api.patch(f"{QUOTAS}/{made['metadata']['name']}/status", status)
    await refused(bed)
    try:
        yield
    finally:
        await bed.api.delete(f"{QUOTAS}/few")


@contextlib.asynccontextmanager
async def lost_right(bed: Bed) -> AsyncIterator[None]:
    role = await bed.api.get(ROLE)
    rules = [
        {**each, "verbs": ["get", "list"]} if "configmaps" in each["resources"] else each
        for each in role["rules"]
    ]
    await bed.api.patch(ROLE, {"rules": rules})
    try:
        yield
    finally:
        await bed.api.patch(ROLE, {"rules": role["rules"]})


def metrics() -> str:
    try:
        with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("trouble", "why", "words"),
    [
        (dead_webhook, "500 failed calling webhook", f'failed calling webhook "{NAME}"'),
        (hung_webhook, "no answer", "no answer"),
        (full_quota, "403 exceeded quota", "exceeded quota: few"),
        (lost_right, "403 cannot create resource", "403 cannot create resource"),
    ],
    ids=["dead-webhook", "hung-webhook", "full-quota", "lost-right"],
)
async def test_a_blocked_journal_is_seen(
    trouble: Callable[[Bed], Any], why: str, words: str, api_bed: Bed, rights: Path, tmp_path: Path
) -> None:
    """In a calm cluster: in metrics, log and status, each within 15 s; the doctor names the cause."""

    async def ask(*arguments: str) -> str:
        ran = await outage(api_bed.kubeconfig, *arguments, "--namespace", ACCOUNT)
        return ran.out + ran.err

    async def in_metrics() -> bool:
        return f'{BLOCKED}node=""}} 1' in await trio.to_thread.run_sync(metrics)

    async def in_log() -> bool:
        return "the journals cannot be written" in (tmp_path / "one.log").read_text()

    async def in_status() -> bool:
        return "no record could be stored" in await ask("status", "any")

    async with replica(rights, tmp_path, "one", f"metricsListen: {METRICS}\n"):
        await until(lambda: "\nebbtide_outage_leading 1\n" in metrics(), "it leads")
        found: dict[str, float] = {}
        async with trouble(api_bed), trio.open_nursery() as nursery:
            began = time.monotonic()

            async def measure(name: str, seen: Callable[[], Awaitable[bool]]) -> None:
                await until(seen, "it is seen")
                found[name] = time.monotonic() - began

            for name, seen in (("metrics", in_metrics), ("log", in_log), ("status", in_status)):
                nursery.start_soon(measure, name, seen)
            await until(lambda: len(found) == 3, "all three")
            listed, doctor = await ask("ls"), await ask("doctor")
        print({name: round(seconds, 1) for name, seconds in found.items()})
        print(listed, doctor)
        assert max(found.values()) <= SEEN_SECONDS_MAX
        assert listed.startswith("leader  one_")
        assert why in listed
        assert words in doctor
        await until(lambda: f'{BLOCKED}node=""}} 0' in metrics(), "it is over")
