"""An HTTPS server for one test, scripted to the byte."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
import trustme

from tests.beds.bmc import fingerprint

#: The first byte of a TLS handshake, where plain text is expected.
TLS_HANDSHAKE = b"\x16"
HOST = "127.0.0.1"


class Asked(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


#: The whole raw answer; a generator sends its pieces one by one.
Reply = Callable[[Asked], "bytes | AsyncGenerator[bytes, None]"]


def answer(status: int, body: object = b"", **headers: str) -> bytes:
    """``body`` bytes, or an object for JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(raw)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + raw


class Server:
    """``reply`` may change at any time; ``asked`` holds all requests."""

    def __init__(self, folder: Path, name: str = HOST) -> None:
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.ca_file = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = authority.issue_cert(name, key_type=trustme.KeyType.ECDSA)
        self.fingerprint = fingerprint(certificate)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self.context)
        self.reply: Reply = lambda asked: answer(404)
        self.asked: list[Asked] = []
        self.url = ""

    def resources(self, table: dict[str, object]) -> None:
        """Answer by path; bytes are a whole raw answer."""

        def reply(asked: Asked) -> bytes:
            found = table.get(asked.target)
            return found if isinstance(found, bytes) else answer(404 if found is None else 200, found)

        self.reply = reply


@asynccontextmanager
async def serving(server: Server, *, tls: bool = True) -> AsyncIterator[None]:
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=HOST)
        server.url = f"{'https' if tls else 'http'}://{HOST}:{listeners[0].socket.getsockname()[1]}"
        nursery.start_soon(trio.serve_listeners, partial(_serve, server, tls), listeners)
        try:
            yield
        except Exception as error:
            failed = error
        nursery.cancel_scope.cancel()
    # As itself, and in no group.
    if failed is not None:
        raise failed


async def _serve(server: Server, tls: bool, plain: trio.SocketStream) -> None:
    stream: trio.abc.Stream = plain
    if tls:
        stream = trio.SSLStream(plain, server.context, server_side=True, https_compatible=True)
    try:
        received = b""
        while b"\r\n\r\n" not in received:
            received += await _some(stream)
            if received[:1] == TLS_HANDSHAKE:
                await stream.send_all(answer(400))
                return
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            body += await _some(stream)
        method, target, _ = first.split(" ")
        asked = Asked(method, target, headers, body)
        server.asked.append(asked)
        reply = server.reply(asked)
        if isinstance(reply, bytes):
            await stream.send_all(reply)
        else:
            async with aclosing(reply):
                async for piece in reply:
                    await stream.send_all(piece)
        await stream.aclose()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        await trio.aclose_forcefully(plain)


async def _some(stream: trio.abc.Stream) -> bytes:
    more = bytes(await stream.receive_some(64 * 1024))
    if not more:
        raise trio.ClosedResourceError
    return more
