"""A container's command and environment, as far as they can be known without a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ebbtide.config import readers
from ebbtide.config.documents import Node
from ebbtide.config.scalars import DocumentError, quote
from ebbtide.manifests.expansion import Expander
from ebbtide.manifests.model import Fields

#: Words of one command, and variables of one container.
WORDS_MAX = 4096

_LABEL_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")

#: A pod's address: its processes are local.
LOOPBACK = "127.0.0.1"


def words(node: Node | None, path: str) -> list[tuple[str, int]]:
    """A list of words with their lines; an absent one is empty."""
    if node is None:
        return []
    entries = readers.sequence(node, path, WORDS_MAX)
    return [(readers.secret(each, f"{path}[{index}]"), each.line) for index, each in enumerate(entries)]


def command(container: Fields, variables: Mapping[str, str], expander: Expander) -> tuple[str, ...]:
    """``command`` and ``args`` together, expanded. Empty: the image would have to say."""
    argv = []
    for name in ("command", "args"):
        path = container.at(name)
        found = words(container.get(name), path)
        argv += [expander.expand(word, variables, path, line) for word, line in found]
    return tuple(argv)


class Environment:
    """The variables of one container in their order; ``obstacles`` says which cannot be known, and why."""

    def __init__(self, metadata: Fields, uid: str, expander: Expander) -> None:
        self._metadata = metadata
        self._uid = uid
        self._expander = expander
        self.variables: dict[str, str] = {}
        self.obstacles: list[str] = []

    def read(self, container: Fields) -> None:
        """Raises DocumentError."""
        node, path = container.get("env"), container.at("env")
        for index, each in enumerate(readers.sequence(node, path, WORDS_MAX) if node else ()):
            self._define(Fields(each, f"{path}[{index}]"))
        self.obstacles += _whole_sources(container)

    def _define(self, entry: Fields) -> None:
        name, origin = _variable_name(entry), entry.child("valueFrom")
        value = self._written(entry) if origin is None else _field_value(origin, self._metadata, self._uid)
        if value is not None:
            self.variables[name] = value
        elif origin is not None and not _optional(origin):
            cure = "has a valueFrom that only a cluster knows: write a value"
            self.obstacles.append(f"the variable {quote(name)} {cure}")

    def _written(self, entry: Fields) -> str:
        node, path = entry.get("value"), entry.at("value")
        text = "" if node is None else readers.secret(node, path)
        return self._expander.expand(text, self.variables, path, entry.line)


def _variable_name(entry: Fields) -> str:
    node, path = entry.need("name"), entry.at("name")
    name = readers.text(node, path)
    if not name or "=" in name or not name.isprintable():
        raise DocumentError(f"{path} is {quote(name)}: no variable is called so", node.line)
    return name


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
