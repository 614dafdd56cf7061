"""Fake container runtime and API server for a machine without them.

python neighbours.py SOCKET PORT. They prove that the clients work in the unit's sandbox; other tests use real
ones.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from ebbtide.actors.edges.cri import api_pb2 as api

SERVICE = "runtime.v1.RuntimeService"
THREADS = 8
REVIEWED = {"status": {"allowed": True, "userInfo": {"username": "tester"}}}
LISTED = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
WATCH_SECONDS = 3600


def conditions() -> Any:
    ready = [api.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
    return api.StatusResponse(status=api.RuntimeStatus(conditions=ready))


#: Method to request decoder and answer.
METHODS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "Version": (api.VersionRequest, lambda: api.VersionResponse(version="v1", runtime_name="stand-in")),
    "Status": (api.StatusRequest, conditions),
    "ListPodSandbox": (api.ListPodSandboxRequest, api.ListPodSandboxResponse),
    "ListContainers": (api.ListContainersRequest, api.ListContainersResponse),
}


def runtime(socket: str) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(THREADS))
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda request, context, answer=answer: answer(),
            request_deserializer=asked.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, (asked, answer) in METHODS.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


class Cluster(BaseHTTPRequestHandler):
    """Knows of no pod and of no Node."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "watch=" in self.path:
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            threading.Event().wait(WATCH_SECONDS)
        elif self.path.startswith("/api/v1/pods"):
            self._say(200, LISTED)
        else:
            self._say(404, {"kind": "Status", "code": 404})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._say(201, REVIEWED)

    def _say(self, code: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    held = runtime(sys.argv[1])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Cluster).serve_forever()
