"""Configuration files to one validated value: documents read in order, later ones winning field by field.

A document is Ebbtide's own, where every unknown field is an error, or the kubelet's, of which the fields
that concern shutdown are read and the rest is passed over, so that a node's ``config.yaml`` can be named as
it is.

The rules over several fields are the kubelet's, in the kubelet's words, and two of our own: a configuration
that the kubelet refuses is refused here for the same reason, so that moving it from one to the other
changes nothing.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ebbtide.config.documents import DocumentError, Node, decode_text, one_line, parse_yaml
from ebbtide.config.durations import DURATION_NS_MAX, format_duration
from ebbtide.config.readers import GATES, describe, flag, mapping, unknown
from ebbtide.config.schema import (
    FIELDS,
    KUBELET_KIND,
    KUBELET_NODE_FIELDS,
    KUBELET_VERSION,
    NODE_FIELDS,
    OWN_KIND,
    OWN_VERSION,
    EbbtideConfiguration,
    NodeSection,
    Tracing,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.model import Settings

TOTAL_FIELD, CRITICAL_FIELD = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
BY_PRIORITY_FIELD = "shutdownGracePeriodByPodPriority"
GATE, PRIORITY_GATE = "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"


class Violation(NamedTuple):
    """A broken rule: its text, and the fields whose values break it."""

    message: str
    fields: tuple[str, ...]


def violations(config: EbbtideConfiguration) -> Iterator[Violation]:
    """Every broken rule, in the order of the table."""
    for rule in CONFIGURATION_RULES:
        yield from rule(config)


def _critical_within_total(config: EbbtideConfiguration) -> Iterator[Violation]:
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    if critical > total:
        yield Violation(
            f"{CRITICAL_FIELD} {_go_duration(critical)} must be <= {TOTAL_FIELD} {_go_duration(total)}",
            (CRITICAL_FIELD, TOTAL_FIELD),
        )


def _zero_or_a_second(config: EbbtideConfiguration) -> Iterator[Violation]:
    pairs = (
        (TOTAL_FIELD, config.shutdown_grace_period),
        (CRITICAL_FIELD, config.shutdown_grace_period_critical_pods),
    )
    for name, duration_ns in pairs:
        if duration_ns and duration_ns < NS_PER_SECOND:
            yield Violation(
                f"{name} {_go_duration(duration_ns)} must be either zero or otherwise >= 1 sec", (name,)
            )


def _pair_needs_gate(config: EbbtideConfiguration) -> Iterator[Violation]:
    if _uses_two_values(config) and not config.feature_gates.get(GATE, True):
        message = f"specifying {TOTAL_FIELD} or {CRITICAL_FIELD} requires feature gate {GATE}"
        yield Violation(message, (f"featureGates.{GATE}", TOTAL_FIELD, CRITICAL_FIELD))


def _one_form_only(config: EbbtideConfiguration) -> Iterator[Violation]:
    both = config.shutdown_grace_period_by_pod_priority and _uses_two_values(config)
    if both and config.feature_gates.get(PRIORITY_GATE, True):
        message = f"Cannot specify both {BY_PRIORITY_FIELD} and {TOTAL_FIELD} at the same time"
        yield Violation(message, (BY_PRIORITY_FIELD, TOTAL_FIELD))


def _list_needs_gate(config: EbbtideConfiguration) -> Iterator[Violation]:
    listed = config.shutdown_grace_period_by_pod_priority
    if listed and not config.feature_gates.get(PRIORITY_GATE, True):
        message = f"Specifying {BY_PRIORITY_FIELD} requires feature gate {PRIORITY_GATE}"
        yield Violation(message, (f"featureGates.{PRIORITY_GATE}", BY_PRIORITY_FIELD))


def _representable(config: EbbtideConfiguration) -> Iterator[Violation]:
    """The kubelet lets the sum overflow; here it has to fit an event's integer."""
    listed_seconds = sum(each.seconds for each in config.shutdown_grace_period_by_pod_priority)
    for name, total_ns in (
        (BY_PRIORITY_FIELD, listed_seconds * NS_PER_SECOND),
        (TOTAL_FIELD, config.shutdown_grace_period),
    ):
        if total_ns + config.reserve > DURATION_NS_MAX:
            yield Violation(f"{name} and reserve add up to more than 292 years", (name, "reserve"))


def _uses_two_values(config: EbbtideConfiguration) -> bool:
    return config.shutdown_grace_period > 0 or config.shutdown_grace_period_critical_pods > 0


def _go_duration(duration_ns: int) -> str:
    """As the kubelet prints a duration in its messages."""
    return "{" + format_duration(duration_ns) + "}"


CONFIGURATION_RULES: tuple[Callable[[EbbtideConfiguration], Iterator[Violation]], ...] = (
    _critical_within_total,
    _zero_or_a_second,
    _pair_needs_gate,
    _one_form_only,
    _list_needs_gate,
    _representable,
)


DEFAULT_PATH = Path("/etc/ebbtide/config.yaml")

#: A configuration has some dozens of lines; a full KubeletConfiguration some hundreds.
CONFIG_BYTES_MAX = 2**20

#: The source of a value that no file sets.
DEFAULT_SOURCE = "default"

#: The kubelet's switch for all beta gates, and those of ours that are beta there.
_ALL_BETA, _BETA_GATES = "AllBeta", GATES[:2]


class ConfigError(Exception):
    """The configuration cannot be used. One line: where, what, and how to put it right. Nothing changed."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What concerns the daemon's edges only and no decision: it stands in no event."""

    drop_in_directory: str
    journal_fallbacks: tuple[str, ...]
    journal_bytes_max: int
    metrics_listen: str
    metrics_kubelet_names: bool
    node: NodeSection
    tracing: Tracing


class Loaded(NamedTuple):
    """A valid configuration in its three readings.

    ``settings`` for the core, ``options`` for the edges, ``config`` for people. ``sources`` has for every
    field, and every gate as ``featureGates.NAME``, "file:line" or "default".
    """

    settings: Settings
    sources: dict[str, str]
    options: Options
    config: EbbtideConfiguration


def load(paths: Sequence[str | Path]) -> Loaded:
    """Read these files; none of them means the defaults. Raises ConfigError."""
    return parse([(str(path), _read_file(path)) for path in paths])


def load_named(paths: Sequence[Path]) -> Loaded:
    """The named files, or the default one if it is there. Raises ConfigError."""
    return load(paths or default_paths())


def default_paths(path: Path = DEFAULT_PATH) -> tuple[Path, ...]:
    """The files that are read when none is named: the default one, if it is there."""
    return (path,) if path.exists() else ()


def parse(texts: Sequence[tuple[str, bytes]]) -> Loaded:
    """The same for (name, content) pairs. Raises ConfigError."""
    merged = _Merged()
    for name, raw in texts:
        try:
            for document in parse_yaml(decode_text(raw, CONFIG_BYTES_MAX)):
                merged.add(document, name)
        except DocumentError as error:
            raise ConfigError(
                one_line(
                    f"{name}:{error.line}: {error.message}" if error.line else f"{name}: {error.message}"
                )
            ) from error
    return merged.loaded()


def configuration_values(loaded: Loaded) -> dict[str, Any]:
    """Every field as it would stand in a file, defaults included; what is secret is hidden."""
    return {name: field.doc.show(getattr(loaded.config, field.attribute)) for name, field in FIELDS.items()}


def configuration_from_values(values: Mapping[str, Any], sources: Mapping[str, str], name: str) -> Loaded:
    """The configuration that `configuration_values` was made of, but for its traces: where they go may be
    secret, so it is not handed on and has its default here. ``name``: who has said it, for messages.
    Raises ConfigError.
    """
    document = {"apiVersion": OWN_VERSION, "kind": OWN_KIND, **values}
    document.pop("tracing", None)
    return parse([(name, json.dumps(document).encode())])._replace(sources=dict(sources))


class _Merged:
    """Field values as read so far, each with its source."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._gates: dict[str, bool] = {}
        self._node: dict[str, Any] = {}
        self._sources: dict[str, str] = {}

    def add(self, document: Node, name: str) -> None:
        name, fields = one_line(name), mapping(document, "the document")
        own = _is_own(fields, document.line)
        for field, node in fields.items():
            if field in FIELDS and (own or FIELDS[field].doc.kubelet):
                self._read(field, node, name, own)
            elif not own and field in KUBELET_NODE_FIELDS:
                self._read("node", Node({field: node}, node.line), name, own)
            elif own and field not in ("kind", "apiVersion"):
                raise unknown("", field, FIELDS, node.line)

    def loaded(self) -> Loaded:
        gates = self._effective_gates()
        values = {FIELDS[field].attribute: value for field, value in self._values.items()}
        sections = {"feature_gates": gates, "node": NodeSection(**self._node)}
        config = EbbtideConfiguration(**values | sections)
        if broken := tuple(violations(config)):
            raise ConfigError(self._blame(broken))
        named = [
            *(name for name in FIELDS if name != "featureGates"),
            *(f"featureGates.{gate}" for gate in GATES),
            *(f"node.{field}" for field in NODE_FIELDS),
        ]
        sources = {name: self._sources.get(name, DEFAULT_SOURCE) for name in named}
        return Loaded(_settings(config), sources, _options(config), config)

    def _read(self, field: str, node: Node, name: str, own: bool) -> None:
        """A field that says nothing (``field:``) is as good as absent."""
        if node.value is None:
            return
        if field == "featureGates":
            self._read_gates(node, name, own)
            return
        value = FIELDS[field].doc.read(node, field)
        if field == "node":
            self._add_node(node, value, name)
        else:
            self._values[field] = value
        self._sources[field] = f"{name}:{node.line}"

    def _add_node(self, node: Node, said: dict[str, Any], name: str) -> None:
        """Later files win field by field here too: the kubelet's document has one of them."""
        self._node |= said
        for field, value in mapping(node, "node").items():
            if NODE_FIELDS[field].attribute in said:
                self._sources[f"node.{field}"] = f"{name}:{value.line}"

    def _read_gates(self, node: Node, name: str, own: bool) -> None:
        known = {
            gate: flag_node
            for gate, flag_node in mapping(node, "featureGates").items()
            if gate in GATES or gate == _ALL_BETA
        }
        if own:
            FIELDS["featureGates"].doc.read(node, "featureGates")
        for gate, flag_node in known.items():
            self._gates[gate] = flag(flag_node, f"featureGates.{gate}")
            self._sources[f"featureGates.{gate}"] = f"{name}:{flag_node.line}"

    def _effective_gates(self) -> dict[str, bool]:
        """Only the gates that are off, in a fixed order: one meaning, one form."""
        for gate in _BETA_GATES:
            if gate not in self._gates and _ALL_BETA in self._gates:
                self._gates[gate] = self._gates[_ALL_BETA]
                self._sources[f"featureGates.{gate}"] = self._sources[f"featureGates.{_ALL_BETA}"]
        return {gate: False for gate in GATES if not self._gates.get(gate, True)}

    def _blame(self, broken: Sequence[Violation]) -> str:
        """All broken rules in one line, located at the first one's fields."""
        fields = [field for violation in broken for field in violation.fields]
        found_at = list(dict.fromkeys(self._sources[field] for field in fields if field in self._sources))
        also = f" (see also {', '.join(found_at[1:])})" if found_at[1:] else ""
        said = "; ".join(f"invalid configuration: {violation.message}" for violation in broken)
        return one_line(f"{found_at[0] if found_at else DEFAULT_SOURCE}: {said}{also}")


def _is_own(fields: dict[str, Node], line: int) -> bool:
    """Whether a document is Ebbtide's own or the kubelet's; anything else is refused."""
    kind, version = (fields.get(name) or Node(None, line) for name in ("kind", "apiVersion"))
    versions = {OWN_KIND: OWN_VERSION, KUBELET_KIND: KUBELET_VERSION}
    if not isinstance(kind.value, str) or kind.value not in versions:
        raise DocumentError(
            f"kind is {describe(kind)}: it must be {OWN_KIND} (apiVersion {OWN_VERSION}) or {KUBELET_KIND}",
            kind.line,
        )
    if version.value != versions[kind.value]:
        wanted = versions[kind.value]
        raise DocumentError(
            f"apiVersion of {kind.value} is {describe(version)}: it must be {wanted}", version.line
        )
    return kind.value == OWN_KIND


def _settings(config: EbbtideConfiguration) -> Settings:
    return Settings(
        shutdown_grace_period_ns=config.shutdown_grace_period,
        shutdown_grace_period_critical_pods_ns=config.shutdown_grace_period_critical_pods,
        by_pod_priority=config.shutdown_grace_period_by_pod_priority,
        gates=config.feature_gates,
        budget=config.budget,
        reserve_seconds=config.reserve // NS_PER_SECOND,
        raise_grant=config.raise_grant,
        status_flush_seconds=config.status_flush // NS_PER_SECOND,
        means=config.node.means,
        unready=config.node.unready,
        left_pods=config.node.left_pods,
    )


def _options(config: EbbtideConfiguration) -> Options:
    names = (field.name for field in msgspec.structs.fields(Options))
    return Options(**{name: getattr(config, name) for name in names})


def _read_file(path: str | Path) -> bytes:
    """One byte more than may be used, so that a file of any size costs no more than that.

    Only a regular file: a pipe may never end, and a reload has to come to one.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no regular file")
            return file.read(CONFIG_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            one_line(f"cannot read {path}: {reason}; name a readable file with --config")
        ) from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Opening a FIFO would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)
