"""The doctor's rules about single pods: what cannot fit, what will not hear, who goes before whom."""

from __future__ import annotations

from collections.abc import Iterator

from actors.policy.explain import short_name
from ebbtide.doctor.agents import early_agents
from ebbtide.doctor.cures import cure_of
from ebbtide.doctor.sight import Finding, Level, Sight
from events.model import Pod

#: Warnings of a plan that are about the grant: they have rules of their own.
OF_THE_GRANT = frozenset({"grant-too-small", "reserve-not-granted", "wave-cut", "disabled"})

#: The runtime knows no priorities, so where one is missing nobody wrote it wrong.
_ON_A_NODE = {"priority-unset": "name a kubeconfig, or annotate the pods with ebbtide/priority: a number"}
#: Names in one finding.
NAMES_MAX = 5


def named(names: list[str]) -> str:
    """Some of them, and how many more there are."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def cuts(sight: Sight) -> Iterator[Finding]:
    """What the plan says about single pods: hooks and graces that cannot fit."""
    cures = _ON_A_NODE if sight.node is not None else {}
    told = tuple(f"{short_name(pod)} asks for" for pod in _beyond(sight))
    for code, message in sight.plan.warnings if sight.plan is not None else ():
        if code not in OF_THE_GRANT and not (code == "grace-cut" and message.startswith(told)):
            yield Finding("warning", code, message, cures.get(code) or cure_of(code))


def _longest(sight: Sight) -> int:
    waves = sight.plan.waves if sight.plan is not None else ()
    return max((wave.period_seconds for wave in waves), default=0)


def _beyond(sight: Sight) -> list[Pod]:
    longest = _longest(sight)
    return [pod for pod in sight.pods if longest and (pod.grace_seconds or 0) > longest]


def beyond(sight: Sight) -> Iterator[Finding]:
    """Pods whose grace no wave has: another priority would not help them, so they are told together."""
    longest, found = _longest(sight), _beyond(sight)
    if found:
        most = max(pod.grace_seconds or 0 for pod in found)
        names = named([short_name(pod) for pod in found])
        message = f"no wave is longer than {longest} s, and up to {most} s are asked for by {names}"
        cure = f"give a wave {most} s, or these pods a shorter terminationGracePeriodSeconds"
        yield Finding("warning", "grace-beyond", message, cure)


def down(sight: Sight) -> Iterator[Finding]:
    for pod, reason in sight.store.failed_starts if sight.status is not None else ():
        cure = "put its manifest right, and bring it in again"
        yield Finding("warning", "pod-down", f"{pod} could not be started: {reason}", cure)


def deaf(sight: Sight) -> Iterator[Finding]:
    for each in sight.forecasts:
        if each.verdict in ("ignores", "unclear"):
            level: Level = "warning" if each.verdict == "ignores" else "note"
            name = f"{sight.labels.get(each.uid, each.uid)}, container {each.container}, process {each.pid}"
            cure = "handle the signal, start it under an init such as tini, or name another with stopSignal"
            yield Finding(level, f"signal-{each.verdict}", f"{name}: {each.signal}: {each.why}", cure)


def agents(sight: Sight) -> Iterator[Finding]:
    """Whoever gives pods their network, their volumes or their logs, ended before them."""
    if sight.node is None or sight.plan is None:
        return
    for early in early_agents(sight.plan, sight.node.pods):
        message = (
            f"{early.label} ({early.what}) is in wave {early.wave}, {early.relation} {early.users} pods that "
            f"need it, the first of them {early.first_user}"
        )
        cure = "give it a higher priority, such as priorityClassName: system-node-critical"
        yield Finding("warning", "agent-early", message, cure)


def statics(sight: Sight) -> Iterator[Finding]:
    """Static pods whose manifest has no number: the kubelet takes that for 0 (kubernetes#113940, #133442)."""
    node = sight.node
    for each in node.statics if node is not None else ():
        cure = f"write spec.priority as a number into {each.path}"
        if not each.class_name:
            message = f"static pod {each.label} has no priority: it is stopped in the first wave"
            yield Finding("warning", "static-without-priority", message, cure)
        elif node is not None and node.mode == "observe":
            message = (
                f"static pod {each.label} only names the priority class {each.class_name}: the kubelet stops "
                "it in its first wave"
            )
            yield Finding("warning", "static-class-only", message, cure)
        else:
            message = (
                f"static pod {each.label} only names the priority class {each.class_name}: Ebbtide knows its "
                "number, the kubelet's own graceful shutdown would stop it first"
            )
            yield Finding("note", "static-class-only", message, cure)


RULES = (cuts, beyond, agents, statics, down, deaf)
