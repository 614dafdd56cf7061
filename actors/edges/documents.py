"""Bounded YAML and JSON: trees of plain values with line numbers, or one clear error.

An alias counts with all its nodes, and a cycle is refused. Nodes are built on an own stack: deep nesting
cannot exhaust the interpreter's.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import yaml

from ebbtide.events.units import size_text

# Scalars as Kubernetes' tools read them (YAML 1.1 without base-60 numbers and dates): other rules ("on" as a
# word) would accept files that the API server refuses. They make JSON first, so 1.0 and 1E3 are whole.


Scalar: TypeAlias = "str | int | float | bool | None"

#: In a message.
QUOTE_LENGTH_MAX = 60

#: int() on a long text is quadratic.
DIGITS_MAX = 40

_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON")
_FALSE = ("false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF")
#: Go writes larger floats with an exponent, and reads no whole number from it.
_WHOLE_BELOW = 1e21
_SCALARS_BY_TEXT: dict[str, Scalar] = {
    **dict.fromkeys(_NULL, None),
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
}

_INTS = tuple(
    (re.compile(rf"[-+]?{pattern}"), base)
    for pattern, base in (
        (r"0b(?P<digits>_*[01][01_]*)", 2),
        (r"0x(?P<digits>_*[0-9a-fA-F][0-9a-fA-F_]*)", 16),
        (r"0o?(?P<digits>_*[0-7][0-7_]*)", 8),
        (r"(?P<digits>0|[1-9][0-9_]*)", 10),
    )
)
_FLOAT = re.compile(
    r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)

_BINARY = "tag:yaml.org,2002:binary"
_TYPES_BY_TAG: dict[str, type | tuple[type, ...]] = {
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": (int, float),
    "tag:yaml.org,2002:bool": bool,
    "tag:yaml.org,2002:null": type(None),
}


class DocumentError(ValueError):
    """``message`` is one line with the cure, ``line`` 0 if unknown."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = one_line(message)
        self.line = line


class Unsupported(DocumentError):
    """Other readers may accept this text."""


def one_line(text: str) -> str:
    """Without line breaks and control characters."""
    joined = " ".join(text.split())
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in joined)


def quote(text: str) -> str:
    """A file's text for a message: shortened and harmless."""
    cut = text if len(text) <= QUOTE_LENGTH_MAX else text[: QUOTE_LENGTH_MAX - 1] + "…"
    return one_line(repr(cut))


def resolve_scalar(text: str, tag: str | None, plain: bool, line: int) -> Scalar:
    """``plain``: without quotes and tag. Raises DocumentError, also for !!binary."""
    if tag == _BINARY:
        raise Unsupported("!!binary is not read here: write the text", line)
    # For Kubernetes' tools a value with any other tag is text.
    if tag not in (None, *_TYPES_BY_TAG) or (tag is None and not plain):
        return text
    value = _plain_scalar(text, line)
    if tag is not None and not isinstance(value, _TYPES_BY_TAG[tag]):
        raise DocumentError(f"a value does not fit its tag {quote(tag)}: leave the tag out", line)
    return value


def _plain_scalar(text: str, line: int) -> Scalar:
    if text in _SCALARS_BY_TEXT:
        return _SCALARS_BY_TEXT[text]
    # Most words are no numbers: avoid five patterns.
    if text[0] not in "+-.0123456789":
        return text
    for pattern, base in _INTS:
        if match := pattern.fullmatch(text):
            digits = match["digits"]
            if len(digits) > DIGITS_MAX:
                raise Unsupported(f"a number of {len(digits)} digits: it is out of range", line)
            size = int(digits.replace("_", ""), base)
            return -size if text.startswith("-") else size
    if not _FLOAT.fullmatch(text):
        return text
    number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    return int(number) if number.is_integer() and abs(number) < _WHOLE_BELOW else number


#: Deeper than any Kubernetes object, aliases included; shallow enough for recursive walks.
DEPTH_MAX = 64

#: Aliases expanded: four times a list of 1 000 ordinary pods, 100 MiB.
NODES_MAX = 400_000
#: Ten times a pod with 128 containers, 12 MiB.
OBJECT_NODES_MAX = 50_000

_BEGIN = re.compile(r"(?m)^(?=---)")
#: Charts and Ansible use these.
_TEMPLATE = re.compile(r"\{[{%]")
TEMPLATE_CURE = "render a template first (helm template)"

#: Usually at most one; the parser compares each with all before it.
DIRECTIVES_MAX = 8
_LINE_ENDS = "\n\r\x85\u2028\u2029"

#: libyaml is 20 times as fast, with the same events.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Tree: TypeAlias = "dict[str, Node] | list[Node] | str | int | float | bool | None"


#: From a line in the text, counted from 0, to the line in the file.
LineOf: TypeAlias = Callable[[int], int]


class Node(msgspec.Struct, frozen=True, gc=False):
    """``line``: for a mapping's value, its key's line. 0: not known."""

    value: Tree
    line: int = 0

    @property
    def fields(self) -> dict[str, Node]:
        return self.value if isinstance(self.value, dict) else {}

    def get(self, name: str) -> Node:
        """A mapping's field, or a node without a value."""
        return self.fields.get(name) or Node(None, self.line)


class _Open(msgspec.Struct, gc=False):
    line: int
    anchor: str | None
    mapping: bool
    size: int = 1
    depth: int = 1
    key: str | None = None
    key_line: int = 0
    items: dict[str, Node] = {}
    values: list[Node] = []
    merged: list[Node] = []


class _Anchored(msgspec.Struct, gc=False):
    node: Node
    size: int
    depth: int


def read_file(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """A regular file; ``bytes_max`` + 1 bytes of a longer one. Raises OSError, ValueError."""
    # Opening a FIFO waits for its writer, and a device may never end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        data = b""
        while more := file.read(bytes_max + 1 - len(data)):
            data += more
        return data


#: A file could have a hundred thousand.
REPEATED_MAX = 20
#: Takes a mistake for each repeated field (the last counts). None: refuse the text.
Repeated: TypeAlias = "list[DocumentError] | None"


def parse_text(
    text: str, nodes_max: int = NODES_MAX, repeated: Repeated = None, wrong: Repeated = None
) -> list[Node]:
    """The documents that are not empty. ``wrong`` takes mistakes of documents that are no YAML; None: refuse
    the text. Raises DocumentError.
    """
    # JSON is fast, but its reader does not count values, so a text with many goes to the other.
    if looks_like_json(text) and sum(map(text.count, ",[{")) < nodes_max:
        with suppress(DocumentError):
            return parse_json(text, repeated)
    if wrong is None:
        return parse_yaml(text, nodes_max, repeated)
    before = len(repeated or ())
    with suppress(DocumentError):
        return parse_yaml(text, nodes_max, repeated)
    if repeated is not None:
        # The other reader names them again.
        del repeated[before:]
    # As for kubectl, a line with --- always begins a document.
    builder, found, first = _YamlBuilder(nodes_max, repeated), list[Node](), 1
    for piece in _BEGIN.split(text):
        builder.line_of = first.__add__
        try:
            builder.add_documents(piece.replace("\ufeff", ""), found)
        except DocumentError as error:
            _repeat(wrong, error)
        first += piece.count("\n")
    return found


def _repeat(repeated: Repeated, error: DocumentError) -> None:
    if repeated is None:
        raise error
    if len(repeated) < REPEATED_MAX:
        repeated.append(error)


def object_of_file(path: Path, bytes_max: int) -> Any:
    """The first document; None for an empty file. Raises OSError, ValueError."""
    return object_of_text(decode_text(read_file(path, bytes_max), bytes_max))


def object_of_text(text: str) -> Any:
    """For files of the kubelet and kubectl: the last of a repeated field counts. Raises DocumentError."""
    documents = parse_text(text, OBJECT_NODES_MAX, [])
    return plain_value(documents[0]) if documents else None


def plain_value(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {name: plain_value(each) for name, each in node.value.items()}
    return [plain_value(each) for each in node.value] if isinstance(node.value, list) else node.value


def parse_yaml(
    text: str,
    nodes_max: int = NODES_MAX,
    repeated: Repeated = None,
    found: list[Node] | None = None,
    line_of: LineOf = lambda line: line + 1,
) -> list[Node]:
    """The documents that are not empty; ``found`` takes those before a mistake. Raises DocumentError."""
    found = [] if found is None else found
    _YamlBuilder(nodes_max, repeated, line_of).add_documents(text, found)
    return found


def decode_text(raw: bytes, bytes_max: int) -> str:
    """UTF-8, with or without a byte order mark; UTF-16 with one (PowerShell). Raises DocumentError."""
    if len(raw) > bytes_max:
        raise Unsupported(f"larger than {size_text(bytes_max)}: split it into several files", 0)
    try:
        utf_16 = raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        return raw.decode("utf-16" if utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DocumentError("not UTF-8 text: save it as UTF-8", line) from error


class _YamlBuilder:
    """One for each text."""

    def __init__(self, nodes_max: int, repeated: Repeated, line_of: LineOf = lambda line: line + 1) -> None:
        self._repeated, self.line_of = repeated, line_of
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._nodes = 0
        self._nodes_max = nodes_max
        self._root: Node | None = None

    def add_documents(self, text: str, found: list[Node]) -> None:
        if text.startswith("%") + sum(text.count(f"{end}%") for end in _LINE_ENDS) > DIRECTIVES_MAX:
            raise Unsupported(f"more than {DIRECTIVES_MAX} lines begin with %: leave the directives out", 0)
        self._stack, self._anchors, self._root = [], {}, None
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.AliasEvent: self._alias,
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: lambda event: self._begin(event, True),
            yaml.SequenceStartEvent: lambda event: self._begin(event, False),
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
        }
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                if type(event) is yaml.DocumentEndEvent:
                    if self._root is not None and self._root.value is not None:
                        found.append(self._root)
                    self._anchors, self._root = {}, None
                elif handler := handlers.get(type(event)):
                    handler(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            # The parser counts the end of a text as one line more.
            line = min(mark.line, text.rstrip("\n").count("\n")) if mark else 0
            first, line = text.split("\n")[line], self.line_of(line)
            # Also after a list's dash.
            if "\t" in first[: len(first) - len(first.lstrip(" \t-"))]:
                raise DocumentError(
                    "indented with a tab: YAML takes blanks only, write blanks", line
                ) from error
            if _TEMPLATE.search(first):
                raise DocumentError(f"not YAML: {TEMPLATE_CURE}", line) from error
            raise DocumentError(f"not YAML: {error.problem or error.context}", line) from error
        except yaml.reader.ReaderError as error:
            line = self.line_of(text.encode()[: error.position].count(b"\n"))
            raise DocumentError(f"not text: {error.reason}: save it as UTF-8", line) from error

    def _alias(self, event: Any) -> None:
        # The shared tree counts each time: ten lines of nested aliases could mean a billion nodes.
        line, name = self.line_of(event.start_mark.line), event.anchor
        if name not in self._anchors:
            raise DocumentError(f"the alias {quote('*' + name)} has no anchor", line)
        anchored = self._anchors[name]
        if anchored is None:
            raise DocumentError(f"the alias {quote('*' + name)} contains itself", line)
        if len(self._stack) + anchored.depth > DEPTH_MAX:
            raise Unsupported(f"nested more than {DEPTH_MAX} deep, aliases included", line)
        self._place(Node(anchored.node.value, line), anchored.size, anchored.depth)

    def _scalar(self, event: Any) -> None:
        line = self.line_of(event.start_mark.line)
        top = self._stack[-1] if self._stack else None
        if top is not None and top.mapping and top.key is None:
            self._anchor(event.anchor, Node(event.value, line), 1)
            self._count(1, line)
            # In quotes it is only a field's name.
            quoted = event.value == _MERGE and not event.implicit[0]
            top.key, top.key_line = "\0" + _MERGE if quoted else str(event.value), line
            return
        node = Node(resolve_scalar(event.value, event.tag, event.implicit[0], line), line)
        self._anchor(event.anchor, node, 1)
        self._place(node, 1, 0)

    def _begin(self, event: Any, mapping: bool) -> None:
        line = self.line_of(event.start_mark.line)
        if len(self._stack) >= DEPTH_MAX:
            raise Unsupported(f"nested more than {DEPTH_MAX} deep", line)
        # None until its end: an alias to it would be inside.
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(line=line, anchor=event.anchor, mapping=mapping))

    def _end(self, event: Any) -> None:
        done = self._stack.pop()
        # The mapping's own fields win over merged ones, and earlier merges over later ones.
        fields = done.items
        for taken in done.merged:
            for source in taken.value if isinstance(taken.value, list) else [taken]:
                if not isinstance(source.value, dict):
                    raise DocumentError("<< takes a mapping, or a list of mappings", done.line)
                # Copies would be quadratic.
                for name, each in source.value.items():
                    fields.setdefault(name, each)
        node = Node(fields if done.mapping else done.values, done.line)
        self._anchor(done.anchor, node, done.size, done.depth)
        self._place(node, done.size, done.depth, counted=done.size - 1)

    def _place(self, node: Node, size: int, depth: int, counted: int = 0) -> None:
        """``counted``: so many of its nodes were counted before."""
        self._count(size - counted, node.line)
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.size += size
        top.depth = max(top.depth, depth + 1)
        if not top.mapping:
            top.values.append(node)
        elif top.key is None:
            message = f"a field's name must be a word, not a list or a mapping; {TEMPLATE_CURE}"
            raise DocumentError(message, node.line)
        else:
            if top.key == _MERGE:
                top.merged.append(node)
            else:
                if top.key in top.items:
                    # The second would silently win.
                    first = top.items[top.key].line
                    message = f"{quote(top.key)} occurs twice, first on line {first}: keep one"
                    _repeat(self._repeated, DocumentError(message, top.key_line))
                top.items[top.key] = Node(node.value, top.key_line)
            top.key = None

    def _anchor(self, name: str | None, node: Node, size: int, depth: int = 0) -> None:
        if name is not None:
            self._anchors[name] = _Anchored(node, size, depth)

    def _count(self, more: int, line: int) -> None:
        self._nodes += more
        if self._nodes > self._nodes_max:
            raise Unsupported(f"more than {self._nodes_max} values, aliases included: split it", line)


#: It merges its value's fields into the mapping (YAML 1.1).
_MERGE = "<<"


# A fast reader for ``kubectl -o json``. It knows no lines: messages name the document by its number.


_SPACE = " \t\r\n"


def looks_like_json(text: str) -> bool:
    """YAML's flow style begins the same way."""
    return text.lstrip(_SPACE)[:1] in ("{", "[")


def parse_json(text: str, repeated: Repeated = None) -> list[Node]:
    """Raises DocumentError; the text may still be YAML."""
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=_json_int)
    documents, position, twice = [], _skip_space(text, 0), None if repeated is None else list[DocumentError]()
    while position < len(text):
        try:
            raw, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise DocumentError(f"not JSON: {error.msg}", error.lineno) from error
        except RecursionError as error:
            raise Unsupported(f"nested more than {DEPTH_MAX} deep", 0) from error
        documents.append(_json_node(raw, twice))
        position = _skip_space(text, end)
    if repeated is not None:
        repeated += twice or ()
    return [document for document in documents if document.value is not None]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object before its names are checked."""


def _json_node(raw: Any, repeated: Repeated, depth: int = 0) -> Node:
    if depth >= DEPTH_MAX and isinstance(raw, list):
        raise Unsupported(f"nested more than {DEPTH_MAX} deep", 0)
    if isinstance(raw, _Pairs):
        fields: dict[str, Node] = {}
        for key, value in raw:
            if key in fields:
                _repeat(repeated, DocumentError(f"{quote(key)} occurs twice in one object: keep one", 0))
            fields[_json_text(key)] = _json_node(value, repeated, depth + 1)
        return Node(fields)
    if isinstance(raw, list):
        return Node([_json_node(each, repeated, depth + 1) for each in raw])
    return Node(_json_text(raw) if isinstance(raw, str) else raw)


def _json_text(text: str) -> str:
    """Refuses half a surrogate pair: UTF-8 cannot spell it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unsupported(f"{quote(text)} holds half a character: write it whole", 0) from error
    return text


def _json_int(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise Unsupported(f"a number of {len(text)} digits: it is out of range", 0)
    return int(text)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position
