"""Which pod of one shutdown is which of another, when most of them have been made anew in between.

First by namespace and name. Of the others, by namespace and owner: the name without what a controller has
added to it (`events.workload`). Pods of one owner are paired in the order of the inventories: replicas are
alike, and which is which cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from events.workload import template
from replay.account.model import Account, PodTold


class Pair(NamedTuple):
    """A pod in both shutdowns, or in one of them (the other None)."""

    a: PodTold | None
    b: PodTold | None

    @property
    def label(self) -> str:
        """One name, or both where they differ: ``shop/web-6c9f7d8b5-q7zwt / web-5d4f8c7b9-x2k4z``."""
        first, *others = dict.fromkeys(pod.label for pod in self if pod is not None)
        return " / ".join((first, *(label.rpartition("/")[2] for label in others)))


def owner(pod: PodTold, node: str) -> str:
    """Namespace and the name without what was added: the same for pods that are each other's successors."""
    return f"{pod.namespace}/{template(pod.name, node)}"


def pairs(a: Account, b: Account) -> Iterator[Pair]:
    """Every pod of both, once: in A's order, then those that only B has."""
    by_label = _by(b.pods, {pod.uid: pod.label for pod in b.pods})
    same = {pod.uid: found.pop(0) for pod in a.pods if (found := by_label.get(pod.label))}
    taken = {pod.uid: None for pod in same.values()}
    left = [pod for pod in b.pods if pod.uid not in taken]
    by_owner = _by(left, {pod.uid: owner(pod, b.node) for pod in left})
    for pod in a.pods:
        partner = same.get(pod.uid)
        if partner is None:
            found = by_owner.get(owner(pod, a.node))
            partner = found.pop(0) if found else None
        yield Pair(pod, partner)
        if partner is not None:
            taken[partner.uid] = None
    yield from (Pair(None, pod) for pod in b.pods if pod.uid not in taken)


def _by(pods: Iterable[PodTold], keys: dict[str, str]) -> dict[str, list[PodTold]]:
    found: dict[str, list[PodTold]] = {}
    for pod in pods:
        found.setdefault(keys[pod.uid], []).append(pod)
    return found
