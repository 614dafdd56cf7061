"""A field that is a mapping with fields of its own: one table says how each is read and shown.

The same rules hold in it as in the document: an unknown name is an error that names the nearest one, and a
field without a value counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ebbtide.config import readers
from ebbtide.config.documents import Node


class Inner(NamedTuple):
    """One field of a section: its name in the section's Struct, and its way in and out."""

    attribute: str
    read: Callable[[Node, str], Any]
    show: Callable[[Any], Any] = readers.show_plain


def read_section(node: Node, path: str, fields: Mapping[str, Inner]) -> dict[str, Any]:
    """What the section says, by attribute. Raises DocumentError."""
    values: dict[str, Any] = {}
    for name, value in readers.mapping(node, path).items():
        if name not in fields:
            raise readers.unknown(path, name, fields, value.line)
        if value.value is not None:
            values[fields[name].attribute] = fields[name].read(value, f"{path}.{name}")
    return {attribute: value for attribute, value in values.items() if value is not None}


def show_section(said: Mapping[str, Any], fields: Mapping[str, Inner]) -> dict[str, Any]:
    """``said``: values by attribute. One that is None is left out: it can be read again only so."""
    found = ((name, field, said.get(field.attribute)) for name, field in fields.items())
    return {name: field.show(value) for name, field, value in found if value is not None}
