"""The parts of a manifest that the core may not see: a pod's commands and hooks.

Commands, environments and header values never enter an event or the journal.
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
#: One line for people.
HOOK_DETAIL_LENGTH_MAX = 100

#: Go's widest type. No journal can hold JSON's wider numbers: an answer with one is not read.
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


#: Every cluster has these classes.
SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class ExecAction(msgspec.Struct, frozen=True, kw_only=True, tag="exec", gc=False):
    """Beside the container, with its environment and working directory."""

    argv: tuple[str, ...]


class HttpGetAction(msgspec.Struct, frozen=True, kw_only=True, tag="httpGet", gc=False):
    """``port``: a number, also in a string, or a container port's name. ``host`` empty: the pod's address.
    ``scheme`` as written; empty means HTTP.
    """

    port: int | str
    host: str = ""
    scheme: str = "HTTP"
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class SleepAction(msgspec.Struct, frozen=True, kw_only=True, tag="sleep", gc=False):
    seconds: int


class TcpSocketAction(msgspec.Struct, frozen=True, kw_only=True, tag="tcpSocket", gc=False):
    """Old objects may have it; running it is an error, as in the kubelet."""


HookAction = ExecAction | HttpGetAction | SleepAction | TcpSocketAction


def wall_ns(timestamp: str) -> int:
    """RFC 3339. Raises ValueError."""
    return int(datetime.fromisoformat(timestamp).timestamp()) * NS_PER_SECOND


#: Longer than any shutdown; as nanoseconds it fits in 64 bits.
DELETION_SECONDS_MAX = 2**31


#: The API server's default, for a pod and for a delete.
GRACE_SECONDS_DEFAULT = 30


def deletion_seconds(deletion: int | None, pod: int | None) -> int:
    """The deletion's own grace, else its pod's."""
    seconds = pod if deletion is None else deletion
    return GRACE_SECONDS_DEFAULT if seconds is None else min(max(0, seconds), DELETION_SECONDS_MAX)


def deletion_of(left_ns: int, seconds: int, now_ns: int) -> Deletion:
    """``left_ns``: until the deletionTimestamp. Different clocks give at most the whole grace."""
    left_ns = min(left_ns, seconds * NS_PER_SECOND)
    return Deletion(since_ns=now_ns + left_ns - seconds * NS_PER_SECOND, grace_seconds=seconds)


def hook_of(action: HookAction | None) -> Hook | None:
    """For core and journal: without arguments, headers and query."""
    match action:
        case ExecAction():
            return Hook(kind="exec", detail=PurePosixPath(action.argv[0]).name[:HOOK_DETAIL_LENGTH_MAX])
        case HttpGetAction():
            # A query may hold a token, and the journal forgets nothing.
            public_path = re.split(r"[?#]", action.path, maxsplit=1)[0][:HOOK_DETAIL_LENGTH_MAX]
            return Hook(kind="httpGet", detail=f":{action.port}{public_path}")
        case SleepAction():
            return Hook(kind="sleep", sleep_seconds=action.seconds)
        case TcpSocketAction():
            return Hook(kind="tcpSocket")
        case _:
            return None


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``argv``: command and args with expanded variables."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    #: Empty: the daemon's own.
    working_dir: str = ""
    stop_signal: str = "SIGTERM"
    #: An init container with ``restartPolicy: Always``.
    sidecar: bool = False
    pre_stop: HookAction | None = None
    #: By name.
    ports: dict[str, int] = {}


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``init``: init containers, which run to their end one after another, and sidecars, which start in their
    turn. Then ``containers`` start.
    """

    uid: str
    init: tuple[ContainerSpec, ...] = ()
    containers: tuple[ContainerSpec, ...] = ()

    @property
    def lasting(self) -> tuple[ContainerSpec, ...]:
        """The containers that a shutdown stops, sidecars first."""
        return tuple(spec for spec in self.init if spec.sidecar) + self.containers
