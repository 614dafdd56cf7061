"""What the portable core says here, without an engine: what a cluster has to say as well."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import feather

from ebbtide import fleet


def table(url: str, name: str) -> pa.Table:
    # What is not whole is a row of the table ``journals``, which is compared too.
    with warnings.catch_warnings(action="ignore", category=fleet.NotWhole):
        batches = list(fleet.record_batches(fleet.journals(url), name))
    return pa.Table.from_batches(batches, fleet.schema(name))


def verb(url: str, name: str, **asked: Any) -> pa.Table:
    found = fleet.VERBS[name]
    return pa.Table.from_batches(list(fleet.map_journals(fleet.journals(url), found, **asked)), found.shape)


def stored(path: Path) -> pa.Table:
    """What a driver has written."""
    return feather.read_table(path)


def digest(rows: pa.Table | Iterable[tuple[Any, ...]]) -> str:
    """Of the rows in an order of their own: an engine has none."""
    if isinstance(rows, pa.Table):
        rows = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
