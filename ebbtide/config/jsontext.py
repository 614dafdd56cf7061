"""JSON as the same trees as YAML: what ``kubectl -o json`` prints is large, and this is fast.

A text may hold several objects one after another. Lines are not known here (0 in every node): a message
names the document by its number instead.
"""

from __future__ import annotations

import json
from typing import Any

from ebbtide.config.documents import DEPTH_MAX, NODES_MAX, Node
from ebbtide.config.scalars import DIGITS_MAX, DocumentError, quote

_SPACE = " \t\r\n"


def looks_like_json(text: str) -> bool:
    """Whether it is worth a try: YAML's flow style begins the same way."""
    return text.lstrip(_SPACE)[:1] in ("{", "[")


def parse_json(text: str) -> list[Node]:
    """The documents of a text. Raises DocumentError; one that is not JSON at all may still be YAML."""
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=_int)
    documents, position, builder = [], _skip(text, 0), _Builder()
    while position < len(text):
        try:
            raw, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise DocumentError(f"not JSON: {error.msg}", error.lineno) from error
        except RecursionError as error:
            raise DocumentError(f"nested more than {DEPTH_MAX} deep", 0) from error
        documents.append(builder.node(raw, 0))
        position = _skip(text, end)
    return [document for document in documents if document.value is not None]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object before its names are checked."""


class _Builder:
    def __init__(self) -> None:
        self._nodes = 0

    def node(self, raw: Any, depth: int) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise DocumentError(f"more than {NODES_MAX} values: split it", 0)
        if depth >= DEPTH_MAX and isinstance(raw, list):
            raise DocumentError(f"nested more than {DEPTH_MAX} deep", 0)
        if isinstance(raw, _Pairs):
            return Node(self._fields(raw, depth))
        if isinstance(raw, list):
            return Node([self.node(each, depth + 1) for each in raw])
        return Node(_text(raw) if isinstance(raw, str) else raw)

    def _fields(self, pairs: _Pairs, depth: int) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        for key, raw in pairs:
            if key in fields:
                raise DocumentError(f"{quote(key)} stands twice in one object: keep one", 0)
            fields[_text(key)] = self.node(raw, depth + 1)
        return fields


def _text(text: str) -> str:
    """Refuses half a surrogate pair, which JSON can spell and nothing can write down."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(f"{quote(text)} holds half a character: write it whole", 0) from error
    return text


def _int(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise DocumentError(f"a number of {len(text)} digits: it is out of range", 0)
    return int(text)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position
