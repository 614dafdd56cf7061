"""The file of ``simulate --behaviour``: how pods behave and what happens to the node (docs/simulate.md).

Every field stands in one of the tables below with its reader; an unknown one is an error that names its
line and the nearest known field, as in a configuration.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from ebbtide.actors.edges.documents import DocumentError, Node, decode_text, one_line, parse_yaml
from ebbtide.cli.common.guard import Refused
from ebbtide.config.readers import (
    DURATION_NS_MAX,
    INT32_MAX,
    INT32_MIN,
    SectionField,
    bounded_duration,
    describe,
    flag,
    number,
    one_of,
    read_section,
    sequence,
)
from ebbtide.config.readers import text as word
from ebbtide.events.values import ShutdownKind
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
    said = read_section(node, "", DOCUMENT)
    return Behaviour(said.get("pods", ()), said.get("node", Faults()))


def _constant(expected: str) -> Any:
    def read(node: Node, path: str) -> None:
        if node.value != expected:
            raise DocumentError(f"{path} is {describe(node)}: it must be {expected}", node.line)

    return read


_time = bounded_duration(0, DURATION_NS_MAX)


def _takes(node: Node, path: str) -> DurationQuantiles:
    """A duration, {from, to}, or {quantiles: [least, ..., most]}."""
    if not isinstance(node.value, dict):
        return DurationQuantiles((_time(node, path),))
    said = read_section(node, path, DISTRIBUTION)
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


def _section(**readers: Any) -> Any:
    """A mapping whose attributes have the names of its fields."""
    fields = {name: SectionField(name, reader) for name, reader in readers.items()}
    return lambda node, path: read_section(node, path, fields)


def _number(least: int, most: int) -> Any:
    return lambda node, path: number(node, path, least, most)


def _rules(node: Node, path: str) -> tuple[BehaviourRule, ...]:
    rules = sequence(node, path, RULES_MAX)
    return tuple(_rule(each, f"{path}[{index}]") for index, each in enumerate(rules))


def _rule(node: Node, path: str) -> BehaviourRule:
    said = read_section(node, path, RULE)
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
        hook=hook.get("takes"),
        hook_fails=hook.get("fails"),
        hook_hangs=hook.get("hangs"),
        times=times,
        of=of,
        **said,
    )


def _faults(node: Node, path: str) -> Faults:
    said = read_section(node, path, NODE)
    fails, hangs = said.pop("api_fails", False), said.pop("api_hangs", False)
    # A hanging API server fails too, only later. This harder case wins where the file has both.
    api: ApiIs = "hangs" if hangs else "fails" if fails else "works"
    return Faults(api=api, **said)


#: For ``from`` and ``below``: Python has the first as a keyword.
_BOUND = _number(INT32_MIN, INT32_MAX)
DISTRIBUTION = {
    "from": SectionField("from", _time),
    "to": SectionField("to", _time),
    "quantiles": SectionField("quantiles", _quantiles),
}
_PRIORITY = _section(**{"from": _BOUND, "below": _BOUND})
RULE = {
    "match": SectionField("match", _section(name=word, namespace=word, container=word, priority=_PRIORITY)),
    "chance": SectionField("chance", _section(times=_number(1, INT32_MAX), of=_number(1, INT32_MAX))),
    "stopTakes": SectionField("stop", _takes),
    "ignoresSigterm": SectionField("ignores", flag),
    "killTakes": SectionField("kill", _takes),
    "exitCode": SectionField("exit_code", _number(0, EXIT_CODE_MAX)),
    "crashesAfter": SectionField("crashes", _takes),
    "hook": SectionField("hook", _section(takes=_takes, fails=flag, hangs=flag)),
}
#: The attributes are those of `Faults`.
NODE = {
    "kind": SectionField("kind", one_of(tuple(kind for kind in get_args(ShutdownKind) if kind != "unknown"))),
    "apiFails": SectionField("api_fails", flag),
    "apiHangs": SectionField("api_hangs", flag),
    "runtimeFails": SectionField("runtime_refuses", one_of(get_args(RuntimeRefuses))),
    "mode": SectionField("mode", one_of(tuple(filter(None, get_args(NodeMode))))),
    "kubelet": SectionField("kubelet", one_of(get_args(KubeletIs))),
    "kubeletLock": SectionField("kubelet_lock", flag),
    **{
        name: SectionField(re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name) + "_ns", _time)
        for name in (
            *("grant", "lateGrant", "cancelAfter", "againAfter", "secondSignalAfter", "busLostAfter"),
            *("apiTakes", "runtimeTakes", "crashAfter", "restartTakes", "powerCutAfter", "unmountTakes"),
            *("apiLostAfter", "apiBackAfter", "apiHangsAfter", "apiWakesAfter"),
            *("runtimeHangsAfter", "runtimeWakesAfter", "kubeletHangsAfter", "kubeletWakesAfter"),
        )
    },
}
DOCUMENT = {
    "kind": SectionField("kind", _constant(KIND)),
    "apiVersion": SectionField("api_version", _constant(API_VERSION)),
    "pods": SectionField("pods", _rules),
    "node": SectionField("node", _faults),
}
