"""The options and the plan of the data source for Spark (`pyspark_ebbtide`), without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated

import msgspec

from ebbtide.fleet.fleet_plan import Ref, bins, journals
from ebbtide.fleet.fleet_rows import EVERY_TABLE, LEDGERS

MIB = 1 << 20
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Options(msgspec.Struct, frozen=True, rename="camel"):
    """``path`` is the argument of ``load``. ``partition_…``: the limits of a task."""

    path: str = ""
    table: str = LEDGERS["shutdown"]
    #: Spark repeats a lost task: a task is a second or two of work.
    partition_journals: AtLeastOne = 200
    partition_mib: AtLeastOne = msgspec.field(default=64, name="partitionMiB")
    pushdown: bool = False


def options_of(given: Mapping[str, str]) -> Options:
    """Raises ValueError. Spark writes the names of options in lower case."""
    named = {_known("option", name, Options.__struct_encode_fields__): text for name, text in given.items()}
    if "table" in named:
        named["table"] = _known("table", named["table"], EVERY_TABLE)
    return msgspec.convert(named, Options, strict=False)


def _known(kind: str, name: str, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    if name.lower() not in by_lower:
        (near,) = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.0)
        raise ValueError(f"the data source ebbtide has no {kind} {name!r}: did you mean {by_lower[near]}?")
    return by_lower[name.lower()]


def parts(options: Options, nodes: Collection[str] | None = None, since_ns: int = 0) -> list[list[Ref]]:
    """The journals of each task, planned by names alone. Leaves out other journals than those of ``nodes``,
    and journals that were last written before ``since_ns``.
    """

    def may_hold_rows(ref: Ref) -> bool:
        named = {key.node if (key := ref.key(file)) else "" for file in ref.files}
        # A folder without a node's name may be any node's, copied at any time.
        if "" in named:
            return True
        since = max(file.modified_ns for file in ref.files) >= since_ns
        return since and (nodes is None or not named.isdisjoint(nodes))

    refs = [ref for ref in journals(options.path) if may_hold_rows(ref)]
    return bins(refs, options.partition_mib * MIB, options.partition_journals)
