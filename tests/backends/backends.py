"""Real back ends for one test run, on loopback ports and own folders, stopped by PID.

Their content is read back as OTLP messages and compared span by span.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, TracesData

from tests.backends.programs import program
from tests.waiting import until_sync

Key = tuple[bytes, bytes]


class Kept(NamedTuple):
    """A stored trace. ``count`` has each copy of a span, ``spans`` one of each."""

    count: int
    spans: dict[Key, Span]
    resources: list[dict[str, str]]


class Backend:
    """``http`` and ``grpc`` are OTLP endpoints."""

    def __init__(self, name: str, folder: Path, ports: dict[str, int]) -> None:
        self.name, self.folder, self.ports = name, folder, ports
        self.http = f"http://127.0.0.1:{ports['otlp_http']}"
        self.grpc = f"http://127.0.0.1:{ports['otlp_grpc']}"

    def raw(self, trace_id: str) -> bytes:
        """The trace from the back end's query; empty if unknown."""
        raise NotImplementedError

    def trace(self, trace_id: str) -> Kept:
        """The stored part of a trace."""
        raise NotImplementedError

    def wait(self, trace_id: str, holds: Callable[[Kept], bool]) -> Kept:
        """The trace once ``holds``."""
        return until_sync(lambda: kept if holds(kept := self.trace(trace_id)) else None, f"{trace_id} whole")


class Jaeger(Backend):
    def raw(self, trace_id: str) -> bytes:
        return _get(f"http://127.0.0.1:{self.ports['query']}/api/v3/traces/{trace_id}") or b""

    def trace(self, trace_id: str) -> Kept:
        """`/api/v3` answers with OTLP's JSON, ids in hex, in which protobuf's own JSON has base64."""
        raw = self.raw(trace_id)
        document = json.loads(raw)["result"] if raw else {}
        return _kept(TracesData(resource_spans=list(_resource_spans(document))).resource_spans)


class Tempo(Backend):
    def raw(self, trace_id: str) -> bytes:
        url = f"http://127.0.0.1:{self.ports['http']}/api/traces/{trace_id}"
        return _get(url, {"Accept": "application/protobuf"}) or b""

    def trace(self, trace_id: str) -> Kept:
        """Its own message has the numbers of OTLP's TracesData (of its time: the scope has another one)."""
        data = TracesData.FromString(self.raw(trace_id))
        return _kept(data.resource_spans)


def _kept(resource_spans: object) -> Kept:
    count, spans, resources = 0, {}, []
    for resource in resource_spans:  # type: ignore[attr-defined]
        resources.append({each.key: each.value.string_value for each in resource.resource.attributes})
        for scope in resource.scope_spans:
            for span in scope.spans:
                count += 1
                spans[(span.trace_id, span.span_id)] = span
    return Kept(count, spans, resources)


def _resource_spans(document: dict[str, object]) -> Iterator[ResourceSpans]:
    for each in document.get("resourceSpans", []):  # type: ignore[attr-defined]
        _hex_to_base64(each)
        yield json_format.ParseDict(each, ResourceSpans(), ignore_unknown_fields=True)


def _hex_to_base64(node: object) -> None:
    if isinstance(node, list):
        for each in node:
            _hex_to_base64(each)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name in ("traceId", "spanId", "parentSpanId"):
                node[name] = base64.b64encode(bytes.fromhex(value)).decode()
            else:
                _hex_to_base64(value)


def _get(url: str, headers: dict[str, str] | None = None) -> bytes | None:
    """None where it is not there (yet)."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {})) as answer:
            return bytes(answer.read())
    except (urllib.error.HTTPError, urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def _answers(port: int, path: str) -> bool:
    return _get(f"http://127.0.0.1:{port}{path}") is not None


def _open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """A port for each; all are held until the last is found."""
    with contextlib.ExitStack() as stack:
        ports = {}
        for name in names:
            held = stack.enter_context(socket.socket())
            held.bind(("127.0.0.1", 0))
            ports[name] = held.getsockname()[1]
        return ports


@contextlib.contextmanager
def _running(
    argv: list[str], folder: Path, ready: Callable[[], bool], environ: dict[str, str] | None = None
) -> Iterator[None]:
    """Run for the block; ``ready`` checks the start."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(argv, cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT)

        def end_of_log() -> str:
            return f"{argv[0]}: {(folder / 'log').read_text(errors='replace')[-2000:]}"

        try:
            until_sync(lambda: ready() or process.poll() is not None, end_of_log)
            assert process.poll() is None, end_of_log()
            yield
        finally:
            process.kill()
            process.wait()


def _otlp(ports: dict[str, int]) -> dict[str, object]:
    """A receiver's configuration in Tempo and in the Collector."""
    places = {name: {"endpoint": f"127.0.0.1:{ports[f'otlp_{name}']}"} for name in ("http", "grpc")}
    return {"otlp": {"protocols": places}}


@contextlib.contextmanager
def jaeger(folder: Path) -> Iterator[Jaeger]:
    """Raises tests.beds.rootfs.Unavailable."""
    flags = {
        "collector.otlp.http": "otlp_http",
        "collector.otlp.grpc": "otlp_grpc",
        "query.http-server": "query",
        "query.grpc-server": "query_grpc",
        "admin.http": "admin",
        "collector.grpc-server": "collector_grpc",
        "collector.http-server": "collector_http",
    }
    ports = free_ports(tuple(flags.values()))
    places = [f"--{flag}.host-port=127.0.0.1:{ports[name]}" for flag, name in flags.items()]
    argv = [str(program("jaeger")), *places, "--log-level=warn"]
    environ = {"SPAN_STORAGE_TYPE": "memory", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    with _running(argv, folder, lambda: _answers(ports["admin"], "/"), environ):
        yield Jaeger("jaeger", folder, ports)


@contextlib.contextmanager
def tempo(folder: Path) -> Iterator[Tempo]:
    """Raises tests.beds.rootfs.Unavailable."""
    ports = free_ports(("otlp_http", "otlp_grpc", "http", "grpc"))
    document = {
        "server": {
            "http_listen_address": "127.0.0.1",
            "http_listen_port": ports["http"],
            "grpc_listen_address": "127.0.0.1",
            "grpc_listen_port": ports["grpc"],
            "log_level": "warn",
        },
        "distributor": {"receivers": _otlp(ports)},
        "ingester": {"lifecycler": {"address": "127.0.0.1", "min_ready_duration": "0s"}},
        "querier": {"frontend_worker": {"frontend_address": f"127.0.0.1:{ports['grpc']}"}},
        "storage": {
            "trace": {
                "backend": "local",
                "wal": {"path": str(folder / "wal")},
                "local": {"path": str(folder / "blocks")},
            }
        },
        "usage_report": {"reporting_enabled": False},
    }
    config = folder / "tempo.yaml"
    config.write_text(json.dumps(document))
    argv = [str(program("tempo")), str(config)]
    with _running(argv, folder, lambda: _answers(ports["http"], "/ready")):
        yield Tempo("tempo", folder, ports)


class Collector(Backend):
    """Writes received requests to ``taken``, one OTLP-JSON line each; reads new files in ``files``."""

    @property
    def taken(self) -> Path:
        return self.folder / "taken.json"

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def trace(self, trace_id: str) -> Kept:
        found = [each for line in _lines(self.taken) for each in _resource_spans(json.loads(line))]
        kept = _kept(found)
        ours = {key: span for key, span in kept.spans.items() if key[0].hex() == trace_id}
        return Kept(kept.count, ours, kept.resources)


def _lines(path: Path) -> list[str]:
    """Whole lines: a line is written in pieces."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


@contextlib.contextmanager
def collector(folder: Path) -> Iterator[Collector]:
    """Raises tests.beds.rootfs.Unavailable."""
    ports = free_ports(("otlp_http", "otlp_grpc", "metrics"))
    bed = Collector("collector", folder, ports)
    bed.files.mkdir()
    document = {
        "receivers": {
            **_otlp(ports),
            "otlpjsonfile": {
                "include": [f"{bed.files}/*.json"],
                "start_at": "beginning",
                "poll_interval": "50ms",
            },
        },
        "exporters": {"file": {"path": str(bed.taken), "flush_interval": "50ms"}},
        "service": {
            "pipelines": {"traces": {"receivers": ["otlp", "otlpjsonfile"], "exporters": ["file"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
    }
    config = folder / "collector.yaml"
    config.write_text(json.dumps(document))
    argv = [str(program("collector")), f"--config=file:{config}"]
    with _running(argv, folder, lambda: _open(ports["otlp_http"])):
        yield bed
