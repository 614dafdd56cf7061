"""Which workload a pod belongs to, as far as its name tells.

A journal knows pods by name, not by their owners. Controllers name pods by fixed patterns (Kubernetes,
"Object names and IDs"; ``rand.SafeEncodeString`` has the alphabet), so the name without what is drawn anew
for each pod is stable from one shutdown to the next.
"""

from __future__ import annotations

import re

#: The letters that generated names are made of: no vowels and nothing that looks like another sign.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"

#: A ReplicaSet's hash and the pod's five letters; the five letters alone (DaemonSet, Job); an ordinal.
_SUFFIXES = (
    re.compile(rf"-{_RANDOM}{{6,10}}-{_RANDOM}{{5}}$"),
    re.compile(rf"-{_RANDOM}{{5}}$"),
    re.compile(r"-[0-9]{1,5}$"),
)


def workload(name: str) -> str:
    """``web-7d4b9c6f5-x2x9k`` and ``web-0`` are both ``web``; a name without a pattern is its own."""
    for suffix in _SUFFIXES:
        stem = suffix.sub("", name)
        if stem and stem != name:
            return stem
    return name
