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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ebbtide.actors.edges.documents import (
    OBJECT_NODES_MAX,
    DocumentError,
    Node,
    decode_text,
    one_line,
    parse_yaml,
    read_file,
)
from ebbtide.config.readers import (
    DURATION_NS_MAX,
    GATES,
    DocumentErrors,
    Mistakes,
    describe,
    flag,
    format_duration,
    mapping,
    unknown,
)
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
from ebbtide.events.values import Settings
from ebbtide.shipping.shipping_destination import Store

TOTAL_FIELD, CRITICAL_FIELD = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
BY_PRIORITY_FIELD = "shutdownGracePeriodByPodPriority"
GATE, PRIORITY_GATE = "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"


class Violation(NamedTuple):
    """A broken rule: its text, and the fields whose values break it."""

    message: str
    fields: tuple[str, ...]


def violations(config: EbbtideConfiguration) -> Iterator[Violation]:
    """Every broken rule, the kubelet's in its order and its words."""
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    listed, gates = config.shutdown_grace_period_by_pod_priority, config.feature_gates
    gate_on, priority_gate_on = gates.get(GATE, True), gates.get(PRIORITY_GATE, True)
    uses_two_values = total > 0 or critical > 0
    if critical > total:
        yield Violation(
            f"{CRITICAL_FIELD} {_go_duration(critical)} must be <= {TOTAL_FIELD} {_go_duration(total)}",
            (CRITICAL_FIELD, TOTAL_FIELD),
        )
    # Negative ones too: whoever writes one means nothing that could be done.
    for name, duration_ns in ((TOTAL_FIELD, total), (CRITICAL_FIELD, critical)):
        if duration_ns and duration_ns < NS_PER_SECOND:
            yield Violation(
                f"{name} {_go_duration(duration_ns)} must be either zero or otherwise >= 1 sec", (name,)
            )
    if uses_two_values and not gate_on:
        message = f"specifying {TOTAL_FIELD} or {CRITICAL_FIELD} requires feature gate {GATE}"
        yield Violation(message, (f"featureGates.{GATE}", TOTAL_FIELD, CRITICAL_FIELD))
    # With its gate off a list is refused by the next rule, whatever stands beside it.
    if listed and uses_two_values and priority_gate_on:
        message = f"Cannot specify both {BY_PRIORITY_FIELD} and {TOTAL_FIELD} at the same time"
        yield Violation(message, (BY_PRIORITY_FIELD, TOTAL_FIELD))
    if listed and not priority_gate_on:
        message = f"Specifying {BY_PRIORITY_FIELD} requires feature gate {PRIORITY_GATE}"
        yield Violation(message, (f"featureGates.{PRIORITY_GATE}", BY_PRIORITY_FIELD))
    # Ours: the kubelet lets the sum overflow; here it has to fit an event's integer.
    listed_ns = sum(each.seconds for each in listed) * NS_PER_SECOND
    for name, total_ns in ((BY_PRIORITY_FIELD, listed_ns), (TOTAL_FIELD, total)):
        if total_ns + config.reserve > DURATION_NS_MAX:
            yield Violation(f"{name} and reserve add up to more than 292 years", (name, "reserve"))


def _go_duration(duration_ns: int) -> str:
    """As the kubelet prints a duration in its messages."""
    return "{" + format_duration(duration_ns) + "}"


DEFAULT_PATH = Path("/etc/ebbtide/config.yaml")

#: A configuration has some dozens of lines; a full KubeletConfiguration some hundreds.
CONFIG_BYTES_MAX = 2**20

#: The source of a value that no file sets.
DEFAULT_SOURCE = "default"

#: The kubelet's switch for all beta gates, and those of ours that are beta there.
_ALL_BETA, _BETA_GATES = "AllBeta", GATES[:2]


#: Of a file's mistakes so many are told: of more the reader has named the wrong file.
MISTAKES_MAX = 20


class ConfigError(Exception):
    """The configuration cannot be used. One line: where, what, and how to put it right. Nothing changed.

    ``mistakes``: the same one by one, for a terminal; ``every``: all of them, however many.
    """

    def __init__(self, *mistakes: str) -> None:
        more = len(mistakes) - MISTAKES_MAX
        told = (*mistakes[:MISTAKES_MAX], *([f"and {more} more"] if more > 0 else ()))
        super().__init__("; ".join(told))
        self.mistakes, self.every = told, mistakes


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What concerns the daemon's edges only and no decision: it stands in no event."""

    drop_in_directory: str
    journal_fallbacks: tuple[str, ...]
    journal_bytes_max: int
    metrics_listen: str
    metrics_hosts: tuple[str, ...]
    metrics_kubelet_names: bool
    node: NodeSection
    tracing: Tracing
    shipping: Store


class Loaded(NamedTuple):
    """A valid configuration in its three readings.

    ``settings`` for the core, ``options`` for the edges, ``config`` for people. ``sources`` has for every
    field, and every gate as ``featureGates.NAME``, "file:line" or "default". ``kubelet_periods``: where a
    document of the kubelet's sets a period, which the kubelet then acts by as well.
    """

    settings: Settings
    sources: dict[str, str]
    options: Options
    config: EbbtideConfiguration
    kubelet_periods: tuple[str, ...] = ()


def load(paths: Sequence[str | Path]) -> Loaded:
    """Read these files; none of them means the defaults. Raises ConfigError."""
    return parse([(str(path), read_configuration(path)) for path in paths])


def read_configuration(path: str | Path) -> bytes:
    """A file's bytes. Raises ConfigError."""
    try:
        # A pipe may never end, and a reload has to come to one.
        return read_file(path, CONFIG_BYTES_MAX)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            one_line(f"cannot read {path}: {reason}; name a readable file with --config")
        ) from error


def load_named(paths: Sequence[Path]) -> Loaded:
    """The named files, or the default one if it is there. Raises ConfigError."""
    return load(paths or default_paths())


def default_paths(path: Path = DEFAULT_PATH) -> tuple[Path, ...]:
    """The files that are read when none is named: the default one, if it is there."""
    return (path,) if path.exists() else ()


def parse(texts: Sequence[tuple[str, bytes]]) -> Loaded:
    """The same for (name, content) pairs. Raises ConfigError."""
    # All mistakes of all files in one message: told one a run, ten of them take ten.
    merged, mistakes = _Merged(), list[str]()
    for name, raw in texts:
        try:
            with located(name):
                merged.add(raw, name)
        except ConfigError as error:
            mistakes += error.every
    if mistakes:
        raise ConfigError(*mistakes)
    # Only now: a field that could not be read may decide whether a rule holds.
    config = merged.config()
    if broken := merged.broken_rules(config):
        raise ConfigError(broken)
    return merged.loaded(config)


def documents(raw: bytes) -> list[Node]:
    """Raises DocumentError."""
    return parse_yaml(decode_text(raw, CONFIG_BYTES_MAX), OBJECT_NODES_MAX)


@contextmanager
def located(name: str) -> Iterator[None]:
    """A DocumentError within becomes a ConfigError that names the file and the line."""
    try:
        yield
    except DocumentError as error:
        found = error.found if isinstance(error, DocumentErrors) else (error,)
        places = (f"{name}:{each.line}" if each.line else name for each in found)
        lines = (one_line(f"{at}: {each.message}") for at, each in zip(places, found, strict=True))
        raise ConfigError(*lines) from error


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


def document_kind(document: Node, versions: Mapping[str, str], wanted: str) -> str:
    """The document's kind, which is one of ``versions``, each with its version; ``wanted`` names them.

    Raises DocumentError.
    """
    # Both are demanded, though they could be guessed: in a later version a field may mean something else, and
    # this one must then refuse the file.
    fields = mapping(document, "the document")
    kind, version = (fields.get(each) or Node(None, document.line) for each in ("kind", "apiVersion"))
    if not isinstance(kind.value, str) or kind.value not in versions:
        raise DocumentError(f"kind is {describe(kind)}: it must be {wanted}", kind.line)
    if version.value != versions[kind.value]:
        said = f"apiVersion of {kind.value} is {describe(version)}"
        raise DocumentError(f"{said}: it must be {versions[kind.value]}", version.line)
    return kind.value


class _Merged:
    """Field values as read so far, each with its source."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._gates: dict[str, bool] = {}
        self._node: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        #: Where a document of the kubelet's sets a period.
        self._kubelet_periods = list[str]()

    def add(self, raw: bytes, name: str) -> None:
        """Raises DocumentError, of all that is wrong in it."""
        mistakes = Mistakes()
        with mistakes.kept():
            for document in documents(raw):
                with mistakes.kept():
                    self._add(document, one_line(name), mistakes)
        mistakes.report()

    def _add(self, document: Node, name: str, mistakes: Mistakes) -> None:
        fields = mapping(document, "the document")
        wanted = f"{OWN_KIND} (apiVersion {OWN_VERSION}) or {KUBELET_KIND}"
        kind = document_kind(document, {OWN_KIND: OWN_VERSION, KUBELET_KIND: KUBELET_VERSION}, wanted)
        own = kind == OWN_KIND
        for field, node in fields.items():
            if field in FIELDS and (own or FIELDS[field].doc.kubelet):
                with mistakes.kept():
                    self._read(field, node, name, own)
            elif not own and field in KUBELET_NODE_FIELDS:
                with mistakes.kept():
                    self._read("node", Node({field: node}, node.line), name, own)
            elif own and field not in ("kind", "apiVersion"):
                with mistakes.kept():
                    raise unknown("", field, FIELDS, node.line)

    def config(self) -> EbbtideConfiguration:
        """The values of all files together."""
        for gate in _BETA_GATES:
            if gate not in self._gates and _ALL_BETA in self._gates:
                self._gates[gate] = self._gates[_ALL_BETA]
                self._sources[f"featureGates.{gate}"] = self._sources[f"featureGates.{_ALL_BETA}"]
        # Only the gates that are off, in a fixed order: one meaning, one form, and the same bytes in the
        # journal however the files say it.
        gates = {gate: False for gate in GATES if not self._gates.get(gate, True)}
        values = {FIELDS[field].attribute: value for field, value in self._values.items()}
        sections = {"feature_gates": gates, "node": NodeSection(**self._node)}
        return EbbtideConfiguration(**values | sections)

    def broken_rules(self, config: EbbtideConfiguration) -> str:
        """All broken rules in one line, with the place of the first field of the first rule; empty: none."""
        broken = list(violations(config))
        fields = [field for violation in broken for field in violation.fields]
        found_at = list(dict.fromkeys(self._sources[field] for field in fields if field in self._sources))
        also = f" (see also {', '.join(found_at[1:])})" if found_at[1:] else ""
        rules = "; ".join(f"invalid configuration: {violation.message}" for violation in broken)
        return one_line(f"{found_at[0] if found_at else DEFAULT_SOURCE}: {rules}{also}") if rules else ""

    def loaded(self, config: EbbtideConfiguration) -> Loaded:
        named = [
            *(name for name in FIELDS if name != "featureGates"),
            *(f"featureGates.{gate}" for gate in GATES),
            *(f"node.{field}" for field in NODE_FIELDS),
        ]
        sources = {name: self._sources.get(name, DEFAULT_SOURCE) for name in named}
        settings = Settings(
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
        options = Options(**{name: getattr(config, name) for name in Options.__struct_fields__})
        return Loaded(settings, sources, options, config, tuple(self._kubelet_periods))

    def _read(self, field: str, node: Node, name: str, own: bool) -> None:
        """A field that says nothing (``field:``) is as good as absent."""
        if node.value is None:
            return
        if field == "featureGates":
            gates = mapping(node, field)
            # A kubelet has a hundred gates that are nothing to us; in a document of our own one that is not
            # known is a slip.
            if own:
                FIELDS[field].doc.read(node, field)
            for gate, value in gates.items():
                if gate in GATES or gate == _ALL_BETA:
                    self._gates[gate] = flag(value, f"featureGates.{gate}")
                    self._sources[f"featureGates.{gate}"] = f"{name}:{value.line}"
            return
        found = FIELDS[field].doc.read(node, field)
        if field == "node":
            # Field by field here too: the kubelet's document has one of them, and a file of ours after it
            # would take that away.
            self._node |= found
            for each, value in mapping(node, "node").items():
                if NODE_FIELDS[each].attribute in found:
                    self._sources[f"node.{each}"] = f"{name}:{value.line}"
        else:
            self._values[field] = found
            if not own and found:
                self._kubelet_periods.append(f"{name}:{node.line}")
        self._sources[field] = f"{name}:{node.line}"
