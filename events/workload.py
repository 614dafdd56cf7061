"""Which workload a pod belongs to, as far as its name tells.

A journal knows pods by name, not by their owners. Controllers name pods by fixed patterns, from an alphabet
without vowels and look-alikes (Kubernetes, "Object names and IDs"; ``rand.SafeEncodeString``): five signs for
a pod (DaemonSet, Job, ReplicaSet), before them up to ten for a Deployment's ReplicaSet; a StatefulSet counts;
a static pod ends with its node's name. What is left is stable from one shutdown to the next.
"""

from __future__ import annotations

import re

_SIGN = "[bcdfghjklmnpqrstvwxz2456789]"
_DRAWN = (re.compile(rf"(.+)-{_SIGN}{{6,10}}-{_SIGN}{{5}}"), re.compile(rf"(.+)-{_SIGN}{{5}}"))
_COUNTED = re.compile(r"(.+)-[0-9]{1,5}")


def template(name: str, node: str = "") -> str:
    """Without what is drawn anew for each pod: ``web-7d4b9c6f5-x2x9k`` is ``web``, ``db-0`` stays."""
    if node and name.endswith(f"-{node}") and name != f"-{node}":
        return name.removesuffix(f"-{node}")
    found = next((match for pattern in _DRAWN if (match := pattern.fullmatch(name))), None)
    return found[1] if found else name


def workload(name: str, node: str = "") -> str:
    """The same, and replicas that are counted are one: ``db-0`` is ``db``."""
    stem = template(name, node)
    counted = _COUNTED.fullmatch(stem) if stem == name else None
    return counted[1] if counted else stem
