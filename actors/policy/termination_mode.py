"""The termination mode: who ends a shutdown's pods.

If the kubelet shuts its pods down by itself, Ebbtide only observes. A mode that is not possible falls back to
the other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import ShutdownKind, TerminationMode

#: In mode process the pods are our own processes.
NODE_MODES = ("auto", "api", "cri", "observe")

#: After these the pods should move. After others the same pods come back here.
GOING_FOR_GOOD: tuple[ShutdownKind, ...] = ("poweroff", "halt")

MODE_BY_KIND: dict[ShutdownKind, TerminationMode] = dict.fromkeys(GOING_FOR_GOOD, "api")

#: A kubelet without a health endpoint may leave a deleted pod alone for this time, however short its grace.
#: It acts within some hundred milliseconds, beside a hundred others within a second.
SIGN_NS = 2 * NS_PER_SECOND

KUBELET_LOCK_REASON = "the kubelet's own graceful shutdown holds a lock"


class NodeHealth(NamedTuple):
    """None: not known yet. ``stoppable``: the kubelet, without the runtime. ``healthy``: as the kubelet
    reports. ``api_unheard``: the API server has not been asked yet.
    """

    kubelet: bool | None
    runtime: bool | None
    api: bool | None
    stoppable: bool = True
    healthy: bool | None = None
    api_unheard: bool = False


class ModeChoice(NamedTuple):
    means: TerminationMode
    reason: str


def pods_come_back(kind: ShutdownKind) -> bool:
    """Unknown counts as yes: no status may end such a pod."""
    return kind not in GOING_FOR_GOOD


def choose_mode(
    mode: str,
    kind: ShutdownKind,
    wanted: Mapping[str, str],
    kubelet_lock: bool,
    health: NodeHealth,
    *,
    starved: bool = False,
) -> ModeChoice:
    """``mode`` is one of `NODE_MODES`, ``wanted`` the configuration by kind. ``starved``: the grant leaves a
    wave without time. Then only the order is left to keep, and deletes that go out together keep none.
    """
    if mode == "observe":
        return ModeChoice("observe", "mode observe")
    # Ebbtide and the kubelet would cut each other's grace short.
    if kubelet_lock:
        return ModeChoice("observe", KUBELET_LOCK_REASON)
    by_kind = f"a shutdown of kind {kind}" if mode == "auto" else f"mode {mode}"
    means = (wanted.get(kind) or MODE_BY_KIND.get(kind, "cri")) if mode == "auto" else mode
    if means == "api":
        # The record has one reason: the impossible before the unwise.
        lacking = _lacking_for_api(health) or ("a wave has no time under the grant" if starved else "")
        if lacking:
            return ModeChoice("cri", f"{by_kind} wants api, but {lacking}")
        return ModeChoice("api", by_kind)
    # A running kubelet starts again what Ebbtide stops.
    lacking = "" if health.stoppable else "the kubelet cannot be stopped without its container runtime"
    if health.runtime is False:
        lacking = "the container runtime does not answer"
    if mode == "auto" and lacking and not _lacking_for_api(health):
        return ModeChoice("api", f"{by_kind} wants cri, but {lacking}")
    return ModeChoice("cri", by_kind)


def _lacking_for_api(health: NodeHealth) -> str:
    """Unknown counts as no."""
    if health.api_unheard:
        return "it is not known yet whether the API server answers"
    if not health.api:
        return "the API server does not answer"
    if health.kubelet is False:
        return "the kubelet does not run"
    return "the kubelet is not healthy" if health.healthy is False else ""
