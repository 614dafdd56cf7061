"""The same facts give the same bytes in another process, under another hash seed (the one rule)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ebbtide.events.base import Record
from ebbtide.events.codec import encode_event
from tests.scripts.bench import Bench, logic_of
from tests.scripts.parse import parse
from tests.scripts.verbs import run
from tests.waiting import WATCHDOG_SECONDS

SCRIPTS = Path(__file__).parent.parent / "scripts"
ROOT = SCRIPTS.parent.parent


def digest() -> str:
    """A hash over every record of every interaction script, as the journal would hold it."""
    total = hashlib.sha256()
    for path in sorted(SCRIPTS.glob("*.txt")):
        bench = Bench(logic_of(path))
        for block in parse(path.read_text()):
            for command in block.commands:
                if command.verb == "fresh":
                    _add(total, bench.records)
                run(bench, command)
        _add(total, bench.records)
    return total.hexdigest()


def _add(total: hashlib._Hash, records: list[Record]) -> None:
    for record in records:
        envelope = (
            record.seq,
            record.mono_ns,
            record.wall_ns,
            record.episode,
            record.cause,
            record.actor,
            record.last,
        )
        total.update(msgspec.msgpack.encode((*envelope, type(record.event).__name__)))
        total.update(encode_event(record.event))


def test_bytes_do_not_depend_on_the_process() -> None:
    there = subprocess.run(
        [sys.executable, "-c", "from tests.actors.test_system_bytes import digest; print(digest())"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "271828"},
        capture_output=True,
        text=True,
        check=True,
        timeout=WATCHDOG_SECONDS,
    )
    assert there.stdout.strip() == digest()
