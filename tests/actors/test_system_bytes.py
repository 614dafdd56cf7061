"""The same facts give the same bytes in another process, under another hash seed (the one rule)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ebbtide.events.codec import encode_event
from tests.scripts.bench import logic_of
from tests.scripts.verbs import benches
from tests.waiting import WATCHDOG_SECONDS

SCRIPTS = Path(__file__).parent.parent / "scripts"
ROOT = SCRIPTS.parent.parent


def digest() -> str:
    """A hash over every record of every interaction script, as the journal would hold it."""
    total = hashlib.sha256()
    for path in sorted(SCRIPTS.glob("*.txt")):
        played = benches(path.read_text(), logic_of(path))
        for record in (record for bench in played for record in bench.records):
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
    return total.hexdigest()


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
