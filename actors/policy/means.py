"""How a shutdown ends its pods: one table over what is wanted, and what is there to do it with.

A kubelet that shuts its pods down itself is never raced (design, rule 8); what is not possible falls back to
the other way (design, "Edges and modes").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from events.model import Means, ShutdownKind

#: Modes in which the pods are a Kubernetes node's; in any other they are processes of our own.
NODE_MODES = ("auto", "api", "cri", "observe")

#: Of these it is said that the pods should move; after any other kind the same pods come back here.
GOING_FOR_GOOD: tuple[ShutdownKind, ...] = ("poweroff", "halt")

BY_KIND: dict[ShutdownKind, Means] = dict.fromkeys(GOING_FOR_GOOD, "api")

KUBELET_LOCK = "the kubelet's own graceful shutdown holds a lock"


class Health(NamedTuple):
    """What is there; None: nobody has said yet. ``stoppable``: the kubelet, without the runtime."""

    kubelet: bool | None
    runtime: bool | None
    api: bool | None
    stoppable: bool = True


class Choice(NamedTuple):
    means: Means
    reason: str


def comes_back(kind: ShutdownKind) -> bool:
    """Do this node's pods start again here? Not known counts as yes: no status may end such a pod."""
    return kind not in GOING_FOR_GOOD


def choose(
    mode: str,
    kind: ShutdownKind,
    wanted: Mapping[str, str],
    kubelet_lock: bool,
    health: Health,
    *,
    starved: bool = False,
) -> Choice:
    """The means of a shutdown of ``kind`` in one of `NODE_MODES`. ``wanted``: the configuration, by kind.

    ``starved``: under the grant a wave is left without any time. Deletes that go out together reach the pods
    in whatever order, and the order is all that is left to keep.
    """
    if mode == "observe":
        return Choice("observe", "mode observe")
    if kubelet_lock:
        return Choice("observe", KUBELET_LOCK)
    by_kind = f"a shutdown of kind {kind}" if mode == "auto" else f"mode {mode}"
    means = (wanted.get(kind) or BY_KIND.get(kind, "cri")) if mode == "auto" else mode
    if means == "api":
        lacking = _lacking_for_api(health) or ("a wave has no time under the grant" if starved else "")
        return Choice("cri", f"{by_kind} wants api, but {lacking}") if lacking else Choice("api", by_kind)
    lacking = _lacking_for_cri(health)
    if mode == "auto" and lacking and not _lacking_for_api(health):
        return Choice("api", f"{by_kind} wants cri, but {lacking}")
    return Choice("cri", by_kind)


def _lacking_for_cri(health: Health) -> str:
    """A kubelet that runs on starts again what is stopped."""
    if health.runtime is False:
        return "the container runtime does not answer"
    return "" if health.stoppable else "the kubelet cannot be stopped without its container runtime"


def _lacking_for_api(health: Health) -> str:
    """Deletes need somebody to take them and somebody to carry them out. That nobody has said is no."""
    if not health.api:
        return "the API server does not answer"
    return "the kubelet does not run" if health.kubelet is False else ""
