"""The node's kubelet as a source: if it answers, the node runs. It can only contradict a proof.

A TLS handshake with its port is enough and needs no rights. The certificate is not verified: a false answer
only delays the cure by minutes. No answer proves nothing; a firewall may refuse for a machine that is off.
"""

from __future__ import annotations

import ssl

import trio

from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said
from ebbtide.actors.interfaces import error_text
from ebbtide.events import bounds
from ebbtide.events.outage_events import Source

#: Dual-stack nodes have two.
ADDRESSES_MAX = 4


class KubeletSource:
    source: Source = "kubelet"
    name = ""

    def __init__(self, view: ClusterView, node: str) -> None:
        self._view, self._node = view, node
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    async def read(self, machine: Machine) -> Said | None:
        """None: the Node names no address."""
        node = self._view.of(self._node).node
        if node is None or node.uid != machine.node_uid or not node.addresses:
            return None
        seconds = bounds.now.source_kubelet_seconds / min(len(node.addresses), ADDRESSES_MAX)
        error = ""
        for address in node.addresses[:ADDRESSES_MAX]:
            # A later machine may have got the address: then its kubelet would answer.
            if any(address in each.addresses for each in self._view.there() if each.uid != node.uid):
                error = "another Node has its address"
                continue
            try:
                with trio.fail_after(seconds):
                    plain = await trio.open_tcp_stream(address, node.port)
                    try:
                        await trio.SSLStream(plain, self._context).do_handshake()
                    finally:
                        await trio.aclose_forcefully(plain)
            except trio.TooSlowError:
                error = "no answer"
            except (OSError, trio.BrokenResourceError) as failure:
                error = error_text(failure.__cause__ or failure)
            else:
                return Said("on", "nodeUID", machine.node_uid)
        return Said("unknown", error=error)
