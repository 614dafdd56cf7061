"""Structs from documents and back, by the declarations of their fields.

`msgspec` checks plain types and their bounds. Beside a type, a `Kind` parses and prints other values, and a
plain text is the field's sentence in the reference.
"""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from ebbtide.actors.edges.documents import QUOTE_LENGTH_MAX, DocumentError, Node, quote
from ebbtide.events.base import NS_PER_SECOND

S = TypeVar("S", bound=msgspec.Struct)


class Kind(NamedTuple):
    """``text`` completes "it must be …".

    ``parse`` raises ValueError, with a reason where ``text`` is not enough. No message repeats a ``secret``
    value, or the name of a secret key.
    """

    text: str
    parse: Callable[[str], Any] | None = None
    show: Callable[[Any], Any] | None = None
    secret: bool = False


class Field(NamedTuple):
    """``kind``: its type, for people."""

    name: str
    attribute: str
    required: bool
    default: Any
    kind: str
    text: str
    hint: Any


class RuleError(ValueError):
    """A broken rule over several fields. ``at``: names and list places, from the Struct on."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


class DocumentErrors(DocumentError):
    def __init__(self, found: Sequence[DocumentError]) -> None:
        super().__init__("; ".join(error.message for error in found), found[0].line)
        self.found = tuple(found)


def read(node: Node, kind: type[S], path: str = "") -> S:
    """All mistakes at once. Raises DocumentErrors."""
    walker = _Walker()
    value: S = walker.struct(kind, node, path)
    if walker.mistakes:
        raise DocumentErrors(walker.mistakes)
    return value


def document_of_kind(document: Node, versions: Mapping[str, str], wanted: str) -> tuple[str, Node]:
    """Returns the kind and the other fields. ``wanted``: for messages. Raises DocumentError."""
    if not isinstance(document.value, dict):
        raise DocumentError(f"the document is {describe(document)}: it must be a mapping", document.line)
    # Required: a later version may give a field another meaning.
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind.value, str) or kind.value not in versions:
        raise DocumentError(f"kind is {describe(kind)}: it must be {wanted}", kind.line)
    if version.value != versions[kind.value]:
        found = f"apiVersion of {kind.value} is {describe(version)}"
        raise DocumentError(f"{found}: it must be {versions[kind.value]}", version.line)
    fields = {name: each for name, each in document.value.items() if name not in ("kind", "apiVersion")}
    return kind.value, Node(fields, document.line)


class _Walker:
    """After a mistake the returned values are useless."""

    def __init__(self) -> None:
        self.mistakes: list[DocumentError] = []

    def struct(self, kind: type[msgspec.Struct], node: Node, path: str) -> Any:
        where = path or "the document"
        if not isinstance(node.value, dict):
            return self._fail(f"{where} is {describe(node)}: it must be a mapping", node)
        fields, values, before = fields_of(kind), dict[str, Any](), len(self.mistakes)
        for name, each in node.value.items():
            field = fields.get(name)
            # As in Kubernetes, a field without a value counts as absent.
            if field is not None and each.value is not None:
                values[field.attribute] = self.value(field.hint, each, f"{path}.{name}" if path else name)
            elif field is None and kind.__struct_config__.forbid_unknown_fields:
                self.mistakes.append(unknown(path, name, fields, each.line))
        for name, field in fields.items():
            if field.required and field.attribute not in values:
                self._fail(f"{where} needs {name}", node)
        if len(self.mistakes) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            self.mistakes.append(rule_error(node, path, error))

    def value(self, hint: Any, node: Node, path: str) -> Any:
        base, kind, meta, _ = _parts(hint)
        section = struct_of(hint)
        if section is not None and section is base and (kind is None or isinstance(node.value, dict)):
            return self.struct(section, node, path)
        origin, most = get_origin(base), meta.max_length if meta is not None else None
        if origin in (tuple, dict):
            return self._items(hint, node, path, most)
        kind = kind or Kind(_kind_text(base, meta))
        try:
            if isinstance(node.value, str) and "\0" in node.value:
                raise ValueError("take out the NUL character")
            if kind.parse is None:
                return msgspec.convert(node.value, base if meta is None else Annotated[base, meta])
            if isinstance(node.value, str):
                return kind.parse(node.value)
            reason = ""
        except ValueError as error:
            reason = "" if isinstance(error, msgspec.ValidationError) else str(error)
        if kind.secret:
            return self._fail(f"{path}: {reason}" if reason else f"{path} must be {kind.text}", node)
        return self._fail(f"{path} is {describe(node)}: {reason or f'it must be {kind.text}'}", node)

    def _items(self, hint: Any, node: Node, path: str, most: int | None) -> Any:
        base = _parts(hint)[0]
        inner = get_args(base)
        wanted, text = (list, "a list") if get_origin(base) is tuple else (dict, "a mapping")
        hidden = wanted is dict and (key_kind := _parts(inner[0])[1]) is not None and key_kind.secret
        if not isinstance(node.value, wanted):
            is_what = "must be" if hidden else f"is {describe(node)}: it must be"
            return self._fail(f"{path} {is_what} {text}", node)
        if most is not None and len(node.value) > most:
            message = f"{path} has {len(node.value)} entries: at most {most} can be used"
            return self._fail(message, node)
        if isinstance(node.value, list):
            each_of = enumerate(node.value)
            return tuple(self.value(inner[0], each, f"{path}[{at}]") for at, each in each_of)
        found, known = {}, get_args(_parts(inner[0])[0])
        for at, (name, each) in enumerate(node.value.items()):
            if known and name not in known:
                self.mistakes.append(unknown(path, name, known, each.line))
            # Absent as well, but a header without a value has misplaced quotes.
            elif each.value is not None or hidden:
                found[name] = self.value(inner[1], each, f"{path}[{at}]" if hidden else f"{path}.{name}")
        return found

    def _fail(self, message: str, node: Node) -> None:
        self.mistakes.append(DocumentError(message, node.line))


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, Field]:
    """By their names in a file, in declared order."""
    hints, found = get_type_hints(kind, include_extras=True), {}
    for info in msgspec.structs.fields(kind):
        hint = hints[info.name]
        base, written, meta, text = _parts(hint)
        default = info.default if info.default is not msgspec.NODEFAULT else None
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        kind_text = written.text if written else _kind_text(base, meta)
        found[info.encode_name] = Field(
            info.encode_name, info.name, info.required, default, kind_text, text, hint
        )
    return found


def struct_of(hint: Any) -> type[msgspec.Struct] | None:
    base = _parts(hint)[0]
    if get_origin(base) is tuple:
        base = _parts(get_args(base)[0])[0]
    return base if isinstance(base, type) and issubclass(base, msgspec.Struct) else None


def show(value: Any, hint: Any) -> Any:
    """As in a file, without the parts that are None."""
    base, kind, _, _ = _parts(hint)
    if kind is not None and kind.show is not None:
        return kind.show(value)
    if isinstance(value, msgspec.Struct):
        parts = ((field, getattr(value, field.attribute)) for field in fields_of(type(value)).values())
        return {field.name: show(each, field.hint) for field, each in parts if each is not None}
    if isinstance(value, dict):
        return {name: show(each, get_args(base)[1]) for name, each in value.items()}
    return [show(each, get_args(base)[0]) for each in value] if isinstance(value, tuple) else value


def describe(node: Node) -> str:
    if node.value is None:
        return "missing"
    if isinstance(node.value, (dict, list)):
        return "a list" if isinstance(node.value, list) else "a mapping"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return quote(node.value) if isinstance(node.value, str) else str(node.value)


def unknown(path: str, name: str, known: Iterable[str], line: int) -> DocumentError:
    where = f" in {path}" if path else ""
    # A bad guess helps more than none: no cutoff. The comparison's time is the square of the length.
    by_lower = {each.lower(): each for each in known}
    wanted = name[:QUOTE_LENGTH_MAX].lower()
    nearest = by_lower[difflib.get_close_matches(wanted, list(by_lower), n=1, cutoff=0.0)[0]]
    cure = f"did you mean {nearest}?"
    # Other tools accept such fields, for anchors.
    if name.startswith("x-"):
        cure = "fields of your own (x-…) are not taken, put the anchor where its value is used first"
    return DocumentError(f"unknown field {quote(name)}{where}: {cure}", line)


@cache
def _parts(hint: Any) -> tuple[Any, Kind | None, msgspec.Meta | None, str]:
    """The type without None, its kind, its bounds, its meaning."""
    notes: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            notes += more
        elif get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint):
            (hint,) = (each for each in get_args(hint) if each is not type(None))
        else:
            kinds = (each for each in notes if isinstance(each, Kind))
            bounds = (each for each in notes if isinstance(each, msgspec.Meta))
            texts = (each for each in notes if isinstance(each, str))
            return hint, next(kinds, None), next(bounds, None), next(texts, "")


def _kind_text(base: Any, meta: msgspec.Meta | None) -> str:
    if get_origin(base) is Literal:
        return " or ".join(map(str, get_args(base)))
    if get_origin(base) is tuple:
        inner, kind, bounds, _ = _parts(get_args(base)[0])
        most = f" of up to {meta.max_length}" if meta is not None else ""
        return f"a list{most}, each {kind.text if kind else _kind_text(inner, bounds)}"
    if base is int and meta is not None:
        return f"a whole number from {meta.ge} to {meta.le}"
    names = {bool: "true or false", int: "a whole number", str: "a word; put it in quotes"}
    return names.get(base, "a mapping")


def rule_error(node: Node, path: str, error: ValueError) -> DocumentError:
    """With the line of the field that the rule names."""
    for step in error.at if isinstance(error, RuleError) else ():
        found: Any = node.value
        if isinstance(step, int):
            node, path = found[step], f"{path}[{step}]"
        else:
            node, path = found.get(step) or node, f"{path}.{step}" if path else step
    return DocumentError(f"{path}: {error}" if path else str(error), node.line)


# --- Go's durations (``30s``, ``1m30s``, ``1.5h``) in integer nanoseconds

#: Go accepts both micro signs.
UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}

#: Go's int64 of nanoseconds, about 292 years.
DURATION_NS_MAX = 2**63 - 1

#: int() of a longer text would take long.
DURATION_LENGTH_MAX = 100

_TERM = re.compile(rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(UNITS_NS)})")
EXAMPLES = "write it like 30s, 1m30s or 500ms"


def parse_duration(text: str) -> int:
    """Nanoseconds. Raises ValueError with the right form."""
    if len(text) > DURATION_LENGTH_MAX:
        raise ValueError(f"a duration of {len(text)} characters: {EXAMPLES}")
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    terms = _TERM.findall(body)
    if not terms or "".join(number + unit for number, unit in terms) != body:
        missing = " has no unit" if body.isascii() and body.isdecimal() else " is not a duration"
        raise ValueError(f"{text!r}{missing}: {EXAMPLES}")
    total_ns = 0
    for number, unit in terms:
        # Like Go, cut each term's fraction.
        whole, _, fraction = number.partition(".")
        scale: int = 10 ** len(fraction)
        total_ns += int(whole or "0") * UNITS_NS[unit] + int(fraction or "0") * UNITS_NS[unit] // scale
    total_ns = -total_ns if text.startswith("-") else total_ns
    if not -DURATION_NS_MAX - 1 <= total_ns <= DURATION_NS_MAX:
        raise ValueError(f"duration {text!r} is out of range: at most about 292 years")
    return total_ns


def format_duration(duration_ns: int) -> str:
    """As Go prints it: ``0s``, ``1ms``, ``2s``, ``1m30s``, ``1h0m0.5s``."""
    sign, size_ns = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    for unit, digits in (("ms", 6), ("\u00b5s", 3), ("ns", 0)):
        if UNITS_NS[unit] <= size_ns < UNITS_NS["s"]:
            return sign + _decimal_text(*divmod(size_ns, UNITS_NS[unit]), digits) + unit
    seconds, rest_ns = divmod(size_ns, UNITS_NS["s"])
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    large = (f"{hours}h" if hours else "") + (f"{minute}m" if minutes else "")
    return f"{sign}{large}{_decimal_text(second, rest_ns, 9)}s"


def _decimal_text(whole: int, rest: int, digits: int) -> str:
    return f"{whole}.{rest:0{digits}d}".rstrip("0") if rest else str(whole)


INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
PORT_MAX = 2**16 - 1
#: PATH_MAX of Linux.
PATH_LENGTH_MAX = 4096

#: Pods and Nodes (RFC 1123).
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SUBDOMAIN_LENGTH_MAX = 253
#: Namespaces and containers.
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_LENGTH_MAX = 63


def is_node_name(name: str) -> bool:
    return len(name) <= SUBDOMAIN_LENGTH_MAX and DNS_SUBDOMAIN.fullmatch(name) is not None


def matching(pattern: re.Pattern[str], text: str) -> Kind:
    def parse(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError
        return value

    return Kind(text, parse)


def duration(least_ns: int, most_ns: int, *, whole: bool = False) -> Kind:
    """``whole``: only whole seconds."""
    bounds = f"{'whole seconds, ' if whole else ''}from {format_duration(least_ns)} to "
    bounds += format_duration(most_ns) if most_ns < DURATION_NS_MAX else "292 years"

    def parse(value: str) -> int:
        duration_ns = _nanoseconds(value)
        if not least_ns <= duration_ns <= most_ns or (whole and duration_ns % NS_PER_SECOND):
            raise ValueError
        return duration_ns

    return Kind(f"a duration such as 30s or 1m30s, {bounds}", parse, format_duration)


def _nanoseconds(value: str) -> int:
    try:
        return parse_duration(value)
    except ValueError:
        raise ValueError from None


def absolute_path(value: str) -> str:
    if not value.startswith("/") or len(value) > PATH_LENGTH_MAX:
        raise ValueError
    return value


def _drop_in_folder(value: str) -> str:
    """One spelling of each folder."""
    from ebbtide.actors.edges.logind_reading import DROP_IN_FOLDERS  # late: it imports the whole edge

    folder = os.path.normpath(absolute_path(value)).replace("//", "/")
    if folder not in DROP_IN_FOLDERS:
        raise ValueError(f"logind reads only {', '.join(DROP_IN_FOLDERS)}")
    return folder


def node_name(value: str) -> str:
    if not is_node_name(value):
        raise ValueError
    return value


def _listen_address(value: str) -> str:
    """No names: a lookup may need a network."""
    import ipaddress  # late: few configurations need it

    host, _, port = value.rpartition(":")
    if not value:
        return value
    try:
        version = ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        raise ValueError from None
    # Without brackets an IPv6 address ends like a port.
    bracketed = host[:1] + host[-1:] == "[]"
    if (version == 6) != bracketed or not re.fullmatch("[0-9]{1,5}", port) or int(port) > PORT_MAX:
        raise ValueError
    return value


def checked(check: Callable[[str], str], text: str) -> Kind:
    """For values with a password: no message repeats it."""
    return Kind(text, check, secret=True)


#: The kubelet's own rules refuse negative ones.
ANY_DURATION = Kind("a duration such as 30s or 1m30s", _nanoseconds, format_duration)
PATH = Kind("an absolute path", absolute_path)
DROP_IN_FOLDER = Kind("one of logind's folders, an absolute path", _drop_in_folder)
NODE_NAME = Kind("a Node's name in the API: lower-case letters, digits, '-' and '.', in quotes", node_name)
LISTEN_ADDRESS = Kind("an address and a port (127.0.0.1:9464, [::1]:9464), or empty", _listen_address)
