"""What a manifest says beyond what the core may see: how a pod is launched, and what its hooks do.

The core's `events.values.Pod` is a whitelisted projection without commands, environments or header
values. Whoever starts processes and sends hooks needs those, so they stand here, and they never enter
an event or the journal.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from ebbtide.events.values import Hook

#: A hook's detail is for people: what does not fit a line says no more.
HOOK_DETAIL_LENGTH_MAX = 100

#: A number of a Kubernetes object, in Go's widest type. JSON has wider ones, which no journal can hold: an
#: answer with one is not read.
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


#: The priorities of the classes that every cluster has: where no admission has written the number.
SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class ExecAction(msgspec.Struct, frozen=True, kw_only=True, tag="exec", gc=False):
    """Run ``argv`` beside the container, with its environment and working directory."""

    argv: tuple[str, ...]


class HttpGetAction(msgspec.Struct, frozen=True, kw_only=True, tag="httpGet", gc=False):
    """One GET. ``port`` is a number, a number in a string, or the name of a container port.

    ``host`` empty means the pod's address. ``scheme`` is kept as written; empty means HTTP.
    """

    port: int | str
    host: str = ""
    scheme: str = "HTTP"
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class SleepAction(msgspec.Struct, frozen=True, kw_only=True, tag="sleep", gc=False):
    """A deadline in the core; nothing runs for it."""

    seconds: int


class TcpSocketAction(msgspec.Struct, frozen=True, kw_only=True, tag="tcpSocket", gc=False):
    """Allowed in old objects, never carried out: an error at run time, as in the kubelet."""


HookAction = ExecAction | HttpGetAction | SleepAction | TcpSocketAction


def hook_of(action: HookAction | None) -> Hook | None:
    """What the core and the journal may know of it: no arguments, no headers, no query."""
    match action:
        case ExecAction():
            return Hook(kind="exec", detail=PurePosixPath(action.argv[0]).name[:HOOK_DETAIL_LENGTH_MAX])
        case HttpGetAction():
            # A query may hold a token; what the journal has once, it cannot lose again.
            public_path = re.split(r"[?#]", action.path, maxsplit=1)[0][:HOOK_DETAIL_LENGTH_MAX]
            return Hook(kind="httpGet", detail=f":{action.port}{public_path}")
        case SleepAction():
            return Hook(kind="sleep", sleep_seconds=action.seconds)
        case TcpSocketAction():
            return Hook(kind="tcpSocket")
        case _:
            return None


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One container as a local process. ``argv`` is command and args, variables already expanded."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    #: Empty: the daemon's own.
    working_dir: str = ""
    stop_signal: str = "SIGTERM"
    #: An init container with ``restartPolicy: Always``: started in its turn, and left running.
    sidecar: bool = False
    pre_stop: HookAction | None = None
    #: Container ports by name; ports without a name need no entry.
    ports: dict[str, int] = {}


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One pod. ``init`` holds init containers and sidecars in the manifest's order.

    Plain init containers run to completion, one after another; a sidecar among them is started in its
    turn and left running; then ``containers`` are started.
    """

    uid: str
    init: tuple[ContainerSpec, ...] = ()
    containers: tuple[ContainerSpec, ...] = ()

    @property
    def lasting(self) -> tuple[ContainerSpec, ...]:
        """The containers that a shutdown has to stop: sidecars first, as in `events.values.Pod`."""
        return tuple(spec for spec in self.init if spec.sidecar) + self.containers
