"""What is told of a Kubernetes node's shutdown as a whole: by which means, handed over, what was left.

Empty in mode process, and in every journal from before there was anything else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from events.model import Means

#: An order that stands beside the waves.
Beside = Literal[
    "inventory",
    "announce",
    "statuses",
    "release",
    "traces",
    "kubelet",
    "kubelet-start",
    "withdraw",
    "await",
    "mounts",
    "certificate",
]


class CertificateTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether volumes were safe to detach. ``running`` are UIDs, ``mounted`` pairs of a UID and a volume."""

    at_ns: int
    safe: bool
    ended: int = 0
    running: tuple[str, ...] = ()
    mounted: tuple[tuple[str, str], ...] = ()


class NodeTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Times are nanoseconds since the signal, as in `replay.account.model`."""

    means: Means = ""
    reason: str = ""
    handed_over_ns: int | None = None
    handed_over_reason: str = ""
    kubelet_stopped_ns: int | None = None
    certificate: CertificateTold | None = None
    #: What the kubelet had not done at the release, by UID.
    left_running: tuple[str, ...] = ()
    left_without_status: tuple[str, ...] = ()
