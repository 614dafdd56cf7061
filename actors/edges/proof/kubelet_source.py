"""The node's kubelet, asked whether it is there: it can only contradict.

A TLS handshake with its port is enough, and needs no rights: to ask it for its health through the API server
takes ``nodes/proxy``, which is the right to run anything in any pod. What its certificate says is not looked
at: who answers at a node's address lives, and holds the cure back for some minutes, no more. No answer says
nothing, nor does a refused connection: a firewall refuses for a machine that is off.
"""

from __future__ import annotations

import ssl

import trio

from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof.sources import Machine, Said
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
        """None where the Node says no address."""
        node = self._view.of(self._node).node
        if node is None or node.uid != machine.node_uid or not node.addresses:
            return None
        error = ""
        for address in node.addresses[:ADDRESSES_MAX]:
            # Given away to a machine that came after it: who answers there is that one.
            if any(address in each.addresses for each in self._view.there() if each.uid != node.uid):
                error = "another Node has its address"
                continue
            try:
                seconds = bounds.now.source_kubelet_seconds / min(len(node.addresses), ADDRESSES_MAX)
                with trio.fail_after(seconds):
                    await self._greet(address, node.port)
            except trio.TooSlowError:
                error = "no answer"
            except (OSError, trio.BrokenResourceError) as failure:
                error = error_text(failure.__cause__ or failure)
            else:
                return Said("on", "nodeUID", machine.node_uid)
        return Said("unknown", error=error)

    async def _greet(self, address: str, port: int) -> None:
        """Raises OSError, trio.BrokenResourceError."""
        stream = trio.SSLStream(await trio.open_tcp_stream(address, port), self._context)
        try:
            await stream.do_handshake()
        finally:
            # Without a farewell: nobody waits for one.
            await trio.aclose_forcefully(stream)
