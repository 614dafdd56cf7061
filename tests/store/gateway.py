"""A real S3 server on loopback whose policy permits a node only first writes, and broken stores."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

import trio

from tests.store.programs import versitygw
from tests.waiting import until_sync

BUCKET, REGION = "fleet", "us-east-1"
ROOT, NODE, READER = ("root", "rootsecret"), ("node", "nodesecret"), ("reader", "readersecret")


def allow(who: tuple[str, str], action: str, resource: str) -> dict[str, Any]:
    arn = f"arn:aws:s3:::{resource}"
    return {"Effect": "Allow", "Principal": {"AWS": [who[0]]}, "Action": [f"s3:{action}"], "Resource": [arn]}


def put_policy(endpoint: str, *allowed: dict[str, Any]) -> None:
    body = json.dumps({"Version": "2012-10-17", "Statement": allowed}).encode()
    assert signed_put(endpoint, f"/{BUCKET}?policy=", body, *ROOT) in (200, 204)


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

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0 or server.poll() is not None

    try:
        until_sync(listens, "versitygw to listen")
        admin = [str(binary), "admin", "--access", ROOT[0], "--secret", ROOT[1], "--endpoint-url", endpoint]
        for access, secret in (NODE, READER):
            made = [*admin, "create-user", "--access", access, "--secret", secret, "--role", "user"]
            subprocess.run(made, check=True, capture_output=True)
        # Minimal rights: a node creates objects below its prefix, a reader reads.
        put_policy(
            endpoint,
            allow(NODE, "PutObject", f"{BUCKET}/{prefix}/*"),
            allow(READER, "GetObject", f"{BUCKET}/*"),
            allow(READER, "ListBucket", BUCKET),
        )
        yield Gateway(endpoint, data)
    finally:
        server.terminate()
        server.wait()


# --- stores that are no good


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


# --- one signed request that the shipping's client lacks: put a policy


def signed_put(
    endpoint: str, target: str, body: bytes, access: str, secret: str, more: dict[str, str] | None = None
) -> int:
    """The status (AWS Signature Version 4, header form)."""
    host = urlsplit(endpoint).netloc
    path, _, query = target.partition("?")
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now} | (more or {})
    headers = dict(sorted(headers.items()))
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join(["PUT", path, query, lines, names, digest])
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (now[:8], REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"AWS4-HMAC-SHA256 Credential={access}/{scope}"
    headers["authorization"] = f"{credential}, SignedHeaders={names}, Signature={signature}"
    connection = http.client.HTTPConnection(host)
    try:
        connection.request("PUT", target, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
