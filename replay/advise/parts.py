"""What each container had in a pod's stop: a grace has to cover the slowest of them, and no sum over all.

All containers run their hooks at once, and each is signalled when its own hook is over; sidecars are
signalled when all others have ended, in reverse order. So a hook that takes longer delays its own container,
and the sidecars, and nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replay.account.model import ContainerTold, HookTold, PodTold


class Part(NamedTuple):
    """``hook_ns``: how long its hook ran (``slept``: a sleep); ``stop_ns``: from there, or from its turn, on.

    ``container`` "" is a whole pod of whose containers nothing is on record.
    """

    container: str
    sidecar: bool
    slept: bool
    hook_ns: int
    stop_ns: int


def parts(pod: PodTold, until_ns: int) -> tuple[Part, ...]:
    """Of a stop that ended, or was cut, at ``until_ns``; containers in their order."""
    began_ns = until_ns if pod.began_ns is None else pod.began_ns
    found = tuple(_parts(pod, began_ns, until_ns))
    return found if pod.containers else (*found, Part("", False, False, 0, until_ns - began_ns))


def _parts(pod: PodTold, began_ns: int, until_ns: int) -> Iterator[Part]:
    known = {each.name: each for each in pod.containers if each.running}
    hooks: dict[str, HookTold] = {}
    for hook in pod.hooks:
        hooks.setdefault(hook.container, hook)
    for name in hooks:
        known.setdefault(name, ContainerTold(name=name))
    ends = {name: _first(each.exited_ns, until_ns) for name, each in known.items()}
    others_ns = max((ends[name] for name, each in known.items() if not each.sidecar), default=began_ns)
    for name, each in known.items():
        hook_ns = _ran_ns(hooks.get(name), until_ns)
        turn_ns = others_ns if each.sidecar else began_ns + hook_ns
        asked_ns = turn_ns if each.signalled_ns is None else each.signalled_ns
        slept = name in hooks and hooks[name].kind == "sleep"
        yield Part(name, each.sidecar, slept, hook_ns, max(0, ends[name] - asked_ns))


def _ran_ns(hook: HookTold | None, until_ns: int) -> int:
    return 0 if hook is None else max(0, _first(hook.ended_ns, until_ns) - hook.began_ns)


def _first(at_ns: int | None, until_ns: int) -> int:
    return until_ns if at_ns is None else min(at_ns, until_ns)
