"""How long a pod that is to come needs, if its containers stop as those of a recorded stop did.

A sleep hook takes as long as the manifest says. Any other hook takes as long as it did; so does one that is
gone, unless it was a sleep, because what it did may have to be done still. A container that the record does
not have stops as the slowest there; one that the manifest does not have (a mesh puts its own into every pod)
is taken as it was.
"""

from __future__ import annotations

from typing import NamedTuple

from events.base import NS_PER_SECOND
from events.model import Container, Pod
from replay.advise.parts import Part
from replay.advise.stops import Stop

_NOTHING = Part("", False, False, 0, 0)


class _Share(NamedTuple):
    sidecar: bool
    hook_ns: int
    stop_ns: int


def slept_ns(pod: Pod) -> int:
    """Its longest sleep hook, of containers that run."""
    return max((_sleep_ns(each) or 0 for each in pod.containers if each.running), default=0)


def needed_ns(pod: Pod, stop: Stop, *, sleep_action: bool) -> int:
    """From the beginning of its stop to its end; of a stop that was cut, more than that."""
    shares = _shares(pod, stop, sleep_action=sleep_action)
    ns = max((each.hook_ns + each.stop_ns for each in shares if not each.sidecar), default=0)
    for each in shares:
        if each.sidecar:
            ns = max(ns, each.hook_ns) + each.stop_ns
    return ns


def _shares(pod: Pod, stop: Stop, *, sleep_action: bool) -> list[_Share]:
    """Sidecars in the order in which they stop, those that only the record has last."""
    then = {part.container: part for part in stop.parts}
    slowest_ns = max((part.stop_ns for part in stop.parts if not part.sidecar), default=0)
    new = _NOTHING._replace(stop_ns=slowest_ns)
    found = []
    for each in reversed([each for each in pod.containers if each.running]):
        part = then.pop(each.name, _NOTHING if each.sidecar else new)
        found.append(_Share(each.sidecar, _hook_ns(each, part, sleep_action=sleep_action), part.stop_ns))
    return found + [_Share(part.sidecar, part.hook_ns, part.stop_ns) for part in then.values()]


def _hook_ns(each: Container, then: Part, *, sleep_action: bool) -> int:
    ns = _sleep_ns(each)
    if ns is not None:
        return ns if sleep_action else 0
    return 0 if then.slept and each.hook is None else then.hook_ns


def _sleep_ns(each: Container) -> int | None:
    """None: it has no sleep hook."""
    hook = each.hook
    return hook.sleep_seconds * NS_PER_SECOND if hook is not None and hook.kind == "sleep" else None
