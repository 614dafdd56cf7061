"""Simulated nodes: their journals as written and as shipped."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ebbtide.cli.common.saving import write_journal
from ebbtide.events.catalog import DirectorySource, find_segments
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.segment import parse_header
from ebbtide.fleet.fleet_journals import Ref, journals
from ebbtide.fleet.fleet_rows import ALL_TABLES, table_batches
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, plan_of
from ebbtide.replay.tables import TABLES, TABLES_OF, Table
from ebbtide.shipping.shipping_destination import Store
from ebbtide.shipping.store_sink import cargo_of

#: A configuration with less time than these nodes had.
SHORT = """\
apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriodByPodPriority:
  - {priority: 0, shutdownGracePeriodSeconds: 10}
  - {priority: 10000, shutdownGracePeriodSeconds: 10}
  - {priority: 2000000000, shutdownGracePeriodSeconds: 5}
"""


def a_machine(seed: int, pods: int = 3, *, calm: bool = True) -> Machine:
    plan = plan_of(SimulationRequest(synthetic=pods, calm=calm), seed)
    return Machine(plan._replace(faults=plan.faults._replace(again_after_ns=None))).run()


def a_node(folder: Path, seed: int) -> Path:
    machine = a_machine(seed)
    write_journal(folder / machine.plan.node, machine.journal.files())
    return folder / machine.plan.node


def rows(url: str | Path, table: str) -> list[dict[str, Any]]:
    return every_row(journals(str(url)))[table]


def every_row(refs: list[Ref], *, settled: bool = False) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ALL_TABLES}
    for name, batch in table_batches(refs, settled=settled):
        found[name] += batch.to_pylist()
    return found


def shipped(node: Path, root: Path, cluster: str = "c", name: str | None = None) -> list[Path]:
    """A journal as a node ships it."""
    made = []
    for segment in sorted(node.iterdir()):
        data = segment.read_bytes()
        header, _ = parse_header(data)
        of = f"cluster={quote(cluster, '')}/node={quote(name or header.identity.node, '')}"
        folder = root / f"v1/{of}/journal={header.journal_id.hex()}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{segment.stem}-{sha256(data).hexdigest()}.ebj"
        path.write_bytes(data)
        made.append(path)
    return made


def shipped_redacted(node: Path, root: Path) -> list[Path]:
    made = []
    for segment in find_segments([DirectorySource(node)]):
        cargo = cargo_of(segment, Store(url="s3://journals", cluster="c", redact=True))
        path = root / cargo.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cargo.data)
        made.append(path)
    return made


def damage(node: Path) -> None:
    first = min(node.iterdir())
    data = first.read_bytes()
    first.write_bytes(data[:5000] + b"!" + data[5001:])


def tear(node: Path) -> None:
    last = max(node.iterdir())
    last.write_bytes(last.read_bytes()[:-10])


def failing_rows(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """This table's rows cannot be made for node-1."""

    def replaced(table: Table) -> Table:
        def failing(record: Any) -> Iterable[Any]:
            if record.node == "node-1":
                raise ZeroDivisionError("a new kind of row")
            return table.subjects(record)

        return table._replace(subjects=failing) if table.name == name else table

    monkeypatch.setitem(TABLES_OF, ShutdownRecord, tuple(map(replaced, TABLES)))
