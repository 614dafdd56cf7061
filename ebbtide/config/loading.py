"""Configuration files to one validated value: later documents win field by field.

A document is Ebbtide's own, where an unknown field is an error, or the kubelet's (`config.kubelet_file`).
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
    Unsupported,
    decode_text,
    one_line,
    parse_yaml,
    read_file,
)
from ebbtide.config.fields import (
    DURATION_NS_MAX,
    DocumentErrors,
    Field,
    document_of_kind,
    fields_of,
    format_duration,
    read,
    show,
)
from ebbtide.config.kubelet_file import Note, documents_of, kubelet_in, read_kubelet
from ebbtide.config.schema import (
    BY_PRIORITY_FIELD,
    CRITICAL_FIELD,
    GATE,
    KUBELET_KIND,
    KUBELET_VERSION,
    OWN_KIND,
    OWN_VERSION,
    PRIORITY_GATE,
    TOTAL_FIELD,
    EbbtideConfiguration,
    Gates,
    KubeletConfiguration,
    NodeSection,
    ShutdownPeriods,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Period, Settings

DEFAULT_PATH = Path("/etc/ebbtide/config.yaml")
DEFAULT_SOURCE = "default"
FIELDS = fields_of(EbbtideConfiguration)

#: A full KubeletConfiguration has some hundred lines.
CONFIG_BYTES_MAX = 2**20
#: A file with more is probably no configuration.
MISTAKES_MAX = 20


class ConfigError(Exception):
    """One line with place and cure. ``mistakes``: for a terminal, with a limit; ``every``: without."""

    def __init__(self, *mistakes: str) -> None:
        more = len(mistakes) - MISTAKES_MAX
        self.mistakes = (*mistakes[:MISTAKES_MAX], *([f"and {more} more"] if more > 0 else ()))
        self.every = mistakes
        super().__init__("; ".join(self.mistakes))


class Loaded(NamedTuple):
    """``settings``: for the core; ``config``: for edges and people. ``sources``: "file:line" or "default" by
    field, also ``featureGates.NAME`` and ``node.NAME``. ``kubelet_periods``: the places of periods that the
    kubelet obeys too. ``notes``: code and message, where the kubelet is more lenient than a strict reader.
    """

    settings: Settings
    sources: dict[str, str]
    config: EbbtideConfiguration
    kubelet_periods: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


def load(paths: Sequence[str | Path]) -> Loaded:
    """Without files: the defaults. Raises ConfigError."""
    return parse([(str(path), read_configuration(path)) for path in paths])


def read_configuration(path: str | Path) -> bytes:
    """Raises ConfigError."""
    try:
        # Regular files only: reading a pipe may never end.
        return read_file(path, CONFIG_BYTES_MAX)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            one_line(f"cannot read {path}: {reason}; name a readable file with --config")
        ) from error


def load_named(paths: Sequence[Path]) -> Loaded:
    """Loads ``paths``, else the default file if it exists. Raises ConfigError."""
    return load(paths or default_paths())


def default_paths() -> tuple[Path, ...]:
    return (DEFAULT_PATH,) if DEFAULT_PATH.exists() else ()


def parse(texts: Sequence[tuple[str, bytes]]) -> Loaded:
    """``texts``: name and content. Raises ConfigError."""
    merged, mistakes = _Merged(), list[str]()
    for name, raw in texts:
        try:
            merged.add(raw, name)
        except ConfigError as error:
            mistakes += error.every
    # All mistakes of all files at once, and rules only over readable files.
    if mistakes:
        raise ConfigError(*mistakes)
    return merged.loaded()


def documents(raw: bytes) -> list[Node]:
    """Raises DocumentError."""
    return parse_yaml(decode_text(raw, CONFIG_BYTES_MAX), OBJECT_NODES_MAX)


@contextmanager
def located(name: str, kubelet: bool = False) -> Iterator[None]:
    """A DocumentError becomes a ConfigError with file and line. ``kubelet``: the kubelet's file."""
    try:
        yield
    except DocumentError as error:
        if kubelet and isinstance(error, Unsupported):
            error = DocumentError(f"{error.message}; the kubelet takes it", error.line)
        found = error.found if isinstance(error, DocumentErrors) else (error,)
        places = (f"{name}:{each.line}" if each.line else name for each in found)
        lines = (one_line(f"{at}: {each.message}") for at, each in zip(places, found, strict=True))
        raise ConfigError(*lines) from error


def configuration_values(loaded: Loaded) -> dict[str, Any]:
    """With defaults, and with secrets hidden."""
    shown: dict[str, Any] = show(loaded.config, EbbtideConfiguration)
    return shown


def configuration_from_values(values: Mapping[str, Any], sources: Mapping[str, str], name: str) -> Loaded:
    """The inverse of `configuration_values`, without ``tracing``, whose secrets are hidden. ``name``: for
    messages. Raises ConfigError.
    """
    document = {"apiVersion": OWN_VERSION, "kind": OWN_KIND, **values}
    document.pop("tracing", None)
    return parse([(name, json.dumps(document).encode())])._replace(sources=dict(sources))


_VERSIONS = {OWN_KIND: OWN_VERSION, KUBELET_KIND: KUBELET_VERSION}
_WANTED = f"{OWN_KIND} (apiVersion {OWN_VERSION}) or {KUBELET_KIND}, alone or inside another document"


class _Merged:
    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        #: By section, where later files win field by field.
        self._parts: dict[str, dict[str, Any]] = {"node": {}, "featureGates": {}}
        self._sources: dict[str, str] = {}
        self._kubelet_periods: list[str] = []
        self._notes: list[tuple[str, str]] = []

    def add(self, raw: bytes, name: str) -> None:
        mistakes, repeated, notes = list[str](), list[DocumentError](), list[Note]()
        with located(name, KUBELET_KIND.encode() in raw):
            text, found = documents_of(decode_text(raw, CONFIG_BYTES_MAX), repeated, notes)
            if kubelet := kubelet_in(found, text, repeated, notes):
                self._add(*read_kubelet(kubelet, repeated, name, notes), name, kubelet.place)
                lines = (one_line(f"{name}:{each.line}: {each.message}") for each in notes[:MISTAKES_MAX])
                self._notes += zip((each.code for each in notes), lines, strict=False)
                return
            if repeated:
                raise repeated[0]
        for document in found:
            try:
                with located(name):
                    kind, fields = document_of_kind(document, _VERSIONS, _WANTED)
                    own = EbbtideConfiguration if kind == OWN_KIND else KubeletConfiguration
                    self._add(read(fields, own), fields, name, "")
            except ConfigError as error:
                mistakes += error.every
        if mistakes:
            raise ConfigError(*mistakes)

    def _add(self, document: ShutdownPeriods, node: Node, name: str, place: str) -> None:
        inside = f" ({place})" if place else ""
        for field, value, at in _given(document, node):
            source = one_line(f"{name}:{at.line}{inside}")
            if field.name in self._parts:
                for part, each, part_at in _given(value, at):
                    self._add_part(field.name, part, each, one_line(f"{name}:{part_at.line}{inside}"))
            elif isinstance(document, EbbtideConfiguration):
                self._values[field.attribute] = value
            elif field.attribute in ShutdownPeriods.__struct_fields__:
                self._values[field.attribute] = value
                self._kubelet_periods += [source] if value else []
            else:
                # staticPodPath has no section in the kubelet's document.
                self._add_part("node", field, value, source)
                continue
            self._sources[field.name] = source

    def _add_part(self, section: str, field: Field, value: Any, source: str) -> None:
        self._parts[section][field.attribute] = value
        self._sources[section] = self._sources[f"{section}.{field.name}"] = source

    def loaded(self) -> Loaded:
        """Raises ConfigError for a broken rule."""
        gates = self._parts["featureGates"]
        all_beta = gates.pop("all_beta", None)
        for gate in _BETA_GATES:
            if all_beta is not None and gate.attribute not in gates:
                gates[gate.attribute] = all_beta
                self._sources[f"featureGates.{gate.name}"] = self._sources["featureGates.AllBeta"]
        config = EbbtideConfiguration(
            **self._values, feature_gates=Gates(**gates), node=NodeSection(**self._parts["node"])
        )
        if broken := list(violations(config)):
            fields = (field for violation in broken for field in violation.fields)
            found_at = list(dict.fromkeys(self._sources[each] for each in fields if each in self._sources))
            also = f" (see also {', '.join(found_at[1:])})" if found_at[1:] else ""
            rules = "; ".join(f"invalid configuration: {violation.message}" for violation in broken)
            raise ConfigError(one_line(f"{found_at[0] if found_at else DEFAULT_SOURCE}: {rules}{also}"))
        named = [
            *(name for name in FIELDS if name != "featureGates"),
            *(f"featureGates.{gate}" for gate in fields_of(Gates)),
            *(f"node.{field}" for field in fields_of(NodeSection)),
        ]
        sources = {name: self._sources.get(name, DEFAULT_SOURCE) for name in named}
        return Loaded(_settings(config), sources, config, tuple(self._kubelet_periods), tuple(self._notes))


def _given(document: msgspec.Struct, node: Node) -> Iterator[tuple[Field, Any, Node]]:
    fields, given = fields_of(type(document)), node.value if isinstance(node.value, dict) else {}
    for name, at in given.items():
        # An empty field and the kubelet's empty staticPodPath set nothing.
        if name in fields and at.value is not None:
            value = getattr(document, fields[name].attribute)
            if value is not None:
                yield fields[name], value, at


def _settings(config: EbbtideConfiguration) -> Settings:
    return Settings(
        shutdown_grace_period_ns=config.shutdown_grace_period,
        shutdown_grace_period_critical_pods_ns=config.shutdown_grace_period_critical_pods,
        by_pod_priority=tuple(
            Period(priority=each.priority, seconds=each.shutdown_grace_period_seconds)
            for each in config.shutdown_grace_period_by_pod_priority
        ),
        # One form in the journal for one meaning: only gates that are off.
        gates={name: False for name, on in show(config.feature_gates, Gates).items() if not on},
        budget=config.budget,
        reserve_seconds=config.reserve // NS_PER_SECOND,
        raise_grant=config.raise_grant,
        status_flush_seconds=config.status_flush // NS_PER_SECOND,
        means=dict[str, str](config.node.means.items()),
        unready=config.node.unready,
        left_pods=config.node.left_pods,
    )


#: Set by the kubelet's AllBeta.
_BETA_GATES = [fields_of(Gates)[name] for name in (GATE, PRIORITY_GATE)]


class Violation(NamedTuple):
    message: str
    fields: tuple[str, ...]


def violations(config: EbbtideConfiguration) -> Iterator[Violation]:
    """In the kubelet's order."""
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    listed, gates = config.shutdown_grace_period_by_pod_priority, config.feature_gates
    priority_gate_on = gates.graceful_node_shutdown_based_on_pod_priority
    uses_two_values = total > 0 or critical > 0
    if gates.graceful_node_shutdown:
        if critical > total:
            message = f"{CRITICAL_FIELD} {_braced(critical)} must be <= {TOTAL_FIELD} {_braced(total)}"
            yield Violation(message, (CRITICAL_FIELD, TOTAL_FIELD))
        for name, duration_ns in ((TOTAL_FIELD, total), (CRITICAL_FIELD, critical)):
            if duration_ns and duration_ns < NS_PER_SECOND:
                message = f"{name} {_braced(duration_ns)} must be either zero or otherwise >= 1 sec"
                yield Violation(message, (name,))
    elif uses_two_values:
        message = f"specifying {TOTAL_FIELD} or {CRITICAL_FIELD} requires feature gate {GATE}"
        yield Violation(message, (f"featureGates.{GATE}", TOTAL_FIELD, CRITICAL_FIELD))
    if listed and uses_two_values and priority_gate_on:
        message = f"Cannot specify both {BY_PRIORITY_FIELD} and {TOTAL_FIELD} at the same time"
        yield Violation(message, (BY_PRIORITY_FIELD, TOTAL_FIELD))
    if listed and not priority_gate_on:
        message = f"Specifying {BY_PRIORITY_FIELD} requires feature gate {PRIORITY_GATE}"
        yield Violation(message, (f"featureGates.{PRIORITY_GATE}", BY_PRIORITY_FIELD))
    # Ours: the kubelet lets the sum overflow, but an event's integer must hold it.
    listed_ns = sum(each.shutdown_grace_period_seconds for each in listed) * NS_PER_SECOND
    for name, total_ns in ((BY_PRIORITY_FIELD, listed_ns), (TOTAL_FIELD, total)):
        if total_ns + config.reserve > DURATION_NS_MAX:
            message = f"{name} and reserve add up to more than 292 years; the kubelet takes it"
            yield Violation(message, (name, "reserve"))


def _braced(duration_ns: int) -> str:
    return "{" + format_duration(duration_ns) + "}"
