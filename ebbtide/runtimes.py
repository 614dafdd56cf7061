"""Which edges a mode has: those that end this node's pods, and those through which others hear of it.

They are light until the node is armed: gRPC, the API's client and all that they bring are imported then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from actors.edges.process.status import LocalStatusEdge
from actors.interfaces import Edge
from ebbtide.config import Loaded
from ebbtide.options import RunOptions
from ebbtide.places import Places
from ebbtide.surroundings import Tell
from events.model import Pod

#: The pod that the daemon runs in, by the downward API: it is in no wave.
OWN_UID = "EBBTIDE_POD_UID"
#: In a container that shares the node's processes too, where our own table is the container's.
NODES_MOUNTS = Path("/proc/1/mountinfo")
WARNING = 4


class Traced(Protocol):
    """An edge that calls others."""

    def pass_on(self, context: Callable[[str], str]) -> None:
        """Give each order's trace context, by its key, to whatever it calls."""


class PodRuntime(Edge, Traced, Protocol):
    """An edge that has pods."""

    def active(self) -> list[Pod]:
        """The pods that a shutdown would have to end."""


class Parts(NamedTuple):
    """``edges``: all that a mode has beside logind. An order that two of them know is the later one's."""

    runtime: PodRuntime
    edges: tuple[Edge, ...]
    traced: tuple[Traced, ...]


def parts_of(options: RunOptions, loaded: Loaded, places: Places | None, tell: Tell) -> Parts:
    """``places``: for the modes of a node. Raises OSError."""
    if places is None:
        return _process(options, loaded)
    for line in places.missing:
        tell(WARNING, line)
    return _node(options, places, tell)


def state_folder(options: RunOptions) -> Path:
    """What the edges of a mode keep until the boot ends; the modes of a node share it."""
    return options.runtime / ("cri" if options.of_node else "process")


def lasting_folder(options: RunOptions) -> Path:
    """What the edges of a node keep for the next boot, beside the journal."""
    return options.journal.parent / "node"


def _process(options: RunOptions, loaded: Loaded) -> Parts:
    from actors.edges.process.edge import ProcessEdge
    from ebbtide.manifests import local_pods

    read = partial(local_pods, allow_zero_sleep=loaded.settings.gate("PodLifecycleSleepActionAllowZero"))
    folder = state_folder(options)
    edge = ProcessEdge(folder, manifests=options.pods, load=read, capture_lines=options.capture_lines)
    return Parts(edge, (edge, LocalStatusEdge(folder)), (edge,))


def _node(options: RunOptions, places: Places, tell: Tell) -> Parts:
    """Without an identity the status stands in a file, and what only the API server can do ends failed: who
    a pod is is known from the cache and the static pods' manifests all the same.
    """
    from actors.edges.cri.edge import CriEdge
    from actors.edges.kubelet.edge import KubeletEdge
    from actors.edges.kubernetes.edge import KubernetesEdge

    cluster = KubernetesEdge(
        places.kubeconfig, places.node, lasting_folder(options), manifests=places.static_pods, tell=tell
    )
    kubelet = KubeletEdge(places.kubelet_unit, places.kubelet_root, tell=tell, mount_table=NODES_MOUNTS)
    runtime = CriEdge(
        f"unix://{places.cri_socket}",
        state_folder(options),
        own_uid=os.environ.get(OWN_UID, ""),
        lookup=cluster,
        starts=lambda: kubelet.starts_pods,
        tell=tell,
    )
    edges: tuple[Edge, ...] = (runtime, cluster, kubelet)
    if not places.has_api:
        edges = (*edges, LocalStatusEdge(state_folder(options)))
    return Parts(runtime, edges, (runtime, cluster))
