"""How each pod really stopped, as observations: from accounts of shutdowns, of one node or of a fleet.

A stop is counted from the moment at which it began, hooks included, because that is what a grace has to
cover. It is censored where the pod did not end by itself: killed, hurried, or still there when nobody looked
any longer. A pod whose stop signal the runtime refused, or that was never told, is no observation at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from events import workload as names
from events.base import NS_PER_SECOND
from replay.account.model import Account, HookTold, PodTold
from replay.advise.parts import Part, parts
from replay.advise.survival import Observation


class Stop(NamedTuple):
    """One pod in one shutdown. ``wanted_seconds`` None: it asks for no grace of its own.

    ``limited``: it was killed before the time that it asks for was over, or asks for none. ``deaf``: when it
    was looked at before SIGKILL, its first process ignored the stop signal.
    """

    shutdown: str
    node: str
    uid: str
    label: str
    workload: str
    priority: int | None
    wanted_seconds: int | None
    grace_ns: int
    observed: Observation
    limited: bool = False
    deaf: bool = False
    #: A hook was not run, or did not come to its own end: with another grace it may take longer.
    hook_cut: bool = False
    parts: tuple[Part, ...] = ()


def stops(accounts: Iterable[Account]) -> Iterator[Stop]:
    """In the order of the accounts, each in the order of its pods."""
    for account in accounts:
        for pod in account.pods:
            observed = _observed(pod, account)
            if observed is not None:
                yield _stop(pod, account, observed)


def workload(namespace: str, name: str, node: str = "") -> str:
    """``namespace/name`` without what tells replicas apart; for a StatefulSet its number too."""
    return f"{namespace}/{names.workload(name, node)}"


def _observed(pod: PodTold, account: Account) -> Observation | None:
    if pod.began_ns is None or pod.outcome in ("spared", "rejected"):
        return None
    if pod.outcome == "graceful" and pod.ended_ns is not None:
        return Observation(pod.ended_ns - pod.began_ns, ended=True)
    if any(each.stop_refused for each in pod.containers):
        return None
    until_ns = _until_ns(pod, account)
    return Observation(max(0, until_ns - pod.began_ns), ended=False)


def _until_ns(pod: PodTold, account: Account) -> int:
    """Up to then it had not ended by itself."""
    ends = (pod.hurried_ns, *(each.killed_ns for each in pod.containers), pod.ended_ns)
    first_ns = min((each for each in ends if each is not None), default=account.pods_ended_ns)
    return account.last_ns if first_ns is None else first_ns


def _stop(pod: PodTold, account: Account, observed: Observation) -> Stop:
    grace_ns = pod.grace_ns if pod.grace_ns is not None else 0
    wanted = pod.wanted_grace_seconds
    short = wanted is None or grace_ns < wanted * NS_PER_SECOND or pod.hurried_ns is not None
    return Stop(
        shutdown=account.id,
        node=account.node,
        uid=pod.uid,
        label=pod.label,
        workload=workload(pod.namespace, pod.name, account.node),
        priority=pod.priority,
        wanted_seconds=wanted,
        grace_ns=grace_ns,
        observed=observed,
        limited=not observed.ended and short,
        deaf=not observed.ended and _is_deaf(pod),
        hook_cut=any(_is_cut(hook, pod) for hook in pod.hooks),
        parts=parts(pod, (pod.began_ns or 0) + observed.ns),
    )


def _is_cut(hook: HookTold, pod: PodTold) -> bool:
    """One that ended because its container had is none."""
    exits = (each.exited_ns for each in pod.containers if each.name == hook.container)
    gone = any(at_ns is not None and hook.ended_ns is not None and at_ns <= hook.ended_ns for at_ns in exits)
    return hook.result not in ("done", "failed") and not gone


def _is_deaf(pod: PodTold) -> bool:
    signals = {each.name: each.stop_signal for each in pod.containers}
    firsts = ((taken.container, taken.processes[0]) for taken in pod.autopsies if taken.processes)
    return any(signals.get(container, "SIGTERM") in first.signals_ignored for container, first in firsts)
