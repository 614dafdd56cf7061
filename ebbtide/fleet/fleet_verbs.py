"""A verb over all journals of a fleet: rows of Arrow, of which the last of each journal describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from ebbtide.events.base import episode_id
from ebbtide.events.codec import UnknownType
from ebbtide.events.record.episodes import headless_episode
from ebbtide.events.segment import LOGICS
from ebbtide.fleet.fleet_plan import Ref, location_of
from ebbtide.fleet.fleet_reading import Opened, open_journals
from ebbtide.fleet.fleet_rows import ROWS_MAX, TYPES, UNREAD, error_text
from ebbtide.fleet.fleet_stores import OF_THE_READER, StoreFailed
from ebbtide.replay.advise import Evidence
from ebbtide.replay.journal_library import Journal

_NS_PER_US = 1000
_TEXT, _INT, _BOOL = TYPES["text"], TYPES["int"], TYPES["bool"]


class Verb(NamedTuple):
    """``rows`` of one journal, the last one for the journal itself; ``shape``: their schema."""

    shape: pa.Schema
    rows: Callable[..., Iterator[dict[str, Any]]]


def map_journals(refs: Iterable[Ref], verb: Verb, **asked: Any) -> Iterator[pa.RecordBatch]:
    """``verb`` on every journal, in order. An unreadable journal is a row with ``error``."""
    kept: list[dict[str, Any]] = []
    for ref in refs:
        try:
            opened = list(open_journals(ref))
        except OF_THE_READER:
            raise
        except Exception as problem:
            key = ref.key(ref.files[0])
            named = {"node": key and key.node, "journal_id": key.journal if key else ref.id_begin}
            kept.append(named | {"location": location_of(ref), "state": UNREAD, "error": error_text(problem)})
            continue
        for each in opened:
            kept += _answers(each, verb, asked)
        if len(kept) >= ROWS_MAX:
            yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)
            kept = []
    if kept:
        yield pa.RecordBatch.from_pylist(kept, schema=verb.shape)


def _answers(opened: Opened, verb: Verb, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    head = {"cluster": opened.cluster, "node": opened.node, "journal_id": opened.id}
    head["location"] = opened.location
    rows: list[dict[str, Any]] = []
    if opened.sources:
        try:
            # One by one: rows before an error stay.
            for row in verb.rows(opened.journal(), **asked):
                rows.append(head | row)
        except OF_THE_READER:
            raise
        except Exception as problem:
            rows.append(head | {"state": UNREAD, "error": error_text(problem)})
    if opened.lies:
        of_journal = rows.pop() if rows else head
        said = filter(None, (of_journal.get("error"), *opened.lies))
        state = of_journal.get("state", "intact")
        state = "corrupt" if state in ("intact", "torn") else state
        rows.append(of_journal | {"state": state, "error": "; ".join(said), "identical": False})
    return rows


#: States of a shutdown that could not be decided again.
DIVERGED, NOT_ASKED = "diverged", "not-asked"


def _verify(journal: Journal) -> Iterator[dict[str, Any]]:
    # `replay.library` would load reports and the simulator into each process of a pool.
    from ebbtide.replay.verify import verify

    found = verify(journal.history(logics=LOGICS))
    state = found.verdict.state
    if isinstance(found.failure, UnknownType):
        state = "incompatible"
    elif found.failure is not None:
        state = "corrupt"
    silent = found.failure is not None or state != "intact"
    # Older segments may be removed: the journal is intact, but its first shutdown is not complete.
    begin = None
    if found.verdict.first_seq > 1:
        begin = headless_episode(journal.history(logics=LOGICS))
    yield {
        "identical": found.identical,
        "events": found.events,
        "state": state,
        "divergence": str(found.divergence) if found.divergence else None,
        "error": str(found.failure or found.verdict.banner) if silent else None,
        "headless": None if begin is None else episode_id(found.verdict.journal_id, begin),
    }


def _what_if(journal: Journal, *, settings: bytes) -> Iterator[dict[str, Any]]:
    """``settings``: `events.values.Settings` as MessagePack."""
    import msgspec

    from ebbtide.events.values import Settings
    from ebbtide.replay.advise import workload
    from ebbtide.replay.whatif.record import Changes, Diverged, WrongChange
    from ebbtide.replay.whatif.whatif_run import compare, what_if

    changes = Changes(settings=msgspec.msgpack.decode(settings, type=Settings))
    shutdowns = 0
    for shutdown in journal.shutdowns():
        shutdowns += 1
        node = shutdown.account.node
        started_us = shutdown.account.started_wall_ns // _NS_PER_US
        row = {"node": node, "shutdown": shutdown.id, "started": started_us}
        if shutdown.account.headless:
            yield row | {"state": NOT_ASKED, "error": "its begin is not on record"}
            continue
        try:
            history = journal.history(logics=LOGICS)
            found = compare(what_if(history, shutdown.account.first_seq, changes))
        except (*OF_THE_READER, StoreFailed):
            raise
        except Diverged as problem:
            yield row | {"state": DIVERGED, "error": f"this version decides otherwise: {problem}"}
            continue
        except WrongChange as problem:
            yield row | {"state": NOT_ASKED, "error": str(problem)}
            continue
        except Exception as problem:
            yield row | {"state": UNREAD, "error": error_text(problem)}
            continue
        changed = [
            {
                "workload": workload(side.pod.namespace, side.pod.name, node),
                "pod": f"{side.pod.namespace}/{side.pod.name}",
                "priority": side.pod.priority,
                "change": side.change,
            }
            for side in found.pods
            if side.change != "same"
        ]
        counts = {name: 0 for name, _ in _COUNTS} | {"pods": len(found.pods)}
        for each in changed:
            counts[str(each["change"]).replace("-", "_")] += 1
        yield row | counts | {"same": found.is_same, "changed": changed}
    verdict = journal.verdict
    said = None if verdict.state == "intact" else verdict.banner
    yield {"state": verdict.state, "shutdowns": shutdowns, "error": said}


_HEAD = [(name, _TEXT) for name in ("cluster", "node", "journal_id", "location", "state", "error")]
_COUNTS = [(name, _INT) for name in ("pods", "saved", "lost", "perhaps_saved", "perhaps_lost")]
_CHANGE = pa.struct([("workload", _TEXT), ("pod", _TEXT), ("priority", _INT), ("change", _TEXT)])
VERBS = {
    "verify": Verb(
        pa.schema(
            [*_HEAD, ("identical", _BOOL), ("events", _INT), ("divergence", _TEXT), ("headless", _TEXT)]
        ),
        _verify,
    ),
    # A row without a shutdown describes the journal.
    "what-if": Verb(
        pa.schema(
            [
                *_HEAD,
                *(("shutdown", _TEXT), ("started", TYPES["time"]), ("same", _BOOL)),
                *(*_COUNTS, ("changed", pa.list_(_CHANGE)), ("shutdowns", _INT)),
            ]
        ),
        _what_if,
    ),
}


# --- advice: what adds up -----------------------------------------------------------------------


def evidence_of(
    refs: Iterable[Ref], *, by_node: bool = False
) -> tuple[dict[str, Evidence], list[dict[str, Any]]]:
    """The evidence for an advice (`replay.advise.conclude`) by node, or of all as ""; and a row a journal.

    ``left_out`` of a row: shutdowns without their begin on record.
    """
    evidence: dict[str, Evidence] = {}
    asked = {"evidence": evidence, "by_node": by_node}
    rows = [row for batch in map_journals(refs, _ADD_UP, **asked) for row in batch.to_pylist()]
    return evidence, rows


def _add_up(journal: Journal, *, evidence: dict[str, Evidence], by_node: bool) -> Iterator[dict[str, Any]]:
    left_out = []
    for shutdown in journal.shutdown_records():
        evidence.setdefault(shutdown.node if by_node else "", Evidence()).add(shutdown)
        if shutdown.headless:
            left_out.append(shutdown.id)
    verdict = journal.verdict
    said = None if verdict.state == "intact" else verdict.banner
    yield {"state": verdict.state, "error": said, "left_out": left_out}


_ADD_UP = Verb(pa.schema([*_HEAD, ("left_out", pa.list_(_TEXT))]), _add_up)
