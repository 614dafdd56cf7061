"""A fault proxy before the API server: refusals, errors, delays, silence.

A program of the node. It terminates TLS and decides for each request by a file. Its log has one line per
request, so it also records the requests.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import sys
from pathlib import Path
from typing import NamedTuple

import trio

from tests.beds.relay import joined
from tests.node.bed import Bed
from tests.node.identities import Client
from tests.node.parts import API_PORT, Part
from tests.waiting import until

NAME = "weather"
PORT = 7443
LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
REASONS = {429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}


class Sky(NamedTuple):
    """``answer``: replaces the server's code. ``delay_seconds``: before everything.

    ``methods``: affected ones; empty: all. ``retry_after``: seconds in the answer.
    """

    answer: int = 0
    delay_seconds: float = 0
    methods: tuple[str, ...] = ()
    retry_after: int = 1


class Weather:
    """Outside: no faults until `becomes`. ``server`` is for clients in the node."""

    server = f"https://127.0.0.1:{PORT}"

    def __init__(self, bed: Bed) -> None:
        self.bed, self.file = bed, bed.folder / "weather.json"

    async def start(self) -> None:
        """Returns when it listens."""
        self.becomes()
        (self.bed.folder / "log" / f"{NAME}.log").write_text("")
        secrets = self.bed.secrets
        files = [self.file, secrets.certificate, secrets.key, secrets.authority]
        argv = [sys.executable, "-m", "tests.node.weather", *map(str, files)]
        await self.bed.start(Part(NAME, argv, {}))
        await until(self._listens, "the weather does not listen")

    async def stop(self) -> None:
        await self.bed.stop(NAME)

    async def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            await (await self.bed.connect("127.0.0.1", PORT)).aclose()
            return True
        return False

    def becomes(self, **sky: object) -> None:
        """Set the fields of `Sky` from the next request on; none: no faults."""
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps(sky))
        written.rename(self.file)

    def kubeconfig(self, client: Client) -> Path:
        return self.bed.secrets.kubeconfig(client, self.server, f"{client.user.replace(':', '-')}-{NAME}")

    def requests(self) -> list[tuple[str, str, int]]:
        """Method, path, and the proxy's code; 0 for forwarded requests."""
        rows = [line.split() for line in self.bed.log(NAME).splitlines()]
        return [(method, path, int(code)) for method, path, code in rows]


class Relay:
    """Inside: one request per connection."""

    def __init__(self, file: Path, trusted: ssl.SSLContext) -> None:
        self.file, self.trusted = file, trusted

    async def serve(self, outer: trio.SSLStream[trio.SocketStream]) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            async with outer:
                head, body = await _request(outer)
                if head:
                    await self.answer(outer, head, body)

    async def answer(self, outer: trio.SSLStream[trio.SocketStream], head: bytes, body: bytes) -> None:
        method, path = head.split(b" ", 2)[:2]
        sky = Sky(**json.loads(self.file.read_text()))
        concerned = not sky.methods or method.decode() in sky.methods
        code = sky.answer if concerned else 0
        print(method.decode(), path.decode(), code, flush=True)
        if concerned:
            await trio.sleep(sky.delay_seconds)
        if code:
            await outer.send_all(refusal(code, sky.retry_after))
        else:
            await self.pass_on(outer, head, body)

    async def pass_on(self, outer: trio.SSLStream[trio.SocketStream], head: bytes, body: bytes) -> None:
        line, _, fields = head.partition(b"\r\n")
        kept = [each for each in fields.split(b"\r\n") if not each.lower().startswith(b"connection:")]
        closing = b"\r\n".join([line, b"Connection: close", *kept])
        raw = await trio.open_tcp_stream("127.0.0.1", API_PORT)
        async with trio.SSLStream(
            raw, self.trusted, server_hostname="127.0.0.1", https_compatible=True
        ) as inner:
            await inner.send_all(closing + b"\r\n\r\n" + body)
            await joined(outer, inner)


def refusal(code: int, retry_after: int) -> bytes:
    reason = REASONS.get(code, "Error")
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "code": code}
    body = json.dumps(status).encode()
    fields = ["Content-Type: application/json", f"Retry-After: {retry_after}", "Connection: close"]
    lines = [f"HTTP/1.1 {code} {reason}", *fields, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


async def _request(stream: trio.abc.ReceiveStream) -> tuple[bytes, bytes]:
    head, body, length = b"", b"", None
    while length is None or len(body) < length:
        piece = await stream.receive_some()
        if not piece:
            return b"", b""
        body += piece
        if length is None and b"\r\n\r\n" in body:
            head, _, body = body.partition(b"\r\n\r\n")
            found = LENGTH.search(head)
            length = int(found[1]) if found else 0
    return head, body


async def main(file: Path, *files: str) -> None:
    certificate, key, authority = files
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate, key)
    relay = Relay(file, ssl.create_default_context(cafile=authority))
    await trio.serve_ssl_over_tcp(relay.serve, PORT, own, host="127.0.0.1", https_compatible=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), *sys.argv[2:])
