"""Parsers of input from people, pods and servers: rows of `tests.fuzz.targets`."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest.mock import patch

import msgspec
import trio

from ebbtide.actors.edges import http_request
from ebbtide.actors.edges.cri.cri_pods import (
    GRACE_ANNOTATION,
    PORTS_ANNOTATION,
    PRE_STOP_ANNOTATION,
    SIDECARS_ANNOTATION,
    grace_seconds_of,
    is_static,
    ports_of,
    pre_stop_of,
    sidecars_of,
)
from ebbtide.actors.edges.cri.cri_runtime import signal_of_image
from ebbtide.actors.edges.http_request import HookRequest
from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.api_watch import list_watched, pods_of
from ebbtide.actors.edges.kubernetes.credentials import read_kubeconfig
from ebbtide.config.loading import parse
from ebbtide.manifests import parse_manifests
from ebbtide.otel import otlp
from tests.corpus_files import corpus

T = TypeVar("T")


# --- documents of people


def config(data: bytes) -> None:
    """A configuration, YAML or JSON."""
    parse([("config.yaml", data)])


def manifests(data: bytes) -> None:
    """Pods, as a person or a folder has them."""
    parse_manifests("pods.yaml", data)


def of_corpus(name: str) -> Callable[[], Iterator[bytes]]:
    """Readable files that other tests use too."""
    return lambda: (path.read_bytes() for path in corpus(name) if path.name.startswith("ok-"))


def kubeconfig(data: bytes) -> None:
    """A kubeconfig, and the files that it names."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        read_kubeconfig(Path(file.name))


def kubeconfigs() -> Iterator[bytes]:
    names = '"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]'
    cluster = '"clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443"}}]'
    plugin = '{"apiVersion": "client.authentication.k8s.io/v1", "command": "get-token", "args": ["x"]}'
    for user in ('{"token": "abc"}', f'{{"exec": {plugin}}}'):
        yield f'{{{names}, {cluster}, "users": [{{"name": "u", "user": {user}}}]}}'.encode()
    yield (
        b"current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
        b"clusters: [{name: k, cluster: {server: 'http://h', insecure-skip-tls-verify: true}}]\n"
    )


# --- pods, as the API server and the runtime have them


class _Server:
    """Answers a list with these bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def call(self, method: str, path: str, **_: object) -> Answer:
        return Answer(200, self._body)


def pod_list(data: bytes) -> None:
    """A list of pods from the API server."""
    _ended(list_watched(_Server(data), pods_of("node-1")))  # type: ignore[arg-type]


def pod_lists() -> Iterator[bytes]:
    meta = {
        "uid": "u",
        "namespace": "shop",
        "name": "web-0",
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "o", "controller": True}],
        "deletionTimestamp": "2026-03-01T12:00:00Z",
    }
    spec = {
        "nodeName": "node-1",
        "priority": 5,
        "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "main"}],
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}],
    }
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    pod = {"metadata": meta, "spec": spec, "status": status}
    yield msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": [pod, {"metadata": {}}]})


def annotations(data: bytes) -> None:
    """A pod's annotations: hook, ports, grace, sidecars."""
    text = data.decode("utf-8", "replace")
    given = dict.fromkeys(
        (PRE_STOP_ANNOTATION, PORTS_ANNOTATION, SIDECARS_ANNOTATION, GRACE_ANNOTATION), text
    )
    pre_stop_of(given)
    ports_of(given)
    sidecars_of(given)
    grace_seconds_of(given)
    is_static(given)


def runtime_states(data: bytes) -> None:
    """An image in the runtime's verbose state: its stop signal."""
    signal_of_image(data.decode("utf-8", "replace"))


def image_states() -> Iterator[bytes]:
    yield b'{"chainID": "sha256:0", "imageSpec": {"config": {"StopSignal": "SIGQUIT", "Env": ["A=b"]}}}'
    yield b'{"imageSpec": {}}'


def annotation_texts() -> Iterator[bytes]:
    yield b'{"exec": {"command": ["sh", "-c", "sleep 5"]}}'
    yield b'{"httpGet": {"port": "http", "path": "/", "httpHeaders": [{"name": "a", "value": "b"}]}}'
    yield b'{"sleep": {"seconds": 5}}'
    yield b'[{"name": "http", "containerPort": 80}]'
    yield b"30"


# --- what answers to us


def hook_answer(data: bytes) -> None:
    """A pod server's answer to its httpGet hook."""
    trio.run(_ask_hook, data)


async def _ask_hook(data: bytes) -> None:
    ours, theirs = trio.socket.socketpair()

    async def connect(*asked: object) -> trio.abc.Stream:
        return trio.SocketStream(ours)

    # The answer is the subject, not its source.
    with theirs, patch.object(http_request, "_connect", connect):
        await trio.SocketStream(theirs).send_all(data)
        theirs.shutdown(socket.SHUT_WR)
        await HookRequest("http://h/", "http", "h", 80, "/", (("Host", "h"),)).send()


def hook_answers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    yield b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 503 Busy\r\n\r\nlater"
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


def answers(data: bytes) -> None:
    """A tracing back end's answer to a batch, by either protocol."""
    for status in (200, 400, 429):
        for kind in ("application/x-protobuf", "application/json", ""):
            otlp.answer_of_http(status, kind, data.decode("latin-1")[:40], data)
    otlp.answer_of_grpc(14, "UNAVAILABLE", data.decode("latin-1"), data)
    for parse_message in (otlp.parse_partial_success, otlp.parse_status):
        with suppress(otlp.NotProtobuf):
            parse_message(data)


def answer_messages() -> Iterator[bytes]:
    yield b"\x0a\x08\x08\x05\x12\x04full"
    yield b"\x08\x0e\x12\x04busy\x1a\x10\x0a\x06a/b.RI\x12\x06\x0a\x04\x08\x02\x10\x03"
    yield b"120"
    yield b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "full"}}'


def _ended(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return cast(T, ended.value)
    raise AssertionError("it waits")
