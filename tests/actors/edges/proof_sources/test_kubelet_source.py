"""Whether the node's kubelet is up: real TLS on the loopback."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trustme

from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView
from ebbtide.actors.edges.proof_sources.kubelet_source import KubeletSource
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said
from ebbtide.events import bounds
from tests.waiting import WATCHDOG_SECONDS

ON = Said("on", "nodeUID", "u")
MACHINE = Machine("n", "u", "b1", "", "")


def node(port: int, *addresses: str, name: str = "n", uid: str = "u") -> NodeView:
    view = NodeView(name, uid, "1", "b1", "Unknown", "", "", "none", (), "")
    return view._replace(addresses=addresses, port=port)


async def asked(*nodes: NodeView) -> Said | None:
    view = ClusterView()
    view.nodes.replace(list(nodes), "1")
    return await KubeletSource(view, "n").read(MACHINE)


@asynccontextmanager
async def listening(*, tls: bool = True, silent: bool = False) -> AsyncIterator[int]:
    """A server that greets by TLS, sends plain text, or is silent; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Self-signed for a name, like a kubelet's certificate.
    trustme.CA().issue_cert("n").configure_cert(context)

    async def serve(stream: trio.SocketStream) -> None:
        if silent:
            await trio.sleep_forever()
        if not tls:
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        try:
            await trio.SSLStream(stream, context, server_side=True).do_handshake()
        except trio.BrokenResourceError:
            return

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_a_kubelet_that_greets_is_there() -> None:
    """Any certificate counts; the second address counts too."""
    async with listening() as port:
        assert await asked(node(port, "127.0.0.1")) == ON
        assert await asked(node(port, "127.0.0.9", "127.0.0.1")) == ON


async def test_nobody_there_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, silent or not TLS: no proof."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds(source_kubelet_seconds=WATCHDOG_SECONDS))
    async with listening(tls=False) as port:
        said = await asked(node(port, "127.0.0.1"))
        assert said is not None
        assert said.verdict == "unknown"
        assert said.error.startswith("SSLError")
        refused = await asked(node(port, "127.0.0.9"))
        assert refused is not None
        assert refused.verdict == "unknown"
        assert "Connection refused" in refused.error
    monkeypatch.setattr(bounds, "now", bounds.Bounds(source_kubelet_seconds=0.2))
    async with listening(silent=True) as port:
        assert await asked(node(port, "127.0.0.1")) == Said("unknown", error="no answer")


async def test_who_has_no_address_or_is_another_is_not_asked() -> None:
    """The answer is not about this Node."""
    async with listening() as port:
        assert await asked(node(port)) is None
        assert await asked(node(port, "127.0.0.1", uid="v")) is None
        assert await asked() is None


async def test_an_address_that_another_node_has_now() -> None:
    """The other node answers."""
    async with listening() as port:
        other = node(port, "127.0.0.1", name="m", uid="v")
        said = Said("unknown", error="another Node has its address")
        assert await asked(node(port, "127.0.0.1"), other) == said
