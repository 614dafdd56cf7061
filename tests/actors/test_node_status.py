"""NodeStatusActor's phases: what checkpoints and digests encode names one pair of them, whatever it is."""

from __future__ import annotations

from ebbtide.actors.node_status import NodeStatusState, kubelet_phase, shutdown_phase


def test_phases() -> None:
    """A deadline for the last statuses tells flushing; a kubelet that is stopped is not being stopped."""
    assert shutdown_phase(NodeStatusState(in_episode=True)) == "shutting-down"
    assert shutdown_phase(NodeStatusState(in_episode=True, flush_by_ns=5)) == "flushing"
    assert shutdown_phase(NodeStatusState(flush_by_ns=5)) == "flushing-after-cancel"
    assert kubelet_phase(NodeStatusState(kubelet_stopping=True)) == "kubelet-stopping"
    assert kubelet_phase(NodeStatusState(kubelet_stopping=True, kubelet_stopped=True)) == "kubelet-stopped"
