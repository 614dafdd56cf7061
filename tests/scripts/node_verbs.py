"""The commands of scripts about a Kubernetes node: what is there, is mounted, and what the API server has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

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


def healthy(bench: Bench) -> None:
    """What the edges of a node say soon after the start."""
    bench.feed(KubeletRead(unit="kubelet.service", active=True))
    bench.feed(RuntimeRead(reachable=True))
    bench.feed(ApiRead(reachable=True))


def _kubelet(bench: Bench, command: Command) -> Output:
    bench.feed(KubeletRead(unit="kubelet.service", active=_UP[command.words[0]]))
    return None


def _runtime(bench: Bench, command: Command) -> Output:
    bench.feed(RuntimeRead(reachable=command.words[0] == "up"))
    return None


def _api(bench: Bench, command: Command) -> Output:
    bench.feed(ApiRead(reachable=command.words[0] == "up", taint="untainted" not in command.words))
    return None


def _joins(bench: Bench, command: Command) -> Output:
    for line in command.body:
        bench.feed(PodJoined(pod=pod(line)))
    return None


def _unmounted(bench: Bench, command: Command) -> Output:
    for uid in command.words:
        bench.feed(VolumesUnmounted(uid=uid))
    return None


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


VERBS: dict[str, Callable[[Bench, Command], Output]] = {
    "kubelet": _kubelet,
    "runtime": _runtime,
    "api": _api,
    "joins": _joins,
    "unmounted": _unmounted,
    "mounts": _mounts,
    "statuses": _statuses,
}
