"""What a kubelet writes about pods and containers where the runtime keeps it, and how it is read.

Labels and annotations are all that a runtime knows of Kubernetes (kubelet, ``kuberuntime/labels.go``).
Priority and which init containers are sidecars are not among them: both are read from annotations of the
pod, which reach its sandbox, where somebody gives them; else they are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from actors.edges.process.spec import (
    ExecAction,
    HookAction,
    HttpGetAction,
    SleepAction,
    TcpSocketAction,
)
from events.model import Hook

POD_UID = "io.kubernetes.pod.uid"
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
CONTAINER_NAME = "io.kubernetes.container.name"
GRACE = "io.kubernetes.pod.terminationGracePeriod"
PRE_STOP = "io.kubernetes.container.preStopHandler"
PORTS = "io.kubernetes.container.ports"
#: On a pod: where its kubelet has it from; anything but the API server makes it a static one.
SOURCE = "kubernetes.io/config.source"
FROM_API = "api"
#: On a pod: its priority as a number, and the names of its restartable init containers, with commas.
PRIORITY = "ebbtide/priority"
SIDECARS = "ebbtide/sidecars"

#: A hook's detail is for people: what does not fit a line says no more.
DETAIL_LENGTH_MAX = 100


class _Exec(msgspec.Struct):
    command: list[str] = []


class _Header(msgspec.Struct):
    name: str = ""
    value: str = ""


class _HttpGet(msgspec.Struct):
    port: int | str = 0
    path: str = ""
    host: str = ""
    scheme: str = ""
    headers: list[_Header] = msgspec.field(default_factory=list, name="httpHeaders")


class _Sleep(msgspec.Struct):
    seconds: int = 0


class _Handler(msgspec.Struct):
    """A LifecycleHandler, as encoding/json writes it."""

    exec: _Exec | None = None
    http_get: _HttpGet | None = msgspec.field(default=None, name="httpGet")
    sleep: _Sleep | None = None
    tcp_socket: dict[str, Any] | None = msgspec.field(default=None, name="tcpSocket")


class _Port(msgspec.Struct):
    name: str = ""
    number: int = msgspec.field(default=0, name="containerPort")


def pre_stop(annotations: Mapping[str, str]) -> HookAction | None:
    """The preStop handler of a container. One that cannot be read is no hook that could be run: None."""
    try:
        handler = msgspec.json.decode(annotations.get(PRE_STOP, "{}"), type=_Handler)
    except (ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
        return None
    if handler.exec is not None and handler.exec.command:
        return ExecAction(argv=tuple(handler.exec.command))
    if handler.http_get is not None:
        return _get(handler.http_get)
    if handler.sleep is not None:
        return SleepAction(seconds=handler.sleep.seconds)
    return TcpSocketAction() if handler.tcp_socket is not None else None


def _get(found: _HttpGet) -> HttpGetAction:
    headers = tuple((header.name, header.value) for header in found.headers)
    return HttpGetAction(
        port=found.port, host=found.host, scheme=found.scheme or "HTTP", path=found.path, headers=headers
    )


def hook_of(action: HookAction | None) -> Hook | None:
    """What a journal may hold of it: no arguments, no headers, no query."""
    match action:
        case ExecAction():
            return Hook(kind="exec", detail=PurePosixPath(action.argv[0]).name[:DETAIL_LENGTH_MAX])
        case HttpGetAction():
            path = action.path.partition("?")[0].partition("#")[0][:DETAIL_LENGTH_MAX]
            return Hook(kind="httpGet", detail=f":{action.port}{path}")
        case SleepAction():
            return Hook(kind="sleep", sleep_seconds=action.seconds)
        case TcpSocketAction():
            return Hook(kind="tcpSocket")
        case _:
            return None


def ports(annotations: Mapping[str, str]) -> dict[str, int]:
    """A container's ports by name; those without one need no entry."""
    try:
        found = msgspec.json.decode(annotations.get(PORTS, "[]"), type=list[_Port])
    except (ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
        return {}
    return {port.name: port.number for port in found if port.name}


def grace_seconds(annotations: Mapping[str, str]) -> int | None:
    """The pod's terminationGracePeriodSeconds, from one of its containers; None: it has none."""
    return number(annotations.get(GRACE, ""))


def number(text: str) -> int | None:
    """A decimal number, or None for what is none."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 10 else None


def static(annotations: Mapping[str, str]) -> bool:
    """Did a kubelet make this pod of a file (or a URL) of its own?"""
    return annotations.get(SOURCE, FROM_API) != FROM_API


def sidecars(annotations: Mapping[str, str]) -> frozenset[str]:
    """The names of the restartable init containers, as far as somebody says."""
    return frozenset(name.strip() for name in annotations.get(SIDECARS, "").split(",") if name.strip())
