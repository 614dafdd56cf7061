"""The parts of a manifest that the core may not see: how a pod is launched, and what its hooks do.

Commands, environments and header values never enter an event or the journal; edges that start processes and
send hooks need them.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated

import msgspec

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Deletion, Hook

HOOK_TIMED_OUT = "the hook's time is over"
#: A hook's detail is one line for people.
HOOK_DETAIL_LENGTH_MAX = 100

#: Go's widest type. JSON has wider numbers, which no journal can hold: an answer with one is not read.
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


#: Classes that every cluster has, for pods without a number.
SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class ExecAction(msgspec.Struct, frozen=True, kw_only=True, tag="exec", gc=False):
    """Beside the container, with its environment and working directory."""

    argv: tuple[str, ...]


class HttpGetAction(msgspec.Struct, frozen=True, kw_only=True, tag="httpGet", gc=False):
    """One GET. ``port``: a number, a number in a string, or a container port's name.

    ``host`` empty: the pod's address. ``scheme`` is kept as written; empty means HTTP.
    """

    port: int | str
    host: str = ""
    scheme: str = "HTTP"
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class SleepAction(msgspec.Struct, frozen=True, kw_only=True, tag="sleep", gc=False):
    """A deadline in the core."""

    seconds: int


class TcpSocketAction(msgspec.Struct, frozen=True, kw_only=True, tag="tcpSocket", gc=False):
    """Old objects may have it; running it is an error, as in the kubelet."""


HookAction = ExecAction | HttpGetAction | SleepAction | TcpSocketAction


def wall_ns(timestamp: str) -> int:
    """RFC 3339, as the API server writes it. Raises ValueError."""
    return int(datetime.fromisoformat(timestamp).timestamp()) * NS_PER_SECOND


#: Longer than any shutdown, and small enough for nanoseconds in 64 bits.
DELETION_SECONDS_MAX = 2**31


#: The API server's default, for a pod and for a delete.
GRACE_SECONDS_DEFAULT = 30


def deletion_seconds(deletion: int | None, pod: int | None) -> int:
    """The grace of a deletion: its own, else its pod's."""
    seconds = pod if deletion is None else deletion
    return GRACE_SECONDS_DEFAULT if seconds is None else min(max(0, seconds), DELETION_SECONDS_MAX)


def deletion_of(left_ns: int, seconds: int, now_ns: int) -> Deletion:
    """``left_ns``: until the deletionTimestamp. Clocks that differ give no more than the whole grace."""
    left_ns = min(left_ns, seconds * NS_PER_SECOND)
    return Deletion(since_ns=now_ns + left_ns - seconds * NS_PER_SECOND, grace_seconds=seconds)


def hook_of(action: HookAction | None) -> Hook | None:
    """For core and journal: without arguments, headers and query."""
    match action:
        case ExecAction():
            return Hook(kind="exec", detail=PurePosixPath(action.argv[0]).name[:HOOK_DETAIL_LENGTH_MAX])
        case HttpGetAction():
            # A query may hold a token, and the journal keeps what it has.
            public_path = re.split(r"[?#]", action.path, maxsplit=1)[0][:HOOK_DETAIL_LENGTH_MAX]
            return Hook(kind="httpGet", detail=f":{action.port}{public_path}")
        case SleepAction():
            return Hook(kind="sleep", sleep_seconds=action.seconds)
        case TcpSocketAction():
            return Hook(kind="tcpSocket")
        case _:
            return None


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """As a local process. ``argv``: command and args with expanded variables."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    #: Empty: the daemon's own.
    working_dir: str = ""
    stop_signal: str = "SIGTERM"
    #: An init container with ``restartPolicy: Always``: started in its turn, and left running.
    sidecar: bool = False
    pre_stop: HookAction | None = None
    #: By name; ports without a name need no entry.
    ports: dict[str, int] = {}


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``init``: init containers and sidecars in the manifest's order: the former run to their end one after
    another, a sidecar is started in its turn. Then ``containers`` start.
    """

    uid: str
    init: tuple[ContainerSpec, ...] = ()
    containers: tuple[ContainerSpec, ...] = ()

    @property
    def lasting(self) -> tuple[ContainerSpec, ...]:
        """The containers that a shutdown stops, sidecars first."""
        return tuple(spec for spec in self.init if spec.sidecar) + self.containers
