"""A real S3 server on loopback whose policy permits a node only first writes, and broken stores."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import trio

from tests.store.programs import versitygw
from tests.waiting import until_sync

BUCKET, REGION = "fleet", "us-east-1"
ROOT, NODE, READER = ("root", "rootsecret"), ("node", "nodesecret"), ("reader", "readersecret")


def policy(bucket: str, prefix: str) -> dict[str, Any]:
    """Minimal rights: a node creates objects below its prefix, a reader reads."""
    own, whole = f"arn:aws:s3:::{bucket}/{prefix}/*", f"arn:aws:s3:::{bucket}"
    node, reader = {"AWS": [NODE[0]]}, {"AWS": [READER[0]]}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": node, "Action": ["s3:PutObject"], "Resource": [own]},
            {"Effect": "Allow", "Principal": reader, "Action": ["s3:GetObject"], "Resource": [f"{whole}/*"]},
            {"Effect": "Allow", "Principal": reader, "Action": ["s3:ListBucket"], "Resource": [whole]},
        ],
    }


class Gateway(NamedTuple):
    """``environ``: a client's variables for each user."""

    endpoint: str
    data: Path

    def environ(self, who: tuple[str, str] = NODE) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": who[0],
            "AWS_SECRET_ACCESS_KEY": who[1],
        }

    def objects(self) -> dict[str, bytes]:
        """The objects on the server's disk, by name."""
        folder = self.data / BUCKET
        paths = [path for path in folder.rglob("*.ebj") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(paths)}


@contextmanager
def gateway(folder: Path, prefix: str) -> Any:
    """Serves for the block; a node may write only below ``prefix``."""
    binary, data = versitygw(), folder / "data"
    (data / BUCKET).mkdir(parents=True)
    (folder / "iam").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    argv = [str(binary), "--port", f"127.0.0.1:{port}", "--access", ROOT[0], "--secret", ROOT[1]]
    argv += ["--region", REGION, "--iam-dir", str(folder / "iam"), "--quiet", "posix", str(data)]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        until_sync(lambda: _listens(port) or server.poll() is not None, "versitygw to listen")
        admin = [str(binary), "admin", "--access", ROOT[0], "--secret", ROOT[1], "--endpoint-url", endpoint]
        for access, secret in (NODE, READER):
            made = [*admin, "create-user", "--access", access, "--secret", secret, "--role", "user"]
            subprocess.run(made, check=True, capture_output=True)
        found = Gateway(endpoint, data)
        _put_policy(found, prefix)
        yield found
    finally:
        server.terminate()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _put_policy(on: Gateway, prefix: str) -> None:
    from tests.store.signing import signed_put

    answer = signed_put(on.endpoint, f"/{BUCKET}?policy=", json.dumps(policy(BUCKET, prefix)).encode(), *ROOT)
    assert answer in (200, 204), answer


# --- stores that are no good -----------------------------------------------------------------------


class Request(NamedTuple):
    """``headers`` have lower-case names."""

    target: str
    headers: dict[str, str]
    body: bytes


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


TAKEN = reply(200, ETag='"0"')


class FakeStore:
    """``answer``: the reply's bytes; None: no reply; empty: close the connection."""

    def __init__(self, answer: Callable[[Request], bytes | None]) -> None:
        self.answer, self.got, self.port, self.connections = answer, list[Request](), 0, 0

    def environ(self) -> dict[str, str]:
        return Gateway(f"http://127.0.0.1:{self.port}", Path("/")).environ()


@asynccontextmanager
async def faking(answer: Callable[[Request], bytes | None]) -> AsyncIterator[FakeStore]:
    """Serve on loopback for the block, with the client's variables set."""
    store = FakeStore(answer)

    async def serve(stream: trio.SocketStream) -> None:
        store.connections += 1
        try:
            await _answer(store, stream)
        except trio.BrokenResourceError:
            pass
        finally:
            store.connections -= 1

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        store.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        with patch.dict(os.environ, store.environ()):
            yield store
        nursery.cancel_scope.cancel()


async def _answer(store: FakeStore, stream: trio.SocketStream) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = await stream.receive_some(65536)
        if not chunk:
            return
        data += chunk
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        chunk = await stream.receive_some(65536)
        if not chunk:
            return
        body += chunk
    request = Request(first.split()[1], headers, body)
    store.got.append(request)
    answer = store.answer(request)
    if answer is None:
        await stream.receive_some(1)  # until the other end closes
    else:
        await stream.send_all(answer)
