"""A value of any event's type with something in each field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import inspect

#: In the lists of a list's items.
FEW = 2


def filled(kind: Any, text: Callable[[str], str], count: int = FEW, at: str = "") -> Any:
    """With so many items in each outer list. ``text`` gets the place of a text."""

    def inner(other: Any, place: str = at, of: int = count) -> Any:
        return filled(other, text, of, place)

    match kind:
        case inspect.StrType():
            return text(at)
        case inspect.Metadata(found):
            return inner(found)
        case inspect.LiteralType(values):
            return values[-1]
        case inspect.StructType(cls, fields=fields):
            return cls(**{each.name: inner(each.type, f"{cls.__name__}.{each.name}") for each in fields})
        case inspect.VarTupleType(item):
            return (inner(item, at, FEW), *(inner(item, f"{at}2", FEW),) * (count - 1))
        case inspect.TupleType(items):
            return tuple(inner(item, f"{at}{number}") for number, item in enumerate(items))
        case inspect.DictType(key, value):
            # Keys of many items have to differ.
            keys = [inner(key)] if count == FEW else [f"{number:06d}" for number in range(count)]
            return dict.fromkeys(keys, inner(value, at, FEW))
        case inspect.UnionType(types):
            return inner(types[0] if types[0] != inspect.NoneType() else types[1])
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.BytesType():
            return b"12345678"
        case inspect.NoneType():
            return None
    raise NotImplementedError(f"say how to fill a {kind}")
