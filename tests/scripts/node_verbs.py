"""The commands of scripts about a Kubernetes node: what is there, is mounted, and what the API server has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from ebbtide.events.base import Fact
from ebbtide.events.decisions import AwaitStatuses, CheckMounts
from ebbtide.events.facts import (
    ApiRead,
    KubeletRead,
    MountsRead,
    OrderEnded,
    PodJoined,
    RuntimeRead,
    StatusesSeen,
    VolumesUnmounted,
)
from tests.scripts.bench import Bench
from tests.scripts.notation import pod
from tests.scripts.parse import Command

Output = list[str] | None

_UP = {"up": True, "down": False, "unknown": None}


def policies(command: Command) -> dict[str, Any]:
    """``means=reboot:api``, ``unready=always``, ``left=delete`` among a node's settings."""
    given = command.options
    means = dict(each.split(":") for each in given.get("means", "").split(",") if each)
    return {
        "means": means,
        # Interned, as the configuration's reader has them: a default is omitted if it is the same object.
        "unready": sys.intern(given.get("unready", "poweroff")),
        "left_pods": sys.intern(given.get("left", "keep")),
    }


#: What the edges of a node say soon after the start.
HEALTHY = (
    KubeletRead(unit="kubelet.service", active=True),
    RuntimeRead(reachable=True),
    ApiRead(reachable=True),
)

FACTS: dict[str, Callable[[Command], Fact | Iterable[Fact]]] = {
    "kubelet": lambda command: KubeletRead(unit="kubelet.service", active=_UP[command.words[0]]),
    "runtime": lambda command: RuntimeRead(reachable=command.words[0] == "up"),
    "api": lambda command: ApiRead(
        reachable=command.words[0] == "up", taint="untainted" not in command.words
    ),
    "joins": lambda command: (PodJoined(pod=pod(line)) for line in command.body),
    "unmounted": lambda command: (VolumesUnmounted(uid=uid) for uid in command.words),
}


def _mounts(bench: Bench, command: Command) -> Output:
    """``mounts web/data``: what the open `CheckMounts` finds, which is answered with it."""
    key = bench.open_key(CheckMounts)
    mounted = tuple((uid, volume) for uid, _, volume in (word.partition("/") for word in command.words))
    bench.feed(MountsRead(key=key, mounted=mounted))
    bench.feed(OrderEnded(key=key, result="done"))
    return None


def _statuses(bench: Bench, command: Command) -> Output:
    """``statuses missing=web,db``: what the API server lacks of those that are waited for."""
    key = bench.open_key(AwaitStatuses)
    missing = tuple(each for each in command.options.get("missing", "").split(",") if each)
    bench.feed(StatusesSeen(key=key, missing=missing))
    bench.feed(OrderEnded(key=key, result="timed-out" if missing else "done"))
    return None


VERBS: dict[str, Callable[[Bench, Command], Output]] = {"mounts": _mounts, "statuses": _statuses}
