"""The file of ``simulate --behaviour``: how pods behave and what happens to the node (docs/simulate.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import asdict

from ebbtide.actors.edges.documents import DocumentError, decode_text, one_line, parse_yaml
from ebbtide.cli.common.guard import Refused
from ebbtide.config import fields
from ebbtide.config.schema import Section
from ebbtide.replay.sim import scenario

#: A file has some dozens of lines.
BYTES_MAX = 2**20
#: In one file, and in one duration.
RULES_MAX, QUANTILES_MAX = 1000, 1001


class BehaviourError(Refused):
    """One line: where, what, and how to correct it."""


_TIME = fields.duration(0, fields.DURATION_NS_MAX)
_Time = Annotated[int | None, _TIME]
_Priority = Annotated[int | None, Meta(ge=fields.INT32_MIN, le=fields.INT32_MAX)]
_Count = Annotated[int, Meta(ge=1, le=fields.INT32_MAX)]


class Takes(Section, frozen=True):
    """A duration, {from, to}, or {quantiles: [least, ..., most]}."""

    from_ns: _Time = field(name="from", default=None)
    to_ns: _Time = field(name="to", default=None)
    quantiles: Annotated[tuple[Annotated[int, _TIME], ...] | None, Meta(max_length=QUANTILES_MAX)] = None

    def __post_init__(self) -> None:
        bounds = [each for each in (self.from_ns, self.to_ns) if each is not None]
        if len(bounds) != (0 if self.quantiles is not None else 2):
            raise ValueError("give from and to, or quantiles, or one duration")
        values = bounds or list(self.quantiles or ())
        # A quantile's place is its share: out of order, a larger share would take less time.
        if not values or values != sorted(values):
            raise ValueError("write the durations in ascending order, at least one")


def _drawn(takes: Takes | None) -> scenario.DurationQuantiles | None:
    if takes is None:
        return None
    if takes.from_ns is not None and takes.to_ns is not None:
        return scenario.DurationQuantiles((takes.from_ns, takes.to_ns))
    return scenario.DurationQuantiles(takes.quantiles or ())


def _constant(text: str) -> Takes:
    assert _TIME.parse is not None
    return Takes(quantiles=(_TIME.parse(text),))


_Takes = Annotated[Takes | None, fields.Kind(_TIME.text, _constant)]


class Priorities(Section, frozen=True):
    from_priority: _Priority = field(name="from", default=None)
    below: _Priority = None


class Match(Section, frozen=True):
    name: str = "*"
    namespace: str = "*"
    container: str = "*"
    priority: Priorities = Priorities()


class Chance(Section, frozen=True):
    times: _Count = 1
    of: _Count = 1

    def __post_init__(self) -> None:
        if self.times > self.of:
            raise fields.RuleError(f"{self.times} of {self.of}: write at most {self.of}", "times")


class HookBehaviour(Section, frozen=True):
    takes: _Takes = None
    fails: bool | None = None
    hangs: bool | None = None


class Rule(Section, frozen=True):
    match: Match = Match()
    chance: Chance = Chance()
    stop_takes: _Takes = None
    ignores_sigterm: bool | None = None
    kill_takes: _Takes = None
    exit_code: Annotated[int | None, Meta(ge=0, le=255)] = None
    crashes_after: _Takes = None
    hook: HookBehaviour = HookBehaviour()

    @property
    def rule(self) -> scenario.BehaviourRule:
        return scenario.BehaviourRule(
            pod=self.match.name,
            namespace=self.match.namespace,
            container=self.match.container,
            priority_from=self.match.priority.from_priority,
            priority_below=self.match.priority.below,
            stop=_drawn(self.stop_takes),
            ignores=self.ignores_sigterm,
            kill=_drawn(self.kill_takes),
            exit_code=self.exit_code,
            crashes=_drawn(self.crashes_after),
            hook=_drawn(self.hook.takes),
            hook_fails=self.hook.fails,
            hook_hangs=self.hook.hangs,
            times=self.chance.times,
            of=self.chance.of,
        )


class NodeFaults(Section, frozen=True):
    """As `Faults`; None: its default."""

    kind: Literal["poweroff", "reboot", "halt", "kexec", "soft-reboot"] | None = None
    mode: Literal["auto", "api", "cri", "observe"] | None = None
    api_fails: bool = False
    api_hangs: bool = False
    runtime_refuses: scenario.RuntimeRefuses | None = field(name="runtimeFails", default=None)
    kubelet: scenario.KubeletIs | None = None
    kubelet_lock: bool | None = None
    grant_ns: _Time = field(name="grant", default=None)
    late_grant_ns: _Time = field(name="lateGrant", default=None)
    cancel_after_ns: _Time = field(name="cancelAfter", default=None)
    again_after_ns: _Time = field(name="againAfter", default=None)
    second_signal_after_ns: _Time = field(name="secondSignalAfter", default=None)
    bus_lost_after_ns: _Time = field(name="busLostAfter", default=None)
    api_takes_ns: _Time = field(name="apiTakes", default=None)
    runtime_takes_ns: _Time = field(name="runtimeTakes", default=None)
    crash_after_ns: _Time = field(name="crashAfter", default=None)
    restart_takes_ns: _Time = field(name="restartTakes", default=None)
    power_cut_after_ns: _Time = field(name="powerCutAfter", default=None)
    unmount_takes_ns: _Time = field(name="unmountTakes", default=None)
    api_lost_after_ns: _Time = field(name="apiLostAfter", default=None)
    api_back_after_ns: _Time = field(name="apiBackAfter", default=None)
    api_hangs_after_ns: _Time = field(name="apiHangsAfter", default=None)
    api_wakes_after_ns: _Time = field(name="apiWakesAfter", default=None)
    runtime_hangs_after_ns: _Time = field(name="runtimeHangsAfter", default=None)
    runtime_wakes_after_ns: _Time = field(name="runtimeWakesAfter", default=None)
    kubelet_hangs_after_ns: _Time = field(name="kubeletHangsAfter", default=None)
    kubelet_wakes_after_ns: _Time = field(name="kubeletWakesAfter", default=None)

    @property
    def faults(self) -> scenario.Faults:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        fails, hangs = given.pop("api_fails"), given.pop("api_hangs")
        # A hanging API server fails too, only later: this harder case wins.
        api: scenario.ApiIs = "hangs" if hangs else "fails" if fails else "works"
        return scenario.Faults(api=api, **given)


class BehaviourFile(Section, frozen=True):
    api_version: Literal["ebbtide/v1alpha1"] | None = None
    kind: Literal["SimulatedBehaviour"] | None = None
    pods: Annotated[tuple[Rule, ...], Meta(max_length=RULES_MAX)] = ()
    node: NodeFaults = NodeFaults()


def load_behaviour(path: str | Path) -> scenario.Behaviour:
    """Raises BehaviourError."""
    try:
        with open(path, "rb") as file:
            # One byte more shows that a file is too large.
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise BehaviourError(
            f"cannot read {one_line(str(path))}: {error.strerror}; name a readable file with --behaviour"
        ) from error
    return parse_behaviour(str(path), raw)


def parse_behaviour(name: str, raw: bytes) -> scenario.Behaviour:
    """Raises BehaviourError."""
    try:
        documents = parse_yaml(decode_text(raw, BYTES_MAX))
        if len(documents) > 1:
            raise DocumentError("more than one document: keep one", documents[1].line)
        found = fields.read(documents[0], BehaviourFile) if documents else BehaviourFile()
        return scenario.Behaviour(tuple(each.rule for each in found.pods), found.node.faults)
    except DocumentError as error:
        found_at = error.found if isinstance(error, fields.DocumentErrors) else (error,)
        lines = (f":{each.line}: {each.message}" if each.line else f": {each.message}" for each in found_at)
        raise BehaviourError("; ".join(one_line(name) + line for line in lines)) from error
