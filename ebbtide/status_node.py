"""What ``ebbtide status`` says of a Kubernetes node: who answers, who ends its pods, what may be detached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.options import PROCESS
from ebbtide.standing import Standing

#: As the daemon writes it, beside its journal (`actors.edges.kubernetes.cache`).
CACHE = Path("node", "pods.json")
CACHE_BYTES_MAX = 16 * 1024 * 1024

_SAID = {True: "answers", False: "does not answer", None: "nobody has said yet"}
_UNIT = {True: "active", False: "not active", None: "not known"}


class _Cached(msgspec.Struct):
    pods: list[msgspec.Raw] = []


def node_json(standing: Standing) -> dict[str, Any]:
    """Null: nobody has said since the daemon began. ``means`` and what follows are of the running shutdown,
    or of the last.
    """
    certificate = standing.certificate
    return {
        "kubelet": standing.kubelet,
        "kubeletLock": standing.kubelet_lock,
        "runtime": standing.runtime,
        "runtimeError": standing.runtime_error,
        "api": standing.api,
        "apiError": standing.api_error,
        "mayTaint": standing.may_taint,
        "means": standing.means,
        "meansReason": standing.means_reason,
        "handedOver": standing.handed_over,
        "leftUndone": [standing.labels.get(uid, uid) for uid in standing.left_undone],
        "certificate": certificate
        and {
            "safe": certificate.safe,
            "ended": certificate.ended,
            "running": [standing.labels.get(uid, uid) for uid in certificate.running],
            "mounted": [[standing.labels.get(uid, uid), name] for uid, name in certificate.mounted],
        },
    }


def cached_pods(journal: Path) -> dict[str, Any] | None:
    """How many pods the daemon knows, beside ``journal``, and when that last changed; None: no cache."""
    path = journal.parent / CACHE
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(CACHE_BYTES_MAX), type=_Cached)
        changed = path.stat().st_mtime
    except (OSError, ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
        return None
    return {"pods": len(found.pods), "changedSecondsAgo": round(max(0.0, time.time() - changed), 1)}


def node_rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """For people; nothing where the pods are local processes, or an older daemon says nothing of it."""
    node, mode = document.get("node"), document.get("mode", PROCESS)
    if node is None or mode == PROCESS:
        return
    yield "mode", mode
    own = ", holds a delay lock of its own" if node["kubeletLock"] else ""
    yield "kubelet", _UNIT[node["kubelet"]] + own
    yield "runtime", _answer(node["runtime"], node["runtimeError"])
    taint = ", may not taint this node" if node["api"] and not node["mayTaint"] else ""
    yield "API server", _answer(node["api"], node["apiError"]) + taint
    if known := document.get("knownPods"):
        yield "pods known", f"{known['pods']}, last change {known['changedSecondsAgo']:g} s ago"
    yield from _shutdown_rows(node)


def _answer(reachable: bool | None, error: str) -> str:
    return _SAID[reachable] + (f": {error}" if error and not reachable else "")


def _shutdown_rows(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if node["means"]:
        yield "pods ended by", f"{node['means']} ({node['meansReason']})"
    if node["handedOver"]:
        yield "handed over", node["handedOver"]
    if node["leftUndone"]:
        yield "left undone", ", ".join(node["leftUndone"])
    if certificate := node["certificate"]:
        yield "volumes", _volumes(certificate)


def _volumes(certificate: dict[str, Any]) -> str:
    if certificate["safe"]:
        return f"safe to detach: {certificate['ended']} pods ended, nothing is mounted"
    running, mounted = len(certificate["running"]), len(certificate["mounted"])
    return f"not safe to detach: {running} pods running, {mounted} volumes mounted"
