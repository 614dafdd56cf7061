"""Configuration files to one validated value: later documents win field by field.

A document is Ebbtide's own, where an unknown field is an error, or the kubelet's, whose other fields are
ignored. The rules over several fields are the kubelet's, in its words.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    describe,
    fields_of,
    format_duration,
    read,
    show,
    unknown,
)
from ebbtide.config.schema import (
    KUBELET_KIND,
    KUBELET_ROOT,
    KUBELET_VERSION,
    OWN_KIND,
    OWN_VERSION,
    PERIODS_MAX,
    EbbtideConfiguration,
    Gates,
    KubeletConfiguration,
    NodeSection,
    ShutdownPeriods,
    WavePeriod,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Period, Settings

DEFAULT_PATH = Path("/etc/ebbtide/config.yaml")
DEFAULT_SOURCE = "default"
FIELDS = fields_of(EbbtideConfiguration)

#: A full KubeletConfiguration has some hundred lines.
CONFIG_BYTES_MAX = 2**20
#: With more mistakes it is probably no configuration.
MISTAKES_MAX = 20


class ConfigError(Exception):
    """One line with place and cure. ``mistakes``: for a terminal, with a limit; ``every``: without."""

    def __init__(self, *mistakes: str) -> None:
        more = len(mistakes) - MISTAKES_MAX
        self.mistakes = (*mistakes[:MISTAKES_MAX], *([f"and {more} more"] if more > 0 else ()))
        self.every = mistakes
        super().__init__("; ".join(self.mistakes))


class Loaded(NamedTuple):
    """``settings``: for the core; ``config``: for edges and people.

    ``sources``: "file:line" or "default" by field, also ``featureGates.NAME`` and ``node.NAME``.
    ``kubelet_periods``: the places of periods that the kubelet obeys too. ``notes``: code and message, about
    what the kubelet reads otherwise than a strict reader.
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
        # Regular files only: a reload must end, and reading a pipe may not.
        return read_file(path, CONFIG_BYTES_MAX)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            one_line(f"cannot read {path}: {reason}; name a readable file with --config")
        ) from error


def load_named(paths: Sequence[Path]) -> Loaded:
    """These, or the default file if it exists. Raises ConfigError."""
    return load(paths or default_paths())


def default_paths(path: Path = DEFAULT_PATH) -> tuple[Path, ...]:
    return (path,) if path.exists() else ()


def parse(texts: Sequence[tuple[str, bytes]]) -> Loaded:
    """Takes (name, content) pairs. Raises ConfigError."""
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
    """Turns a DocumentError into a ConfigError with file and line. ``kubelet``: the file is the kubelet's."""
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
    """All fields, with defaults, and with secrets hidden."""
    shown: dict[str, Any] = show(loaded.config, EbbtideConfiguration)
    return shown


def configuration_from_values(values: Mapping[str, Any], sources: Mapping[str, str], name: str) -> Loaded:
    """The inverse of `configuration_values`, without ``tracing``, whose secrets are hidden. ``name``: for
    messages. Raises ConfigError.
    """
    document = {"apiVersion": OWN_VERSION, "kind": OWN_KIND, **values}
    document.pop("tracing", None)
    return parse([(name, json.dumps(document).encode())])._replace(sources=dict(sources))


def document_of_kind(document: Node, versions: Mapping[str, str], wanted: str) -> tuple[str, Node]:
    """The kind and the other fields. ``versions``: by kind; ``wanted`` names these. Raises DocumentError."""
    if not isinstance(document.value, dict):
        raise DocumentError(f"the document is {describe(document)}: it must be a mapping", document.line)
    # Required: a later version may give a field another meaning.
    nothing = Node(None, document.line)
    kind, version = (document.value.get(each, nothing) for each in ("kind", "apiVersion"))
    if not isinstance(kind.value, str) or kind.value not in versions:
        raise DocumentError(f"kind is {describe(kind)}: it must be {wanted}", kind.line)
    if version.value != versions[kind.value]:
        found = f"apiVersion of {kind.value} is {describe(version)}"
        raise DocumentError(f"{found}: it must be {versions[kind.value]}", version.line)
    fields = {name: each for name, each in document.value.items() if name not in ("kind", "apiVersion")}
    return kind.value, Node(fields, document.line)


#: Keys under which other documents keep a kubelet's configuration without its head (kubeadm, EKS, OpenShift,
#: Karpenter, eksctl, kops, Talos), and the key inside it that some of them have.
WRAPPERS = ("kubelet", "kubeletConfig", "kubeletConfiguration", "kubeletExtraConfig")
INNER = ("config", "extraConfig")
_IN_TEXT = re.compile(rf"""(?m)^[ "{{]*kind"?: *"?{KUBELET_KIND}\b""")
_BLOCK = re.compile(r":\s+[|>][-+0-9]*\s*(#.*)?")


class Wrapped(NamedTuple):
    """A kubelet's configuration. ``place``: inside its document, empty where it is one itself."""

    place: str
    node: Node


def wrapped(node: Node, lines: Sequence[str], path: str = "") -> Iterator[Wrapped]:
    """The kubelets' configurations in a document of another kind. Raises DocumentError."""
    if isinstance(node.value, str):
        if not _IN_TEXT.search(node.value):
            return
        # A block's text begins below its key; any other text may have any lines.
        is_block = 0 < node.line <= len(lines) and _BLOCK.search(lines[node.line - 1])
        for document in parse_yaml(node.value, OBJECT_NODES_MAX):
            if _kind_of(document) == KUBELET_KIND:
                yield Wrapped(path, _moved(document, node.line, 1 if is_block else 0))
    elif isinstance(node.value, list):
        for at, each in enumerate(node.value):
            yield from wrapped(each, lines, f"{path}[{at}]")
    elif isinstance(node.value, dict):
        if _kind_of(node) == KUBELET_KIND:
            yield Wrapped(path, node)
            return
        for name, each in node.value.items():
            place = f"{path}.{name}" if path else name
            if name not in WRAPPERS or not isinstance(each.value, dict):
                yield from wrapped(each, lines, place)
                continue
            inside = next((key for key in INNER if isinstance(_field(each, key).value, dict)), "")
            yield Wrapped(f"{place}.{inside}", each.value[inside]) if inside else Wrapped(place, each)


def _moved(node: Node, first: int, step: int) -> Node:
    """With the lines of the outer text."""
    value = node.value
    if isinstance(value, dict):
        value = {name: _moved(each, first, step) for name, each in value.items()}
    elif isinstance(value, list):
        value = [_moved(each, first, step) for each in value]
    return Node(value, first + step * node.line)


def _field(node: Node, name: str) -> Node:
    nothing = Node(None, node.line)
    return node.value.get(name, nothing) if isinstance(node.value, dict) else nothing


def _kind_of(node: Node) -> str:
    kind = _field(node, "kind").value
    return kind if isinstance(kind, str) else ""


def _name_of(node: Node) -> str:
    name = _field(_field(node, "metadata"), "name").value
    return name if isinstance(name, str) else ""


def _is_headless(node: Node) -> bool:
    """A kubelet's configuration without its head, as below ``kubelet:`` elsewhere."""
    names = set(node.value) if isinstance(node.value, dict) else set[str]()
    own = names & fields_of(EbbtideConfiguration).keys() - fields_of(KubeletConfiguration).keys()
    return bool(names & fields_of(ShutdownPeriods).keys()) and not own and not names & {"kind", "apiVersion"}


_VERSIONS = {OWN_KIND: OWN_VERSION, KUBELET_KIND: KUBELET_VERSION}
_WANTED = f"{OWN_KIND} (apiVersion {OWN_VERSION}) or {KUBELET_KIND}, alone or inside another document"


def _as_the_kubelet(fields: Node) -> Node:
    """With its empty values as the kubelet reads them. Raises DocumentError."""
    values = dict(fields.value) if isinstance(fields.value, dict) else {}
    for name in (TOTAL_FIELD, CRITICAL_FIELD):
        if name in values and values[name].value is None:
            cure = "the kubelet does not start with an empty duration, take the line out"
            raise DocumentError(f"{name} has no value: {cure}", values[name].line)
    gates, entries = values.get("featureGates", Node(None)), values.get(BY_PRIORITY_FIELD, Node(None))
    if isinstance(gates.value, dict):
        on = {name: Node(False, at.line) if at.value is None else at for name, at in gates.value.items()}
        values["featureGates"] = Node(on, gates.line)
    if isinstance(entries.value, list):
        if len(entries.value) > PERIODS_MAX:
            message = (
                f"{BY_PRIORITY_FIELD} has {len(entries.value)} entries: at most {PERIODS_MAX} can be used"
            )
            raise Unsupported(message, entries.line)
        filled = [Node({}, each.line) if each.value is None else each for each in entries.value]
        values[BY_PRIORITY_FIELD] = Node(filled, entries.line)
    return Node(values, fields.line)


class _Merged:
    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        #: By section, where later files win field by field.
        self._parts: dict[str, dict[str, Any]] = {"node": {}, "featureGates": {}}
        self._sources: dict[str, str] = {}
        self._kubelet_periods: list[str] = []
        self._notes: list[tuple[str, str]] = []

    def add(self, raw: bytes, name: str) -> None:
        """Raises ConfigError with all mistakes of the file."""
        mistakes, repeated = list[str](), list[DocumentError]()
        with located(name, KUBELET_KIND.encode() in raw):
            text = decode_text(raw, CONFIG_BYTES_MAX)
            found = self._documents(text, repeated, name)
            if kubelet := self._kubelet_in(found, text.splitlines(), name):
                self._add_kubelet(kubelet, repeated, name)
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

    def _documents(self, text: str, repeated: list[DocumentError], name: str) -> list[Node]:
        """Raises DocumentError."""
        try:
            return parse_yaml(text, OBJECT_NODES_MAX, repeated)
        except DocumentError as error:
            # The kubelet reads the first document only, whatever follows it.
            lines = text.splitlines(keepends=True)
            ends = (at for at, line in enumerate(lines[: error.line]) if at and line[:3] in ("---", "..."))
            for end in ends:
                repeated.clear()
                with suppress(DocumentError):
                    first = parse_yaml("".join(lines[:end]), OBJECT_NODES_MAX, repeated)
                    if first and _kind_of(first[0]) == KUBELET_KIND:
                        self._note(
                            "kubelet-first", name, error.line, f"not read, nor by a kubelet: {error.message}"
                        )
                        return first
            raise

    def _kubelet_in(self, found: Sequence[Node], lines: Sequence[str], name: str) -> Wrapped | None:
        """Of a file without a document of ours, the kubelet's configuration. Raises DocumentError."""
        if any(_kind_of(each) == OWN_KIND for each in found):
            return None
        all_of = [(document, each) for document in found for each in wrapped(document, lines)]
        all_of += [(each, Wrapped("a document without a kind", each)) for each in found if _is_headless(each)]
        # The kubelet reads the first of several.
        several = [each for each in all_of if not each[1].place][:1] or all_of
        if not several:
            return None
        if several[1:]:
            places = ", ".join(each.place for _, each in several)
            raise DocumentError(f"several kubelet configurations: {places}: name one in its own file", 0)
        ((document, kubelet),) = several
        if kubelet.place:
            whose = " ".join(filter(None, ("of", _kind_of(document), _name_of(document))))
            place = f"{kubelet.place} {whose}" if _kind_of(document) else kubelet.place
            kubelet = Wrapped(place, kubelet.node)
            self._note("kubelet-found", name, kubelet.node.line, f"the kubelet's configuration is {place}")
        if rest := [_kind_of(each) or describe(each) for each in found if each is not document]:
            self._note(
                "kubelet-first", name, document.line, f"only this document counts, not {', '.join(rest)}"
            )
        return kubelet

    def _add_kubelet(self, kubelet: Wrapped, repeated: Sequence[DocumentError], name: str) -> None:
        """As the kubelet decodes it: strictly, and if that fails leniently. Raises ConfigError."""
        for each in repeated:
            self._note("kubelet-lenient", name, each.line, f"{each.message}; the kubelet takes the last one")
        with located(name, True):
            fields = kubelet.node
            if _kind_of(fields):
                _, fields = document_of_kind(fields, _VERSIONS, _WANTED)
            fields = _as_the_kubelet(fields)
            document = read(fields, KubeletConfiguration)
        entries = _field(fields, BY_PRIORITY_FIELD).value
        for at, entry in enumerate(entries if isinstance(entries, list) else ()):
            known = fields_of(WavePeriod)
            for key, value in entry.value.items() if isinstance(entry.value, dict) else ():
                if key not in known:
                    error = unknown(f"{BY_PRIORITY_FIELD}[{at}]", key, known, value.line)
                    self._note(
                        "kubelet-lenient", name, error.line, f"{error.message} The kubelet passes over it"
                    )
        self._note_gates(_field(fields, "featureGates"), name)
        if document.static_pod_path:
            # The kubelet resolves it against the file; of a file for other nodes against its own folder.
            folder = KUBELET_ROOT if kubelet.place else os.path.dirname(os.path.abspath(name))
            static = os.path.normpath(os.path.join(folder, document.static_pod_path))
            document = msgspec.structs.replace(document, static_pod_path=static)
        self._add(document, fields, name, kubelet.place)

    def _note_gates(self, gates: Node, name: str) -> None:
        off = _field(gates, GATE)
        all_beta = _field(gates, "AllBeta").value is not False
        needing = [each for each in NEEDING_GATES if _field(gates, each).value is not False]
        if off.value is False and all_beta and needing:
            self._note(
                "kubelet-gates",
                name,
                off.line,
                f"a kubelet of v1.37 does not start with {GATE}: false while {' and '.join(needing)} are on",
            )

    def _note(self, code: str, name: str, line: int, message: str) -> None:
        if len(self._notes) < MISTAKES_MAX:
            self._notes.append((code, one_line(f"{name}:{line}: {message}")))

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
                # staticPodPath, which has no section in the kubelet's document.
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
    """The fields that the document sets."""
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
        # Only gates that are off: one form in the journal for one meaning.
        gates={name: False for name, on in show(config.feature_gates, Gates).items() if not on},
        budget=config.budget,
        reserve_seconds=config.reserve // NS_PER_SECOND,
        raise_grant=config.raise_grant,
        status_flush_seconds=config.status_flush // NS_PER_SECOND,
        means=dict[str, str](config.node.means.items()),
        unready=config.node.unready,
        left_pods=config.node.left_pods,
    )


TOTAL_FIELD, CRITICAL_FIELD = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
BY_PRIORITY_FIELD = "shutdownGracePeriodByPodPriority"
GATE, PRIORITY_GATE = "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"
#: These need GATE, for a kubelet that knows of gates that need others.
NEEDING_GATES = (PRIORITY_GATE, "WindowsGracefulNodeShutdown")
#: Set by the kubelet's AllBeta.
_BETA_GATES = [fields_of(Gates)[name] for name in (GATE, PRIORITY_GATE)]


class Violation(NamedTuple):
    message: str
    fields: tuple[str, ...]


def violations(config: EbbtideConfiguration) -> Iterator[Violation]:
    """Broken rules in the kubelet's order."""
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
    # Ours: the kubelet lets the sum overflow, an event's integer must hold it.
    listed_ns = sum(each.shutdown_grace_period_seconds for each in listed) * NS_PER_SECOND
    for name, total_ns in ((BY_PRIORITY_FIELD, listed_ns), (TOTAL_FIELD, total)):
        if total_ns + config.reserve > DURATION_NS_MAX:
            message = f"{name} and reserve add up to more than 292 years; the kubelet takes it"
            yield Violation(message, (name, "reserve"))


def _braced(duration_ns: int) -> str:
    """As in the kubelet's messages."""
    return "{" + format_duration(duration_ns) + "}"
