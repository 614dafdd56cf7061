"""NodeStatusActor's phases: what checkpoints and digests encode names one pair of them, whatever it is."""

from __future__ import annotations

from itertools import product

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.node_status import NODE_STATUS, NodeStatusState, kubelet_phase, phase_of, shutdown_phase


def test_every_state_is_in_one_phase_of_each_region() -> None:
    """And there is no phase that no state is in."""
    found = {
        phase_of(
            NodeStatusState(
                in_episode=in_episode,
                flush_by_ns=flush_by_ns,
                kubelet_stopped=stopped,
                kubelet_stopping=stopping,
            )
        )
        for in_episode, flush_by_ns, stopped, stopping in product(
            (False, True), (0, NEVER_NS), (False, True), (False, True)
        )
    }
    assert found == set(NODE_STATUS.transitions.phases)


def test_phases() -> None:
    """A deadline for the last statuses tells flushing; a kubelet that is stopped is not being stopped."""
    assert shutdown_phase(NodeStatusState(in_episode=True)) == "shutting-down"
    assert shutdown_phase(NodeStatusState(in_episode=True, flush_by_ns=5)) == "flushing"
    assert shutdown_phase(NodeStatusState(flush_by_ns=5)) == "flushing-after-cancel"
    assert kubelet_phase(NodeStatusState(kubelet_stopping=True)) == "kubelet-stopping"
    assert kubelet_phase(NodeStatusState(kubelet_stopping=True, kubelet_stopped=True)) == "kubelet-stopped"
