"""Bounded YAML and JSON: text in, trees of plain values with line numbers out, or one clear error.

Files come from people and from clusters, so nothing in them may cost more than its size: the bytes, the
nesting and the number of nodes have limits, an alias counts with everything it stands for, and what refers
to itself is refused. Nodes are built from parser events on a stack of our own, so deep nesting cannot
exhaust the interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import yaml

from ebbtide.config.scalars import DocumentError, quote, resolve

#: Deeper than any Kubernetes object; shallow enough that walking a tree may recurse.
DEPTH_MAX = 64

#: Nodes in one text, aliases expanded: ten times what a list of 1 000 ordinary pods has.
NODES_MAX = 1_000_000

#: libyaml where PyYAML was built with it: 20 times as fast, and the same events.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: The only tags in use; an object of some programming language is not a configuration.
_COLLECTION_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

Tree: TypeAlias = "dict[str, Node] | list[Node] | str | int | float | bool | None"


class Node(msgspec.Struct, frozen=True, gc=False):
    """A value and the line where it stands; for a mapping's value, the line of its key. 0: not known."""

    value: Tree
    line: int = 0


class _Open(msgspec.Struct, gc=False):
    """A collection that has begun and not ended."""

    line: int
    anchor: str | None
    mapping: bool
    size: int = 1
    key: str | None = None
    key_line: int = 0
    items: dict[str, Node] = {}
    values: list[Node] = []
    merged: list[Node] = []


class _Anchored(msgspec.Struct, gc=False):
    node: Node
    size: int


def parse_yaml(text: str) -> list[Node]:
    """The documents of a YAML text, empty ones left out. Raises DocumentError."""
    try:
        return [document for document in _Builder().documents(text) if document.value is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # The end of a text without a last line break counts as a line more.
        line = min(mark.line + 1, text.count("\n") + 1) if mark else 0
        raise DocumentError(f"not YAML: {error.problem or error.context}", line) from error
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise DocumentError(f"not text: {error.reason}", line) from error


def decode(raw: bytes, bytes_max: int) -> str:
    """UTF-8 text, with or without a byte order mark. Raises DocumentError when too long or not text."""
    if len(raw) > bytes_max:
        raise DocumentError(f"larger than {bytes_max} bytes: split it into several files", 0)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DocumentError("not UTF-8 text: save it as UTF-8", line) from error


class _Builder:
    """Turns parser events into nodes. One a text."""

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._nodes = 0
        self._root: Node | None = None

    def documents(self, text: str) -> Iterator[Node]:
        handlers: dict[type, Callable[[Any], None]] = {
            yaml.AliasEvent: self._alias,
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: lambda event: self._begin(event, True),
            yaml.SequenceStartEvent: lambda event: self._begin(event, False),
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
        }
        for event in yaml.parse(text, Loader=_LOADER):
            if type(event) is yaml.DocumentEndEvent:
                yield self._root or Node(None)
                self._anchors, self._root = {}, None
            elif handler := handlers.get(type(event)):
                handler(event)

    def _alias(self, event: Any) -> None:
        line, name = event.start_mark.line + 1, event.anchor
        if name not in self._anchors:
            raise DocumentError(f"the alias {quote('*' + name)} has no anchor", line)
        anchored = self._anchors[name]
        if anchored is None:
            raise DocumentError(f"the alias {quote('*' + name)} contains itself", line)
        self._place(Node(anchored.node.value, line), anchored.size)

    def _scalar(self, event: Any) -> None:
        line = event.start_mark.line + 1
        top = self._stack[-1] if self._stack else None
        if top is not None and top.mapping and top.key is None:
            self._anchor(event.anchor, Node(event.value, line), 1)
            self._count(1, line)
            top.key, top.key_line = _key(event), line
            return
        node = Node(resolve(event.value, event.tag, event.implicit[0], line), line)
        self._anchor(event.anchor, node, 1)
        self._place(node, 1)

    def _begin(self, event: Any, mapping: bool) -> None:
        line = event.start_mark.line + 1
        if event.tag not in _COLLECTION_TAGS:
            raise DocumentError(f"the tag {quote(event.tag)} is not used here: leave it out", line)
        if len(self._stack) >= DEPTH_MAX:
            raise DocumentError(f"nested more than {DEPTH_MAX} deep", line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(line=line, anchor=event.anchor, mapping=mapping))

    def _end(self, event: Any) -> None:
        done = self._stack.pop()
        node = Node(_with_merged(done) if done.mapping else done.values, done.line)
        self._anchor(done.anchor, node, done.size)
        self._place(node, done.size, counted=done.size - 1)

    def _place(self, node: Node, size: int, counted: int = 0) -> None:
        """Put a finished node where it belongs. ``counted`` of its nodes were counted before."""
        self._count(size - counted, node.line)
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.size += size
        if not top.mapping:
            top.values.append(node)
        elif top.key is None:
            raise DocumentError("a field's name must be a word, not a list or a mapping", node.line)
        else:
            _enter(top, top.key, node)
            top.key = None

    def _anchor(self, name: str | None, node: Node, size: int) -> None:
        if name is not None:
            self._anchors[name] = _Anchored(node, size)

    def _count(self, more: int, line: int) -> None:
        self._nodes += more
        if self._nodes > NODES_MAX:
            raise DocumentError(f"more than {NODES_MAX} values, aliases included: split it", line)


#: What a plain ``<<`` becomes: it takes the fields of what its value names (YAML 1.1).
_MERGE = "<<"


def _key(event: Any) -> str:
    """A name is text however it would resolve as a value; a quoted ``<<`` is an ordinary name."""
    if event.value == _MERGE and not event.implicit[0]:
        return "\0" + _MERGE
    return str(event.value)


def _enter(top: _Open, key: str, node: Node) -> None:
    if key == _MERGE:
        top.merged.append(node)
        return
    if key in top.items:
        first = top.items[key].line
        raise DocumentError(f"{quote(key)} stands twice, first on line {first}: keep one", top.key_line)
    top.items[key] = Node(node.value, top.key_line)


def _with_merged(done: _Open) -> dict[str, Node]:
    fields = dict(done.items)
    for node in done.merged:
        for source in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(source.value, dict):
                raise DocumentError("<< takes a mapping, or a list of mappings", done.line)
            fields = {**source.value, **fields}
    return fields
