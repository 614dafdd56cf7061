"""A container's environment and its ``$(VARIABLES)``, expanded as Kubernetes expands them.

``$(NAME)`` becomes the value of a variable that was defined before; an undefined one stays as written;
``$$`` is a dollar sign. Growth is bounded: variables that double each other would fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ebbtide.config import readers
from ebbtide.config.documents import Node
from ebbtide.config.scalars import DocumentError, quote
from ebbtide.manifests.model import Fields

#: Longest argument or variable that Linux takes (MAX_ARG_STRLEN).
WORD_BYTES_MAX = 131_072
#: Words of one command, and variables of one container.
WORDS_MAX = 4096

_REFERENCE = re.compile(r"\$(\$|\([^)]*\))")
_LABEL_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")

#: A pod's address: its processes are local.
LOOPBACK = "127.0.0.1"


def expand(text: str, variables: Mapping[str, str], path: str, line: int) -> str:
    """``text`` with its references replaced. Raises DocumentError when it grows beyond what Linux takes."""
    pieces, position, size = [], 0, 0
    for match in _REFERENCE.finditer(text):
        pieces += [text[position : match.start()], _replacement(match, variables)]
        size += len(pieces[-1]) + len(pieces[-2])
        position = match.end()
        if size > WORD_BYTES_MAX:
            break
    if size + len(text) - position >= WORD_BYTES_MAX:
        raise DocumentError(f"{path} is longer than {WORD_BYTES_MAX} bytes: shorten it", line)
    return "".join(pieces) + text[position:]


def words(node: Node | None, path: str) -> list[tuple[str, int]]:
    """A list of words with their lines; an absent one is empty."""
    if node is None:
        return []
    entries = readers.sequence(node, path, WORDS_MAX)
    return [(readers.secret(each, f"{path}[{index}]"), each.line) for index, each in enumerate(entries)]


def command(container: Fields, variables: Mapping[str, str]) -> tuple[str, ...]:
    """``command`` and ``args`` together, expanded. Empty: the image would have to say."""
    argv = []
    for name in ("command", "args"):
        path = container.at(name)
        argv += [expand(word, variables, path, line) for word, line in words(container.get(name), path)]
    return tuple(argv)


def environment(container: Fields, metadata: Fields, uid: str) -> tuple[dict[str, str], list[str]]:
    """The variables in their order, and why some of them cannot be known here."""
    variables: dict[str, str] = {}
    obstacles: list[str] = []
    node = container.get("env")
    for index, each in enumerate(readers.sequence(node, container.at("env"), WORDS_MAX) if node else ()):
        entry = Fields(each, f"{container.at('env')}[{index}]")
        _define(entry, metadata, uid, variables, obstacles)
    obstacles += _whole_sources(container)
    return variables, obstacles


def _define(
    entry: Fields, metadata: Fields, uid: str, variables: dict[str, str], obstacles: list[str]
) -> None:
    name_node = entry.need("name")
    name = readers.text(name_node, entry.at("name"))
    if not name or "=" in name or not name.isprintable():
        raise DocumentError(f"{entry.at('name')} is {quote(name)}: no variable is called so", name_node.line)
    origin = entry.child("valueFrom")
    if origin is None:
        node = entry.get("value")
        text = "" if node is None else readers.secret(node, entry.at("value"))
        variables[name] = expand(text, variables, entry.at("value"), entry.line)
        return
    value = _field_value(origin, metadata, uid)
    if value is not None:
        variables[name] = value
    elif not _optional(origin):
        obstacles.append(
            f"the variable {quote(name)} has a valueFrom that only a cluster knows: write a value"
        )


def _field_value(origin: Fields, metadata: Fields, uid: str) -> str | None:
    """The value of a fieldRef that can be known without a cluster."""
    reference = origin.child("fieldRef")
    if reference is None:
        return None
    path = readers.text(reference.need("fieldPath"), reference.at("fieldPath"))
    if path == "metadata.uid":
        return uid
    if path in ("status.podIP", "status.hostIP"):
        return LOOPBACK
    return _metadata_value(path, metadata)


def _metadata_value(path: str, metadata: Fields) -> str | None:
    if path == "metadata.namespace" and metadata.get("namespace") is None:
        return "default"
    if match := _LABEL_KEY.fullmatch(path):
        group = metadata.child(match[1])
        node = group.get(match[2]) if group else None
    else:
        node = metadata.get(path.removeprefix("metadata."))
    return node.value if node is not None and isinstance(node.value, str) else None


def _optional(origin: Fields) -> bool:
    """A reference that may lead nowhere leaves its variable undefined."""
    kinds = (origin.child(kind) for kind in ("secretKeyRef", "configMapKeyRef"))
    return any(kind is not None and _is_true(kind.get("optional")) for kind in kinds)


def _whole_sources(container: Fields) -> list[str]:
    node = container.get("envFrom")
    if node is None:
        return []
    for index, each in enumerate(readers.sequence(node, container.at("envFrom"), WORDS_MAX)):
        entry = Fields(each, f"{container.at('envFrom')}[{index}]")
        sources = [entry.child(kind) for kind in ("secretRef", "configMapRef")]
        if not any(source is not None and _is_true(source.get("optional")) for source in sources):
            return ["envFrom names what only a cluster knows: write the variables in env"]
    return []


def _is_true(node: Node | None) -> bool:
    return node is not None and node.value is True


def _replacement(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match[1] == "$":
        return "$"
    return variables.get(match[1][1:-1], match[0])
