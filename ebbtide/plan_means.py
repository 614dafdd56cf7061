"""What ``ebbtide plan`` says on a Kubernetes node beside the waves: who would end the pods, by kind of
shutdown.

Chosen by the daemon's own table (`actors.policy.means`) from what answers now: at the signal it may be
another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.text import Text

from actors.logic.places import deletable
from actors.policy.explain import short_name
from actors.policy.means import Health, choose
from ebbtide.doctor.seen import NodeSeen
from ebbtide.text import visible
from events.model import Means, Pod, Settings, ShutdownKind

#: The kinds that people ask for; halt goes with power-off, kexec and soft-reboot with reboot, unless the
#: configuration says otherwise.
KINDS: tuple[ShutdownKind, ...] = ("poweroff", "halt", "reboot", "kexec", "soft-reboot")
#: Names in one line.
NAMES_MAX = 8


class Chosen(NamedTuple):
    """For one kind of shutdown."""

    kind: ShutdownKind
    means: Means
    reason: str


def describe(seen: NodeSeen, pods: Sequence[Pod], settings: Settings) -> tuple[dict[str, Any], list[Text]]:
    """As further keys of the document, and as lines. logind is asked for a kubelet's lock."""
    from ebbtide.doctor.gather import look_at_logind

    bus, _ = look_at_logind()
    chosen = choices(seen, bus is not None and bus.kubelet_lock, settings)
    left = left_behind(pods, seen.api.taint is not False)
    return means_json(seen, chosen, left), means_lines(seen, chosen, left)


def choices(seen: NodeSeen, kubelet_lock: bool, settings: Settings) -> list[Chosen]:
    """In the order of `KINDS`."""
    health = Health(seen.kubelet.active, not seen.runtime.problem, seen.api.answers)
    return [Chosen(kind, *choose(seen.mode, kind, settings.means, kubelet_lock, health)) for kind in KINDS]


def left_behind(pods: Sequence[Pod], taint: bool) -> list[Pod]:
    """Under ``api``: those that no delete ends, which go over the runtime behind the last wave. Without the
    taint every DaemonSet makes its pod again.
    """
    return [pod for pod in pods if not deletable(pod, taints=taint)]


def means_json(seen: NodeSeen, chosen: Sequence[Chosen], left: Sequence[Pod]) -> dict[str, Any]:
    """Keys beside the promised ones."""
    return {
        "mode": seen.mode,
        "node": seen.name,
        "means": [each._asdict() for each in chosen],
        "handover": [{"namespace": pod.namespace, "name": pod.name, "uid": pod.uid} for pod in left],
    }


def means_lines(seen: NodeSeen, chosen: Sequence[Chosen], left: Sequence[Pod]) -> list[Text]:
    """One line for each means with its kinds and reason, and one for the pods that are handed over."""
    by: dict[tuple[Means, str], list[str]] = {}
    for each in chosen:
        reason = each.reason.replace(f"a shutdown of kind {each.kind}", f"mode {seen.mode}")
        by.setdefault((each.means, reason), []).append(each.kind)
    lines = [
        Text.assemble((f"{', '.join(kinds)}: ", "bold"), visible(f"by {means} ({reason})"))
        for (means, reason), kinds in by.items()
    ]
    if left and any(each.means == "api" for each in chosen):
        names = ", ".join(short_name(pod) for pod in left[:NAMES_MAX])
        more = f" and {len(left) - NAMES_MAX} more" if len(left) > NAMES_MAX else ""
        lines.append(Text(visible(f"by api, no delete ends these: over the runtime, last: {names}{more}")))
    return lines
