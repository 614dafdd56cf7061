"""The kubelet beside us: its unit of the service manager, and what it has mounted for pods."""

from actors.edges.kubelet.edge import KubeletEdge

__all__ = ["KubeletEdge"]
