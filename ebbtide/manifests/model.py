"""What is read from a Pod object: the core's view, the process edge's view, and what to tell people."""

from __future__ import annotations

import msgspec

from actors.edges.process.spec import ProcessSpec
from ebbtide.config.documents import Node
from ebbtide.config.scalars import DocumentError
from events.model import Pod


class ManifestError(ValueError):
    """A manifest cannot be used. One line: where, what, and how to put it right."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pod, as the core, the process edge and people see it.

    ``source`` says where it stands. ``finished``: its status says that it has ended already, so it takes no
    part in a plan. ``notes`` are (code, message) for ``plan``. ``obstacles`` are reasons why it cannot run
    as local processes; a plan does not mind them.
    """

    pod: Pod
    spec: ProcessSpec
    source: str
    finished: bool = False
    notes: tuple[tuple[str, str], ...] = ()
    obstacles: tuple[str, ...] = ()


class Fields:
    """A mapping that knows its path, for messages, and which fields nobody has asked for is fine.

    Kubernetes objects have hundreds of fields that are nothing to us, so unknown ones are passed over. A
    field that says nothing counts as absent, as it does for the API server.
    """

    def __init__(self, node: Node, path: str) -> None:
        if not isinstance(node.value, dict):
            raise DocumentError(f"{path or 'the document'} must be a mapping", node.line)
        self.path = path
        self.line = node.line
        self._fields = node.value

    def get(self, name: str) -> Node | None:
        node = self._fields.get(name)
        return None if node is None or node.value is None else node

    def need(self, name: str) -> Node:
        node = self.get(name)
        if node is None:
            raise DocumentError(f"{self.at(name)} is missing: write it", self.line)
        return node

    def child(self, name: str) -> Fields | None:
        node = self.get(name)
        return None if node is None else Fields(node, self.at(name))

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name
