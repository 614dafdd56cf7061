"""Pods ended through the container runtime interface (docs/cri.md)."""
