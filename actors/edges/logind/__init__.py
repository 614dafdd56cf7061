"""The edge to systemd-logind: the delay lock, the signal, and the limit."""

from actors.edges.logind.edge import LogindEdge

__all__ = ["LogindEdge"]
