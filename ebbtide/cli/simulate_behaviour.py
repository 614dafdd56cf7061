"""The file of ``simulate --behaviour``: how pods behave and what happens to the node (docs/simulate.md).

Every field stands in one of the tables below with its reader; an unknown one is an error that names its
line and the nearest known field, as in a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from ebbtide.actors.edges.documents import DocumentError, Node, decode_text, one_line, parse_yaml, quote
from ebbtide.cli.common.guard import Refused
from ebbtide.config.readers import (
    INT32_MAX,
    INT32_MIN,
    describe,
    duration,
    flag,
    mapping,
    number,
    sequence,
    unknown,
)
from ebbtide.config.readers import text as word
from ebbtide.events.model import ShutdownKind
from ebbtide.replay.sim.scenario import (
    ApiIs,
    Behaviour,
    BehaviourRule,
    DurationQuantiles,
    Faults,
    KubeletIs,
    NodeMode,
    RuntimeRefuses,
)

KIND, API_VERSION = "SimulatedBehaviour", "ebbtide/v1alpha1"

#: A file has some dozens of lines.
BYTES_MAX = 2**20
#: Rules of one file, and quantiles of one duration.
RULES_MAX, QUANTILES_MAX = 1000, 1001
EXIT_CODE_MAX = 255

Reader = Callable[[Node, str], Any]


class BehaviourError(Refused):
    """The file cannot be used. One line: where, what, and how to put it right."""


def load_behaviour(path: str | Path) -> Behaviour:
    """Read a file. Raises BehaviourError."""
    try:
        with open(path, "rb") as file:
            # One byte more tells a file that is too large from one that just fits, without reading all of it.
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise BehaviourError(
            f"cannot read {one_line(str(path))}: {error.strerror}; name a readable file with --behaviour"
        ) from error
    return parse_behaviour(str(path), raw)


def parse_behaviour(name: str, raw: bytes) -> Behaviour:
    """The same for a name and a content. Raises BehaviourError."""
    try:
        documents = parse_yaml(decode_text(raw, BYTES_MAX))
        if len(documents) > 1:
            raise DocumentError("more than one document: keep one", documents[1].line)
        return _document(documents[0]) if documents else Behaviour()
    except DocumentError as error:
        where = f"{one_line(name)}:{error.line}" if error.line else one_line(name)
        raise BehaviourError(f"{where}: {error.message}") from error


def _document(node: Node) -> Behaviour:
    said = _fields(node, "", DOCUMENT)
    return Behaviour(said.get("pods", ()), said.get("node", Faults()))


def _fields(node: Node, path: str, known: Mapping[str, Reader]) -> dict[str, Any]:
    """The fields of a mapping, each read by its reader; one that says nothing is as good as absent."""
    found = {}
    for name, value in mapping(node, path or "the document").items():
        # An error and never passed over: a word that is misspelt would be a node to which nothing happens,
        # and a simulation that proves nothing.
        if name not in known:
            raise unknown(path, name, known, value.line)
        if value.value is not None:
            found[name] = known[name](value, f"{path}.{name}" if path else name)
    return found


def _constant(expected: str) -> Reader:
    def read(node: Node, path: str) -> None:
        if node.value != expected:
            raise DocumentError(f"{path} is {describe(node)}: it must be {expected}", node.line)

    return read


def _one_of(*choices: str) -> Reader:
    def read(node: Node, path: str) -> str:
        name = word(node, path)
        if name not in choices:
            raise DocumentError(f"{path} is {quote(name)}: it must be {', '.join(choices)}", node.line)
        return name

    return read


def _time(node: Node, path: str) -> int:
    """A duration that is not negative, in nanoseconds."""
    duration_ns = duration(node, path)
    if duration_ns < 0:
        raise DocumentError(f"{path} is negative: a duration starts at 0s", node.line)
    return duration_ns


def _takes(node: Node, path: str) -> DurationQuantiles:
    """A duration, {from, to}, or {quantiles: [least, ..., most]}."""
    if not isinstance(node.value, dict):
        return DurationQuantiles((_time(node, path),))
    said = _fields(node, path, DISTRIBUTION)
    if "quantiles" in said:
        if len(said) > 1:
            raise DocumentError(f"{path}: give quantiles, or from and to, not both", node.line)
        return DurationQuantiles(_ascending(said["quantiles"], path, node))
    if len(said) != 2:
        raise DocumentError(f"{path}: give from and to, or quantiles, or one duration", node.line)
    return DurationQuantiles(_ascending((said["from"], said["to"]), path, node))


def _ascending(values: tuple[int, ...], path: str, node: Node) -> tuple[int, ...]:
    # Quantiles are looked up by their place. Out of order, a larger share would take less time.
    if not values or list(values) != sorted(values):
        raise DocumentError(f"{path}: write the durations in ascending order, at least one", node.line)
    return values


def _quantiles(node: Node, path: str) -> tuple[int, ...]:
    values = sequence(node, path, QUANTILES_MAX)
    return tuple(_time(each, f"{path}[{index}]") for index, each in enumerate(values))


def _number(least: int, most: int) -> Reader:
    return lambda node, path: number(node, path, least, most)


def _mapping_of(known: Mapping[str, Reader]) -> Reader:
    return lambda node, path: _fields(node, path, known)


def _rules(node: Node, path: str) -> tuple[BehaviourRule, ...]:
    rules = sequence(node, path, RULES_MAX)
    return tuple(_rule(each, f"{path}[{index}]") for index, each in enumerate(rules))


def _rule(node: Node, path: str) -> BehaviourRule:
    said = _fields(node, path, RULE)
    match, hook, chance = (said.pop(name, {}) for name in ("match", "hook", "chance"))
    priority = match.pop("priority", {})
    times, of = chance.get("times", 1), chance.get("of", 1)
    if times > of:
        raise DocumentError(f"{path}.chance is {times} of {of}: it is at most all of them", node.line)
    return BehaviourRule(
        pod=match.get("name", "*"),
        namespace=match.get("namespace", "*"),
        container=match.get("container", "*"),
        priority_from=priority.get("from"),
        priority_below=priority.get("below"),
        stop=said.get("stopTakes"),
        ignores=said.get("ignoresSigterm"),
        kill=said.get("killTakes"),
        exit_code=said.get("exitCode"),
        crashes=said.get("crashesAfter"),
        hook=hook.get("takes"),
        hook_fails=hook.get("fails"),
        hook_hangs=hook.get("hangs"),
        times=times,
        of=of,
    )


def _faults(node: Node, path: str) -> Faults:
    said = _fields(node, path, NODE)
    fails, hangs = said.pop("apiFails", False), said.pop("apiHangs", False)
    # One that hangs fails as well, only later: that is the harder case, and wins where both are said.
    api: ApiIs = "hangs" if hangs else "fails" if fails else "works"
    return Faults(api=api, **{FAULT_OF.get(name, name): value for name, value in said.items()})


DISTRIBUTION: dict[str, Reader] = {"from": _time, "to": _time, "quantiles": _quantiles}
PRIORITY: dict[str, Reader] = dict.fromkeys(("from", "below"), _number(INT32_MIN, INT32_MAX))
MATCH: dict[str, Reader] = {
    "name": word,
    "namespace": word,
    "container": word,
    "priority": _mapping_of(PRIORITY),
}
CHANCE: dict[str, Reader] = dict.fromkeys(("times", "of"), _number(1, INT32_MAX))
HOOK: dict[str, Reader] = {"takes": _takes, "fails": flag, "hangs": flag}
RULE: dict[str, Reader] = {
    "match": _mapping_of(MATCH),
    "chance": _mapping_of(CHANCE),
    "stopTakes": _takes,
    "ignoresSigterm": flag,
    "killTakes": _takes,
    "exitCode": _number(0, EXIT_CODE_MAX),
    "crashesAfter": _takes,
    "hook": _mapping_of(HOOK),
}
NODE: dict[str, Reader] = {
    "kind": _one_of(*(kind for kind in get_args(ShutdownKind) if kind != "unknown")),
    "grant": _time,
    "lateGrant": _time,
    "cancelAfter": _time,
    "againAfter": _time,
    "secondSignalAfter": _time,
    "busLostAfter": _time,
    "apiFails": flag,
    "apiHangs": flag,
    "apiTakes": _time,
    "runtimeFails": _one_of(*get_args(RuntimeRefuses)),
    "runtimeTakes": _time,
    "crashAfter": _time,
    "restartTakes": _time,
    "powerCutAfter": _time,
    "mode": _one_of(*filter(None, get_args(NodeMode))),
    "apiLostAfter": _time,
    "apiBackAfter": _time,
    "runtimeHangsAfter": _time,
    "runtimeWakesAfter": _time,
    "kubeletHangsAfter": _time,
    "kubeletWakesAfter": _time,
    "apiHangsAfter": _time,
    "apiWakesAfter": _time,
    "kubelet": _one_of(*get_args(KubeletIs)),
    "kubeletLock": flag,
    "unmountTakes": _time,
}
FAULT_OF = {
    "grant": "grant_ns",
    "lateGrant": "late_grant_ns",
    "cancelAfter": "cancel_after_ns",
    "againAfter": "again_after_ns",
    "secondSignalAfter": "second_signal_after_ns",
    "busLostAfter": "bus_lost_after_ns",
    "apiTakes": "api_takes_ns",
    "runtimeFails": "runtime_refuses",
    "runtimeTakes": "runtime_takes_ns",
    "crashAfter": "crash_after_ns",
    "restartTakes": "restart_takes_ns",
    "powerCutAfter": "power_cut_after_ns",
    "apiLostAfter": "api_lost_after_ns",
    "apiBackAfter": "api_back_after_ns",
    "runtimeHangsAfter": "runtime_hangs_after_ns",
    "runtimeWakesAfter": "runtime_wakes_after_ns",
    "kubeletHangsAfter": "kubelet_hangs_after_ns",
    "kubeletWakesAfter": "kubelet_wakes_after_ns",
    "apiHangsAfter": "api_hangs_after_ns",
    "apiWakesAfter": "api_wakes_after_ns",
    "kubeletLock": "kubelet_lock",
    "unmountTakes": "unmount_takes_ns",
}
DOCUMENT: dict[str, Reader] = {
    "kind": _constant(KIND),
    "apiVersion": _constant(API_VERSION),
    "pods": _rules,
    "node": _faults,
}
