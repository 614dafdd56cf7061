"""How pods behave as somebody says it: durations as distributions, and rules that match pods.

A rule says something about the pods that it matches; where several do, later ones win, field by field. What
no rule says is calm: a pod that ends within two seconds of its stop signal, hooks that succeed at once.
Drawn once for each container, in nanoseconds, with integers only.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from events.model import Pod
from replay.virtual.draws import Draws
from replay.virtual.manner import HookPlan, Manner, PodPlan
from replay.virtual.plan import SIGNAL_AFTER_NS, Faults
from replay.virtual.trail import MS

#: A fraction of a distribution, in steps this fine.
_STEPS = 1 << 32


class Takes(NamedTuple):
    """A duration as evenly spaced quantiles, the least first and the most last: one value is a constant,
    two are uniform, eleven are the deciles. Between two the draw is linear.
    """

    quantiles_ns: tuple[int, ...]

    def draw(self, draws: Draws) -> int:
        """One value in nanoseconds."""
        if len(self.quantiles_ns) == 1:
            return self.quantiles_ns[0]
        at, within = divmod(draws.below((len(self.quantiles_ns) - 1) * _STEPS), _STEPS)
        low, high = self.quantiles_ns[at : at + 2]
        return low + (high - low) * within // _STEPS


class Rule(NamedTuple):
    """What is said about the pods that it matches: patterns as in a shell, priorities from, up to below.

    None is "not said". ``crashes_ns``: after the shutdown's signal.
    """

    pod: str = "*"
    namespace: str = "*"
    container: str = "*"
    priority_from: int | None = None
    priority_below: int | None = None
    stop: Takes | None = None
    ignores: bool | None = None
    kill: Takes | None = None
    exit_code: int | None = None
    crashes: Takes | None = None
    hook: Takes | None = None
    hook_fails: bool | None = None
    hook_hangs: bool | None = None
    #: Said of the rule, not of the pods: how often it applies, as so many times of so many.
    times: int = 1
    of: int = 1

    def matches(self, pod: Pod, container: str) -> bool:
        priority = pod.priority or 0
        return (
            fnmatchcase(pod.name, self.pod)
            and fnmatchcase(pod.namespace, self.namespace)
            and fnmatchcase(container, self.container)
            and (self.priority_from is None or priority >= self.priority_from)
            and (self.priority_below is None or priority < self.priority_below)
        )


#: What holds where no rule says anything.
CALM = Rule(
    stop=Takes((50 * MS, 400 * MS, 2000 * MS)),
    ignores=False,
    kill=Takes((0, 20 * MS)),
    exit_code=0,
    hook=Takes((20 * MS, 200 * MS)),
    hook_fails=False,
    hook_hangs=False,
)

#: The fields of a rule that say something about a pod.
_SAYS = ("stop", "ignores", "kill", "exit_code", "crashes", "hook", "hook_fails", "hook_hangs")


class Behaviour(NamedTuple):
    """A whole file: rules in their order, and what happens to the node."""

    rules: tuple[Rule, ...] = ()
    faults: Faults = Faults()

    def plans(self, pods: tuple[Pod, ...], draws: Draws) -> tuple[PodPlan, ...]:
        """Each pod with its manners; ties and names do not matter, a pod's draws are its place's."""
        return tuple(self._plan(pod, draws.fork(f"pod {index}")) for index, pod in enumerate(pods))

    def _plan(self, pod: Pod, draws: Draws) -> PodPlan:
        names = [container.name for container in pod.containers]
        return PodPlan(pod, {name: self._manner(pod, name, draws.fork(name)) for name in names})

    def _manner(self, pod: Pod, container: str, draws: Draws) -> Manner:
        said = CALM
        for rule in self.rules:
            if rule.matches(pod, container) and draws.chance(rule.times, rule.of):
                news = {field: getattr(rule, field) for field in _SAYS}
                said = said._replace(**{field: value for field, value in news.items() if value is not None})
        return _manner(said, draws)


def _manner(said: Rule, draws: Draws) -> Manner:
    """Each duration has a stream of its own, so that saying one thing does not change another."""
    stop, kill = _draw(said.stop, draws.fork("stop")), _draw(said.kill, draws.fork("kill"))
    hook, crashes = _draw(said.hook, draws.fork("hook")), _draw(said.crashes, draws.fork("crash"))
    return Manner(
        stop_ns=None if said.ignores else stop,
        lives_ns=None if crashes is None else SIGNAL_AFTER_NS + crashes,
        reap_ns=kill,
        exit_code=said.exit_code or 0,
        hook=HookPlan(takes_ns=None if said.hook_hangs else hook, succeeds=not said.hook_fails),
    )


def _draw(takes: Takes | None, draws: Draws) -> int | None:
    return None if takes is None else takes.draw(draws)
