"""Structs from documents, by the declarations of their fields; and back, for ``config show``.

A field's type says what the field takes: `msgspec` checks plain types and their bounds (`msgspec.Meta`). A
`Kind` beside the type parses and prints values that need more, and a plain text beside it explains the field
in the reference. `read` reports all mistakes of a document at once, each with its line. A Struct that forbids
unknown fields refuses them with the nearest name; any other Struct passes over them.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from ebbtide.actors.edges.documents import QUOTE_LENGTH_MAX, DocumentError, Node, quote

S = TypeVar("S", bound=msgspec.Struct)


class Kind(NamedTuple):
    """How a value is written. ``text`` completes "it must be …" in messages and the reference.

    ``parse`` takes a text and raises ValueError, with a reason where ``text`` does not say enough. No message
    repeats a ``secret`` value; as a mapping's key, a secret kind hides the name as well.
    """

    text: str
    parse: Callable[[str], Any] | None = None
    show: Callable[[Any], Any] | None = None
    secret: bool = False


class Field(NamedTuple):
    """One field of a Struct. ``kind``: its type for people."""

    name: str
    attribute: str
    required: bool
    default: Any
    kind: str
    text: str
    hint: Any
    read: Reader


class RuleError(ValueError):
    """A rule over several fields is broken. ``at``: field names and list places, from the Struct on."""

    def __init__(self, message: str, *at: str | int) -> None:
        super().__init__(message)
        self.at = at


class DocumentErrors(DocumentError):
    """All mistakes of one document, in its order."""

    def __init__(self, found: Sequence[DocumentError]) -> None:
        super().__init__("; ".join(error.message for error in found), found[0].line)
        self.found = tuple(found)


#: Reads a node at a path. A mistake goes into the list, and the returned value is then useless.
Reader = Callable[[Node, str, list[DocumentError]], Any]


def read(node: Node, kind: type[S], path: str = "") -> S:
    """Raises DocumentErrors."""
    mistakes: list[DocumentError] = []
    value: S = _read_struct(kind, node, path, mistakes)
    if mistakes:
        raise DocumentErrors(mistakes)
    return value


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, Field]:
    """Every field by its name in a file, in the order of the declarations."""
    hints, found = get_type_hints(kind, include_extras=True), {}
    for info in msgspec.structs.fields(kind):
        hint = hints[info.name]
        base, written, meta, text = _parts(hint)
        default = info.default if info.default is not msgspec.NODEFAULT else None
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        kind_text = written.text if written else _kind_text(base, meta)
        found[info.encode_name] = Field(
            info.encode_name, info.name, info.required, default, kind_text, text, hint, _reader(hint)
        )
    return found


@cache
def _required(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name, field in fields_of(kind).items() if field.required)


def struct_of(hint: Any) -> type[msgspec.Struct] | None:
    """The Struct of a section, or of each entry of a list of sections."""
    base = _parts(hint)[0]
    if get_origin(base) is tuple:
        base = _parts(get_args(base)[0])[0]
    return base if isinstance(base, type) and issubclass(base, msgspec.Struct) else None


def show(value: Any, hint: Any) -> Any:
    """The value as it stands in a file. A part that is None is left out."""
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
    """The value, for a message."""
    if node.value is None:
        return "nothing"
    if isinstance(node.value, (dict, list)):
        return "a list" if isinstance(node.value, list) else "a mapping"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return quote(node.value) if isinstance(node.value, str) else str(node.value)


def unknown(path: str, name: str, known: Iterable[str], line: int) -> DocumentError:
    """The error for a name that is not among ``known``, with the nearest one."""
    where = f" in {path}" if path else ""
    # Without a cutoff: a bad guess helps more than no name. A long name is cut, because the comparison takes
    # the square of its length.
    by_lower = {each.lower(): each for each in known}
    wanted = name[:QUOTE_LENGTH_MAX].lower()
    nearest = by_lower[difflib.get_close_matches(wanted, list(by_lower), n=1, cutoff=0.0)[0]]
    cure = f"did you mean {nearest}?"
    # Other tools take such fields as a place for anchors.
    if name.startswith("x-"):
        cure = "fields of your own (x-…) are not taken, put the anchor where its value is used first"
    return DocumentError(f"unknown field {quote(name)}{where}: {cure}", line)


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
    """A plain type, for people."""
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


def _reader(hint: Any) -> Reader:
    base, kind, meta, _ = _parts(hint)
    arguments, most = get_args(base), meta.max_length if meta is not None else None
    if get_origin(base) is tuple:
        return partial(_read_list, _reader(arguments[0]), most)
    if get_origin(base) is dict:
        return partial(_read_dict, arguments[0], _reader(arguments[1]), most)
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        if kind is None:
            return partial(_read_struct, base)
        # A short form: a text in place of the mapping.
        long, short = partial(_read_struct, base), partial(_read_value, base, kind)
        return lambda node, path, mistakes: (long if isinstance(node.value, dict) else short)(
            node, path, mistakes
        )
    kind = kind or Kind(_kind_text(base, meta))
    return partial(_read_value, base if meta is None else Annotated[base, meta], kind)


def _read_value(base: Any, kind: Kind, node: Node, path: str, mistakes: list[DocumentError]) -> Any:
    try:
        if isinstance(node.value, str) and "\0" in node.value:
            raise ValueError("take out the NUL character")
        if kind.parse is None:
            return msgspec.convert(node.value, base)
        if isinstance(node.value, str):
            return kind.parse(node.value)
        reason = ""
    except ValueError as error:
        reason = "" if isinstance(error, msgspec.ValidationError) else str(error)
    if kind.secret:
        message = f"{path}: {reason}" if reason else f"{path} must be {kind.text}"
    else:
        message = f"{path} is {describe(node)}: {reason or f'it must be {kind.text}'}"
    mistakes.append(DocumentError(message, node.line))
    return None


def _read_list(
    read_each: Reader, most: int | None, node: Node, path: str, mistakes: list[DocumentError]
) -> tuple[Any, ...]:
    if not isinstance(node.value, list):
        mistakes.append(DocumentError(f"{path} is {describe(node)}: it must be a list", node.line))
    elif not _is_too_long(most, node, path, mistakes):
        return tuple(read_each(each, f"{path}[{at}]", mistakes) for at, each in enumerate(node.value))
    return ()


def _read_dict(
    keys: Any, read_each: Reader, most: int | None, node: Node, path: str, mistakes: list[DocumentError]
) -> dict[str, Any]:
    key_type, key_kind, _, _ = _parts(keys)
    known, found = get_args(key_type), {}
    hidden = key_kind is not None and key_kind.secret
    if not isinstance(node.value, dict):
        told = f"{path} must be" if hidden else f"{path} is {describe(node)}: it must be"
        mistakes.append(DocumentError(f"{told} a mapping", node.line))
    elif not _is_too_long(most, node, path, mistakes):
        for at, (name, each) in enumerate(node.value.items()):
            if known and name not in known:
                mistakes.append(unknown(path, name, known, each.line))
                continue
            if key_kind is not None and key_kind.parse is not None:
                _read_value(str, key_kind, Node(name, each.line), f"a name in {path}", mistakes)
            found[name] = read_each(each, f"{path}[{at}]" if hidden else f"{path}.{name}", mistakes)
    return found


def _is_too_long(most: int | None, node: Node, path: str, mistakes: list[DocumentError]) -> bool:
    size = len(node.value) if isinstance(node.value, (dict, list)) else 0
    if most is None or size <= most:
        return False
    mistakes.append(DocumentError(f"{path} has {size} entries: at most {most} can be used", node.line))
    return True


def _read_struct(kind: type[msgspec.Struct], node: Node, path: str, mistakes: list[DocumentError]) -> Any:
    where = path or "the document"
    if not isinstance(node.value, dict):
        mistakes.append(DocumentError(f"{where} is {describe(node)}: it must be a mapping", node.line))
        return None
    fields, values, before = fields_of(kind), dict[str, Any](), len(mistakes)
    for name, each in node.value.items():
        field = fields.get(name)
        # A field without a value counts as absent, as in Kubernetes.
        if field is not None and each.value is not None:
            values[field.attribute] = field.read(each, f"{path}.{name}" if path else name, mistakes)
        elif field is None and kind.__struct_config__.forbid_unknown_fields:
            mistakes.append(unknown(path, name, fields, each.line))
    for name in _required(kind):
        if fields[name].attribute not in values:
            mistakes.append(DocumentError(f"{where} needs {name}", node.line))
    if len(mistakes) > before:
        return None
    try:
        return kind(**values)
    except ValueError as error:
        # From the Struct's own __post_init__.
        mistakes.append(rule_error(node, path, error))
        return None


def rule_error(node: Node, path: str, error: ValueError) -> DocumentError:
    """A broken rule of the Struct at this path, with the line of the field that the rule names."""
    for step in error.at if isinstance(error, RuleError) else ():
        found: Any = node.value
        if isinstance(step, int):
            node, path = found[step], f"{path}[{step}]"
        else:
            node, path = found.get(step) or node, f"{path}.{step}" if path else step
    return DocumentError(f"{path}: {error}" if path else str(error), node.line)
